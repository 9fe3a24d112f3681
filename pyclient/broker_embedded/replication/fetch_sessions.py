"""Fetch sessions (KIP-227): the partitions of clients are kept, so that requests name only changes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient import errors

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random
    from uuid import UUID

    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
"""Epoch of a request for a new session."""

FINAL_EPOCH: Final = -1
"""Epoch of a request without a session, or one that ends its session."""

SESSIONS_SINCE: Final = 7
TOPIC_IDS_SINCE: Final = 13
STALE_SECONDS: Final = 120.0
"""A session that was unused for this time gives way to any new one; another one only to one of more partitions.

One whose connection is closed ends as well: it will not be resumed.
"""

MOST_PARTITIONS: Final = 100_000
"""Larger sessions would cost too much memory: the client gets none."""

MOST_IN_ALL: Final = 250_000
"""Limit of the partitions of all sessions, for their memory: docs/measurements.md, "Requests of many items"."""

_A_STEP: Final = 16  # partitions
_LARGEST_ID: Final = 2**31 - 1

Key = tuple[str, "UUID", int]


class CachedPartition:
    """One partition that a client reads, and (in a session) the offsets of the last response."""

    __slots__ = ("high_watermark", "key", "log_start_offset", "partition", "request", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: UUID, request: FetchPartition) -> None:
        self.topic = topic  # "" if the client uses topic ids
        self.topic_id = topic_id
        self.partition = request.partition
        self.key: Key = topic, topic_id, request.partition
        self.request = request
        self.high_watermark = -1
        self.log_start_offset = -1

    def must_be_included(self, answer: PartitionData) -> bool:
        """Return True if an incremental response must include this partition.

        So it must with data, changed offsets, an error, or a replica to read from: a client that could not reach that
        replica and asks here again would otherwise get empty answers at once, for ever.
        """
        return (
            bool(answer.records)
            or answer.error_code != 0
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
            or answer.diverging_epoch.epoch >= 0
            or answer.preferred_read_replica >= 0
        )

    def note(self, answer: PartitionData) -> None:
        """Note the answer that is sent. After an error or divergence the next response includes the
        partition, also if nothing has changed.

        A follower that truncates its log ignores the other fields: it would fetch again and again without them.
        """
        is_unusable = answer.error_code != 0 or answer.diverging_epoch.epoch >= 0
        self.high_watermark = -1 if is_unusable else answer.high_watermark
        self.log_start_offset = answer.log_start_offset


class FetchSession:
    """The partitions of one client, in the order in which they are served next; `epoch` is the next one expected."""

    __slots__ = ("born", "counted", "epoch", "id", "last_used", "owner", "partitions", "uses_topic_ids")

    def __init__(self, session_id: int, wanted: Iterable[CachedPartition], *, uses_topic_ids: bool, now: float) -> None:
        self.id = session_id
        self.epoch = 1
        self.partitions: dict[Key, CachedPartition] = {each.key: each for each in wanted}
        self.uses_topic_ids = uses_topic_ids
        self.born = self.last_used = now
        self.counted = len(self.partitions)
        """The session's share in the count of all sessions' partitions."""
        self.owner: int | None = None
        """The connection that last used it; None when that is closed."""

    def update(self, request: FetchRequest) -> IncrementalTask[None]:
        """Apply the changes of a request: other offsets, added and removed partitions."""
        partitions = self.partitions
        for topic in request.topics:
            for changed in topic.partitions:
                known = partitions.get((topic.topic, topic.topic_id, changed.partition))
                if known is None:
                    added = CachedPartition(topic.topic, topic.topic_id, changed)
                    partitions[added.key] = added
                else:
                    known.request = changed
                yield None
            yield None
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                partitions.pop((forgotten.topic, forgotten.topic_id, index), None)
                yield None
            yield None

    def served(self, wanted: CachedPartition) -> None:
        """Move a partition that got records to the end, so that the others come first the next time."""
        if self.partitions.pop(wanted.key, None) is not None:
            self.partitions[wanted.key] = wanted

    def __repr__(self) -> str:
        return f"<FetchSession {self.id} epoch={self.epoch} partitions={len(self.partitions)}>"


class FetchSessions:
    """The sessions of a node, at most `slots` of them (`max.incremental.fetch.session.cache.slots`)."""

    def __init__(self, slots: int, rng: Random, most_partitions: int = MOST_IN_ALL) -> None:
        self._slots = slots
        self._rng = rng
        self._most_partitions = most_partitions
        self._partitions = 0
        self._sessions: dict[int, FetchSession] = {}  # the least recently used first
        self._owned: dict[int, set[int]] = {}  # session ids by connection
        self._orphans: dict[int, None] = {}  # ids of sessions whose connections are closed, the oldest first

    def __len__(self) -> int:
        return len(self._sessions)

    def __repr__(self) -> str:
        return f"<FetchSessions {len(self)} of {self._slots}, {self._partitions} partitions>"

    def size_of(self, session_id: int) -> int:
        """Return how many partitions a session has, 0 if it does not exist."""
        session = self._sessions.get(session_id)
        return 0 if session is None else len(session.partitions)

    def open(
        self, wanted: list[CachedPartition], *, uses_topic_ids: bool, now: float, owner: int
    ) -> FetchSession | None:
        """Return a new session; None if there is no room and no session gives way to it."""
        if not 0 < len(wanted) <= MOST_PARTITIONS:
            return None
        while not self._has_room(len(wanted)):
            if not self._make_room(len(wanted), now):
                return None
        session_id = self._rng.randint(1, _LARGEST_ID)
        while session_id in self._sessions:
            session_id = self._rng.randint(1, _LARGEST_ID)
        session = FetchSession(session_id, wanted, uses_topic_ids=uses_topic_ids, now=now)
        self._sessions[session_id] = session
        self._partitions += session.counted
        self._own(session, owner)
        return session

    def resume(
        self, request: FetchRequest, version: int, now: float, *, owner: int
    ) -> IncrementalTask[FetchSession | None]:
        """Return the session of an incremental request after its changes; None if no partitions are left in it.

        Raise `FetchSessionIdNotFound`, `InvalidFetchSessionEpoch` or `FetchSessionTopicIdError`.
        """
        session = self._sessions.get(request.session_id)
        if session is None:
            raise errors.FetchSessionIdNotFound(f"there is no fetch session {request.session_id} (any more)")
        if session.epoch != request.session_epoch:
            raise errors.InvalidFetchSessionEpoch(
                f"{session!r}: the request has the session epoch {request.session_epoch}"
            )
        if session.uses_topic_ids != (version >= TOPIC_IDS_SINCE):
            how = "with" if session.uses_topic_ids else "without"
            raise errors.FetchSessionTopicIdError(f"{session!r} was opened {how} topic ids: its requests must be alike")
        # first, since the changes take several steps: a request of the same epoch on another connection is refused
        session.epoch = 1 if session.epoch == _LARGEST_ID else session.epoch + 1
        self._own(session, owner)
        yield from session.update(request)
        if self._sessions.get(session.id) is not session:
            raise errors.FetchSessionIdNotFound(f"{session!r} was ended meanwhile")
        self._partitions += len(session.partitions) - session.counted
        session.counted = len(session.partitions)
        if not session.partitions:
            self.close(session.id)
            return None
        if len(session.partitions) > MOST_PARTITIONS or self._partitions > self._most_partitions:
            self.close(session.id)
            raise errors.FetchSessionIdNotFound(f"{session!r} has become too large and is over")
        self._sessions[session.id] = self._sessions.pop(session.id)  # to the end: the most recently used
        session.last_used = now
        return session

    def partitions_of(self, session_id: int, epoch: int) -> list[CachedPartition]:
        """Return the partitions of the session that a request with this id and epoch uses; none without a session."""
        session = self._sessions.get(session_id)
        return [] if session is None or epoch in (FIRST_EPOCH, FINAL_EPOCH) else list(session.partitions.values())

    def close(self, session_id: int) -> None:
        """Remove a session, if it exists."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= session.counted
            self._disown(session)

    def connection_ended(self, owner: int) -> None:
        """Let the sessions that a closed connection used last give way to any new session.

        They stay until then or until `expire`: a client that reconnects may resume its session.
        """
        for session_id in self._owned.pop(owner, ()):
            self._sessions[session_id].owner = None
            self._orphans[session_id] = None

    def expire(self, now: float) -> None:
        """End the sessions without a connection that were unused for `STALE_SECONDS`, to free their memory."""
        unused = [each for each in self._orphans if now - self._sessions[each].last_used > STALE_SECONDS]
        for session_id in unused:
            self.close(session_id)

    def _own(self, session: FetchSession, owner: int) -> None:
        if session.owner != owner:
            self._disown(session)
            session.owner = owner
            self._owned.setdefault(owner, set()).add(session.id)

    def _disown(self, session: FetchSession) -> None:
        self._orphans.pop(session.id, None)
        if session.owner is not None:
            owned = self._owned[session.owner]
            owned.discard(session.id)
            if not owned:
                del self._owned[session.owner]
            session.owner = None

    def _has_room(self, size: int) -> bool:
        return len(self) < self._slots and self._partitions + size <= self._most_partitions

    def _make_room(self, size: int, now: float) -> bool:
        """Remove one without a connection, a stale one, or the smallest old one if the new one is at least as large."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if self._orphans:
            self.close(next(iter(self._orphans)))
            return True
        if now - oldest.last_used > STALE_SECONDS:
            self.close(oldest.id)
            return True
        old = [session for session in self._sessions.values() if now - session.born > STALE_SECONDS]
        smallest = min(old, key=lambda session: (len(session.partitions), session.id), default=None)
        if smallest is None or len(smallest.partitions) > size:
            return False
        self.close(smallest.id)
        return True


def wanted_of(request: FetchRequest) -> IncrementalTask[list[CachedPartition]]:
    """Return the partitions of a full request; of one named twice, the last value in the position of the first."""
    found: dict[Key, CachedPartition] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            wanted = CachedPartition(topic.topic, topic.topic_id, partition)
            found[wanted.key] = wanted
            if not len(found) % _A_STEP:
                yield None
        yield None
    return list(found.values())
