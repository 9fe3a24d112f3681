"""The lag of a streaming query, which Spark's own connector has among the metrics of its progress."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyclient.spark.offsets import Offsets, from_json, lag_of
from pyclient.types import TopicPartition


def offsets_behind_latest(progress: Mapping[str, Any] | None) -> dict[TopicPartition, int]:
    """Return the lag of each partition, in offsets, after the micro-batch that a query's progress describes.

    `progress` is `query.lastProgress`, one of `query.recentProgress`, or `event.progress` of a
    `StreamingQueryListener`; without any (None), and for sources other than Kafka, there is no lag. The ends of
    partitions are those that Spark asked for with that micro-batch, from pyspark 4.2 on. Of a partition that several
    sources read it is the largest lag; that of a partition which none has read is counted from offset 0.

    Spark gives Python sources no place for the metrics minOffsetsBehindLatest, maxOffsetsBehindLatest and
    avgOffsetsBehindLatest of its own connector: they are the least, largest and mean value here.

    Example:
        worst = max(offsets_behind_latest(query.lastProgress).values(), default=0)
    """
    found: dict[TopicPartition, int] = {}
    for source in (progress or {}).get("sources") or ():
        end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        if end is not None and latest is not None:
            for partition, lag in lag_of(end, latest).items():  # a query may read a topic by several sources
                found[partition] = max(lag, found.get(partition, 0))
    return found


def _offsets(given: Any) -> Offsets | None:
    try:
        return from_json(json.loads(given) if isinstance(given, str) else given)
    except ValueError:
        return None
