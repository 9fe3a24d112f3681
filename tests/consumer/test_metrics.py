"""Consumer metrics, with both APIs."""

from __future__ import annotations

from typing import Any

import pytest

from pyclient.consumer.metrics import ConsumerMetrics
from tests.consumer.consumer_factory import ConsumerFactory, partitions, read
from tests.consumer.consumer_samples import batch_of, fetched


def slices(count: int, of: int = 10) -> list[Any]:
    return [fetched(batch_of(0, of)).take(0, of, count)]


def test_records_and_bytes_are_counted_in_total_and_as_30_s_rates() -> None:
    metrics, size = ConsumerMetrics(), len(batch_of(0, 10))
    for now in (100.0, 100.5, 110.0):
        metrics.poll_begun(now)
        metrics.poll_ended(slices(10), now)
    seen = metrics.snapshot(110.0)
    assert (seen["records_consumed"], seen["bytes_consumed"], seen["polls"]) == (30, 3 * size, 3)
    assert (seen["records_per_second"], seen["records_per_poll"]) == (1.0, 10)
    assert metrics.snapshot(135.0)["records_per_second"] == pytest.approx(10 / 30)
    assert metrics.snapshot(200.0)["bytes_per_second"] == 0


def test_part_of_a_batch_counts_for_its_share() -> None:
    metrics = ConsumerMetrics()
    metrics.poll_begun(1.0)
    metrics.poll_ended(slices(5), 1.0)
    assert metrics.bytes == len(batch_of(0, 10)) // 2


def test_idle_ratio_is_the_time_inside_polls() -> None:
    metrics = ConsumerMetrics()
    assert metrics.snapshot(5.0)["poll_idle_ratio"] == 0
    metrics.poll_begun(10.0)
    metrics.poll_ended([], 13.0)
    assert metrics.snapshot(20.0)["poll_idle_ratio"] == pytest.approx(0.3)
    metrics.poll_begun(20.0)
    assert metrics.snapshot(30.0)["poll_idle_ratio"] == pytest.approx(13 / 20)
    assert metrics.snapshot(30.0)["last_poll_age_seconds"] == 10


def test_fetches_have_sizes_and_latencies() -> None:
    metrics = ConsumerMetrics()
    metrics.fetched(1, 1_000, 0.5, 1.0)
    metrics.fetched(2, 3_000, 0.1, 2.0)
    metrics.fetch_failed()
    seen = metrics.snapshot(2.0)
    assert (seen["fetches"], seen["fetches_failed"], seen["fetched_bytes"]) == (2, 1, 4_000)
    assert (seen["fetch_bytes_average"], seen["fetch_seconds_longest"]) == (2_000, 0.5)
    assert seen["fetch_seconds_average"] == pytest.approx(0.3)


def test_metrics_are_plain_numbers_in_both_apis(consumers: ConsumerFactory, new_topic: Any, produce: Any) -> None:
    topic = new_topic(2)
    produce(topic, *[b"%d" % n for n in range(20)])
    consumer = consumers(group_id=f"g-{topic}", enable_auto_commit=False)  # a slow test would count one more commit
    (partition,) = partitions(topic, 0)
    consumer.assign([partition])
    read(consumer, 5)
    consumer.commit()
    seen = consumer.metrics()
    assert (seen["records_consumed"], seen["lag"], seen["lag_max"]) == (5, {str(partition): 15}, 15)
    assert seen["commits"] == 1
    assert seen["fetches"] >= 1
    assert seen["fetched_bytes"] >= seen["bytes_consumed"] > 0
    assert sum(seen["fetched_bytes_by_node"].values()) == seen["fetched_bytes"]
    tables = ("lag", "fetched_bytes_by_node")
    assert all(isinstance(value, int | float) for name, value in seen.items() if name not in tables)
