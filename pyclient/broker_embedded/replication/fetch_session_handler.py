"""The follower's side of a fetch session (KIP-227): requests name only what changed since the last one. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyclient import errors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from pyclient.protocol.messages.fetch import FetchPartition

Key = tuple["UUID", int]

_NO_SESSION: Final = 0
_NEW_SESSION: Final = 0
_LARGEST_EPOCH: Final = 2**31 - 1


class SessionFetch(NamedTuple):
    """The content of the next request of a session."""

    session_id: int
    epoch: int
    partitions: dict[Key, FetchPartition]
    forgotten: list[Key]


class FetchSessionHandler:
    """The session with one leader; `partitions` are those in it, each as it was asked for last."""

    def __init__(self) -> None:
        self._id = _NO_SESSION
        self._epoch = _NEW_SESSION
        self.partitions: dict[Key, FetchPartition] = {}

    def __repr__(self) -> str:
        return f"<FetchSessionHandler {self._id} epoch={self._epoch} partitions={len(self.partitions)}>"

    def next(self, wanted: Mapping[Key, FetchPartition]) -> SessionFetch:
        """Return the next request for the `wanted` partitions."""
        before, self.partitions = self.partitions, dict(wanted)
        if self._epoch == _NEW_SESSION:
            return SessionFetch(self._id, _NEW_SESSION, dict(wanted), [])
        changed = {key: partition for key, partition in wanted.items() if before.get(key) != partition}
        return SessionFetch(self._id, self._epoch, changed, [key for key in before if key not in wanted])

    def answered(self, session_id: int, error_code: int) -> bool:
        """Take the id and the error of a response. Return True if its partitions count."""
        if error_code:
            if error_code == errors.FetchSessionIdNotFound.code:
                self._id = _NO_SESSION
            self._epoch = _NEW_SESSION
            return False
        if session_id == _NO_SESSION:  # the leader has no room for a session, or it is over
            self._id, self._epoch = _NO_SESSION, _NEW_SESSION
        elif self._epoch == _NEW_SESSION:
            self._id, self._epoch = session_id, 1
        else:
            self._epoch = 1 if self._epoch == _LARGEST_EPOCH else self._epoch + 1
        return True

    def failed(self) -> None:
        """Record that a request got no response: the next one asks for a new session in place of this one."""
        self._epoch = _NEW_SESSION
