"""DescribeQuorum v0-2: the state of the metadata log's quorum, as its leader knows it.

Only `__cluster_metadata-0` has a quorum. A node that is alone is its only voter, and has no listener for controllers:
the address is the broker's.
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
    from collections.abc import Iterator

    from pyclient.broker_embedded.controller.quorum import Quorum
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext
    from pyclient.clock import Clock


@handles(DescribeQuorumRequest, versions=(0, 2), forwarded=True)
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
    nodes = list(voter_nodes(context)) if found else []
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
    services = context.services
    now, end = services.clock.time_ms(), services.metadata_offset + 1
    voter = ReplicaState(
        replica_id=services.node_id, log_end_offset=end, last_fetch_timestamp=now, last_caught_up_timestamp=now
    )
    voters, observers = (
        ([voter], []) if services.quorum is None else _replicas(services.quorum, services.node_id, services.clock)
    )
    return DescribeQuorumResponsePartitionData(
        partition_index=index,
        error_code=0,
        leader_id=services.node_id,
        leader_epoch=services.metadata_epoch,
        high_watermark=end if services.quorum is None else services.quorum.high_watermark,
        current_voters=voters,
        observers=observers,
    )


def voter_nodes(context: RequestContext) -> Iterator[Node]:
    """Yield the voters with the addresses of their listeners for controllers."""
    services = context.services
    if services.quorum is not None:
        name = services.configs.current.quorum.listener_name
        for voter in services.quorum.voters:
            listeners = [Listener(name=each.name, host=each.host, port=each.port) for each in voter.endpoints]
            address = services.quorum.addresses.of(voter.key.id)
            if not listeners and address is not None:
                listeners = [Listener(name=name, host=address[0], port=address[1])]
            yield Node(node_id=voter.key.id, listeners=listeners)
        return
    for node_id, host, port, _rack in services.listeners.advertised(context.connection):
        if node_id == services.node_id:
            yield Node(
                node_id=node_id, listeners=[Listener(name=context.connection.bound.config.name, host=host, port=port)]
            )


def _replicas(quorum: Quorum, node_id: int, clock: Clock) -> tuple[list[ReplicaState], list[ReplicaState]]:
    """Return the voters and the observers as this leader knows them."""
    now, now_ms = clock.monotonic(), clock.time_ms()

    def epoch_ms(moment: float) -> int:
        return -1 if moment == float("-inf") else round(now_ms - (now - moment) * 1000)

    known = {
        key: ReplicaState(
            replica_id=key.id,
            replica_directory_id=key.directory_id,
            log_end_offset=progress.flushed_end,
            last_fetch_timestamp=epoch_ms(progress.fetched_at),
            last_caught_up_timestamp=epoch_ms(progress.caught_up_at),
        )
        for key, progress in quorum.progress().items()
    }
    known[quorum.me] = ReplicaState(
        replica_id=node_id,
        replica_directory_id=quorum.me.directory_id,
        log_end_offset=quorum.log.end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    voters = []
    for voter in quorum.voters:
        key = next((each for each in known if each.id == voter.key.id and each in quorum.voters), voter.key)
        unknown = ReplicaState(replica_id=key.id, replica_directory_id=key.directory_id, log_end_offset=-1)
        voters.append(known.pop(key, unknown))
    return voters, [known[observer] for observer in sorted(known)]
