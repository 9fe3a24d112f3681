"""Unusual requests for topics and their data: Metadata, Produce, Fetch, and requests for offsets."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

from pyclient.records import build_batch
from tests.broker_embedded.odd.table import ABSENT, Scenario, ask, derived
from tests.broker_embedded.odd.wire import IdOf

NO_ID: Final = uuid.UUID(int=0)
ANOTHER_ID: Final = uuid.UUID(int=99)
LONG: Final = "x" * 250
T, TWO = "odd-one", "odd-two"
"""Existing topics with one and with two partitions."""


def _metadata() -> Iterator[Scenario]:
    for label, topics in (
        ("no topics", []),
        ("unknown", [{"name": ABSENT}]),
        ("one twice", [{"name": T}, {"name": T}]),
        ("unknown twice", [{"name": ABSENT}, {"name": ABSENT}]),
        ("impossible names", [{"name": name} for name in ("", ".", "..", "a b", LONG)]),
    ):
        versions = (0, 1, 4, 9, 12, 13) if topics else (1, 4, 9, 12, 13)
        allowed = {"allow_auto_topic_creation": False}
        yield from ask("Metadata", label, tuple(v for v in versions if v >= 4), topics=topics, **allowed)
    yield from ask(
        "Metadata",
        "impossible names that may be made",
        (0, 4),
        topics=[{"name": name} for name in ("", ".", "..", "a b", LONG)],
        allow_auto_topic_creation=True,
    )


def _metadata_by_id() -> Iterator[Scenario]:
    for label, topic in (
        ("by id", {"name": None, "topic_id": IdOf(T)}),
        ("by unknown id", {"name": None, "topic_id": ANOTHER_ID}),
        ("by nothing", {"name": None, "topic_id": NO_ID}),
        ("by name and id", {"name": T, "topic_id": IdOf(T)}),
        ("by name and another's id", {"name": T, "topic_id": IdOf(TWO)}),
        ("by name and unknown id", {"name": T, "topic_id": ANOTHER_ID}),
        ("by an empty name and an id", {"name": "", "topic_id": IdOf(T)}),
    ):
        more = {"allow_auto_topic_creation": False}
        yield from ask("Metadata", label, (10, 11, 12, 13), topics=[topic], **more)
    yield from ask(
        "Metadata",
        "by id and by name",
        (12, 13),
        allow_auto_topic_creation=False,
        topics=[{"name": None, "topic_id": IdOf(T)}, {"name": TWO}],
    )
    yield from ask(
        "Metadata",
        "the same by id twice",
        (12,),
        allow_auto_topic_creation=False,
        topics=[{"name": None, "topic_id": IdOf(T)}, {"name": None, "topic_id": IdOf(T)}],
    )
    yield from ask(
        "Metadata",
        "operations",
        (8, 10),
        topics=[{"name": T}],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )


def _described() -> Iterator[Scenario]:
    for label, names, limit, cursor in (
        ("twice", [T, T], 10, None),
        ("no limit", [T, TWO], 0, None),
        ("a negative limit", [TWO], -1, None),
        ("nameless", [""], 10, None),
        ("too long a name", [LONG], 10, None),
        ("a cursor of an unknown topic", [ABSENT, T], 10, {"topic_name": ABSENT, "partition_index": 0}),
        ("a nameless cursor", [T], 10, {"topic_name": "", "partition_index": 0}),
    ):
        topics = [{"name": name} for name in names]
        more = {"response_partition_limit": limit, "cursor": cursor}
        yield from ask("DescribeTopicPartitions", label, topics=topics, **more)


def _batch(**options: Any) -> bytes:
    return build_batch([(None, b"value")], timestamp_ms=1_700_000_000_000, **options)


def _spoilt(at: int, *values: int) -> bytes:
    batch = bytearray(_batch())
    batch[at : at + len(values)] = bytes(values)
    return bytes(batch)


def _produced(name: str, *partitions: tuple[int, bytes | None], topic_id: Any = NO_ID) -> dict[str, Any]:
    data = [{"index": index, "records": records} for index, records in partitions]
    return {"name": name, "topic_id": topic_id, "partition_data": data}


def _produce_bytes() -> Iterator[Scenario]:
    good = _batch()
    for label, records in (
        ("good", good),
        ("empty", b""),
        ("a byte", b"x"),
        ("a header's half", good[:30]),
        ("a header", good[:61]),
        ("cut off", good[:-1]),
        ("two batches", good + good),
        ("another base offset", _spoilt(0, 0, 0, 0, 0, 0, 0, 0, 5)),
        ("a negative length", _spoilt(8, 0xFF, 0xFF, 0xFF, 0xFF)),
        ("a length of zero", _spoilt(8, 0, 0, 0, 0)),
        ("too long a length", _spoilt(8, 0x7F, 0xFF, 0xFF, 0xFF)),
        ("magic 1", _spoilt(16, 1)),
        ("magic 3", _spoilt(16, 3)),
        ("another sum", _spoilt(17, 0, 0, 0, 0)),
        ("large", build_batch([(None, b"x" * 2_000_000)], timestamp_ms=1_700_000_000_000)),
    ):
        yield from ask("Produce", label, (3, 8, 12), acks=-1, timeout_ms=1000, topic_data=[_produced(T, (0, records))])


def _produce() -> Iterator[Scenario]:
    good = _batch()
    for acks in (2, -2, 7, 32767):
        yield from ask("Produce", f"acks {acks}", acks=acks, topic_data=[_produced(T, (0, good), topic_id=IdOf(T))])
    for label, topics in (
        ("unknown", [_produced(ABSENT, (0, good))]),
        ("nameless", [_produced("", (0, good))]),
        ("impossible name", [_produced("a b", (0, good))]),
        ("internal", [_produced("__consumer_offsets", (0, good))]),
        ("no partition", [_produced(T)]),
        ("unknown partition", [_produced(T, (9, good))]),
        ("negative partition", [_produced(T, (-1, good))]),
        ("partition twice", [_produced(T, (0, good), (0, good))]),
        ("topic twice", [_produced(T, (0, good)), _produced(T, (0, good))]),
        ("topic twice, another partition", [_produced(TWO, (0, good)), _produced(TWO, (1, good))]),
    ):
        yield from ask("Produce", label, (3, 12), acks=-1, timeout_ms=1000, topic_data=topics)
    for label, topic_id in (("by id", IdOf(T)), ("by unknown id", ANOTHER_ID), ("by no id", NO_ID)):
        topics = [_produced("", (0, good), topic_id=topic_id)]
        yield from ask("Produce", label, (13,), acks=-1, timeout_ms=1000, topic_data=topics)
    yield from ask(
        "Produce", "timeout -1", acks=-1, timeout_ms=-1, topic_data=[_produced(T, (0, good), topic_id=IdOf(T))]
    )
    yield from ask(
        "Produce",
        "a transactional id without need",
        (3, 12),
        acks=-1,
        transactional_id="",
        timeout_ms=1000,
        topic_data=[_produced(T, (0, good))],
    )
    yield from ask("Produce", "acks 2 and no topic", acks=2)


def _produce_in_sequence() -> Iterator[Scenario]:
    for label, epoch, sequence in (
        ("sequenced", 0, 7),
        ("sequenced with a gap", 0, 99),
        ("an older epoch", 3, 0),
        ("an epoch again", 2, 0),
    ):
        batch = _batch(producer_id=5, producer_epoch=epoch, base_sequence=sequence)
        yield from ask("Produce", label, (12,), acks=-1, topic_data=[_produced(T, (0, batch))])


def _read(partition: int = 0, offset: int = 0, **more: Any) -> dict[str, Any]:
    return {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20, **more}


def _last() -> Iterator[Scenario]:
    """Yield requests that, if accepted, change the offsets of all later scenarios; they come last."""
    topics = [_produced(T, (0, _batch() + b"\0"))]
    yield from ask("Produce", "a byte more", (3, 8, 12), acks=-1, timeout_ms=1000, topic_data=topics)


_READER: Final[dict[str, Any]] = {
    "replica_id": -1,
    "max_wait_ms": 0,
    "min_bytes": 0,
    "max_bytes": 1 << 20,
    "session_epoch": -1,
}


def _fetching(
    label: str, *partitions: dict[str, Any], topic: str = T, versions: tuple[int, ...] = (4, 12, 18), **more: Any
) -> Iterator[Scenario]:
    wanted = {"topic": topic, "topic_id": IdOf(topic), "partitions": list(partitions)}
    yield from ask("Fetch", label, versions, **{**_READER, "topics": [wanted], **more})


def _fetch() -> Iterator[Scenario]:
    yield from _fetching("from the start", _read())
    yield from _fetching("partition -1", _read(-1))
    yield from _fetching("unknown partition", _read(9))
    yield from _fetching("an unknown one and a good one", _read(9), _read())
    yield from _fetching("offset -1", _read(0, -1))
    yield from _fetching("offset -5", _read(0, -5))
    yield from _fetching("far behind the end", _read(0, 1 << 40))
    yield from _fetching("partition twice", _read(), _read())
    yield from _fetching("no bytes", _read(), max_bytes=0)
    yield from _fetching("negative bytes", _read(), max_bytes=-1)
    yield from _fetching("no bytes of the partition", _read(partition_max_bytes=0))
    yield from _fetching("negative bytes of the partition", _read(partition_max_bytes=-1))
    yield from _fetching("negative least", _read(), min_bytes=-1)
    yield from _fetching("negative wait", _read(0, 0), max_wait_ms=-1, min_bytes=1 << 20)
    yield from _fetching("isolation 9", _read(), isolation_level=9)
    yield from _fetching("isolation -1", _read(), isolation_level=-1)
    yield from _fetching("read committed", _read(), isolation_level=1)
    yield from _fetching("no partition")
    yield from _fetching("unknown topic", _read(), topic=ABSENT)
    yield from _fetching("nameless", _read(), topic="")
    yield from _fetching("impossible name", _read(), topic="a b")


def _fetch_as_others() -> Iterator[Scenario]:
    """Yield fetches with leader epochs, with a replica id, and in sessions."""
    for epoch in (-2, -1, 0, 1, 99):
        yield from _fetching(f"leader epoch {epoch}", _read(current_leader_epoch=epoch), versions=(9, 12, 18))
    for epoch in (-2, 0, 99):
        yield from _fetching(f"last fetched epoch {epoch}", _read(0, 1, last_fetched_epoch=epoch), versions=(12, 18))
    yield from _fetching("a replica", _read(), versions=(4, 12), replica_id=7)
    yield from _fetching("a debugger", _read(), versions=(4, 12), replica_id=-2)
    yield from _fetching("replica -3", _read(), versions=(4, 12), replica_id=-3)
    yield from _fetching(
        "a replica by tag", _read(), versions=(18,), replica_state={"replica_id": 7, "replica_epoch": -1}
    )
    yield from _fetching("another cluster", _read(), versions=(12, 18), cluster_id="another")
    yield from _fetching("an unknown session", _read(), versions=(7, 12, 18), session_id=77, session_epoch=1)
    yield from _fetching("session 0 with an epoch", _read(), versions=(7, 18), session_id=0, session_epoch=5)
    yield from _fetching("a session to close that is none", _read(), versions=(7, 18), session_id=77, session_epoch=-1)
    yield from _fetching("session epoch -2", _read(), versions=(7, 18), session_id=0, session_epoch=-2)
    yield from _fetching(
        "forgotten without a session",
        _read(),
        versions=(7,),
        forgotten_topics_data=[{"topic": T, "partitions": [0, 0, 9]}],
    )
    for label, topic_id in (("unknown id", ANOTHER_ID), ("no id", NO_ID)):
        yield from ask("Fetch", label, (13, 18), **_READER, topics=[{"topic_id": topic_id, "partitions": [_read()]}])
    twice = [{"topic": T, "topic_id": IdOf(T), "partitions": [_read()]}] * 2
    yield from ask("Fetch", "topic twice", (4, 18), **_READER, topics=twice)


def _offsets() -> Iterator[Scenario]:
    def find(
        label: str, *partitions: dict[str, Any], topic: str = T, versions: tuple[int, ...] = (), **more: Any
    ) -> Iterator[Scenario]:
        yield from ask(
            "ListOffsets",
            label,
            versions,
            **{"replica_id": -1, "topics": [{"name": topic, "partitions": list(partitions)}], **more},
        )

    partition = {"partition_index": 0, "timestamp": -1}
    yield from find("partition -1", {**partition, "partition_index": -1})
    yield from find("unknown partition", {**partition, "partition_index": 9})
    yield from find("partition twice", partition, partition)
    yield from find(
        "partition thrice and another", partition, partition, {**partition, "partition_index": 1}, partition
    )
    yield from find("no partition")
    yield from find("unknown topic", partition, topic=ABSENT)
    yield from find("nameless", partition, topic="")
    yield from find("impossible name", partition, topic="a b")
    yield from find("isolation 9", partition, isolation_level=9, versions=(2, 11))
    yield from find("a debugger", partition, replica_id=-2)
    yield from find("a replica", partition, replica_id=7)
    yield from find("replica -3", partition, replica_id=-3)
    yield from find("timeout -1", partition, versions=(10, 11), timeout_ms=-1)
    for timestamp in (0, 1_700_000_000_000, 1_700_000_000_001, 1 << 62, -7, -99):
        yield from find(f"timestamp {timestamp}", {**partition, "timestamp": timestamp})
    for epoch in (-2, 0, 1, 99):
        yield from find(f"leader epoch {epoch}", {**partition, "current_leader_epoch": epoch}, versions=(4, 11))
    yield from ask("ListOffsets", "topic twice", replica_id=-1, topics=[{"name": T, "partitions": [partition]}] * 2)
    yield from ask(
        "ListOffsets",
        "topic twice, another partition",
        replica_id=-1,
        topics=[
            {"name": TWO, "partitions": [partition]},
            {"name": TWO, "partitions": [{**partition, "partition_index": 1}]},
        ],
    )


def _epochs() -> Iterator[Scenario]:
    for epoch, current in ((0, -1), (-1, -1), (-2, -1), (5, -1), (0, 0), (0, 9), (0, -2)):
        wanted = {"partition": 0, "leader_epoch": epoch, "current_leader_epoch": current}
        label = f"epoch {epoch} at {current}"
        yield from ask("OffsetForLeaderEpoch", label, topics=[{"topic": T, "partitions": [wanted]}])


def _marks() -> Iterator[Scenario]:
    """Yield requests for leader epochs, producers and log start offsets."""
    for label, topic, numbers in (
        ("unknown topic", ABSENT, [0]),
        ("nameless", "", [0]),
        ("impossible name", "a b", [0]),
        ("odd partitions", T, [9, -1]),
        ("twice", T, [0, 0]),
    ):
        partitions = [{"partition": index, "leader_epoch": 0, "current_leader_epoch": -1} for index in numbers]
        yield from ask("OffsetForLeaderEpoch", label, topics=[{"topic": topic, "partitions": partitions}])
        yield from ask("DescribeProducers", label, topics=[{"name": topic, "partition_indexes": numbers}])
        offsets = [{"partition_index": index, "offset": 0} for index in numbers]
        yield from ask("DeleteRecords", label, topics=[{"name": topic, "partitions": offsets}], timeout_ms=5000)
    yield from ask(
        "OffsetForLeaderEpoch",
        "replica 7",
        (3, 4),
        replica_id=7,
        topics=[{"topic": T, "partitions": [{"partition": 0, "leader_epoch": 0, "current_leader_epoch": -1}]}],
    )
    yield from ask("DescribeProducers", "topic twice", topics=[{"name": T, "partition_indexes": [0]}] * 2)


def _deleted_records() -> Iterator[Scenario]:
    for label, offset in (("-2", -2), ("far", 1 << 40), ("the end", -1), ("0 again", 0)):
        partitions = [{"partition_index": 1, "offset": offset}]
        yield from ask("DeleteRecords", label, topics=[{"name": TWO, "partitions": partitions}], timeout_ms=5000)
    yield from ask(
        "DeleteRecords",
        "timeout -1",
        timeout_ms=-1,
        topics=[{"name": TWO, "partitions": [{"partition_index": 0, "offset": 0}]}],
    )
    yield from ask(
        "DeleteRecords",
        "internal",
        timeout_ms=5000,
        topics=[{"name": "__consumer_offsets", "partitions": [{"partition_index": 0, "offset": 0}]}],
    )
    yield from ask(
        "DeleteRecords",
        "topic twice",
        timeout_ms=5000,
        topics=[{"name": TWO, "partitions": [{"partition_index": 0, "offset": 0}]}] * 2,
    )


SCENARIOS: Final = tuple(
    chain(
        _metadata(),
        _metadata_by_id(),
        _described(),
        derived("DescribeTopicPartitions", "Produce", "Fetch"),
        derived("ListOffsets", "OffsetForLeaderEpoch", "DescribeProducers", "DeleteRecords"),
        ask("Produce", "well", (3, 9, 12), acks=-1, topic_data=[_produced(T, (0, _batch()))]),
        _fetch(),
        _fetch_as_others(),
        _offsets(),
        _epochs(),
        _marks(),
        _deleted_records(),
        _produce_bytes(),
        _produce(),
        _produce_in_sequence(),
        _last(),
    )
)
