"""The synchronous admin client: runs the shared implementation on an event loop in a thread of its own."""

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
    """Creates, lists, describes, grows and deletes topics; lists, describes and deletes groups. Thread-safe.

    >>> with Admin("localhost:9092") as admin:  # doctest: +SKIP
    ...     admin.create_topics([NewTopic("orders", partitions=6)])

    Options are keyword arguments (`AdminConfig`); `config` takes a Kafka-style dictionary as well. Every `timeout`
    is in seconds, `default_api_timeout_ms` by default; after it `KafkaTimeout` is raised with the last failure. If a
    call on several topics fails for some, the first one's error is raised, and its `results` has each topic's error.
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
        """Create topics and wait until each partition has a leader; with `validate_only`, only validate the request.

        Raise `TopicAlreadyExists`, `InvalidTopic`, `InvalidPartitions`, `InvalidReplicationFactor`, `InvalidConfig` or
        another error of the broker.
        """
        topics = list(topics)
        return self._run(lambda: self._core.create_topics(topics, validate_only=validate_only, timeout=timeout))

    def delete_topics(self, names: Iterable[str], *, timeout: float | None = None) -> None:
        """Delete topics and wait until they are gone; raise `UnknownTopicOrPartition` if one does not exist."""
        return self._run(lambda: self._core.delete_topics(names, timeout=timeout))

    def create_partitions(
        self,
        totals: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        timeout: float | None = None,
    ) -> dict[str, TopicDescription]:
        """Grow topics to a total number of partitions and wait until the new ones have leaders.

        `assignments` gives, by topic, the replicas of each new partition. Raise `InvalidPartitions` for a total that
        is not larger than before. The partition of a key depends on the number of partitions, so it may change.
        """
        return self._run(lambda: self._core.create_partitions(totals, assignments=assignments, timeout=timeout))

    def list_topics(self, *, include_internal: bool = False, timeout: float | None = None) -> list[str]:
        """Return the sorted names of all topics, internal ones (`__consumer_offsets`) only if `include_internal`."""
        return self._run(lambda: self._core.list_topics(include_internal=include_internal, timeout=timeout))

    def describe_topics(self, names: Iterable[str], *, timeout: float | None = None) -> dict[str, TopicDescription]:
        """Return topics, partitions, leaders and replicas; raise `UnknownTopicOrPartition` if a topic is missing."""
        return self._run(lambda: self._core.describe_topics(names, timeout=timeout))

    def list_groups(self, *, states: Iterable[str] = (), timeout: float | None = None) -> list[GroupListing]:
        """Return the groups of all brokers by id, optionally only those in `states` (`Stable`, `Empty`, ...)."""
        return self._run(lambda: self._core.list_groups(states=states, timeout=timeout))

    def describe_groups(self, group_ids: Iterable[str], *, timeout: float | None = None) -> dict[str, GroupDescription]:
        """Return groups, classic or of the consumer protocol, with their members and assignments.

        Raise `GroupIdNotFound` if one does not exist.
        """
        return self._run(lambda: self._core.describe_groups(group_ids, timeout=timeout))

    def delete_groups(self, group_ids: Iterable[str], *, timeout: float | None = None) -> None:
        """Delete groups and their offsets; raise `NonEmptyGroup` or `GroupIdNotFound` if one cannot be deleted."""
        return self._run(lambda: self._core.delete_groups(group_ids, timeout=timeout))

    def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets, of some partitions or of all; uncommitted partitions are left out."""
        return self._run(lambda: self._core.list_group_offsets(group_id, partitions, timeout=timeout))

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout: float | None = None,
    ) -> None:
        """Set a group's committed offsets, and create the group if it does not exist.

        Raise `UnknownMemberId` if the group has members, `UnknownTopicOrPartition` for a missing topic or partition.
        """
        return self._run(lambda: self._core.alter_group_offsets(group_id, offsets, timeout=timeout))

    def health(self) -> ClusterHealth:
        """Return the known and the connected nodes, the age of the metadata, and the last failure of each address."""

        async def on_loop() -> ClusterHealth:
            return self._core.health()

        with self._lock:
            closed = self._closed
        return self._core.health() if closed else self._run(on_loop)

    def close(self) -> None:
        """Close the connections and end the thread. Idempotent; a no-op in a forked child."""
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
