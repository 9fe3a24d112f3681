"""Several log directories (`log.dirs`): placement and moves of partitions, and cordoned directories."""

from __future__ import annotations

from typing import Any

from pyclient.records import build_batch
from tests.broker_embedded.parity.scenario import Dialogue, Scenario
from tests.waiting import until

_BROKER = 4


def _described(dialogue: Dialogue) -> list[Any]:
    """Return the DescribeLogDirs response with directories sorted by path."""
    results = dialogue.request("DescribeLogDirs", 5, topics=None).results
    return sorted(results, key=lambda result: str(result.log_dir))


def _partitions(dialogue: Dialogue, topic: str) -> list[list[Any]]:
    """Return the partitions of a topic in each directory, with `future` for future logs."""
    return [
        [
            f"{each.partition_index}{' future' if each.is_future_key else ''}"
            for found in result.topics
            if found.name == topic
            for each in sorted(found.partitions, key=lambda each: int(each.partition_index))
        ]
        for result in _described(dialogue)
    ]


def _move(dialogue: Dialogue, label: str, path: str, topic: str, *partitions: int) -> None:
    dirs = [{"path": path, "topics": [{"name": topic, "partitions": list(partitions)}]}]
    for version in (1, 2):
        dialogue.ask(f"{label} {version}", "AlterReplicaLogDirs", version, dirs=dirs)


def _produce(dialogue: Dialogue, topic: str, index: int, *values: bytes) -> Any:
    records = build_batch([(None, value) for value in values], timestamp_ms=1_700_000_000_000)
    data = [{"name": topic, "partition_data": [{"index": index, "records": records}]}]
    response = dialogue.request("Produce", 9, acks=-1, timeout_ms=30_000, topic_data=data)
    return response.responses[0].partition_responses[0]


def _cordon(dialogue: Dialogue, label: str, *paths: str, broker: str = "1") -> None:
    option = {"name": "cordoned.log.dirs", "config_operation": 0, "value": ",".join(paths)}
    resource = {"resource_type": _BROKER, "resource_name": broker, "configs": [option]}
    dialogue.ask(label, "IncrementalAlterConfigs", 1, resources=[resource], validate_only=False)


def _create(dialogue: Dialogue, label: str, name: str, partitions: int) -> None:
    new = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    [created] = dialogue.request("CreateTopics", 7, topics=[new], timeout_ms=30_000).topics
    dialogue.note(label, [created.error_code, created.error_message])


def several_log_dirs(dialogue: Dialogue) -> None:
    until(lambda: len(_described(dialogue)) == 2, "both directories are there")
    first, second = (str(result.log_dir) for result in _described(dialogue))
    dialogue.name(first, "first")
    dialogue.name(second, "second")
    dialogue.note("empty", _described(dialogue))
    dialogue.create_topic("t", 4)
    dialogue.create_topic("u", 3)
    for topic, count in (("t", 4), ("u", 3)):
        for index in range(count):
            until(
                lambda topic=topic, index=index: _produce(dialogue, topic, index, b"x").error_code == 0,  # type: ignore[misc]
                "it is led",
            )
    counts = [
        len(at_t) + len(at_u) for at_t, at_u in zip(_partitions(dialogue, "t"), _partitions(dialogue, "u"), strict=True)
    ]
    dialogue.note("partitions per directory", sorted(counts))
    _move(dialogue, "no such directory", "/no/such/directory", "t", 0)
    _move(dialogue, "a relative directory", "data", "t", 0)
    _move(dialogue, "no such topic", first, "none", 0)
    _move(dialogue, "no such partition", first, "t", 0, 9)
    _move(dialogue, "no such topic, no such directory", "/no/such/directory", "none", 0)
    dialogue.ask("nothing", "AlterReplicaLogDirs", 2, dirs=[])
    here = next(number for number, found in enumerate(_partitions(dialogue, "t")) if "1" in found)
    there = (second, first)[here]
    _move(dialogue, "where it is", (first, second)[here], "t", 1)
    _move(dialogue, "elsewhere", there, "t", 1)
    until(
        lambda: "1" in _partitions(dialogue, "t")[1 - here] and "1" not in _partitions(dialogue, "t")[here],
        "it is moved",
    )
    dialogue.note("after the move", [each for each in _partitions(dialogue, "t")[1 - here] if each.startswith("1")])
    dialogue.note("offset after the move", _produce(dialogue, "t", 1, b"y").base_offset > 0)


def cordoned_log_dirs(dialogue: Dialogue) -> None:
    until(lambda: len(_described(dialogue)) == 2, "both directories are there")
    first, second = (str(result.log_dir) for result in _described(dialogue))
    dialogue.name(first, "first")
    dialogue.name(second, "second")
    _cordon(dialogue, "a directory that is not there", "/no/such/directory")
    _cordon(dialogue, "of all brokers", second, broker="")
    dialogue.create_topic("before", 2)
    _cordon(dialogue, "one", second)
    until(lambda: _described(dialogue)[1].is_cordoned, "it is cordoned")
    dialogue.note("cordoned", {str(number): each.is_cordoned for number, each in enumerate(_described(dialogue))})
    dialogue.create_topic("t", 3)
    until(lambda: sum(map(len, _partitions(dialogue, "t"))) == 3, "it is there")
    dialogue.note("placed", {str(number): len(found) for number, found in enumerate(_partitions(dialogue, "t"))})
    _move(dialogue, "to a cordoned one", second, "t", 1)
    _cordon(dialogue, "both", first, second)
    until(lambda: all(result.is_cordoned for result in _described(dialogue)), "they are cordoned")
    _create(dialogue, "create in none", "u", 1)
    dialogue.note("produce where it is", _produce(dialogue, "t", 0, b"x").error_code)
    count = {"name": "t", "count": 4, "assignments": None}
    response = dialogue.request("CreatePartitions", 3, topics=[count], timeout_ms=30_000).results[0]
    dialogue.note("more partitions in none", [response.error_code, response.error_message])
    _cordon(dialogue, "all by a star", "*")
    _cordon(dialogue, "none")
    until(lambda: not any(result.is_cordoned for result in _described(dialogue)), "none is cordoned")
    new = {"name": "v", "num_partitions": 1, "replication_factor": 1}

    def created() -> bool:
        response = dialogue.request("CreateTopics", 7, topics=[new], timeout_ms=30_000)
        return response.topics[0].error_code in (0, 36)

    until(created, "a topic can be created again")


def one_log_dir(dialogue: Dialogue) -> None:
    [result] = _described(dialogue)
    dialogue.name(str(result.log_dir), "data")
    dialogue.create_topic("t")
    _move(dialogue, "no such directory", "/no/such/directory", "t", 0)
    _move(dialogue, "no such topic", str(result.log_dir), "none", 0)
    _move(dialogue, "where it is", str(result.log_dir), "t", 0)
    dialogue.note("described", _described(dialogue))


SCENARIOS = (
    Scenario(several_log_dirs, log_dirs=2),
    Scenario(cordoned_log_dirs, log_dirs=2),
    Scenario(one_log_dir),
)
