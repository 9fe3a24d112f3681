"""Offsets in responses: fetches at their limits, leader epochs, timestamps and commits."""

from __future__ import annotations

import uuid
from typing import Any

from pyclient.records import Compression
from tests.broker_embedded.parity.scenario import Dialogue, Scenario
from tests.records.raw_batches import NOW, batch, field, record
from tests.waiting import until

TOPIC, OTHER, EMPTY = "fetched", "other", "empty"
ONE = batch(record(value=field(bytes(900))), count=1)
THREE = record(0, timestamp=5) + record(1, timestamp=9) + record(2, timestamp=7)


def _append(dialogue: Dialogue, topic: str, *batches: bytes, partition: int = 0) -> None:
    for data in batches:
        topics = [{"name": topic, "partition_data": [{"index": partition, "records": data}]}]
        [answer] = dialogue.request("Produce", 9, acks=-1, timeout_ms=10_000, topic_data=topics).responses
        assert answer.partition_responses[0].error_code == 0, answer


def _fetch(dialogue: Dialogue, version: int, *partitions: dict[str, Any], topic: str = TOPIC, **more: Any) -> Any:
    fields = {
        "replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": list(partitions)}], **more,
    }  # fmt: skip
    [answer] = dialogue.request("Fetch", version, **fields).responses
    return {
        f"{each.partition_index}": {
            "error": each.error_code,
            "bytes": len(each.records or b""),
            "diverging": each.diverging_epoch,
        }
        for each in answer.partitions
    }


def _from(offset: int, limit: int = 1 << 20, partition: int = 0, **more: Any) -> dict[str, Any]:
    return {"partition": partition, "fetch_offset": offset, "partition_max_bytes": limit, **more}


def fetches_end_at_their_limits(dialogue: Dialogue) -> None:
    dialogue.create_topic(TOPIC, 2)
    for partition in (0, 1):
        _append(dialogue, TOPIC, *[ONE] * 5, partition=partition)
    size = len(ONE)
    for version in (4, 11, 12):
        for limit in (0, 1, 60, 61, size - 1, size, size + 1, size + 60, 2 * size - 1, 2 * size, 3 * size + 500):
            label = f"v{version}, {limit} bytes"
            dialogue.note(f"{label} of one", _fetch(dialogue, version, _from(0, limit)))
            dialogue.note(f"{label} from offset 3", _fetch(dialogue, version, _from(3, limit)))
            second = _fetch(dialogue, version, _from(0, size), _from(0, limit, 1))
            dialogue.note(f"{label} of the second", second)
            both = _fetch(dialogue, version, _from(0), _from(0, partition=1), max_bytes=limit)
            dialogue.note(f"{label} of all", both)
            dialogue.note(f"{label}, committed", _fetch(dialogue, version, _from(0, limit), isolation_level=1))


def leader_epochs_end_where_the_next_begins(dialogue: Dialogue) -> None:
    for topic in (TOPIC, EMPTY):
        dialogue.create_topic(topic)
    _append(dialogue, TOPIC, ONE, ONE)
    for topic in (TOPIC, EMPTY):
        for epoch in (-2, -1, 0, 1, 5):
            for version in (2, 4):
                wanted = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}
                topics = [{"topic": topic, "partitions": [wanted]}]
                dialogue.ask(f"epoch {epoch} of {topic} v{version}", "OffsetForLeaderEpoch", version, topics=topics)
            for offset in (0, 1):
                fetched = _fetch(dialogue, 12, _from(offset, last_fetched_epoch=epoch), topic=topic)
                dialogue.note(f"fetch of {topic} from {offset} after epoch {epoch}", fetched)


def timestamps_are_those_of_the_records(dialogue: Dialogue) -> None:
    none = {"base_timestamp": -1, "max_timestamp": -1, "count": 1}
    for codec in (Compression.NONE, Compression.GZIP):
        for label, batches in (
            ("right", [batch(THREE, codec=codec, max_timestamp=NOW + 9)]),
            ("later", [batch(THREE, codec=codec, max_timestamp=NOW + 50)]),
            ("earlier", [batch(THREE, codec=codec, max_timestamp=NOW)]),
            ("none", [batch(THREE, codec=codec, max_timestamp=-1)]),
            ("no times", [batch(record(), codec=codec, **none)]),
            ("no times and a claim", [batch(record(), codec=codec, **{**none, "max_timestamp": NOW})]),
            ("twice", [batch(THREE, codec=codec, max_timestamp=NOW + 9)] * 2),
            ("of the broker", [batch(THREE, codec=codec, max_timestamp=NOW + 50, attributes=8)]),
        ):
            topic = f"{codec.name}-{label}".replace(" ", "-")
            dialogue.create_topic(topic)
            _append(dialogue, topic, *batches)
            for timestamp in (-1, -2, -3, 0, NOW, NOW + 6, NOW + 9, NOW + 10, NOW + 50):
                wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
                topics = [{"name": topic, "partitions": [wanted]}]
                dialogue.ask(f"{topic} at {timestamp}", "ListOffsets", 9, replica_id=-1, topics=topics)


def commits_need_the_topic(dialogue: Dialogue) -> None:
    group = "g"
    topic_id = dialogue.create_topic(TOPIC)
    dialogue.find_coordinator(group)
    unknown = uuid.UUID(int=99)

    def commit(label: str, name: str, of: uuid.UUID, index: int) -> None:
        for version in (2, 5, 8, 9, 10):
            partition = {"partition_index": index, "committed_offset": 1, "committed_leader_epoch": -1}
            topics = [{"name": name, "topic_id": of, "partitions": [{**partition, "committed_metadata": ""}]}]
            fields = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
            dialogue.ask(f"{label} v{version}", "OffsetCommit", version, **fields)

    commit("good", TOPIC, topic_id, 0)
    commit("another partition", TOPIC, topic_id, 9)
    commit("an unknown topic", "unknown", unknown, 0)
    dialogue.request("DeleteTopics", 5, topic_names=[TOPIC], timeout_ms=5000)
    until(lambda: dialogue.metadata(TOPIC).error_code != 0, "the topic is deleted")
    commit("a deleted topic", TOPIC, topic_id, 0)
    commit("another partition of a deleted topic", TOPIC, topic_id, 9)


def _sources(dialogue: Dialogue) -> None:
    dialogue.create_topic(TOPIC)
    dialogue.create_topic(OTHER, configs=[{"name": "min.insync.replicas", "value": "3"}])
    for label, kind, name in (("topic", 2, TOPIC), ("topic of its own", 2, OTHER), ("broker", 4, "1")):
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": ["min.insync.replicas"]}
        [found] = dialogue.request("DescribeConfigs", 4, resources=[resource], include_synonyms=True).results
        [config] = found.configs
        dialogue.note(f"{label} value", [config.value, config.config_source])
        for at, synonym in enumerate(config.synonyms):
            dialogue.note(f"{label} synonym {at}", synonym)


def min_insync_replicas_comes_from_the_default(dialogue: Dialogue) -> None:
    _sources(dialogue)


def min_insync_replicas_comes_from_the_broker(dialogue: Dialogue) -> None:
    _sources(dialogue)


SCENARIOS = (
    Scenario(fetches_end_at_their_limits),
    Scenario(leader_epochs_end_where_the_next_begins),
    Scenario(timestamps_are_those_of_the_records),
    Scenario(commits_need_the_topic),
    Scenario(min_insync_replicas_comes_from_the_default, release="4.0"),
    Scenario(min_insync_replicas_comes_from_the_broker, {"min.insync.replicas": "2"}, release="4.0"),
)
