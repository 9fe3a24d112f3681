"""The arguments of a consumer's calls: unambiguous ones are accepted, others get a clear error."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any

import pytest

from pyclient import OffsetAndMetadata, TopicPartition, errors
from pyclient.consumer import RebalanceListener, SubscriptionPattern
from pyclient.consumer.arguments import (
    as_limit,
    as_offset,
    as_offsets,
    as_partition,
    as_partitions,
    as_seconds,
    as_subscription,
    as_times,
    check_callback,
    check_listener,
    check_topic,
    spread,
    topics_of,
)
from tests.consumer.consumer_factory import ConsumerFactory, partitions, read, values

NewTopic = Callable[..., str]
Produce = Callable[..., None]

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


class Number:
    """A whole number that is not an int, like numpy's."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __index__(self) -> int:
        return self._number


# ---- partitions


@pytest.mark.parametrize("given", [FIRST, ("t", 0), ("t", Number(0))])
def test_partition_arguments_accept_partitions_and_pairs(given: Any) -> None:
    assert type(as_partition(given)) is TopicPartition
    assert as_partition(given) == FIRST
    assert type(as_partition(given).partition) is int


@pytest.mark.parametrize("given", [[FIRST], (FIRST,), {FIRST}, FIRST, ("t", 0), iter([FIRST]), {FIRST: 5}])
def test_partition_list_arguments_accept_one_partition(given: Any) -> None:
    assert as_partitions(given) == [FIRST]


@pytest.mark.parametrize(
    "given", ["t", b"t", None, 5, ["t"], [("t", "0")], [("t", -1)], [("t", 2**31)], ("t", True), [None], [("t", 0, 1)]]
)
def test_invalid_partition_is_named_in_the_error(given: Any) -> None:
    with pytest.raises(ValueError, match=r"is no partition: give TopicPartition\(topic, number\)"):
        as_partitions(given)


def test_variadic_partition_calls_accept_lists() -> None:
    assert spread([FIRST, SECOND]) == spread([[FIRST, SECOND]]) == spread([FIRST, [("t", 1)]]) == [FIRST, SECOND]
    assert spread([]) == spread([[]]) == []


