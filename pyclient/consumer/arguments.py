"""Check and convert the arguments of a consumer's calls; refuse ambiguous ones and say what is allowed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from operator import index
from typing import Any, Final

from pyclient.consumer.deserialization import ON_ERROR, Deserializers
from pyclient.consumer.rebalance_listener import RebalanceListener
from pyclient.consumer.subscription import SubscriptionPattern
from pyclient.errors import ConfigError, InvalidTopic
from pyclient.serialization import Deserializer
from pyclient.types import OffsetAndMetadata, TopicPartition

Partition = TopicPartition | tuple[str, int]
Partitions = Iterable[Partition] | Partition
Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]
Topics = str | Iterable[str] | re.Pattern[str] | SubscriptionPattern
Subscription = list[str] | re.Pattern[str] | SubscriptionPattern

_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
_ADDRESS: Final = re.compile(r"[^\s,]+:\d{1,5}(,[^\s,]+:\d{1,5})*")
_LISTENER_METHODS: Final = ("on_assigned", "on_revoked", "on_lost")
_MAX_OFFSET: Final = 2**63 - 1
_MAX_SECONDS: Final = 31_536_000.0  # a year of seconds: event loops cannot add infinity to the time


# ---- numbers and times


def as_seconds(timeout: Any, name: str = "timeout") -> float:
    """Return a duration in seconds from 0; raise `TypeError` unless it is a number, `ValueError` if negative or NaN."""
    if isinstance(timeout, bool) or not isinstance(timeout, Real):
        raise TypeError(f"{name}={timeout!r} is not possible: it takes seconds, as a number")
    seconds = float(timeout)
    if math.isnan(seconds) or seconds < 0:
        raise ValueError(f"{name}={timeout!r} is not possible: it takes seconds from 0, or None for the longest wait")
    return min(seconds, _MAX_SECONDS)


def as_limit(max_records: Any) -> int:
    """Return how many records a poll may return; raise `ValueError` unless it is a whole number from 1."""
    limit = _whole(max_records)
    if limit is None or limit < 1:
        raise ValueError(f"max_records={max_records!r} is not possible: it must be a whole number of at least 1")
    return limit


def as_times(times: Any) -> dict[TopicPartition, int]:
    """Return epoch milliseconds by partition; raise `TypeError` for no mapping, `ValueError` for an invalid time."""
    if not isinstance(times, Mapping):
        raise TypeError(f"times are a mapping, partition to epoch milliseconds, not {times!r}")
    found = {}
    for partition, time in times.items():
        time_ms = _whole(time)
        if time_ms is None or not 0 <= time_ms <= _MAX_OFFSET:
            raise ValueError(
                f"times are epoch milliseconds, as whole numbers from 0, not {time!r} (of {as_partition(partition)}); "
                "of a datetime: int(moment.timestamp() * 1000)"
            )
        found[as_partition(partition)] = time_ms
    return found


def _whole(number: Any) -> int | None:
    """Return a whole number of any kind (numpy's too) as an int; None for anything else."""
    try:
        return None if isinstance(number, bool) else index(number)
    except TypeError:
        return None


# ---- partitions and offsets


def as_partition(partition: Any) -> TopicPartition:
    """Return a partition or a (topic, number) pair as a `TopicPartition`; raise `ValueError` for anything else."""
    if isinstance(partition, tuple) and len(partition) == 2 and isinstance(partition[0], str):
        topic, given = partition
        number = _whole(given)
        if number is not None and 0 <= number < 2**31:
            return TopicPartition(topic, number)
    raise ValueError(f"{partition!r} is no partition: give TopicPartition(topic, number)")


def as_partitions(partitions: Any) -> list[TopicPartition]:
    """Return one or several partitions as a list; raise `ValueError` for anything else."""
    if isinstance(partitions, tuple) and len(partitions) == 2 and isinstance(partitions[0], str):
        return [as_partition(partitions)]
    if isinstance(partitions, (str, bytes)) or not isinstance(partitions, Iterable):
        raise ValueError(f"{partitions!r} is no partition: give TopicPartition(topic, number), or a list of them")
    return [as_partition(partition) for partition in partitions]


def spread(given: Sequence[Any]) -> list[TopicPartition]:
    """Return the partitions of a call that takes any number of partitions or lists of them."""
    return [partition for item in given for partition in as_partitions(item)]


def as_offset(offset: Any, what: str = "an offset to commit") -> OffsetAndMetadata:
    """Return an offset, a number or an `OffsetAndMetadata`, as the latter; raise `ValueError` for an invalid one."""
    made = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
    number, epoch = _whole(made.offset), _whole(made.leader_epoch)
    if number is None or not 0 <= number <= _MAX_OFFSET:
        raise ValueError(f"{what} is a number from 0, not {made.offset!r}")
    if epoch is None or not -1 <= epoch < 2**31:
        raise ValueError(f"{what} has a leader epoch from -1, not {made.leader_epoch!r}")
    if made.metadata is not None and not isinstance(made.metadata, str):
        raise ValueError(f"the metadata of {what} is a str, not {made.metadata!r}")
    return OffsetAndMetadata(number, made.metadata, epoch)


def as_offsets(offsets: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets to commit by partition; raise `TypeError` for no mapping, `ValueError` for an invalid offset."""
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets to commit are a mapping, partition to offset, not {offsets!r}")
    return {as_partition(partition): as_offset(offset) for partition, offset in offsets.items()}


# ---- topics


def check_topic(name: Any) -> None:
    """Raise `InvalidTopic` for a name that Kafka does not allow."""
    if isinstance(name, str) and name not in (".", "..") and _TOPIC_NAME.fullmatch(name):
        return
    text = (
        f"{name!r} cannot be a topic's name: it takes 1 to 249 letters, digits, '.', '_' and '-', and is neither '.' "
        "nor '..'. "
    )
    if isinstance(name, str) and _ADDRESS.fullmatch(name):
        raise InvalidTopic(text + f"If it is a broker's address, give bootstrap_servers={name!r}")
    if isinstance(name, str) and "," in name:
        raise InvalidTopic(text + f"Several topics are a list: {[part.strip() for part in name.split(',')]!r}")
    if isinstance(name, TopicPartition):
        raise InvalidTopic(text + f"To read single partitions, call assign([{name!r}])")
    if isinstance(name, str):
        raise InvalidTopic(text + "To subscribe to a pattern, give a compiled one: re.compile(...)")
    raise InvalidTopic(text + f"It is a str, not {type(name).__name__}")


def topic_names(topics: Iterable[Any]) -> list[str]:
    """Return the names as a list; raise `InvalidTopic` for one that Kafka does not allow."""
    names = list(topics)
    for name in names:
        check_topic(name)
    return names


def as_subscription(topics: Any, pattern: Any = None) -> Subscription:
    """Return the names or the one pattern given to `subscribe`; raise `InvalidTopic`, `TypeError` or `ValueError`."""
    if pattern is not None:
        if topics is not None:
            raise TypeError(f"topics={topics!r} and pattern={pattern!r} are both given: subscribe to one of them")
        topics = _compiled(pattern) if isinstance(pattern, str) else pattern
        if not isinstance(topics, (re.Pattern, SubscriptionPattern)):
            raise TypeError(
                f"pattern={pattern!r} is not possible: it takes a regular expression, as a string or compiled"
            )
    if isinstance(topics, SubscriptionPattern):
        return topics
    if isinstance(topics, re.Pattern):
        if isinstance(topics.pattern, bytes):
            raise TypeError(f"{topics!r} matches bytes, and topics' names are strings: re.compile({'...'!r})")
        return topics
    if isinstance(topics, str):
        return topic_names([topics])
    if isinstance(topics, (bytes, Mapping, TopicPartition)) or not isinstance(topics, Iterable):
        hint = f"; to read single partitions, call assign([{topics!r}])" if isinstance(topics, TopicPartition) else ""
        raise TypeError(
            f"topics={topics!r} is not possible: it takes names of topics, as a string or a list, or a compiled "
            f"pattern{hint}"
        )
    names = topic_names(topics)
    if not names:
        raise ValueError("topics=[] names nothing to read: to read nothing any more, call unsubscribe()")
    return names


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"pattern={pattern!r} is no regular expression: {error}") from error


def topics_of(given: Sequence[Any]) -> Subscription | None:
    """Return the subscription of a constructor's topics: names, lists of names, or one pattern; None without any."""
    if len(given) == 1 and isinstance(given[0], Mapping):
        raise ConfigError(
            "a consumer takes topics as its positional arguments; options in a dictionary are config={...}"
        )
    if len(given) == 1 and isinstance(given[0], (re.Pattern, SubscriptionPattern)):
        return as_subscription(given[0])
    names: list[Any] = []
    for item in given:
        names += item if isinstance(item, (list, set, frozenset)) or type(item) is tuple else [item]
    return as_subscription(names) if given else None


# ---- the user's code


def check_listener(listener: Any) -> RebalanceListener | None:
    """Return the listener, or None; raise `TypeError` with the methods it lacks."""
    if listener is None:
        return None
    missing = [name for name in _LISTENER_METHODS if not callable(getattr(listener, name, None))]
    if isinstance(listener, type) or missing:
        what = "is a class, not an object of it" if isinstance(listener, type) else f"has no {', '.join(missing)}"
        raise TypeError(f"listener={listener!r} {what}: give an object of a subclass of RebalanceListener")
    return listener  # type: ignore[no-any-return]


def check_callback(callback: Any) -> None:
    """Raise `TypeError` for a callback of `commit_async` that is not callable."""
    if callback is not None and not callable(callback):
        raise TypeError(f"callback={callback!r} is not possible: it takes a function of (offsets, error)")


def as_deserializers(
    key: Callable[[bytes], Any] | Deserializer[Any] | None,
    value: Callable[[bytes], Any] | Deserializer[Any] | None,
    on_error: Any,
) -> Deserializers:
    """Return functions of bytes, or objects with a `deserialize`, as `Deserializers`; raise `ConfigError` otherwise."""
    if on_error not in ON_ERROR and not callable(on_error):
        raise ConfigError(
            f"on_deserialization_error={on_error!r} is not possible: it takes 'raise', 'skip', or a function of the "
            "DeserializationError that returns to skip the record"
        )
    made = _deserializer("key_deserializer", key), _deserializer("value_deserializer", value)
    return Deserializers(*made, on_error)


def _deserializer(name: str, given: Any) -> Callable[[bytes], Any] | None:
    function: Callable[[bytes], Any] | None = getattr(given, "deserialize", given)
    if function is not None and not callable(function):
        raise ConfigError(
            f"{name}={function!r} is not possible: it takes a callable from bytes, for example "
            "pyclient.serialization.json.deserialize"
        )
    return function
