"""The consumer's record, and the producer's handle for a record."""

from __future__ import annotations

from operator import index
from typing import Any, Generic, NoReturn, TypeVar, cast

from pyclient.records.restore import restore_record
from pyclient.types import Headers

K = TypeVar("K")
V = TypeVar("V")


class _Fields(Generic[K, V]):
    """A record under construction, whose class is then changed: filling an immutable class takes 4 times as long."""

    __slots__ = (
        "headers", "key", "leader_epoch", "offset", "partition", "timestamp_ms", "timestamp_type", "topic", "value",
    )  # fmt: skip

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    leader_epoch: int
    key: K
    value: V
    headers: Headers


class Record(_Fields[K, V]):
    """One consumed record; immutable.

    `timestamp_ms` is epoch milliseconds, `timestamp_type` one of `pyclient.types.TIMESTAMP_*`; `leader_epoch` is -1
    if unknown; `headers` is a tuple of (name, value) pairs.
    """

    __slots__ = ()
    __match_args__ = (
        "topic", "partition", "offset", "timestamp_ms", "timestamp_type", "leader_epoch", "key", "value", "headers",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp_ms: int,
        timestamp_type: int,
        leader_epoch: int,
        key: K,
        value: V,
        headers: Headers = (),
    ) -> None:
        if not isinstance(topic, str) or not isinstance(headers, tuple):
            raise TypeError("a record's topic is a str and its headers are a tuple")
        numbers = (index(partition), index(offset), index(timestamp_ms), index(timestamp_type), index(leader_epoch))
        for name, value_ in zip(self.__match_args__, (topic, *numbers, key, value, headers), strict=True):
            object.__setattr__(self, name, value_)

    def replace(self, key: Any, value: Any) -> Record[Any, Any]:
        """Return a copy of the record with another key and value (from the deserializers)."""
        return make_record(
            self.topic, self.partition, self.offset, self.timestamp_ms, self.timestamp_type, self.leader_epoch, key,
            value, self.headers,
        )  # fmt: skip

    def _fields(self) -> tuple[Any, ...]:
        return (
            self.topic, self.partition, self.offset, self.timestamp_ms, self.timestamp_type, self.leader_epoch,
            self.key, self.value, self.headers,
        )  # fmt: skip

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"a Record cannot be changed: {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Record cannot be changed: {name}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        fields = zip(self.__match_args__, self._fields(), strict=True)
        return f"Record({', '.join(f'{name}={value!r}' for name, value in fields)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return restore_record, self._fields()


Record.__module__ = "pyclient.records"


def make_record(
    topic: str,
    partition: int,
    offset: int,
    timestamp_ms: int,
    timestamp_type: int,
    leader_epoch: int,
    key: K,
    value: V,
    headers: Headers,
) -> Record[K, V]:
    record: Any = _Fields()
    record.topic = topic
    record.partition = partition
    record.offset = offset
    record.timestamp_ms = timestamp_ms
    record.timestamp_type = timestamp_type
    record.leader_epoch = leader_epoch
    record.key = key
    record.value = value
    record.headers = headers
    record.__class__ = Record
    return cast("Record[K, V]", record)


class RecordHandle:
    """The batch, index and timestamp (epoch ms) of an appended record; the base of the producer's futures.

    A subclass has `__slots__ = ()`; its `__init__` is not called.
    """

    __slots__ = ("batch", "index", "timestamp_ms")

    batch: Any
    index: int
    timestamp_ms: int

    def __init__(self, batch: object, index: int, timestamp_ms: int = -1) -> None:
        self.batch = batch
        self.index = index
        self.timestamp_ms = timestamp_ms
