"""A topic and a group of several brokers; faults and requests at several brokers, in parallel calls."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded.cluster.broker import Broker
from pyclient.broker_embedded.cluster.faults import Faults
from pyclient.broker_embedded.cluster.members import in_parallel
from pyclient.broker_embedded.cluster.requests import Requests
from pyclient.broker_embedded.cluster.views import Views, group_of, topic_of
from pyclient.broker_embedded.config.broker_config import BrokerConfig
from pyclient.clock import SYSTEM_CLOCK
from pyclient.protocol.messages.list_groups import ListGroupsRequest
from tests.broker_embedded.conftest import RawClient
from tests.broker_embedded.topics import create


def partition(leader: int, epoch: int, end: int) -> dict[str, Any]:
    return {"partition": 0, "leader": leader, "leader_epoch": epoch, "end_offset": end}


def view(*partitions: dict[str, Any], topic_id: str | None = "id") -> dict[str, Any]:
    return {"topic": "t", "topic_id": topic_id, "partitions": list(partitions)}


def test_a_partition_is_as_its_leader_sees_it() -> None:
    merged = topic_of({1: view(partition(2, 5, 9)), 2: view(partition(2, 5, 7)), 3: view(topic_id=None)})
    assert merged == view(partition(2, 5, 7))


def test_partition_without_its_leader_is_as_the_newest_epoch_has_it() -> None:
    assert topic_of({1: view(partition(2, 5, 9)), 3: view(partition(3, 6, 8))}) == view(partition(3, 6, 8))


def test_unknown_topic_has_no_partitions() -> None:
    assert topic_of({1: view(topic_id=None)}) == view(topic_id=None)


def test_a_group_is_as_its_coordinator_sees_it() -> None:
    dead, stable = {"group": "g", "state": "Dead"}, {"group": "g", "state": "Stable"}
    assert group_of([dead, stable]) == stable
    assert group_of([dead, dead]) == dead


def test_calls_run_at_the_same_time_and_all_end_before_the_error_is_raised() -> None:
    meeting, done = threading.Barrier(3, timeout=30), []

    def call(number: int) -> None:
        meeting.wait()
        if number == 1:
            raise ValueError("one of them")
        done.append(number)

    with pytest.raises(ValueError, match="one of them"):
        in_parallel([lambda number=number: call(number) for number in range(3)])  # type: ignore[misc]
    assert sorted(done) == [0, 2]
    in_parallel([])


def test_parallel_calls_raise_the_first_error_with_notes_of_the_others() -> None:
    def call(number: int) -> None:
        raise ValueError(f"node {number}")

    with pytest.raises(ValueError, match="node 0") as caught:
        in_parallel([lambda number=number: call(number) for number in range(3)])  # type: ignore[misc]
    notes = [f"another call failed, too: ValueError('node {number}')" for number in (1, 2)]
    assert caught.value.__notes__ == notes


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[Broker]]:
    """Yield two brokers that know nothing of each other."""
    made = [
        Broker(
            BrokerConfig.build({"node.id": node_id}, data_dir=str(tmp_path / str(node_id))),
            processes=False,
            control_port=None,
            guard=lambda: None,
        )
        for node_id in (1, 2)
    ]
    in_parallel([broker.start for broker in made])
    yield made
    in_parallel([broker.kill for broker in made])


def ask(broker: Broker) -> int:
    client = RawClient(broker.address)
    try:
        error: int = client.call(ListGroupsRequest(), 4).error_code
        return error
    finally:
        client.close()


def test_a_fault_is_at_every_broker_and_counts_for_each(brokers: list[Broker]) -> None:
    faults = Faults(brokers)
    with faults.fail("ListGroups", errors.RequestTimedOut) as fault:
        assert not fault.over
        assert [ask(broker) for broker in (*brokers, *brokers)] == [7, 7, 0, 0]
        assert fault.wait(2) == fault.hits() == 2
        assert fault.over
        with pytest.raises(errors.ClientError, match="over after 2"):
            fault.wait(3)
    assert len(faults) == 0


def test_a_fault_of_one_node_is_at_that_node_only(brokers: list[Broker]) -> None:
    with Faults(brokers).fail("ListGroups", errors.RequestTimedOut, node=2, times=None) as fault:
        assert [ask(broker) for broker in brokers] == [0, 7]
        assert fault.hits() == 1
        with pytest.raises(errors.KafkaTimeout):
            fault.wait(2, timeout=0)
    with pytest.raises(errors.ConfigError, match="the cluster has 1, 2"):
        Faults(brokers).fail("ListGroups", errors.RequestTimedOut, node=3)


def test_only_the_faults_of_a_broker_are_noted_when_it_ends(brokers: list[Broker]) -> None:
    faults = Faults(brokers)
    fault = faults.fail("ListGroups", errors.RequestTimedOut, times=2)
    assert [ask(broker) for broker in brokers] == [7, 7]
    brokers[0].restart()
    assert fault.hits() == 2
    assert [ask(broker) for broker in (*brokers, *brokers)] == [7, 7, 0, 0]
    assert fault.hits() == 4


def test_requests_to_all_brokers_are_in_one_log(brokers: list[Broker]) -> None:
    with Requests(brokers).start() as requests:
        ask(brokers[1])
        asked = requests.query("ListGroups")[0].time_ms
        while SYSTEM_CLOCK.time_ms() <= asked:  # those of one millisecond come in the order of the brokers
            continue
        ask(brokers[0])
        assert [record.node for record in requests.query("ListGroups")] == [2, 1]
        assert requests.wait_request("ListGroups", count=2).node == 1
        with pytest.raises(errors.KafkaTimeout, match="2 of 3"):
            requests.wait_request("ListGroups", count=3, timeout=0)
        brokers[0].kill()
        assert [record.node for record in requests] == [2]
        brokers[0].start()
        ask(brokers[0])
        assert {record.node for record in requests.query("ListGroups")} == {1, 2}


def test_a_topic_is_waited_for_at_all_brokers(brokers: list[Broker]) -> None:
    client = RawClient(brokers[1].address)
    create(client, "only-there", 2)
    client.close()
    views = Views(brokers)
    assert len(views.wait_topic("only-there", 2, None, 30)["partitions"]) == 2
    assert views.topic("nowhere")["partitions"] == []
    assert views.wait_group("nobody", "Dead", None, 30)["state"] == "Dead"
    with pytest.raises(errors.KafkaTimeout, match="the state was topic=nowhere"):
        views.wait_topic("nowhere", 1, None, 0)
    brokers[1].kill()
    assert views.topic("only-there")["partitions"] == []
