"""A commit during a rebalance counts, as long as the member keeps its partitions."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from tests.consumer.consumer_factory import ConsumerFactory, poll_until, read, shares

NewTopic = Callable[..., str]
Produce = Callable[..., None]

COOPERATIVE = [f"{api}-cooperative" for api in ("sync", "async")]
PATIENCE = 30.0


@pytest.fixture
def topic(new_topic: NewTopic, produce: Produce) -> str:
    """Return a topic with ten records in each of two partitions."""
    name = new_topic(2)
    for partition in range(2):
        produce(name, *[b"%d" % n for n in range(10)], partition=partition)
    return name


@pytest.mark.parametrize("consumers", COOPERATIVE, indirect=True)
@pytest.mark.parametrize("ending", ["commit", "close"])
def test_commit_before_the_next_generation_is_retried_in_it(
    ending: str, consumers: ConsumerFactory, topic: str, group: str, cluster: EmbeddedCluster
) -> None:
    """The coordinator has started the generation, and assigns nothing before the leader's SyncGroup."""
    first = consumers(topic, group_id=group, auto_commit_interval_ms=3_600_000)
    read(first, 20)
    other = consumers(topic, group_id=group, auto_commit_interval_ms=3_600_000)
    with cluster.faults.hold("SyncGroup", group=group, times=None) as fault, cluster.requests.start() as requests:
        other.poll(0)
        poll_until([first, other], lambda: first.health()["group_state"] == "syncing" and fault.held > 0)
        thread = threading.Thread(target=getattr(first, ending))
        thread.start()
        requests.wait_request("OffsetCommit", group=group, error=errors.RebalanceInProgress, timeout=PATIENCE)
        fault.release()
        thread.join()
    if ending == "close":
        poll_until([other], lambda: shares([other]) == [[0, 1]])
        assert [offset and offset.offset for offset in other.committed().values()] == [10, 10]
    else:
        assert [offset and offset.offset for offset in first.committed([(topic, 0), (topic, 1)]).values()] == [10, 10]


@pytest.mark.parametrize("consumers", COOPERATIVE, indirect=True)
def test_commit_of_the_last_generation_is_retried_in_the_next(
    consumers: ConsumerFactory, topic: str, group: str, cluster: EmbeddedCluster
) -> None:
    """The coordinator has started it, and the response that says so has not arrived."""
    first = consumers(topic, group_id=group, client_id="first", auto_commit_interval_ms=3_600_000)
    read(first, 20)
    other = consumers(topic, group_id=group, auto_commit_interval_ms=3_600_000)
    with cluster.faults.hold("JoinGroup", group=group, client="first") as fault:
        poll_until([first, other], lambda: first.health()["group_state"] == "joining" and fault.held > 0)
        refusal = cluster.faults.fail("OffsetCommit", errors.IllegalGeneration, group=group)
        first.commit()
        assert refusal.hits() == 1
        fault.release()
    assert [offset and offset.offset for offset in first.committed([(topic, 0), (topic, 1)]).values()] == [10, 10]


@pytest.mark.parametrize("consumers", COOPERATIVE, indirect=True)
def test_refused_commit_of_a_member_at_rest_raises(
    consumers: ConsumerFactory, topic: str, group: str, cluster: EmbeddedCluster
) -> None:
    """No request is in flight that would lead to another generation."""
    consumer = consumers(topic, group_id=group, enable_auto_commit=False)
    read(consumer, 20)
    cluster.faults.fail("OffsetCommit", errors.IllegalGeneration, group=group)
    with pytest.raises(errors.CommitFailed, match="the group removed this member"):
        consumer.commit()
