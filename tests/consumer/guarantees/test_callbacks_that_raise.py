"""A rebalance callback that raises does not prevent the other callbacks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.consumer.consumer_factory import PATIENCE, ConsumerFactory, EventLog

NewTopic = Callable[..., str]


class Failing(EventLog):
    """Logs its calls, and fails at the first revocation."""

    failures = 0

    def on_revoked(self, partitions: Any) -> None:
        super().on_revoked(partitions)
        self.failures += 1
        if self.failures == 1:
            raise ValueError("not now")


def test_on_assigned_is_called_although_on_revoked_raised(
    consumers: ConsumerFactory, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(2)
    failing, joining = Failing(), EventLog()
    first, second = consumers(group_id=group), consumers(group_id=group)
    raised: list[str] = []
    deadline = time.monotonic() + PATIENCE

    def poll_both_until(condition: Callable[[], bool]) -> None:
        while not condition():
            assert time.monotonic() < deadline, (failing.lines, joining.lines)
            second.poll(0.02)
            try:
                first.poll(0.02)
            except ValueError as error:
                raised.append(str(error))

    first.subscribe(topic, listener=failing)
    while failing.lines != ["+0 1"]:
        assert time.monotonic() < deadline
        first.poll(0.02)
    second.subscribe(topic, listener=joining)
    poll_both_until(lambda: len(first.assignment()) == len(second.assignment()) == 1)
    poll_both_until(lambda: failing.lines[-1][0] == "+")
    assert raised == ["not now"]
    assert sum(line[0] == "-" for line in failing.lines) == 1
