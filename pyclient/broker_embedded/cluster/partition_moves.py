"""Moves of partitions between the brokers of a cluster, by Kafka's own requests."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyclient.broker_embedded.cluster.kafka_call import call, check_code, until_done
from pyclient.broker_embedded.cluster.views import until
from pyclient.errors import BrokerIdNotRegistered, ConfigError, ElectionNotNeeded, PreferredLeaderNotAvailable
from pyclient.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pyclient.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from pyclient.protocol.messages.unregister_broker import UnregisterBrokerRequest

if TYPE_CHECKING:
    from pyclient.broker_embedded.cluster.views import Views
    from pyclient.broker_embedded.config.broker_config import BrokerConfig

Replicas = Mapping[tuple[str, int], Sequence[int]]
"""The replicas of partitions, by topic and partition."""


class PartitionMoves:
    """Moves leaders and replicas. `broker` returns the configuration of a broker that runs.

    Requests are repeated after errors that pass, such as those while another controller is elected.
    """

    def __init__(self, views: Views, broker: Callable[[], BrokerConfig]) -> None:
        self._views = views
        self._broker = broker

    def move_leader(self, topic: str, partition: int, node_id: int, timeout: float) -> None:
        """Make a replica the preferred leader of a partition once it is in sync, elect it, and wait until it leads.

        Raise `ConfigError` if it is no replica, `KafkaTimeout` if it is not in sync, or does not lead, in time.
        """
        known = self._views.partition(topic, partition)
        if node_id not in known["replicas"]:
            raise ConfigError(f"node {node_id} cannot lead {topic}-{partition}: the replicas are {known['replicas']}")
        if known["leader"] == node_id:
            return
        end = time.monotonic() + timeout

        def wait(fits: Callable[[dict[str, Any]], bool]) -> None:
            until(lambda: self._views.partition(topic, partition), fits, max(0.0, end - time.monotonic()))

        wait(lambda seen: node_id in seen["isr"])
        replicas = [node_id, *(each for each in known["replicas"] if each != node_id)]
        self.reassign({(topic, partition): replicas}, max(0.0, end - time.monotonic()))
        wait(lambda seen: list(seen["replicas"]) == replicas)
        until_done(
            lambda _seconds: self._elect(topic, partition),
            end - time.monotonic(),
            passing=(PreferredLeaderNotAvailable,),  # it has just left the in-sync replicas, or been repaired
        )
        wait(lambda seen: bool(seen["leader"] == node_id))

    def drain(self, node_id: int, others: Mapping[int, str | None], timeout: float) -> None:
        """Move the replicas of a broker to `others`, and wait until it has none, also of topics created meanwhile.

        `others` has the rack of each of the other brokers by its id, None if it has none.
        """
        end = time.monotonic() + timeout
        begun: set[tuple[str, int]] = set()

        def move_rest() -> dict[str, Any]:
            moves = drained(node_id, others, self._replicas())
            new = {place: replicas for place, replicas in moves.items() if place not in begun}
            if new:
                begun.update(new)
                self.reassign(new, max(0.0, end - time.monotonic()))
            return {"left": sorted(moves)}

        until(move_rest, lambda seen: not seen["left"], timeout)

    def unregister(self, node_id: int, timeout: float) -> None:
        """Remove the registration of a broker that does not run. Raise a `BrokerError`."""
        again = False

        def ask(seconds: float) -> None:
            nonlocal again
            repeated, again = again, True
            answer = call(self._broker(), UnregisterBrokerRequest(broker_id=node_id), seconds)
            try:
                check_code(answer.error_code, answer.error_message, f"unregistering broker {node_id}")
            except BrokerIdNotRegistered:
                if not repeated:  # else an answer was lost, and the registration is removed
                    raise

        until_done(ask, timeout)

    def reassign(self, replicas: Replicas, timeout: float) -> None:
        """Give partitions other replicas. Raise a `BrokerError`."""
        until_done(lambda seconds: self._reassign(replicas, seconds), timeout)

    def _reassign(self, replicas: Replicas, timeout: float) -> None:
        topics: dict[str, list[ReassignablePartition]] = {}
        for (topic, partition), ids in replicas.items():
            topics.setdefault(topic, []).append(ReassignablePartition(partition_index=partition, replicas=list(ids)))
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=round(timeout * 1000),
            topics=[ReassignableTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        )
        answer = call(self._broker(), request, timeout)
        check_code(answer.error_code, answer.error_message, "a reassignment")
        for each in answer.responses:
            for result in each.partitions:
                what = f"a reassignment of {each.name}-{result.partition_index}"
                check_code(result.error_code, result.error_message, what)

    def _elect(self, topic: str, partition: int) -> None:
        request = ElectLeadersRequest(
            election_type=0, topic_partitions=[TopicPartitions(topic=topic, partitions=[partition])]
        )
        answer = call(self._broker(), request)
        check_code(answer.error_code, None, "an election")
        for each in answer.replica_election_results:
            for result in each.partition_result:
                what = f"the election of a leader of {topic}-{partition}"
                with suppress(ElectionNotNeeded):  # it leads already
                    check_code(result.error_code, result.error_message, what)

    def _replicas(self) -> dict[tuple[str, int], list[int]]:
        return {
            (topic["topic"], partition["partition"]): list(partition["replicas"])
            for topic in self._views.topics()
            for partition in topic["partitions"]
        }


def drained(node_id: int, others: Mapping[int, str | None], replicas: Replicas) -> dict[tuple[str, int], list[int]]:
    """Return new replicas for the partitions of a broker: in its place the least used of the others.

    One in a rack without another replica comes first; `others` has the racks. A partition with replicas on all the
    others gets one fewer. Raise `ConfigError` if there are no others.
    """
    if not others:
        raise ConfigError(f"node {node_id} is the only broker: nothing can take its partitions")
    load = Counter(dict.fromkeys(others, 0))
    load.update(each for ids in replicas.values() for each in ids if each in load)
    moves: dict[tuple[str, int], list[int]] = {}
    for place in sorted(place for place, ids in replicas.items() if node_id in ids):
        ids = replicas[place]
        used = {others[each] for each in ids if each in others} - {None}
        free = [other for other in others if other not in ids]
        if free:
            chosen = min(free, key=lambda other: (others[other] in used, load[other], other))
            load[chosen] += 1
            moves[place] = [chosen if each == node_id else each for each in ids]
        else:
            moves[place] = [each for each in ids if each != node_id]
    return moves
