"""Incremental fetch sessions (KIP-227): a broker remembers what is fetched, so that only changes are sent."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyclient.errors import FetchSessionIdNotFound, FetchSessionTopicIdError
from pyclient.types import TopicPartition

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0  # a request with this epoch names all partitions and asks for a new session
_LAST_EPOCH: Final = 2**31 - 1


class FetchPosition(NamedTuple):
    """What a fetch says about one partition; a session repeats it only when it has changed."""

    topic_id: uuid.UUID
    offset: int
    leader_epoch: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """The session's part of a fetch request: what to send, in order, and what the broker is to forget."""

    session_id: int
    epoch: int
    send: Mapping[TopicPartition, FetchPosition]
    forget: Mapping[TopicPartition, uuid.UUID]

    @property
    def full(self) -> bool:
        """Whether every partition is named, because the broker has no session to add to."""
        return self.epoch == FIRST_EPOCH


class FetchSession:
    """This client's session with one broker. Every request is followed by `answered` or `failed` before the next."""

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = FIRST_EPOCH
        self._known: dict[TopicPartition, FetchPosition] = {}
        self._by_id = False

    def request(
        self,
        wanted: Mapping[TopicPartition, FetchPosition],
        *,
        by_id: bool,
        changed: Collection[TopicPartition] | None = None,
    ) -> SessionRequest:
        """How to ask for `wanted`, most urgent first; `by_id` says whether topics go by their id (Fetch >= 13).

        `changed` are the partitions that the last request was different in, or did not have; None: maybe all.
        """
        if by_id != self._by_id:
            self.epoch = FIRST_EPOCH  # a session may not change how it names topics
        if self.epoch == FIRST_EPOCH:
            self._known, self._by_id = dict(wanted), by_id
            return SessionRequest(self.session_id, FIRST_EPOCH, self._known, {})
        send: dict[TopicPartition, FetchPosition] = {}
        forget: dict[TopicPartition, uuid.UUID] = {}
        for partition in dict.fromkeys([*wanted, *self._known]) if changed is None else changed:
            at, known = wanted.get(partition), self._known.get(partition)
            if at == known:
                continue
            if known is not None and (at is None or (by_id and at.topic_id != known.topic_id)):
                forget[partition] = known.topic_id
            if at is None:
                del self._known[partition]
            else:
                self._known[partition] = send[partition] = at
        return SessionRequest(self.session_id, self.epoch, send, forget)

    def knows(self, partition: TopicPartition) -> bool:
        """Whether an answer may speak of this partition."""
        return partition in self._known

    def answered(self, session_id: int) -> None:
        """The request was served. Id 0 is a broker that wants no sessions: then every request is a full one."""
        if session_id == NO_SESSION:
            self.session_id, self.epoch = NO_SESSION, FIRST_EPOCH
        elif self.epoch == FIRST_EPOCH or session_id != self.session_id:
            self.session_id, self.epoch = session_id, 1
        else:
            self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1

    def refused(self, error_code: int) -> None:
        """The broker refused the session: the next request is a full one."""
        self.epoch = FIRST_EPOCH
        if error_code in (FetchSessionIdNotFound.code, FetchSessionTopicIdError.code):
            self.session_id = NO_SESSION

    def failed(self) -> None:
        """No answer came, so nobody knows what the broker holds: the next request begins anew."""
        self.epoch = FIRST_EPOCH

    def __repr__(self) -> str:
        return f"<FetchSession id={self.session_id} epoch={self.epoch} partitions={len(self._known)}>"
