"""ProduceTemplate: a template for Produce requests with one batch, and for their responses without an error.

Two such requests to a partition differ only in the correlation id, the batch and its length; two responses without an
error only in the correlation id, the offset and two more numbers. At linger 0 a record is often sent alone, and then
the general codec costs as much time as everything else that the sender does for it.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from pyclient.producer.produce_response import PartitionAnswer
from pyclient.protocol.fields import Part
from pyclient.protocol.framing import encode_request, encode_response
from pyclient.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from pyclient.varint import encode_uvarint

_HEAD: Final = Struct(">ihhi")  # frame length, key, version, correlation id
_INT32: Final = Struct(">i")
_OFFSET_AND_TIME: Final = Struct(">qq")
_MARK: Final = b"?"
_MARKED_OFFSET: Final = 0x5A5A5A5A5A5A5A5A
_LOG_START_SINCE: Final = 5


class ProduceTemplate:
    """The requests and plain responses of one partition in one version of Produce.

    Both are cut out of samples that the codec encodes, so that there is one declaration of the messages.
    """

    __slots__ = ("after_numbers", "compact", "name", "numbers", "prefix", "sample", "tail", "version")

    def __init__(
        self,
        topic: str,
        partition: int,
        version: int,
        *,
        client_id: str | None,
        acks: int,
        timeout_ms: int,
        transactional_id: str | None = None,
    ) -> None:
        self.name = (topic, partition)
        self.version = version
        self.compact = version >= (ProduceRequest.flexible or 0)
        request = _request(topic, partition, acks, timeout_ms, transactional_id)
        head, mark, *tail = encode_request(request, version, 0, client_id)
        assert mark is _MARK
        self.prefix = _joined([head])[_HEAD.size : -1 if self.compact else -_INT32.size]
        self.tail = _joined(tail)
        self.sample = _joined(encode_response(_response(topic, partition), version, 0))[4:]
        self.numbers = self.sample.index(_OFFSET_AND_TIME.pack(_MARKED_OFFSET, -1))
        self.after_numbers = self.numbers + _OFFSET_AND_TIME.size + (8 if version >= _LOG_START_SINCE else 0)

    def __repr__(self) -> str:
        return f"<ProduceTemplate {self.name[0]}-{self.name[1]} v{self.version}>"

    def request(self, batch: memoryview, correlation_id: int) -> list[Part]:
        """Return the frame with its length, equal to that of `framing.encode_request` for the same request."""
        size = len(batch)
        length = encode_uvarint(size + 1) if self.compact else _INT32.pack(size)
        prefix, tail = self.prefix, self.tail
        whole = _HEAD.size - 4 + len(prefix) + len(length) + size + len(tail)
        return [_HEAD.pack(whole, ProduceRequest.api_key, self.version, correlation_id) + prefix + length, batch, tail]

    def answer(self, frame: memoryview) -> PartitionAnswer | None:
        """Decode a response that only confirms the batch; return None if it must be decoded as a whole."""
        sample, numbers, behind = self.sample, self.numbers, self.after_numbers
        if len(frame) != len(sample) or frame[4:numbers] != sample[4:numbers] or frame[behind:] != sample[behind:]:
            return None
        return PartitionAnswer(0, *_OFFSET_AND_TIME.unpack_from(frame, numbers))


def _joined(parts: list[Any]) -> bytes:
    return b"".join(parts)


def _request(topic: str, partition: int, acks: int, timeout_ms: int, transactional_id: str | None) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=_MARK)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def _response(topic: str, partition: int) -> Any:
    data = PartitionProduceResponse(index=partition, error_code=0, base_offset=_MARKED_OFFSET)
    return ProduceResponse(responses=[TopicProduceResponse(name=topic, partition_responses=[data])])
