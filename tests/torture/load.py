"""Random work for a broker: topics come and go, records, commits, deletions of records; and the look afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from pyclient.types import TopicPartition
from tests.torture.client import Client
from tests.torture.oracle import Oracle, PromiseBroken

NOW_MS = 1_700_000_000_000
GROUPS = ("g", "h")


class Load:
    """`step` does one random thing. Values say where they were sent and when, and are never sent twice."""

    def __init__(self, oracle: Oracle, rng: random.Random) -> None:
        self.oracle = oracle
        self.rng = rng
        # An earlier load may have used the same oracle: no value and no name of a topic comes a second time.
        self._values = sum(len(each.sent) for each in oracle.partitions.values())
        self._topics = len(oracle.topics)
        self._sequences: dict[TopicPartition, int] = {}

    def step(self, client: Client) -> None:
        """Send one request, of any kind."""
        living = self.oracle.living
        if not living:
            self.create(client)
            return
        work: list[tuple[int, Callable[[Client], object]]] = [
            (60, self.produce),
            (8, self.create if len(living) < 6 else self.delete),
            (6, self.commit),
            (2, self.delete_records),
            (1, self.delete if len(living) > 2 else self.create),
        ]
        self.rng.choices([each for _, each in work], [weight for weight, _ in work])[0](client)

    def create(self, client: Client) -> None:
        """Create a topic."""
        self._topics += 1
        client.create_topic(f"topic-{self._topics}", self.rng.randint(1, 3))

    def delete(self, client: Client) -> None:
        """Delete a topic."""
        client.delete_topic(self.rng.choice(self.oracle.living))

    def produce(self, client: Client) -> None:
        """Produce one batch."""
        partition = self._partition()
        values = []
        for _ in range(self.rng.randint(1, 4)):
            self._values += 1
            values.append(b"%s %d " % (str(partition).encode(), self._values) + b"x" * self.rng.randrange(40))
        client.produce(partition, values, NOW_MS + self._values)

    def commit(self, client: Client) -> None:
        """Commit an offset that grows."""
        partition = self._partition()
        group = self.rng.choice(GROUPS)
        before = self.oracle.commits_sent.get((group, partition), -1)
        client.commit(group, partition, before + self.rng.randint(1, 9))

    def delete_records(self, client: Client) -> None:
        """Move the start of a log forward."""
        partition = self._partition()
        promise = self.oracle.partitions[partition]
        if promise.acknowledged:
            client.delete_records(partition, self.rng.choice(list(promise.acknowledged)))

    def _partition(self) -> TopicPartition:
        name = self.rng.choice(self.oracle.living)
        return TopicPartition(name, self.rng.randrange(self.oracle.topics[name].partitions))


def check(
    client: Client,
    *,
    damaged: Mapping[TopicPartition, int] | None = None,
    may_fail: Callable[[TopicPartition], bool] = lambda _partition: False,
) -> None:
    """Compare all that is there with the promises; raise `PromiseBroken`.

    Records of `damaged` partitions may be missing from an offset on. Partitions that `may_fail` may answer with an
    error.
    """
    oracle, damaged = client.oracle, damaged or {}
    oracle.check_topics(client.topics())
    for name in oracle.living:
        for index in range(oracle.topics[name].partitions):
            partition = TopicPartition(name, index)
            lost_from = damaged.get(partition)
            error, start, end = client.bounds(partition)
            values: dict[int, bytes] = {}
            if not error:
                error, values = client.read(partition, start, end)
            if error and lost_from is None and not may_fail(partition):
                raise PromiseBroken(f"{partition}: error {error}")
            if not may_fail(partition):
                oracle.check_records(partition, start, values, lost_from=lost_from)
    for group, partition in oracle.commits_sent:
        if partition.topic in oracle.living and not any(at.topic.startswith("__") for at in damaged):
            error, offset = client.committed(group, partition)
            if not error:
                oracle.check_commit(group, partition, offset)
            elif not any(may_fail(TopicPartition("__consumer_offsets", index)) for index in range(2)):
                raise PromiseBroken(f"the offsets of group {group}: error {error}")
