"""Members of confluent-kafka note what is assigned to them, in each generation of their group."""

from __future__ import annotations

import pytest

from pyclient import Admin, NewTopic
from pyclient.broker_embedded import EmbeddedCluster
from tests.chaos.group_checkers import broken_groups
from tests.chaos.history import Assignment, Place
from tests.chaos.their_wide_workload import TheirMember
from tests.chaos.workload import Notes
from tests.waiting import PATIENCE, until

ALL = {Place("busy", partition) for partition in range(4)}
CONFIG = {"group.consumer.heartbeat.interval.ms": 200, "group.consumer.min.heartbeat.interval.ms": 200}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_of_librdkafka_note_their_assignments(protocol: str) -> None:
    notes = Notes()

    def last_of(name: str) -> Assignment | None:
        return next((each for each in reversed(notes.history.assignments) if each.member == name), None)

    with EmbeddedCluster(1, config=CONFIG) as cluster:
        servers = cluster.bootstrap_servers
        with Admin(servers) as admin:
            admin.create_topics([NewTopic("busy", 4, 1)])
        members = [TheirMember(name, notes, servers, "busy", "g", protocol) for name in ("m1", "m2")]
        members[0].start()
        until(lambda: (found := last_of("m1")) is not None and {*found.places} == ALL)
        members[1].start()
        until(lambda: (found := last_of("m2")) is not None and len(found.places) == 2)
        for each in members:
            each.stop()
        for each in members:
            each.join(PATIENCE)
    assert notes.failures == []
    assert list(broken_groups(notes.history)) == []
    second = last_of("m2")
    assert second is not None
    notes.add(Assignment("g", "m1", second.generation, second.places[:1]))
    assert list(broken_groups(notes.history)) == [
        f"group g, generation {second.generation}: m2 and m1 have {second.places[0]}"
    ]
