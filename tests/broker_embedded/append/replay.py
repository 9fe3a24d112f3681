"""Sends hostile batches to a broker and reports what it answered, and what it stored of those it took.

`kafka_answers.json` has what an Apache Kafka 4.3.1 answered; `make test-kafka` checks that it still does, and with
PYCLIENT_RECORD=1 writes the file.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.broker_embedded.append.cases import TOPICS, Case
from tests.broker_embedded.odd.wire import TIMEOUT, Connection
from tests.records.raw_batches import NOW

ANSWERS: Final = Path(__file__).with_name("kafka_answers.json")

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")


class Answer(NamedTuple):
    """A broker's reaction to a batch: error code, True if it has a message, named records, stored batches."""

    code: int
    says_why: bool = False
    records: tuple[int, ...] = ()
    stored: tuple[int, ...] | None = None
    """Attributes, last offset delta, count, and the maximum timestamp less the test's time."""


def replay(bootstrap_servers: str, cases: Sequence[Case]) -> Iterator[tuple[str, Answer]]:
    """Yield the name of each case and its answer."""
    connection = Connection(bootstrap_servers)
    try:
        _make_topics(connection)
        for case in cases:
            yield case.name, _answer(connection, case)
    finally:
        connection.close()


def _make_topics(connection: Connection) -> None:
    wanted = [
        {
            "name": name,
            "num_partitions": 1,
            "replication_factor": 1,
            "configs": [{"name": key, "value": value} for key, value in options.items()],
        }
        for name, options in TOPICS.items()
    ]
    for topic in connection.ask_in_plain("CreateTopics", 7, {"topics": wanted, "timeout_ms": 30_000}).topics:
        assert topic.error_code == 0, topic
    fields = {"topics": [{"name": name} for name in TOPICS], "allow_auto_topic_creation": False}
    deadline = time.monotonic() + TIMEOUT
    while any(topic.error_code for topic in connection.ask_in_plain("Metadata", 12, fields).topics):
        assert time.monotonic() < deadline, "the topics are not there"
    offsets = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    wanted = [{"name": name, "partitions": [offsets]} for name in TOPICS]
    while any(
        topic.partitions[0].error_code
        for topic in connection.ask_in_plain("ListOffsets", 4, {"replica_id": -1, "topics": wanted}).topics
    ):
        assert time.monotonic() < deadline, "the topics have no leader"


def produce(connection: Connection, case: Case) -> Any:
    """Return the answer of the partition."""
    data = [{"name": case.topic, "partition_data": [{"index": 0, "records": case.data}]}]
    fields = {"transactional_id": None, "acks": -1, "timeout_ms": 10_000, "topic_data": data}
    return connection.ask_in_plain("Produce", case.version, fields).responses[0].partition_responses[0]


def _answer(connection: Connection, case: Case) -> Answer:
    said = produce(connection, case)
    named = tuple(each.batch_index for each in said.record_errors or ())
    stored = None if said.error_code else _stored(connection, case.topic, said.base_offset)
    return Answer(said.error_code, bool(said.error_message), named, stored)


def _stored(connection: Connection, topic: str, offset: int) -> tuple[int, ...]:
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    fields = {
        "replica_id": -1, "max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [partition]}],
    }  # fmt: skip
    found = connection.ask_in_plain("Fetch", 11, fields).responses[0].partitions[0]
    header = _HEADER.unpack_from(bytes(found.records))
    return header[5], header[6], header[12], 0 if topic == "stamped" else header[8] - NOW


def read_answers() -> dict[str, Answer]:
    """Return the recorded answers of Kafka by case name."""
    found = {}
    for (code, says_why, records, stored), names in json.loads(ANSWERS.read_text()):
        answer = Answer(code, says_why, tuple(records), None if stored is None else tuple(stored))
        found.update(dict.fromkeys(names, answer))
    return found


def write_answers(answers: Mapping[str, Answer]) -> None:
    """Write every distinct answer once, with the names of its cases."""
    found: dict[str, list[str]] = {}
    for name, answer in answers.items():
        found.setdefault(json.dumps(answer), []).append(name)
    lines = (f"[{answer}, {json.dumps(names)}]" for answer, names in found.items())
    ANSWERS.write_text("[\n" + ",\n".join(lines) + "\n]\n")
