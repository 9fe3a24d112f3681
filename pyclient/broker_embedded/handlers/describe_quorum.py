"""DescribeQuorum v0-2: the state of the metadata log's quorum, with this node as the only voter.

Only `__cluster_metadata-0` has a quorum. The controller has no listener of its own: the address is the broker's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient import errors
from pyclient.broker_embedded.controller.metadata_log import TOPIC
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import message_of
from pyclient.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.dispatch import RequestContext
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask


@handles(DescribeQuorumRequest, versions=(0, 2))
def handle(request: DescribeQuorumRequest, context: RequestContext) -> IncrementalTask[DescribeQuorumResponse]:
    """Answer every requested partition."""
    single = len(request.topics) == 1 and len(request.topics[0].partitions) == 1  # Kafka refuses anything else
    topics = []
    for topic in request.topics:
        partitions = []
        for each in topic.partitions:
            partitions.append(_describe(topic.topic_name, each.partition_index, context, single=single))
            yield None
        topics.append(DescribeQuorumResponseTopicData(topic_name=topic.topic_name, partitions=partitions))
        yield None
    found = any(partition.error_code == 0 for topic in topics for partition in topic.partitions)
    nodes = [
        Node(node_id=node_id, listeners=[Listener(name="PLAINTEXT", host=host, port=port)])
        for node_id, host, port, _rack in context.node.advertised(context.connection)
        if found and node_id == context.node.node_id
    ]
    return DescribeQuorumResponse(error_code=0, topics=topics, nodes=nodes if context.version >= 2 else [])


def _describe(topic: str, index: int, context: RequestContext, *, single: bool) -> DescribeQuorumResponsePartitionData:
    if (topic, index) != (TOPIC, 0) or not single:
        error = errors.UnknownTopicOrPartition(
            f"{topic}-{index} has no quorum: request {TOPIC}-0, and no other partition"
        )
        return DescribeQuorumResponsePartitionData(
            partition_index=index,
            error_code=error.code,
            error_message=message_of(error),
            leader_id=0,
            leader_epoch=0,
            high_watermark=0,
            current_voters=[],
            observers=[],
        )
    node = context.node
    now, end = node.clock.time_ms(), node.metadata_offset + 1
    voter = ReplicaState(
        replica_id=node.node_id, log_end_offset=end, last_fetch_timestamp=now, last_caught_up_timestamp=now
    )
    return DescribeQuorumResponsePartitionData(
        partition_index=index,
        error_code=0,
        leader_id=node.node_id,
        leader_epoch=node.metadata_epoch,
        high_watermark=end,
        current_voters=[voter],
        observers=[],
    )
