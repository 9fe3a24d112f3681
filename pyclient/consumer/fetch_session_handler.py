"""Incremental fetch sessions (KIP-227): the broker remembers the partitions, and requests have only changes."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyclient.errors import FetchSessionIdNotFound, FetchSessionTopicIdError
from pyclient.types import TopicPartition

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0  # a full request, which opens a new session
_LAST_EPOCH: Final = 2**31 - 1


class FetchPosition(NamedTuple):
    """The fields of one partition in a fetch; a session repeats them only when they have changed."""

    topic_id: uuid.UUID
    offset: int
    leader_epoch: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """The session's part of a fetch request: the partitions to send, in order, and those to forget."""

    session_id: int
    epoch: int
    send: Mapping[TopicPartition, FetchPosition]
    forget: Mapping[TopicPartition, uuid.UUID]

    @property
    def full(self) -> bool:
        """Return True if every partition is included, because the broker has no session."""
        return self.epoch == FIRST_EPOCH


class FetchSessionHandler:
    """This client's session with one broker. Call `answered`, `refused` or `failed` after each request."""

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
        """Return the request for `wanted`, most urgent first; `by_id` if topics are named by their id (Fetch >= 13).

        `changed` are the partitions that differ from the last request; None if that is not known.
        """
        if by_id != self._by_id:
            self.epoch = FIRST_EPOCH  # a session cannot switch between topic names and ids
        if self.epoch == FIRST_EPOCH:
            self._known, self._by_id = dict(wanted), by_id
            return SessionRequest(self.session_id, FIRST_EPOCH, self._known, {})
        send: dict[TopicPartition, FetchPosition] = {}
        forget: dict[TopicPartition, uuid.UUID] = {}
        for partition in dict.fromkeys([*wanted, *self._known]) if changed is None else changed:
            position, known = wanted.get(partition), self._known.get(partition)
            if position == known:
                continue
            if known is not None and (position is None or (by_id and position.topic_id != known.topic_id)):
                forget[partition] = known.topic_id
            if position is None:
                del self._known[partition]
            else:
                self._known[partition] = send[partition] = position
        return SessionRequest(self.session_id, self.epoch, send, forget)

    def knows(self, partition: TopicPartition) -> bool:
        """Return True if a response may include this partition."""
        return partition in self._known

    def answered(self, session_id: int) -> None:
        """Note a successful response. With session id 0 the broker has no session: every request is a full one."""
        if session_id == NO_SESSION:
            self.session_id, self.epoch = NO_SESSION, FIRST_EPOCH
        elif self.epoch == FIRST_EPOCH or session_id != self.session_id:
            self.session_id, self.epoch = session_id, 1
        else:
            self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1

    def refused(self, error_code: int) -> None:
        """Note a session error of the broker: the next request is a full one."""
        self.epoch = FIRST_EPOCH
        if error_code in (FetchSessionIdNotFound.code, FetchSessionTopicIdError.code):
            self.session_id = NO_SESSION

    def failed(self) -> None:
        """Note a missing response: the broker's session state is unknown, and the next request is a full one."""
        self.epoch = FIRST_EPOCH

    def __repr__(self) -> str:
        return f"<FetchSessionHandler id={self.session_id} epoch={self.epoch} partitions={len(self._known)}>"
