"""A rolling restart of three nodes, of a real Kafka and of ours: a group reads on, commits, and is not rebalanced."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from pyclient import Consumer, NewTopic, Producer
from tests.consumer.consumer_factory import EventLog, poll_until, shares
from tests.kafka.three import Three
from tests.kafka.topics import PATIENCE, create

PARTITIONS = 6


class Load:
    """A producer that sends a number every few milliseconds until `stop`; no send may fail."""

    def __init__(self, servers: str, topic: str) -> None:
        self.sent = 0
        self.failures: list[BaseException] = []
        self._stop = threading.Event()
        self._servers, self._topic = servers, topic
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            with Producer(self._servers) as producer:
                while not self._stop.wait(0.02):
                    producer.send(self._topic, b"%d" % self.sent, partition=self.sent % PARTITIONS)
                    self.sent += 1
                producer.flush()
        except BaseException as error:
            self.failures.append(error)

    def stop(self) -> int:
        """Stop; return the number of records sent, all of them delivered."""
        self._stop.set()
        self._thread.join()
        return self.sent


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_rolling_restart_surfaces_no_error_and_moves_no_partition(
    protocol: str, three_nodes: Three, topic: str, group: str
) -> None:
    servers = three_nodes.bootstrap_servers
    create(servers, NewTopic(topic, PARTITIONS, 3))
    options = {"group_id": group, "group_protocol": protocol, "auto_offset_reset": "earliest"}
    event_logs = EventLog(), EventLog()
    members = [Consumer(bootstrap_servers=servers, config=options) for _ in event_logs]
    seen: Counter[bytes] = Counter()

    def read_until(condition: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            for member in members:
                for record in member.poll(0.05):
                    seen[record.value] += 1
            assert time.monotonic() < deadline, [member.health() for member in members]

    try:
        for member, event_log in zip(members, event_logs, strict=True):
            member.subscribe(topic, listener=event_log)
        poll_until(members, lambda: sorted(map(len, shares(members))) == [3, 3], seconds=PATIENCE)
        for event_log in event_logs:
            event_log.lines.clear()
        with Load(servers, topic) as load:
            for node in (1, 2, 3):
                for step in (three_nodes.stop, three_nodes.restart):
                    doing = threading.Thread(target=step, args=(node,))
                    doing.start()
                    read_until(lambda doing=doing: not doing.is_alive(), 2 * PATIENCE)  # type: ignore[misc]
                    for member in members:
                        member.commit()
                reached = load.sent
                read_until(lambda reached=reached: seen.total() >= reached, PATIENCE)  # type: ignore[misc]
            sent = load.stop()
        assert load.failures == []
        read_until(lambda: seen.total() >= sent, PATIENCE)
        assert seen == Counter(b"%d" % n for n in range(sent))
        assert [event_log.lines for event_log in event_logs] == [[], []]
    finally:
        for member in members:
            member.close(timeout=5)
        for node in (1, 2, 3):
            if not three_nodes.runs(node):
                three_nodes.restart(node)