def test_pause_resume_and_seeks_accept_lists_and_empty_means_none(
    consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic(2)
    produce(topic, b"0", partition=0)
    produce(topic, b"1", partition=1)
    both = partitions(topic, 0, 1)
    consumer = consumers()
    consumer.assign(both)
    consumer.pause(both)
    assert consumer.paused() == set(both)
    consumer.resume([])
    assert consumer.paused() == set(both)
    consumer.resume(both[:1])
    assert consumer.paused() == {both[1]}
    assert values(read(consumer, 1)) == [b"0"]
    consumer.seek_to_beginning([])
    assert consumer.position(both[0]) == 1
    consumer.seek_to_beginning([both[0]])
    assert consumer.position(both[0]) == 0
    consumer.seek_to_end(both)
    assert consumer.position(both[1]) == 1


# ---- offsets


def test_offset_arguments_accept_numbers_and_offset_and_metadata() -> None:
    assert as_offset(5) == as_offset(Number(5)) == OffsetAndMetadata(5)
    assert as_offset(OffsetAndMetadata(5, "note", 3)) == OffsetAndMetadata(5, "note", 3)
    assert as_offsets({("t", 0): 5}) == {FIRST: OffsetAndMetadata(5)}


@pytest.mark.parametrize("offset", ["5", 5.0, -1, True, None, 2**63, OffsetAndMetadata("5")])  # type: ignore[arg-type]
def test_invalid_offset_is_named_in_the_error(offset: Any) -> None:
    with pytest.raises(ValueError, match="an offset to commit is a number from 0, not"):
        as_offset(offset)


def test_offset_metadata_and_epoch_are_checked() -> None:
    with pytest.raises(ValueError, match="metadata of an offset to commit is a str, not 7"):
        as_offset(OffsetAndMetadata(5, 7))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="leader epoch from -1, not 'x'"):
        as_offset(OffsetAndMetadata(5, "", "x"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a mapping, partition to offset, not 5"):
        as_offsets(5)


def test_seek_accepts_a_committed_offset(consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce) -> None:
    topic = new_topic()
    produce(topic, b"0", b"1", b"2")
    (partition,) = partitions(topic, 0)
    consumer = consumers(group_id=f"g-{topic}")
    consumer.assign(partition)
    consumer.commit({partition: 1})
    consumer.seek(partition, consumer.committed(partition)[partition])
    assert values(read(consumer, 2)) == [b"1", b"2"]
    with pytest.raises(ValueError, match="an offset to seek is a number from 0, not '5'"):
        consumer.seek(partition, "5")


def test_times_must_be_epoch_milliseconds() -> None:
    assert as_times({("t", 0): 5, SECOND: Number(6)}) == {FIRST: 5, SECOND: 6}
    for wrong in ("5", 1.5, -1, 2**63, None, datetime.datetime(2024, 1, 1)):
        with pytest.raises(ValueError, match=r"(?s)epoch milliseconds.*t-0.*timestamp\(\) \* 1000"):
            as_times({FIRST: wrong})
    with pytest.raises(TypeError, match="a mapping, partition to epoch milliseconds"):
        as_times([FIRST])


# ---- durations and limits


def test_timeout_must_be_seconds() -> None:
    assert [as_seconds(timeout) for timeout in (0, 1, 2.5)] == [0.0, 1.0, 2.5]
    assert as_seconds(float("inf")) < 1e9  # an event loop cannot wait for infinity
    for wrong in ("5", None, True, datetime.timedelta(seconds=5)):
        with pytest.raises(TypeError, match=r"timeout=.* takes seconds, as a number"):
            as_seconds(wrong)
    for wrong in (-1, -0.1, float("nan")):
        with pytest.raises(ValueError, match=r"timeout=.* seconds from 0, or None"):
            as_seconds(wrong)


@pytest.mark.parametrize("wrong", [0, -1, "5", 1.5, None, True])
def test_max_records_must_be_a_positive_whole_number(wrong: Any) -> None:
    assert as_limit(Number(5)) == 5
    with pytest.raises(ValueError, match=r"max_records=.* a whole number of at least 1"):
        as_limit(wrong)


def test_every_call_that_waits_checks_its_timeout_first(consumers: ConsumerFactory, new_topic: NewTopic) -> None:
    topic = new_topic()
    consumer = consumers(group_id=f"g-{topic}")
    (partition,) = partitions(topic, 0)
    consumer.assign([partition])
    consumer.position(partition)
    calls: list[Callable[[Any], Any]] = [
        lambda timeout: consumer.poll(timeout),
        lambda timeout: consumer.poll(timeout=timeout),
        lambda timeout: consumer.commit({partition: 0}, timeout=timeout),
        lambda timeout: consumer.committed(timeout=timeout),
        lambda timeout: consumer.position(partition, timeout=timeout),
        lambda timeout: consumer.beginning_offsets([partition], timeout=timeout),
        lambda timeout: consumer.end_offsets([partition], timeout=timeout),
        lambda timeout: consumer.offsets_for_times({partition: 0}, timeout=timeout),
        lambda timeout: consumer.partitions_for(topic, timeout=timeout),
        lambda timeout: consumer.close(timeout),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="timeout='5' is not possible"):
            call("5")
        with pytest.raises(ValueError, match="timeout=-1 is not possible"):
            call(-1)
    assert not consumer.raw.closed
    consumer.close(None)
    assert consumer.raw.closed


# ---- topics


def test_topics_may_be_a_string_a_list_or_a_pattern() -> None:
    pattern, remote = re.compile("t.*"), SubscriptionPattern("t.*")
    for given in ("t", ["t"], ("t",), {"t"}, iter(["t"])):
        assert as_subscription(given) == ["t"]
    assert as_subscription(None, "t.*") == as_subscription(None, pattern) == as_subscription(pattern) == pattern
    assert as_subscription(remote) is remote
    assert topics_of(["a", "b"]) == topics_of([["a", "b"]]) == topics_of([("a",), "b"]) == ["a", "b"]
    assert topics_of([pattern]) == pattern
    assert topics_of([]) is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "takes names of topics, as a string or a list, or a compiled pattern"),
        (5, "takes names of topics"),
        (b"t", "takes names of topics"),
        ({"t": 1}, "takes names of topics"),
        (FIRST, r"assign\(\[TopicPartition\(topic='t', partition=0\)\]\)"),
        (re.compile(b"t"), "matches bytes"),
    ],
)
def test_invalid_topics_are_refused(given: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        as_subscription(given)


def test_subscription_to_nothing_or_to_two_things_is_refused() -> None:
    with pytest.raises(ValueError, match=r"names nothing to read.*unsubscribe\(\)"):
        as_subscription([])
    with pytest.raises(TypeError, match="both given"):
        as_subscription(["t"], "t.*")
    with pytest.raises(TypeError, match="pattern=5 is not possible"):
        as_subscription(None, 5)
    with pytest.raises(ValueError, match=r"pattern='\(' is no regular expression: missing"):
        as_subscription(None, "(")
    with pytest.raises(errors.ConfigError, match="config="):
        topics_of([{"bootstrap.servers": "h:1"}])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("^t.*", r"re\.compile"),
        ("localhost:9092", "bootstrap_servers='localhost:9092'"),
        ("a:1,b:2", "bootstrap_servers='a:1,b:2'"),
        ("a, b", r"a list: \['a', 'b'\]"),
        (FIRST, r"assign\("),
        (b"t", "a str, not bytes"),
        (7, "a str, not int"),
        *[(name, "1 to 249") for name in ("", ".", "..", "a b", "ä", "x" * 250, "a/b")],
    ],
)
def test_invalid_topic_name_is_refused_with_a_hint(name: Any, said: str) -> None:
    with pytest.raises(errors.InvalidTopic, match=said):
        check_topic(name)


