"""The admin client for ordinary code: the asynchronous one in a thread of its own."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack

from pyclient.admin.config import AdminConfig, AdminOptions
from pyclient.admin.core import AdminCore
from pyclient.admin.groups import GroupDescription, GroupListing
from pyclient.admin.topics import NewTopic, TopicDescription
from pyclient.cluster.client import ClusterHealth
from pyclient.config import resolve
from pyclient.config.reference import document
from pyclient.errors import ClosedError
from pyclient.net.loop_thread import LoopThread
from pyclient.types import OffsetAndMetadata, TopicPartition

T = TypeVar("T")

_CLOSING_SECONDS: Final = 5.0


class Admin:
    """Manages topics and groups: creates, lists, describes, grows and deletes; may be used from several threads.

    >>> with Admin("localhost:9092") as admin:  # doctest: +SKIP
    ...     admin.create_topics([NewTopic("orders", partitions=6)])

    Options are keyword arguments (`AdminConfig`); `config` takes a Kafka-style dictionary beside them. Every `timeout`
    is in seconds, `default_api_timeout_ms` if not given; after it `KafkaTimeout` tells the last failure. When a call on
    several topics fails for some, the first one's error is raised, and its `results` has what became of each.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        **options: Unpack[AdminOptions],
    ) -> None:
        self._config = resolve(AdminConfig, {"bootstrap_servers": bootstrap_servers, **options}, config)
        self._core = AdminCore(self._config)
        self._thread = LoopThread("pyclient-admin")
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._started = False
        self._closed = False

    def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout: float | None = None
    ) -> dict[str, TopicDescription]:
        """Creates topics and waits until each partition has a leader; with `validate_only`, only asks if it could.

        Raises `TopicAlreadyExists`, `InvalidTopic`, `InvalidPartitions`, `InvalidReplicationFactor`, `InvalidConfig`
        and what else the broker refuses.
        """
        topics = list(topics)
        return self._run(lambda: self._core.create_topics(topics, validate_only=validate_only, timeout=timeout))

    def delete_topics(self, names: Iterable[str], *, timeout: float | None = None) -> None:
        """Deletes topics with their records and waits until they are gone; `UnknownTopicOrPartition` if one is not."""
        return self._run(lambda: self._core.delete_topics(names, timeout=timeout))

    def create_partitions(
        self,
        totals: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        timeout: float | None = None,
    ) -> dict[str, TopicDescription]:
        """Grows topics to a total number of partitions and waits until the new ones have leaders.

        `assignments` gives, by topic, the replicas of each new partition. Raises `InvalidPartitions` for a total that
        is not larger than before. Mind the keys: which partition a key goes to depends on how many there are.
        """
        return self._run(lambda: self._core.create_partitions(totals, assignments=assignments, timeout=timeout))

    def list_topics(self, *, include_internal: bool = False, timeout: float | None = None) -> list[str]:
        """The names of the topics there are, sorted; the cluster's own (`__consumer_offsets`) only if asked for."""
        return self._run(lambda: self._core.list_topics(include_internal=include_internal, timeout=timeout))

    def describe_topics(self, names: Iterable[str], *, timeout: float | None = None) -> dict[str, TopicDescription]:
        """Topics with their partitions, leaders and replicas; `UnknownTopicOrPartition` if one is not there."""
        return self._run(lambda: self._core.describe_topics(names, timeout=timeout))

    def list_groups(self, *, states: Iterable[str] = (), timeout: float | None = None) -> list[GroupListing]:
        """The groups of all brokers, by their ids; only those in one of `states` (`Stable`, `Empty`, ...) if given."""
        return self._run(lambda: self._core.list_groups(states=states, timeout=timeout))

    def describe_groups(self, group_ids: Iterable[str], *, timeout: float | None = None) -> dict[str, GroupDescription]:
        """Groups, classic or of the new protocol, with members and what they are assigned.

        `GroupIdNotFound` if one does not exist.
        """
        return self._run(lambda: self._core.describe_groups(group_ids, timeout=timeout))

    def delete_groups(self, group_ids: Iterable[str], *, timeout: float | None = None) -> None:
        """Deletes groups with their offsets; `NonEmptyGroup` if one has members, `GroupIdNotFound` if there is none."""
        return self._run(lambda: self._core.delete_groups(group_ids, timeout=timeout))

    def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed, for some partitions or for all; partitions without a commit are left out."""
        return self._run(lambda: self._core.list_group_offsets(group_id, partitions, timeout=timeout))

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout: float | None = None,
    ) -> None:
        """Sets what a group has committed, and makes the group if need be.

        A group that has members refuses it (`UnknownMemberId`); `UnknownTopicOrPartition` for what does not exist.
        """
        return self._run(lambda: self._core.alter_group_offsets(group_id, offsets, timeout=timeout))

    def health(self) -> ClusterHealth:
        """Which nodes are known and connected, how old the metadata is, and the last failure by address."""

        async def on_its_thread() -> ClusterHealth:
            return self._core.health()

        with self._lock:
            closed = self._closed
        return self._core.health() if closed else self._run(on_its_thread)

    def close(self) -> None:
        """Closes the connections and ends the thread; a second close is nothing, nor is one in a forked child."""
        with self._lock:
            if self._closed or self._pid != os.getpid():
                return
            self._closed = True
        if self._started:
            try:
                self._thread.run(self._core.close, timeout=_CLOSING_SECONDS)
            finally:
                self._thread.stop(_CLOSING_SECONDS)

    def _run(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._check_open()
        if not self._started:
            with self._lock:
                if not self._started and not self._closed:
                    self._thread.start()
                    self._started = True
        return self._thread.run(call)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the admin client is closed")

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_started", False) and not self._closed and self._pid == os.getpid():
            text = f"{self!r} was not closed: use it in `with`, or call close()"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)
            self._thread.stop_after(self._core.close)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        if self._pid != os.getpid():
            state = "of another process"
        return f"<Admin {','.join(self._config.bootstrap_servers)} {state}>"


document(Admin, AdminConfig)
