"""DescribeLogDirs v1-5: the data directories, their space, and the size of the partitions in them.

Null topics are all topics. A log that is not open has the size of its files. A copy that is on its way to a directory
is a future log there, with the offsets that it lacks. v5 says which directories are cordoned.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyclient.broker_embedded.dispatch import handles
from pyclient.errors import KafkaStorageError
from pyclient.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyclient.broker_embedded.broker import BrokerNode
    from pyclient.broker_embedded.dispatch import RequestContext
    from pyclient.broker_embedded.log.steps import Steps


@handles(DescribeLogDirsRequest, versions=(1, 5))
def handle(request: DescribeLogDirsRequest, context: RequestContext) -> Steps[DescribeLogDirsResponse]:
    """Answer with every directory; partitions that are not here are left out."""
    node = context.node
    if request.topics is None:
        wanted = {topic.name: set(topic.partitions) for topic in node.image.topics.values()}
    else:
        wanted = {}
        for named in request.topics:
            wanted.setdefault(named.topic, set()).update(named.partitions)
            yield None
    found: dict[str, dict[str, list[DescribeLogDirsPartition]]] = {}
    for name, numbers in wanted.items():
        for index in sorted(numbers):
            for path, partition in _describe(node, TopicPartition(name, index)):
                found.setdefault(path, {}).setdefault(name, []).append(partition)
            yield None
    results = [
        _result(directory.path, found.get(directory.path, {}), cordoned=directory.path in node.logs.cordoned)
        for directory in node.logs.directories
    ]
    results += [_offline(path) for path in node.logs.offline_directories]
    return DescribeLogDirsResponse(throttle_time_ms=0, results=results)


def _describe(node: BrokerNode, at: TopicPartition) -> Iterator[tuple[str, DescribeLogDirsPartition]]:
    """The directory of a partition's log, if that is here and online, and of a copy that is made of it."""
    partition = node.image.partition(*at)
    if partition is None or node.node_id not in partition.replicas:
        return
    home = node.logs.home(at)
    if home is None:
        named = node.partitions.directory_id(at)
        home = next((each for each in node.logs.directories if each.directory_id == named), None)
        if home is None and node.logs.offline_directories:
            return
    size = node.partitions.size(*at)
    path = node.logs.data_dir if home is None else home.path
    yield path, _partition(at, size, lag=0, is_future=False)
    move = node.relocation.moves.get(at)
    if move is not None:
        log = node.logs.get(*at)
        end, copied = (0 if log is None else log.end_offset), move.copy
        lag = end if copied is None else max(end - copied.end_offset, 0)
        yield move.target.path, _partition(at, 0 if copied is None else copied.size, lag=lag, is_future=True)


def _partition(at: TopicPartition, size: int, *, lag: int, is_future: bool) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=at.partition, partition_size=size, offset_lag=lag, is_future_key=is_future
    )


def _result(path: str, topics: dict[str, list[DescribeLogDirsPartition]], *, cordoned: bool) -> DescribeLogDirsResult:
    total, usable = _space(path)
    return DescribeLogDirsResult(
        error_code=0,
        log_dir=os.path.abspath(path),
        topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        total_bytes=total,
        usable_bytes=usable,
        is_cordoned=cordoned,
    )


def _offline(path: str) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(error_code=KafkaStorageError.code, log_dir=os.path.abspath(path), topics=[])


def _space(path: str) -> tuple[int, int]:
    """The size of the disk and what is left of it, in bytes; -1 where that cannot be known."""
    try:
        found = os.statvfs(path)
    except OSError:
        return -1, -1
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
