"""Two scripted nodes for live consumers: node 1 has a log with given leader epochs, node 2 a healthy one.

Topic "t" is the test's, led by node 1; topic "well" has the values b"0" to b"9" at node 2, independent of "t".
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from pyclient import errors
from pyclient.net.loop_thread import LoopThread
from pyclient.net.stream import FrameStream
from pyclient.protocol import framing
from pyclient.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from pyclient.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pyclient.protocol.messages.metadata import MetadataRequest
from pyclient.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tests.cluster.scripts import broker, metadata, partition, topic
from tests.consumer.consumer_samples import batch_of
from tests.net.scripted import RANGES, ScriptedBroker

WAIT = 0.01  # seconds
QUICK = {
    "metadata_max_age_ms": 30,
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 20,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 20,
}
"""Options of a consumer that notices everything at once."""


class Log:
    """A partition's log: batches of (first offset, count, leader epoch); a record's value is its offset."""

    def __init__(self, *batches: tuple[int, int, int], leader_epoch: int = 0) -> None:
        self.batches = list(batches)
        self.leader_epoch = leader_epoch

    @property
    def end(self) -> int:
        return sum(self.batches[-1][:2]) if self.batches else 0

    def read(self, offset: int) -> bytes:
        wanted = [each for each in self.batches if each[0] + each[1] > offset]
        return b"".join(batch_of(first, count, leader_epoch=epoch) for first, count, epoch in wanted[:2])

    def end_of(self, epoch: int) -> tuple[int, int]:
        """Return (largest epoch not above this one, its end) as in OffsetForLeaderEpoch; -1 and -1 if unknown."""
        known = [each[2] for each in self.batches if each[2] <= epoch]
        if not known:
            return -1, -1
        return known[-1], min((each[0] for each in self.batches if each[2] > epoch), default=self.end)


class _Node(ScriptedBroker):
    """Delays each fetch a little, as if it waited for records."""

    def _on_frame(self, stream: FrameStream, frame: memoryview) -> None:
        if framing.decode_request_header(frame).api_key == FetchRequest.api_key:
            asyncio.get_running_loop().call_later(WAIT, self._answer_fetch, stream, memoryview(bytes(frame)))
        else:
            super()._on_frame(stream, frame)

    def _answer_fetch(self, stream: FrameStream, frame: memoryview) -> None:
        if stream in self.streams:
            super()._on_frame(stream, frame)


class ScriptedLog:
    """The two nodes, correct unless a test changes their responses."""

    def __init__(self, log: Log) -> None:
        self.logs = {"t": log, "well": Log((0, 10, 0))}
        self.log = log
        self.listed = 0
        self.leader = 1
        self._thread = LoopThread("scripted-log")
        self._thread.start()
        self.first, self.second = self._thread.run(self._start)

    async def _start(self) -> tuple[_Node, _Node]:
        ranges = {**RANGES, FetchRequest.api_key: (4, 12)}  # topics go by name
        return _Node(self._answers(), ranges=ranges), _Node(self._answers(), ranges=ranges)

    def _answers(self) -> dict[type, Any]:
        return {
            MetadataRequest: self._metadata,
            FetchRequest: self.fetched,
            ListOffsetsRequest: self._list,
            OffsetForLeaderEpochRequest: self.ends,
        }

    def answer(self, request: type, answer: Any) -> None:
        """Set node 1's response from now on."""
        self._thread.run(self._set, request, answer, self.first)

    def answer_everywhere(self, request: type, answer: Any) -> None:
        """Set both nodes' response from now on."""
        self._thread.run(self._set, request, answer, self.first, self.second)

    async def _set(self, request: type, answer: Any, *nodes: ScriptedBroker) -> None:
        for node in nodes:
            node.answers[request] = answer

    def elect(self, *batches: tuple[int, int, int], leader_epoch: int) -> None:
        """Replace the leader by one with this log."""
        self._thread.run(self._elect, Log(*batches, leader_epoch=leader_epoch))

    async def _elect(self, log: Log) -> None:
        self.logs["t"] = self.log = log

    def replace_unknowingly(self, *batches: tuple[int, int, int], leader_epoch: int) -> None:
        """Make node 2 the leader, with this log. Node 1 does not hear of it, and keeps its log and its metadata."""
        self._thread.run(self._replace_unknowingly, Log(*batches, leader_epoch=leader_epoch))

    async def _replace_unknowingly(self, log: Log) -> None:
        old = dict(self.logs)
        self.first.answers[MetadataRequest] = self._metadata()
        self.first.answers[FetchRequest] = lambda request, *_: self._read(old, request)
        self.logs["t"], self.log, self.leader = log, log, 2

    def until_asked(self, request: type, times: int) -> None:
        """Wait until node 1 has had so many requests in all."""
        self._thread.run(self.first.until, lambda: self.first.count(request) >= times, timeout=30)

    def close(self) -> None:
        self._thread.run(self._stop)
        self._thread.stop(5)

    async def _stop(self) -> None:
        self.first.stop()
        self.second.stop()

    # ---- honest answers

    def _metadata(self, *_: Any) -> Any:
        nodes = [broker(1, self.first.port), broker(2, self.second.port)]
        return metadata(nodes, [
            topic("t", [partition(0, self.leader, self.log.leader_epoch)]), topic("well", [partition(0, 2)]),
        ])  # fmt: skip

    def fetched(self, request: FetchRequest, *_: Any) -> FetchResponse:
        """Return the data of the logs."""
        return self._read(self.logs, request)

    def _read(self, logs: Mapping[str, Log], request: FetchRequest) -> FetchResponse:
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic=each.topic, partitions=[self._part(logs[each.topic], part) for part in each.partitions]
                )
                for each in request.topics
            ]
        )

    def _part(self, log: Log, wanted: Any) -> PartitionData:
        code = _fenced(log, wanted.current_leader_epoch)
        if not code and wanted.fetch_offset > log.end:
            code = errors.OffsetOutOfRange.code
        records = b"" if code else log.read(wanted.fetch_offset)
        return PartitionData(partition_index=0, error_code=code, high_watermark=log.end, records=records)

    def _list(self, request: ListOffsetsRequest, *_: Any) -> ListOffsetsResponse:
        self.listed += 1
        topics = []
        for each in request.topics:
            log, (wanted,) = self.logs[each.name], each.partitions
            offset = log.end if wanted.timestamp == -1 else 0
            answer = ListOffsetsPartitionResponse(
                partition_index=0,
                error_code=_fenced(log, wanted.current_leader_epoch),
                offset=offset,
                leader_epoch=log.leader_epoch if wanted.timestamp == -1 else log.batches[0][2],
            )
            topics.append(ListOffsetsTopicResponse(name=each.name, partitions=[answer]))
        return ListOffsetsResponse(topics=topics)

    def ends(self, request: OffsetForLeaderEpochRequest, *_: Any) -> OffsetForLeaderEpochResponse:
        """Return the end offsets of epochs."""
        ((wanted,),) = [each.partitions for each in request.topics]
        code = _fenced(self.log, wanted.current_leader_epoch)
        epoch, end = (-1, -1) if code else self.log.end_of(wanted.leader_epoch)
        return end_of_epoch(epoch, end, code)


def end_of_epoch(epoch: int, end: int, error_code: int = 0) -> OffsetForLeaderEpochResponse:
    """Return a node's OffsetForLeaderEpoch response for topic "t"."""
    answer = EpochEndOffset(error_code=error_code, partition=0, leader_epoch=epoch, end_offset=end)
    return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="t", partitions=[answer])])


def _fenced(log: Log, epoch: int) -> int:
    if epoch < 0 or epoch == log.leader_epoch:
        return 0
    return (errors.FencedLeaderEpoch if epoch < log.leader_epoch else errors.UnknownLeaderEpoch).code
