"""Scenarios in which our broker must answer as Apache Kafka does, error texts included.

`kafka_answers.json` holds what an Apache Kafka 4.3.1 answered. `make test-kafka` checks that it still does, and writes
the file with PYCLIENT_RECORD=1.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyclient.protocol.parts import fields_of
from tests.broker_embedded.odd.wire import Connection, Lost

ANSWERS: Final = Path(__file__).with_name("kafka_answers.json")
SETTINGS: Final = {
    "offsets.topic.num.partitions": "5",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}
"""Options of both brokers in every scenario."""

PATIENCE: Final = 30.0
"""Seconds until a state that a scenario waits for must be reached."""

_LOCAL: Final = {"throttle_time_ms", "host", "port", "cluster_id", "total_bytes", "usable_bytes", "partition_size"}
"""Fields that differ between any two brokers."""

Answers = list[list[Any]]
"""(label, answer) pairs in order."""


class Dialogue:
    """Requests to one broker, and its answers as plain values."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._connections: dict[str, Connection] = {}
        self._servers = bootstrap_servers
        self._names: dict[str, str] = {}
        self._ids: dict[uuid.UUID, str] = {uuid.UUID(int=0): "no id"}
        self.answers: Answers = []

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            connection.close()

    def request(self, api: str, version: int, *, client: str = "", **fields: Any) -> Any:
        """Return the response to a request that is not part of the comparison."""
        if client not in self._connections:
            self._connections[client] = Connection(self._servers)
        return self._connections[client].ask_in_plain(api, version, fields)

    def ask(self, label: str, api: str, version: int, *, client: str = "", **fields: Any) -> Any:
        """Return the response to a request, and note it as the answer under `label`."""
        try:
            response = self.request(api, version, client=client, **fields)
        except Lost as lost:
            self.answers.append([label, str(lost)])
            raise
        self.note(label, response)
        return response

    def note(self, label: str, value: Any) -> None:
        """Add a value to the answers that are compared."""
        self.answers.append([label, self.plain(value)])

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a state: a real Kafka learns of its controller's decisions a little later."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"{what}: not in {PATIENCE:g} s"
            time.sleep(0.01)

    def name(self, value: str, name: str) -> None:
        """Write `name` for a text that the broker chose, wherever it occurs in an answer."""
        self._names[value] = f"<{name}>"

    def create_topic(self, name: str, partitions: int = 1, **more: Any) -> uuid.UUID:
        """Create a topic, and wait until the broker serves it. Return its id."""
        new = {"name": name, "num_partitions": partitions, "replication_factor": 1, **more}
        [created] = self.request("CreateTopics", 7, topics=[new], timeout_ms=30_000).topics
        assert created.error_code == 0, created
        self.until(lambda: self.metadata(name).error_code == 0, f"topic {name} is known")
        self._ids[created.topic_id] = f"id of {name}"
        topic_id: uuid.UUID = created.topic_id
        return topic_id

    def metadata(self, topic: str) -> Any:
        """Return what Metadata says of a topic."""
        return self.request("Metadata", 12, topics=[{"name": topic}], allow_auto_topic_creation=False).topics[0]

    def find_coordinator(self, *groups: str) -> None:
        """Wait until the broker coordinates the groups."""
        for group in groups:
            self.until(
                lambda group=group: (  # type: ignore[misc]
                    self.request("FindCoordinator", 1, key=group).error_code == 0
                    and self.request("OffsetFetch", 5, group_id=group, topics=None).error_code == 0
                ),
                f"group {group} has a coordinator",
            )

    def plain(self, value: Any) -> Any:
        """Return JSON of a message; lists of parts are sorted, as brokers answer them in any order."""
        if isinstance(value, str):
            for text, name in self._names.items():
                value = value.replace(text, name)
            return value
        if value is None or isinstance(value, int | float):
            return value
        if isinstance(value, uuid.UUID):
            return self._ids.get(value, "another id")
        if isinstance(value, bytes | memoryview):
            return self.plain(bytes(value).decode("latin-1"))
        if isinstance(value, Mapping):
            return {key: self.plain(item) for key, item in value.items()}
        if isinstance(value, Sequence):
            return sorted((self.plain(item) for item in value), key=str)
        told = {each.name: self.plain(getattr(value, each.name)) for each in fields_of(type(value))}
        return {key: item for key, item in told.items() if key not in _LOCAL}


@dataclass(frozen=True, slots=True)
class Scenario:
    """One comparison on a broker with `settings` that has not been used before.

    `differs` are the labels under which our broker answers otherwise, with the reason.
    """

    run: Callable[[Dialogue], None]
    settings: Mapping[str, str] = field(default_factory=dict)
    differs: Mapping[str, str] = field(default_factory=dict)
    log_dirs: int = 1
    """How many log directories the broker has."""
    release: str | None = None
    """The release whose metadata.version the cluster begins with."""

    @property
    def name(self) -> str:
        """The scenario's name in the file of answers."""
        return self.run.__name__

    def replay(self, bootstrap_servers: str) -> Answers:
        """Run the scenario. Return the broker's answers."""
        dialogue = Dialogue(bootstrap_servers)
        try:
            self.run(dialogue)
        finally:
            dialogue.close()
        return dialogue.answers


def recorded_answers() -> dict[str, Answers]:
    """Return what Kafka answered, by scenario."""
    answers: dict[str, Answers] = json.loads(ANSWERS.read_text())
    return answers


def write_answers(answers: Mapping[str, Answers]) -> None:
    """Write the file of answers, one answer a line."""

    def lines() -> Iterator[str]:
        for name, found in answers.items():
            yield f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(each) for each in found) + "\n]"

    ANSWERS.write_text("{\n" + ",\n".join(lines()) + "\n}\n")
