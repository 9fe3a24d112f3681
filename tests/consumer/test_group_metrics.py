"""Group metrics and health of a consumer."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.consumer.metrics import GroupMetrics
from tests.consumer.consumer_factory import ConsumerFactory, poll_until, read, shares

NewTopic = Callable[..., str]
Produce = Callable[..., None]


def test_rebalances_are_counted_when_done_and_timed_from_their_start() -> None:
    metrics = GroupMetrics()
    metrics.rebalance_begun(1.0)
    metrics.rebalance_begun(2.0)  # the same one
    assert metrics.snapshot(3.0, assigned=0)["rebalancing_seconds"] == 2.0
    metrics.rebalance_done(4.0)
    metrics.rebalance_done(9.0)  # nothing had begun
    metrics.rebalance_begun(10.0)
    metrics.rebalance_given_up(lost=True)
    numbers = metrics.snapshot(20.0, assigned=7)
    assert (numbers["rebalances"], numbers["rebalances_lost"], numbers["assigned_partitions"]) == (1, 1, 7)
    assert (numbers["rebalance_seconds_last"], numbers["rebalancing_seconds"]) == (3.0, 0.0)


def test_heartbeats_and_commits_are_counted_with_their_failures() -> None:
    metrics = GroupMetrics()
    assert metrics.snapshot(0.0, assigned=0)["last_heartbeat_age_seconds"] == -1
    for second in range(40):
        metrics.heartbeat(0.5, float(second), failed=second == 39)
    metrics.commit(0.25, failed=False)
    metrics.commit(0.75, failed=True)
    numbers = metrics.snapshot(40.0, assigned=0)
    assert (numbers["heartbeats"], numbers["heartbeats_failed"]) == (40, 1)
    assert numbers["heartbeats_per_second"] == pytest.approx(29 / 30)
    assert (numbers["heartbeat_seconds_average"], numbers["last_heartbeat_age_seconds"]) == (0.5, 2.0)
    assert (numbers["commits"], numbers["commits_failed"], numbers["commit_seconds_last"]) == (2, 1, 0.75)
    assert (numbers["commit_seconds_longest"], numbers["commit_seconds_average"]) == (0.75, 0.5)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_health_and_metrics_of_a_member_match_events(
    protocol: str, consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce, cluster: EmbeddedCluster
) -> None:
    topic, group = new_topic(2), f"g-{uuid.uuid4().hex[:8]}"
    produce(topic, b"x")
    consumer = consumers(topic, group_id=group, group_protocol=protocol, enable_auto_commit=False)
    read(consumer, 1)
    poll_until([consumer], lambda: consumer.health()["group_state"] == "stable" and shares([consumer]) == [[0, 1]])
    consumer.commit()
    health, numbers = consumer.health(), consumer.metrics()
    assert (health["group_protocol"], health["group_waits_for_poll"]) == (protocol, False)
    assert 0 <= health["last_poll_age"] < 30
    assert health["generation"] > 0
    assert "group" not in health["last_errors"]  # what went wrong on the way is over
    assert numbers["assigned_partitions"] == 2
    assert numbers["rebalances"] >= 1
    assert (numbers["commits"], numbers["commits_failed"]) == (1, 0)
    with (
        cluster.faults.fail("OffsetCommit", "OffsetMetadataTooLarge", group=group),
        pytest.raises(errors.OffsetMetadataTooLarge),
    ):
        consumer.commit()
    assert "commit" in consumer.health()["last_errors"]
    consumer.commit()
    assert "commit" not in consumer.health()["last_errors"]
    assert consumer.metrics()["commits_failed"] == 1
    other = consumers(topic, group_id=group, group_protocol=protocol, enable_auto_commit=False)
    poll_until([other], lambda: consumer.health()["group_waits_for_poll"])  # the first one's user is at work
    assert consumer.health()["group_state"] in ("revoking", "reconciling")
    poll_until([consumer, other], lambda: sorted(map(len, shares([consumer, other]))) == [1, 1])
