"""Fetch sessions (KIP-227): what clients read is kept, so that their requests name only what changed. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient import errors

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random
    from uuid import UUID

    from pyclient.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
"""Asks for a new session."""

FINAL_EPOCH: Final = -1
"""Asks for no session, or ends one."""

SESSIONS_SINCE: Final = 7
TOPIC_IDS_SINCE: Final = 13
STALE_SECONDS: Final = 120.0
"""A session that was not used for so long gives way to any new one; a younger one only to one of more partitions."""

MOST_PARTITIONS: Final = 100_000
"""A session of more would cost too much memory: its client goes without."""

_LARGEST_ID: Final = 2**31 - 1

Key = tuple[str, "UUID", int]


class Wanted:
    """One partition that a client reads, and (in a session) what it was told last."""

    __slots__ = ("high_watermark", "key", "log_start_offset", "partition", "request", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: UUID, request: FetchPartition) -> None:
        self.topic = topic  # "" where the client goes by ids
        self.topic_id = topic_id
        self.partition = request.partition
        self.key: Key = topic, topic_id, request.partition
        self.request = request
        self.high_watermark = -1
        self.log_start_offset = -1

    def must_be_told(self, answer: PartitionData) -> bool:
        """Whether an incremental answer has this partition: one with data, with news, or with an error."""
        return (
            bool(answer.records)
            or answer.error_code != 0
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
            or answer.diverging_epoch.epoch >= 0
        )

    def note(self, answer: PartitionData) -> None:
        """`answer` goes to the client. After an error the partition is told again even if nothing else is new."""
        self.high_watermark = -1 if answer.error_code else answer.high_watermark
        self.log_start_offset = answer.log_start_offset


class FetchSession:
    """The partitions of one client, in the order in which they are served next; `epoch` is what must come next."""

    __slots__ = ("born", "epoch", "id", "last_used", "partitions", "uses_topic_ids")

    def __init__(self, session_id: int, wanted: Iterable[Wanted], *, uses_topic_ids: bool, now: float) -> None:
        self.id = session_id
        self.epoch = 1
        self.partitions: dict[Key, Wanted] = {each.key: each for each in wanted}
        self.uses_topic_ids = uses_topic_ids
        self.born = self.last_used = now

    def update(self, request: FetchRequest) -> None:
        """Take over what the client changed: other offsets, more partitions, fewer."""
        partitions = self.partitions
        for topic in request.topics:
            for changed in topic.partitions:
                known = partitions.get((topic.topic, topic.topic_id, changed.partition))
                if known is None:
                    added = Wanted(topic.topic, topic.topic_id, changed)
                    partitions[added.key] = added
                else:
                    known.request = changed
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                partitions.pop((forgotten.topic, forgotten.topic_id, index), None)

    def served(self, wanted: Wanted) -> None:
        """It got records: the others come first the next time."""
        if self.partitions.pop(wanted.key, None) is not None:
            self.partitions[wanted.key] = wanted

    def __repr__(self) -> str:
        return f"<FetchSession {self.id} epoch={self.epoch} partitions={len(self.partitions)}>"


class FetchSessions:
    """The sessions of a node, at most `slots` of them (`max.incremental.fetch.session.cache.slots`)."""

    def __init__(self, slots: int, rng: Random) -> None:
        self._slots = slots
        self._rng = rng
        self._sessions: dict[int, FetchSession] = {}  # the one that was used longest ago first

    def __len__(self) -> int:
        return len(self._sessions)

    def __repr__(self) -> str:
        return f"<FetchSessions {len(self)} of {self._slots}>"

    def open(self, wanted: list[Wanted], *, uses_topic_ids: bool, now: float) -> FetchSession | None:
        """A new session, or None when it is not worth more than those that are there: the client goes without."""
        if not 0 < len(wanted) <= MOST_PARTITIONS:
            return None
        if len(self) >= self._slots and not self._make_room(len(wanted), now):
            return None
        session_id = self._rng.randint(1, _LARGEST_ID)
        while session_id in self._sessions:
            session_id = self._rng.randint(1, _LARGEST_ID)
        session = FetchSession(session_id, wanted, uses_topic_ids=uses_topic_ids, now=now)
        self._sessions[session_id] = session
        return session

    def resume(self, request: FetchRequest, version: int, now: float) -> FetchSession | None:
        """The session of an incremental request, with its changes; None when the client has nothing left in it.

        Raises `FetchSessionIdNotFound`, `InvalidFetchSessionEpoch` or `FetchSessionTopicIdError`.
        """
        session = self._sessions.get(request.session_id)
        if session is None:
            raise errors.FetchSessionIdNotFound(f"there is no fetch session {request.session_id} (any more)")
        if session.epoch != request.session_epoch:
            raise errors.InvalidFetchSessionEpoch(f"{session!r}: epoch {request.session_epoch} came")
        if session.uses_topic_ids != (version >= TOPIC_IDS_SINCE):
            raise errors.FetchSessionTopicIdError(f"{session!r} began with topic ids or without, and goes on so")
        session.update(request)
        del self._sessions[session.id]
        if not session.partitions:
            return None
        if len(session.partitions) > MOST_PARTITIONS:
            raise errors.FetchSessionIdNotFound(f"{session!r} has become too large and is over")
        self._sessions[session.id] = session  # at the end: it is the one that was used last
        session.last_used = now
        session.epoch = 1 if session.epoch == _LARGEST_ID else session.epoch + 1
        return session

    def partitions_of(self, session_id: int, epoch: int) -> list[Wanted]:
        """What a request of this id and epoch reads beside what it names; nothing if there is no such session."""
        session = self._sessions.get(session_id)
        return [] if session is None or epoch in (FIRST_EPOCH, FINAL_EPOCH) else list(session.partitions.values())

    def close(self, session_id: int) -> None:
        """End a session, if it is there."""
        self._sessions.pop(session_id, None)

    def _make_room(self, size: int, now: float) -> bool:
        """Drop a stale session, else the smallest of the old ones if it is not larger than the new one."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now - oldest.last_used > STALE_SECONDS:
            self.close(oldest.id)
            return True
        old = [session for session in self._sessions.values() if now - session.born > STALE_SECONDS]
        smallest = min(old, key=lambda session: (len(session.partitions), session.id), default=None)
        if smallest is None or len(smallest.partitions) > size:
            return False
        self.close(smallest.id)
        return True


def wanted_of(request: FetchRequest) -> list[Wanted]:
    """The partitions of a full request, each once: of one named twice the last counts, in the place of the first."""
    found: dict[Key, Wanted] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            wanted = Wanted(topic.topic, topic.topic_id, partition)
            found[wanted.key] = wanted
    return list(found.values())
