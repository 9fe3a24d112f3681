"""Auto-commit commits only what an earlier poll returned, so that a crash repeats records and never skips any."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.consumer.consumer_factory import ConsumerFactory, partitions, poll_until

NewTopic = Callable[..., str]
Produce = Callable[..., None]


def test_auto_commit_never_passes_the_end_of_the_last_but_one_poll(
    consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce, group: str
) -> None:
    rng = random.Random(11)
    topic = new_topic()
    (partition,) = partitions(topic, 0)
    produce(topic, *[b"%d" % n for n in range(100)])
    consumer = consumers(topic, group_id=group, auto_commit_interval_ms=0)
    ends, grown = [0, 0], 0
    while ends[-1] < 100:
        records = consumer.poll(30, max_records=rng.randint(1, 9))
        if len(records):
            ends.append(records[-1].offset + 1)
        found = consumer.committed([partition])[partition]
        committed = 0 if found is None else found.offset
        assert committed <= ends[-2]
        grown += committed > 0
    assert grown

    def all_are_committed() -> bool:
        found = consumer.committed([partition])[partition]
        return found is not None and found.offset == 100

    poll_until([consumer], all_are_committed)  # the next polls commit the rest
