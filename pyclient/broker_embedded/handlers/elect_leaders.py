"""ElectLeaders v0-2: elect the preferred replica (from v1 also, unclean, any replica) as leader of partitions.

A partition that has the wanted leader is answered with ELECTION_NOT_NEEDED. A request for all partitions is answered
without those, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient import errors
from pyclient.broker_embedded.controller.partition_elections import Election
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of, message_of
from pyclient.broker_embedded.log.incremental_task import in_steps
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.controller.controller import Controller
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext

_ELECTIONS: Final = {0: Election.PREFERRED, 1: Election.UNCLEAN}


@handles(ElectLeadersRequest, versions=(0, 2), durable=Durable.METADATA, forwarded=True)
def handle(request: ElectLeadersRequest, context: RequestContext) -> IncrementalTask[ElectLeadersResponse]:
    """Answer every partition."""
    services = context.services
    everything = request.topic_partitions is None
    wanted = (
        [(topic.name, list(topic.partitions)) for topic in services.controller.image.topics.values()]
        if request.topic_partitions is None
        else [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    )
    unknown = request.election_type not in _ELECTIONS
    results = []
    for name, indexes in wanted:
        kind = request.election_type
        answers = yield from in_steps(lambda index: _elect(services.controller, name, index, kind), indexes)  # noqa: B023
        if everything:
            answers = [answer for answer in answers if answer.error_code != errors.ElectionNotNeeded.code]
        results.append(ReplicaElectionResult(topic=name, partition_result=answers))
    return ElectLeadersResponse(
        throttle_time_ms=0,
        error_code=errors.InvalidRequest.code if unknown and wanted and context.version >= 1 else 0,
        replica_election_results=[] if unknown and everything else results,
    )


def _elect(controller: Controller, topic: str, index: int, kind: int) -> PartitionResult:
    try:
        if kind not in _ELECTIONS:
            raise errors.InvalidRequest(f"unknown election type {kind}")
        controller.elect_leader(topic, index, _ELECTIONS[kind])
    except Exception as error:  # every failure is answered with its error code
        code = code_of(error, f"election of a leader of {topic}-{index}")
        return PartitionResult(partition_id=index, error_code=code, error_message=message_of(error))
    return PartitionResult(partition_id=index, error_code=0, error_message=None)
