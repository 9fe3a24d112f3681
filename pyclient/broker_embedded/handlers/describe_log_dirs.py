"""DescribeLogDirs v1-5: the data directory, its space, and the size of the partitions in it.

Null topics are all topics. Every log is opened for its size. Not done: several directories, moving logs between them
(there is no future log), cordoned directories (v5).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyclient.broker_embedded.dispatch import handles
from pyclient.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.broker import BrokerNode
    from pyclient.broker_embedded.dispatch import RequestContext


@handles(DescribeLogDirsRequest, versions=(1, 5))
def handle(request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    """Answer with the one directory; partitions that are not here are left out."""
    node = context.node
    if request.topics is None:
        wanted = {topic.name: set(topic.partitions) for topic in node.image.topics.values()}
    else:
        wanted = {}
        for named in request.topics:
            wanted.setdefault(named.topic, set()).update(named.partitions)
    topics = [
        DescribeLogDirsTopic(name=name, partitions=partitions)
        for name, numbers in wanted.items()
        if (partitions := [_describe(node, name, index) for index in sorted(numbers) if _is_here(node, name, index)])
    ]
    total, usable = _space(node.config.data_dir)
    return DescribeLogDirsResponse(
        throttle_time_ms=0,
        results=[
            DescribeLogDirsResult(
                error_code=0,
                log_dir=os.path.abspath(node.config.data_dir),
                topics=topics,
                total_bytes=total,
                usable_bytes=usable,
            )
        ],
    )


def _is_here(node: BrokerNode, topic: str, index: int) -> bool:
    partition = node.image.partition(topic, index)
    return partition is not None and node.node_id in partition.replicas


def _describe(node: BrokerNode, topic: str, index: int) -> DescribeLogDirsPartition:
    size = node.partitions.size(topic, index)
    return DescribeLogDirsPartition(partition_index=index, partition_size=size, offset_lag=0, is_future_key=False)


def _space(path: str) -> tuple[int, int]:
    """The size of the disk and what is left of it, in bytes; -1 where that cannot be known."""
    try:
        found = os.statvfs(path)
    except OSError:
        return -1, -1
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
