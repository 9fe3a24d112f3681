"""DescribeLogDirs v1-5: the data directories, their space, and the size of the partitions in them.

Null topics are all topics. The size of a log that is not open is that of its files. A log that is being moved is a
future log in the target directory, with its offset lag. v5 has the cordoned directories.
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

    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext
    from pyclient.broker_embedded.services import BrokerServices


@handles(DescribeLogDirsRequest, versions=(1, 5))
def handle(request: DescribeLogDirsRequest, context: RequestContext) -> IncrementalTask[DescribeLogDirsResponse]:
    """Answer with every directory; partitions that this broker does not have are left out."""
    services = context.services
    if request.topics is None:
        wanted = {topic.name: set(topic.partitions) for topic in services.image.topics.values()}
    else:
        wanted = {}
        for named in request.topics:
            wanted.setdefault(named.topic, set()).update(named.partitions)
            yield None
    found: dict[str, dict[str, list[DescribeLogDirsPartition]]] = {}
    for name, numbers in wanted.items():
        for index in sorted(numbers):
            for path, partition in _describe(services, TopicPartition(name, index)):
                found.setdefault(path, {}).setdefault(name, []).append(partition)
            yield None
    directories = services.logs.directories
    results = [
        _result(directory.path, found.get(directory.path, {}), cordoned=directory.path in directories.cordoned)
        for directory in directories.online
    ]
    results += [_offline(path) for path in directories.offline]
    return DescribeLogDirsResponse(throttle_time_ms=0, results=results)


def _describe(
    services: BrokerServices, topic_partition: TopicPartition
) -> Iterator[tuple[str, DescribeLogDirsPartition]]:
    """Yield the directory of a partition's log, if this broker has it online, and the directory of its future log."""
    partition = services.image.partition(*topic_partition)
    if partition is None or services.node_id not in partition.replicas:
        return
    home = services.logs.directories.homes.get(topic_partition)
    if home is None:
        named = services.partitions.directory_id(topic_partition)
        home = next((each for each in services.logs.directories.online if each.directory_id == named), None)
        if home is None and services.logs.directories.offline:
            return
    size = services.partitions.size(*topic_partition)
    path = services.logs.directories.paths[0] if home is None else home.path
    yield path, _partition(topic_partition, size, lag=0, is_future=False)
    move = services.relocation.moves.get(topic_partition)
    if move is not None:
        log = services.logs.get(*topic_partition)
        end, copied = (0 if log is None else log.end_offset), move.copy
        lag = end if copied is None else max(end - copied.end_offset, 0)
        copied_size = 0 if copied is None else copied.size
        yield move.target.path, _partition(topic_partition, copied_size, lag=lag, is_future=True)


def _partition(topic_partition: TopicPartition, size: int, *, lag: int, is_future: bool) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=topic_partition.partition, partition_size=size, offset_lag=lag, is_future_key=is_future
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
    """Return the size and the free space of the disk in bytes, -1 if unknown."""
    try:
        found = os.statvfs(path)
    except OSError:
        return -1, -1
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
