"""Groups: joining, sharing, rebalancing and leaving, with both APIs, against the embedded broker."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from pyclient import Admin, Consumer, RebalanceListener, errors
from pyclient.assignment import Assignor, assign_range
from pyclient.broker_embedded import EmbeddedCluster
from tests.consumer.consumer_factory import ConsumerFactory, EventLog, partitions, poll_until, read, shares, values
from tests.consumer.group_scenarios import GroupScenarios, group

__all__ = ["group"]

NewTopic = Callable[..., str]
Produce = Callable[..., None]


class TestClassicProtocol(GroupScenarios):
    """The scenarios of both protocols, in the classic one."""


def test_two_members_share_the_partitions_and_the_last_one_gets_all_back(
    consumers: ConsumerFactory, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(4)
    event_logs = EventLog(), EventLog()
    first, second = consumers(group_id=group), consumers(group_id=group)
    first.subscribe(topic, listener=event_logs[0])
    poll_until([first], lambda: shares([first]) == [[0, 1, 2, 3]])
    second.subscribe([topic], listener=event_logs[1])
    poll_until([first, second], lambda: sorted(shares([first, second])) == [[0, 1], [2, 3]])
    second.close()
    poll_until([first], lambda: shares([first]) == [[0, 1, 2, 3]])
    got, given = shares([first])[0], event_logs[0].lines
    assert given[:2] == ["+0 1 2 3", "-0 1 2 3"]
    assert given[-1] == "+0 1 2 3"
    assert sorted(event_logs[1].lines) in (["+0 1", "-0 1"], ["+2 3", "-2 3"])
    assert got == [0, 1, 2, 3]


def test_cooperative_rebalance_moves_as_few_partitions_as_possible(
    consumers: ConsumerFactory, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(4)
    event_log = EventLog()
    options = {"group_id": group, "partition_assignment_strategy": "cooperative-sticky"}
    first, second = consumers(**options), consumers(**options)
    first.subscribe(topic, listener=event_log)
    poll_until([first], lambda: shares([first]) == [[0, 1, 2, 3]])
    second.subscribe(topic)
    poll_until([first, second], lambda: sorted(map(len, shares([first, second]))) == [2, 2])
    revoked = [line for line in event_log.lines if line.startswith("-")]
    assert len(revoked) == 1
    assert len(revoked[0].split()) == 2  # two of four partitions moved
    second.close()
    poll_until([first], lambda: len(shares([first])[0]) == 4)
    assert [line for line in event_log.lines if line.startswith("-")] == revoked


def test_subscription_without_a_group_means_all_partitions(
    consumers: ConsumerFactory, new_topic: NewTopic, admin: Admin, produce: Produce
) -> None:
    topic = new_topic(2)
    produce(topic, b"x", partition=1)
    event_log = EventLog()
    consumer = consumers(metadata_max_age_ms=50)
    consumer.subscribe(topic, listener=event_log)
    assert values(read(consumer, 1)) == [b"x"]
    admin.create_partitions({topic: 3})
    poll_until([consumer], lambda: shares([consumer]) == [[0, 1, 2]])
    assert event_log.lines == ["+0 1", "+2"]


def test_callback_error_is_raised_by_poll_after_the_rebalance(
    consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce, group: str
) -> None:
    class Failing(EventLog):
        def on_assigned(self, assigned: Any) -> None:
            super().on_assigned(assigned)
            raise RuntimeError("my own mistake")

    topic = new_topic()
    produce(topic, b"x")
    consumer = consumers(group_id=group)
    consumer.subscribe(topic, listener=Failing())
    with pytest.raises(RuntimeError, match="my own mistake") as caught:
        poll_until([consumer], lambda: False)
    assert any("on_assigned" in note and f"{topic}-0" in note for note in caught.value.__notes__)
    assert consumer.assignment() == set(partitions(topic, 0))
    assert values(consumer.poll(30)) == [b"x"]


def test_callback_may_seek_and_ask_but_not_poll(
    consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce, group: str
) -> None:
    topic = new_topic()
    produce(topic, b"0", b"1", b"2")
    consumer = consumers(group_id=group)

    class Seeking(EventLog):
        def on_assigned(self, assigned: Any) -> None:
            for partition in assigned:
                consumer.raw.seek(partition, 2)
            with pytest.raises(errors.ConcurrentUse, match="by a rebalance callback"):
                _drive(consumer.raw.poll(0.01))

    consumer.subscribe(topic, listener=Seeking())
    assert values(read(consumer, 1)) == [b"2"]


def _drive(result: Any) -> Any:
    """Run the first step of a coroutine, where a refusal is raised; return the coroutine, or another result."""
    if hasattr(result, "send"):
        result.send(None)
    return result


def test_second_consumer_of_one_instance_id_ends_the_first(
    consumers: ConsumerFactory, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic()
    options = {"group_id": group, "group_instance_id": "same", "heartbeat_interval_ms": 50}
    first = consumers(topic, **options)
    poll_until([first], lambda: shares([first]) == [[0]])
    second = consumers(topic, **options)
    poll_until([second], lambda: shares([second]) == [[0]])
    for _ in range(2):
        with pytest.raises(errors.FencedInstanceId):
            poll_until([first], lambda: False)


def test_sticky_members_revoke_everything_and_get_most_of_it_back(
    consumers: ConsumerFactory, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(6)
    options = {"group_id": group, "partition_assignment_strategy": "sticky"}
    members = [consumers(topic, **options) for _ in range(2)]
    poll_until(members, lambda: sorted(map(len, shares(members))) == [3, 3])
    before = [set(held) for held in shares(members)]
    members.append(consumers(topic, **options))
    poll_until(members, lambda: sorted(map(len, shares(members))) == [2, 2, 2])
    after = [set(held) for held in shares(members)]
    assert [len(was & now) for was, now in zip(before, after, strict=False)] == [2, 2]


def test_custom_assignor_decides(consumers: ConsumerFactory, new_topic: NewTopic, group: str) -> None:
    def only_the_first(counts: Any, members: Any) -> Any:
        shares = {member: [] for member in members}
        lucky = min(members)
        shares[lucky] = [p for held in assign_range(counts, members).values() for p in held]
        return shares

    topic = new_topic(2)
    options = {"group_id": group, "partition_assignment_strategy": Assignor("winner-takes-all", only_the_first)}
    members = [consumers(topic, **options) for _ in range(2)]
    poll_until(members, lambda: sorted(shares(members)) == [[], [0, 1]])


def test_members_without_a_common_assignor_raise(consumers: ConsumerFactory, new_topic: NewTopic, group: str) -> None:
    topic = new_topic()
    first = consumers(topic, group_id=group, partition_assignment_strategy="range")
    poll_until([first], lambda: shares([first]) == [[0]])
    second = consumers(topic, group_id=group, partition_assignment_strategy="roundrobin")
    with pytest.raises(errors.InconsistentGroupProtocol):
        poll_until([second], lambda: False)
    first.close()

    def second_has_it() -> bool:
        with contextlib.suppress(errors.InconsistentGroupProtocol):  # of an attempt before
            second.poll(0.02)
        return shares([second]) == [[0]]

    poll_until([], second_has_it)  # and may join when it can


def test_failing_assignor_raises_and_is_not_retried(
    consumers: ConsumerFactory, new_topic: NewTopic, group: str
) -> None:
    def broken(counts: Any, members: Any) -> Any:
        raise ZeroDivisionError

    consumer = consumers(new_topic(), group_id=group, partition_assignment_strategy=Assignor("broken", broken))
    with pytest.raises(errors.ClientError, match=r"assignor 'broken' failed: ZeroDivisionError") as caught:
        poll_until([consumer], lambda: False)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_assignor_with_an_invalid_result_is_named(consumers: ConsumerFactory, new_topic: NewTopic, group: str) -> None:
    mine = Assignor("mine", lambda counts, members: 5)  # type: ignore[arg-type,return-value]
    consumer = consumers(new_topic(), group_id=group, partition_assignment_strategy=mine)
    with pytest.raises(errors.ClientError, match=r"assignor 'mine' returned 5: it must return a mapping"):
        poll_until([consumer], lambda: False)


def test_synchronous_consumer_refuses_a_listener_of_coroutines(
    cluster: EmbeddedCluster, new_topic: NewTopic, group: str
) -> None:
    class Later(RebalanceListener):
        async def on_assigned(self, assigned: Any) -> None:
            raise AssertionError("it is not awaited")

    with Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id=group) as consumer:
        consumer.subscribe(new_topic(), listener=Later())
        with pytest.raises(TypeError, match="on_assigned is `async def`, which only an AsyncConsumer awaits"):
            poll_until([consumer], lambda: False)
