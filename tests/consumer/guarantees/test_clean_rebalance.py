"""Members join and leave: every record is processed once, and kept partitions are read all the time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pyclient import Producer
from tests.consumer.consumer_factory import PATIENCE, ConsumerFactory, EventLog, poll_until, read, shares, values

NewTopic = Callable[..., str]
Produce = Callable[..., None]

INCREMENTAL = [f"{api}-{way}" for api in ("sync", "async") for way in ("cooperative", "consumer")]


def settle(members: Sequence[Any], partitions: int, processed: Counter[bytes], sent: int) -> None:
    """Poll all in turn until they share the partitions evenly and have read everything."""
    deadline = time.monotonic() + PATIENCE
    while True:
        held = [len(member.assignment()) for member in members]
        if sum(held) == partitions and max(held) - min(held) <= 1 and processed.total() >= sent:
            return
        assert time.monotonic() < deadline, (processed.total(), sent, shares(members))
        for member in members:
            processed.update(values(member.poll(0.005)))


def test_records_are_processed_once_from_one_to_six_members_and_back(
    consumers: ConsumerFactory, new_topic: NewTopic, producer: Producer, group: str
) -> None:
    topic = new_topic(12)
    processed: Counter[bytes] = Counter()
    event_logs: list[EventLog] = []
    members: list[Any] = []
    sent = 0

    def send() -> None:
        nonlocal sent
        for _ in range(48):
            producer.send(topic, b"%d" % sent, partition=sent % 12)
            sent += 1
        producer.flush()

    def join() -> None:
        event_logs.append(EventLog())
        members.append(consumers(group_id=group))
        members[-1].subscribe(topic, listener=event_logs[-1])

    send()
    join()
    settle(members, 12, processed, sent)
    for newcomers in (1, 2, 2):
        for _ in range(newcomers):
            join()
        send()
        settle(members, 12, processed, sent)
    for leavers in (2, 2, 1):
        for _ in range(leavers):
            members.pop(0).close()
        send()
        settle(members, 12, processed, sent)
    assert Counter({b"%d" % n: 1 for n in range(sent)}) == processed
    assert not any(line.startswith("!") for event_log in event_logs for line in event_log.lines)


@pytest.mark.parametrize("consumers", INCREMENTAL, indirect=True)
def test_kept_partitions_are_read_while_another_member_is_slow(
    consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce, group: str
) -> None:
    class Slow(EventLog):
        def __init__(self) -> None:
            super().__init__()
            self.entered, self.go_on = threading.Event(), threading.Event()

        def on_revoked(self, revoked: Any) -> Any:
            super().on_revoked(revoked)
            self.entered.set()
            if consumers.name == "async":
                return asyncio.to_thread(self.go_on.wait, 30)
            return self.go_on.wait(30) and None

    topic = new_topic(6)
    steady, event_log, slow = consumers(group_id=group), EventLog(), Slow()
    steady.subscribe(topic, listener=event_log)
    poll_until([steady], lambda: len(steady.assignment()) == 6)  # or the slow member might have to revoke at once
    sluggish = consumers(group_id=group)
    sluggish.subscribe(topic, listener=slow)
    poll_until([steady, sluggish], lambda: sorted(map(len, shares([steady, sluggish]))) == [3, 3])
    event_log.lines.clear()
    third = consumers(topic, group_id=group)
    thread = threading.Thread(target=lambda: poll_until([sluggish], slow.go_on.is_set))
    thread.start()
    try:
        # the rebalance cannot end while this callback runs
        poll_until([steady, third], lambda: slow.entered.is_set() and len(steady.assignment()) == 2)
        kept = min(steady.assignment())
        for n in range(5):
            produce(topic, b"%d" % n, partition=kept.partition)
            assert values(read(steady, 1)) == [b"%d" % n]
    finally:
        slow.go_on.set()
        thread.join()
    poll_until([steady, sluggish, third], lambda: sorted(map(len, shares([steady, sluggish, third]))) == [2, 2, 2])
    moved = {number for line in event_log.lines if line.startswith("-") for number in line[1:].split()}
    assert len(moved) == 1  # of its three partitions