def test_invalid_topic_name_leaves_the_client_usable(consumers: ConsumerFactory, new_topic: NewTopic) -> None:
    topic = new_topic()
    consumer = consumers()
    for wrong in (5, ["t"], "a b"):
        with pytest.raises(errors.InvalidTopic):
            consumer.partitions_for(wrong)
        with pytest.raises(errors.InvalidTopic):
            consumer.subscribe([wrong])
        with pytest.raises((errors.InvalidTopic, ValueError)):
            consumer.assign([(wrong, 0)])
    with pytest.raises(ValueError, match="is no partition"):
        consumer.assign([(topic, -1)])
    assert consumer.partitions_for(topic) == [0]


def test_constructor_accepts_names_lists_and_patterns(
    consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()
    produce(topic, b"x")
    by_list, by_pattern, later = consumers([topic]), consumers(re.compile(re.escape(topic))), consumers()
    later.subscribe(pattern=re.escape(topic))
    for consumer in (by_list, by_pattern, later):
        assert values(read(consumer, 1)) == [b"x"]
        assert consumer.subscription() == {topic}


# ---- the user's code


def test_listener_must_have_all_three_methods() -> None:
    listener = RebalanceListener()
    assert check_listener(listener) is listener
    assert check_listener(None) is None
    with pytest.raises(TypeError, match=r"no on_assigned, on_revoked, on_lost.*RebalanceListener"):
        check_listener(lambda: None)
    with pytest.raises(TypeError, match="is a class, not an object of it"):
        check_listener(RebalanceListener)


def test_callback_must_be_callable() -> None:
    check_callback(None)
    check_callback(print)
    with pytest.raises(TypeError, match=r"callback=5 .* a function of \(offsets, error\)"):
        check_callback(5)
