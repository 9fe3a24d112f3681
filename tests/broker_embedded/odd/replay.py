"""Replay scenarios on a broker and return its answers, without values that differ between any two brokers.

`kafka_answers.json` has what an Apache Kafka 4.3.1 answered; `make test-kafka` checks that it still does, and with
PYCLIENT_RECORD=1 writes the file again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from tests.broker_embedded.odd import admin, data, frames, groups, transactions
from tests.broker_embedded.odd.data import TWO, T
from tests.broker_embedded.odd.frames import Frame
from tests.broker_embedded.odd.table import Scenario
from tests.broker_embedded.odd.wire import TIMEOUT, Connection, Lost, Names

ANSWERS: Final = Path(__file__).with_name("kafka_answers.json")
ROOMS: Final[tuple[ModuleType, ...]] = (frames, data, groups, admin, transactions)

SETTINGS: Final = {"offsets.topic.num.partitions": "5"}
"""Of both brokers."""

_UNKNOWN: Final = -1
_NOT_IN_FAILURES: Final = ("log_start_offset",)
_LOOKS: Final = ("Describe", "List", "Metadata", "ConsumerGroupDescribe", "OffsetFetch")


def replay(
    bootstrap_servers: str, scenarios: Sequence[Scenario | Frame], expected: Mapping[str, Any] | None = None
) -> Iterator[tuple[str, Any]]:
    """Yield each scenario's label and answer.

    A real broker applies its controller's decisions with a delay: with `expected` answers, a read-only scenario is
    repeated for up to 5 s while its answer differs.
    """
    connection, names = Connection(bootstrap_servers), Names()
    try:
        _prepare(connection, names)
        for scenario in scenarios:
            deadline = time.monotonic() + 5
            while True:
                answer = _ask(connection, names, scenario)
                if expected is None or isinstance(scenario, Frame) or not scenario.api.startswith(_LOOKS):
                    break
                if answer == expected.get(scenario.label) or time.monotonic() > deadline:
                    break
            yield scenario.label, answer
    finally:
        connection.close()


def _ask(connection: Connection, names: Names, scenario: Scenario | Frame) -> Any:
    try:
        if isinstance(scenario, Frame):
            return connection.ask_in_bytes(scenario.data)
        return names.plain(connection.ask_in_plain(scenario.api, scenario.version, names.filled(scenario.fields)))
    except Lost as lost:
        return str(lost)


def _prepare(connection: Connection, names: Names) -> None:
    """Create two topics and wait for a group coordinator."""
    deadline = time.monotonic() + 2 * TIMEOUT
    made = [{"name": name, "num_partitions": count, "replication_factor": 1} for name, count in ((T, 1), (TWO, 2))]
    for topic in connection.ask_in_plain("CreateTopics", 7, {"topics": made, "timeout_ms": 30_000}).topics:
        assert topic.error_code == 0, topic
        names.note(topic.name, topic.topic_id)
    fields = {"topics": [{"name": T}, {"name": TWO}], "allow_auto_topic_creation": False}
    while any(topic.error_code for topic in connection.ask_in_plain("Metadata", 12, fields).topics):
        assert time.monotonic() < deadline, "the topics are not there"
    while connection.ask_in_plain("FindCoordinator", 1, {"key": "x"}).error_code:
        assert time.monotonic() < deadline, "there is no coordinator"
    while connection.ask_in_plain("InitProducerId", 0, {"transactional_id": None}).error_code:
        assert time.monotonic() < deadline, "there are no producer ids"
    groups = [f"group-{number}" for number in range(40)]  # of every partition of __consumer_offsets
    while any(each.error_code for each in connection.ask_in_plain("DescribeGroups", 5, {"groups": groups}).groups):
        # a partition that has no coordinator yet (NOT_COORDINATOR) still has to be loaded
        assert time.monotonic() < deadline, "the coordinator does not load"


def differences(kafkas: Any, ours: Any, at: str = "") -> Iterator[str]:
    """Return the differences of the broker's answers that are worse than Kafka's.

    An additional error message, and a more specific error than UNKNOWN_SERVER_ERROR, are no differences.
    """
    if isinstance(kafkas, dict) and isinstance(ours, dict):
        if kafkas.get("error_code") == _UNKNOWN and ours.get("error_code"):
            return
        left_out = _NOT_IN_FAILURES if kafkas.get("error_code") else ()
        for name, value in kafkas.items():
            is_nothing = name == "error_message" and (value is None or not kafkas.get("error_code"))
            if not is_nothing and name not in left_out:
                yield from differences(value, ours.get(name), f"{at}.{name}")
    elif isinstance(kafkas, list) and isinstance(ours, list) and len(kafkas) == len(ours):
        for number, (theirs, own) in enumerate(zip(kafkas, ours, strict=True)):
            yield from differences(theirs, own, f"{at}[{number}]")
    elif kafkas != ours:
        yield f"{at or 'answer'}: Kafka {kafkas}, ours {ours}"


def read_answers() -> dict[str, Any]:
    """Return the recorded answers of Kafka by label."""
    return {label: answer for answer, labels in json.loads(ANSWERS.read_text()) for label in labels}


def write_answers(answers: Mapping[str, Any]) -> None:
    """Write every distinct answer once, with the labels of all scenarios that received it."""
    found: dict[str, list[str]] = {}
    for label, answer in answers.items():
        found.setdefault(json.dumps(answer), []).append(label)
    lines = (f"[{answer}, {json.dumps(labels)}]" for answer, labels in found.items())
    ANSWERS.write_text("[\n" + ",\n".join(lines) + "\n]\n")
