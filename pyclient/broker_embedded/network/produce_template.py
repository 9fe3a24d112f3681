"""Fast path for Produce requests of one batch that differ from an earlier request only in that batch.

Between two such requests to a partition only the correlation id, the batch and its length differ; between two answers
that report no error the correlation id and three numbers. (docs/measurements.md, "Produce requests of one batch".)
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.handlers.produce import is_closed, is_transactional, refusal, written
from pyclient.broker_embedded.log.log_validator import TooLongForLoop
from pyclient.errors import ProtocolError
from pyclient.protocol.codec import encode_parts
from pyclient.protocol.framing import encode_response
from pyclient.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from pyclient.varint import decode_uvarint

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.unified_log import UnifiedLog
    from pyclient.broker_embedded.services import BrokerServices
    from pyclient.protocol.fields import Part
    from pyclient.protocol.framing import RequestHeader

_MARK: Final = b"?"
_LENGTH: Final = Struct(">i")
_NUMBERS: Final = Struct(">qqq")  # base offset, time of the append, start of the log
_MARKS: Final = (0x5A5A5A5A5A5A5A5A, -1, 0x5B5B5B5B5B5B5B5B)
_SINCE: Final = 7  # first version whose answer has the log start offset and whose batches may use any codec
_ID_AT: Final = 4  # position of the correlation id, after API key and version
_ID_END: Final = 8
_MOST_KEPT: Final = 1000  # per connection
_LONGEST_FRONT: Final = 1000  # bytes: a longer one, with a long client id, is not kept
_PATIENCE: Final = 16  # requests with a front of another length after which the kept ones are dropped


class ProduceTemplate:
    """Templates of the requests and error-free answers of one partition and client id, in one version.

    Both are cut out of an encoded sample, so that the messages are described only by the codec.
    """

    __slots__ = (
        "_after", "_answer", "_before", "_compact", "_epoch", "_length", "_log", "_name", "_seen", "_tail",
        "_topic_id", "_version", "front", "index",
    )  # fmt: skip

    def __init__(self, frame: memoryview, header: RequestHeader, request: ProduceRequest) -> None:
        topic = request.topic_data[0]
        self._name, self._topic_id = (
            topic.name,
            topic.topic_id,
        )  # not the request itself, which would keep the batch alive
        self._version = version = header.api_version
        self.index = topic.partition_data[0].index
        head, _, *tail = encode_parts(_with_records(request, _MARK), version)
        self._compact = version >= (ProduceRequest.flexible or 0)
        self.front = frame[: header.body_offset].tobytes() + _joined([head])[: -1 if self._compact else -_LENGTH.size]
        self._tail = _joined(tail)
        sample = _joined(encode_response(self._response(written(self.index, *_MARKS)), version, 0))
        at = sample.index(_NUMBERS.pack(*_MARKS))
        self._length, self._before, self._after = sample[:4], sample[8:at], sample[at + _NUMBERS.size :]
        self._answer = Struct(f">4s4s{len(self._before)}sqqq{len(self._after)}s")
        self._seen = -1  # the metadata version of `_log` and `_epoch`
        self._log: UnifiedLog | None = None
        self._epoch = -1

    def __repr__(self) -> str:
        return f"<ProduceTemplate {self._name or self._topic_id}-{self.index} v{self._version}>"

    def answer(self, services: BrokerServices, frame: memoryview) -> bytes | None:
        """Append the batch of a request that begins with `front`. Return the frame of the answer.

        None, with nothing done, if the request needs the general path.
        """
        records = self.records(frame)
        if records is None or is_transactional(records):
            return None
        log = self._log
        if self._seen != services.image.version or log is None or log.closed:
            log = self._look_up(services)
            if log is None:
                return None
        number = frame[_ID_AT:_ID_END].tobytes()
        try:
            info = log.append(records, leader_epoch=self._epoch, now_ms=services.clock.time_ms(), on_loop=True)
        except TooLongForLoop:  # the general path checks it on another thread
            return None
        except Exception as error:  # every failure becomes the error of this answer
            response = self._response(refusal(error, log.topic, self.index))
            return _joined(encode_response(response, self._version, int.from_bytes(number, "big", signed=True)))
        base, _, time, start, _ = info
        return self._answer.pack(self._length, number, self._before, base, time, start, self._after)

    def records(self, frame: memoryview) -> memoryview | None:
        """Return the batch in a request that begins with `front`; None if the request has more than that."""
        begin = len(self.front)
        if self._compact:
            try:
                size, begin = decode_uvarint(frame, begin)
            except ProtocolError:  # the general path fails, too, and reports it
                return None
            size -= 1
        elif len(frame) < begin + _LENGTH.size:
            return None
        else:
            size = _LENGTH.unpack_from(frame, begin)[0]
            begin += _LENGTH.size
        end = begin + size
        if size <= 0 or end + len(self._tail) != len(frame) or frame[end:] != self._tail:
            return None
        return frame[begin:end]

    def _look_up(self, services: BrokerServices) -> UnifiedLog | None:
        topic = self._name or services.image.topic_name(self._topic_id)
        if topic is None or is_closed(topic):
            return None
        try:
            log, self._epoch = services.partitions.leader(topic, self.index)
        except Exception:  # the general path fails, too, and reports it
            return None
        if not log.commits_at_once:  # the general path waits for the commit
            return None
        self._log = log
        self._seen = services.image.version
        return self._log

    def _response(self, partition: PartitionProduceResponse) -> ProduceResponse:
        answer = TopicProduceResponse(name=self._name, topic_id=self._topic_id, partition_responses=[partition])
        return ProduceResponse(responses=[answer])


class ProduceTemplates:
    """The templates of one connection."""

    __slots__ = ("_known", "_length", "_others")

    def __init__(self) -> None:
        self._known: dict[bytes, ProduceTemplate] = {}  # by fronts without the correlation id
        self._length = 0  # length of the kept fronts
        self._others = 0

    def __len__(self) -> int:
        return len(self._known)

    def answer(self, services: BrokerServices, frame: memoryview) -> bytes | None:
        """Serve a request that fits a kept template. Return the frame of the answer; None, with nothing done, else."""
        front = frame[: self._length].tobytes()
        template = self._known.get(front[:_ID_AT] + front[_ID_END:])
        return None if template is None else template.answer(services, frame)

    def keep(self, frame: memoryview, header: RequestHeader, request: ProduceRequest) -> None:
        """Keep the template of a served request, except for the first: many connections send only one.

        Fronts of one length are kept, usually those of one topic's partitions; many others in a row replace them.
        """
        if not _has_one_batch(header, request):
            return
        self._others += 1
        if self._others == 1:
            return
        template = ProduceTemplate(frame, header, request)
        front = frame[: len(template.front)].tobytes()
        if len(front) > _LONGEST_FRONT:
            return
        if front != template.front or template.records(frame) is None:  # the client's encoding differs from ours
            return
        if len(front) != self._length:
            if self._known and self._others < _PATIENCE:
                return
            self._known.clear()
            self._length = len(front)
        self._others = 1
        if len(self._known) < _MOST_KEPT:
            self._known[front[:_ID_AT] + front[_ID_END:]] = template


def _has_one_batch(header: RequestHeader, request: ProduceRequest) -> bool:
    return (
        header.api_version >= _SINCE
        and request.acks in (-1, 1)
        and len(request.topic_data) == 1
        and len(request.topic_data[0].partition_data) == 1
    )


def _with_records(request: ProduceRequest, records: bytes) -> ProduceRequest:
    topic = request.topic_data[0]
    data = [PartitionProduceData(index=topic.partition_data[0].index, records=records)]
    return ProduceRequest(
        transactional_id=request.transactional_id,
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        topic_data=[TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=data)],
    )


def _joined(parts: list[Part]) -> bytes:
    return b"".join(parts)  # type: ignore[arg-type]  # no files
