"""Decide when a Fetch that waits for more data is attempted again, and when it is answered. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

OFFSETS_WAIT: Final = 0.005
"""Seconds for which a new high watermark or log start waits for records, to be sent to a follower together with them
(docs/measurements.md, "Replicated produce")."""


class Progress(Protocol):
    """The data that there is for a fetch in its logs. It is only read here."""

    @property
    def is_behind(self) -> bool:
        """True if the last attempt or check found offsets that the client, a follower, does not know yet."""

    def may_be_enough(self, grown: Collection[Any]) -> bool:
        """Return True if an attempt may succeed after these logs have grown; cheaper than the attempt."""


# Events


@dataclass(slots=True)
class Began:
    """The first attempt found too little: the fetch waits for `wait` seconds at most."""

    wait: float


@dataclass(slots=True)
class Grown:
    """A log of the fetch was appended to, or its high watermark or start has moved."""

    log: Any


@dataclass(slots=True)
class Answered:
    """An attempt made the response."""

    response: Any


@dataclass(slots=True)
class Failed:
    """An attempt or a check failed."""

    error: Exception


class Signal(Enum):
    """The events that carry nothing."""

    WOKEN = auto()
    """The iteration of the loop after `Act.WAKE_SOON`."""
    TOO_LITTLE = auto()
    """An attempt found too little data."""
    OPENED = auto()
    """A log was opened that the last attempt did not find open."""
    ANSWER_NOW = auto()
    """The time is over, the client sends no more, the topic is deleted, or the node stops."""
    ABANDONED = auto()
    """The client has disconnected."""


# Effects


@dataclass(slots=True)
class Attempt:
    """Report `Answered` or `Signal.TOO_LITTLE`; the `last` attempt answers with whatever data there is."""

    last: bool


@dataclass(slots=True)
class WakeIn:
    """Report `Signal.ANSWER_NOW` after that many seconds. Replaces an earlier one."""

    seconds: float


@dataclass(slots=True)
class Answer:
    """Send the response, and do what `Act.RELEASE` does."""

    response: Any


@dataclass(slots=True)
class Fail:
    """Answer with an error, and do what `Act.RELEASE` does."""

    error: Exception


class Act(Enum):
    """The effects that carry nothing."""

    WAKE_SOON = auto()
    """Report `Signal.WOKEN` in the next iteration of the loop: several appends in one cost one attempt."""
    WATCH_LOGS = auto()
    """Report `Grown` for the logs that were opened, too."""
    RELEASE = auto()
    """End the attempt that is in progress and the timer, and watch the logs no more."""


Event = Began | Grown | Answered | Failed | Signal
Effect = Attempt | WakeIn | Answer | Fail | Act


class _Phase(Enum):
    NEW = auto()
    WAITING = auto()
    ATTEMPTING = auto()
    OVER = auto()


_NEW, _WAITING, _ATTEMPTING, _OVER = _Phase
_WOKEN = Signal.WOKEN


class DelayedFetch:
    """One Fetch that waits. `receive` takes an event and returns effects, none once it was answered or abandoned.

    At most one attempt is in progress. What happens meanwhile causes the next one.
    """

    __slots__ = ("_deadline", "_grown", "_is_brief", "_is_last", "_opened", "_phase", "_progress", "_was_opened")

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._phase = _NEW
        self._grown: set[Any] = set()
        """The logs that have grown since the last check."""
        self._opened = False
        """A log was opened since the last attempt."""
        self._was_opened = False
        """A log was opened before the attempt in progress."""
        self._is_last = False
        """The next attempt must answer."""
        self._deadline = 0.0
        self._is_brief = False
        """The time was shortened to `OFFSETS_WAIT`."""

    def __repr__(self) -> str:
        return f"<DelayedFetch {self._phase.name}{' last' if self._is_last else ''} grown={len(self._grown)}>"

    def receive(self, event: Event, now: float) -> list[Effect]:
        """Return the effects of an event. What `progress` raises is for the caller to report as `Failed`."""
        if self._phase is _OVER:
            return []
        match event:
            case Grown():
                return self._grow(event.log)
            case Signal():
                return self._signalled(event, now)
            case Answered():
                self._phase = _OVER
                return [Answer(event.response)]
            case Began():
                return self._begin(event.wait, now)
            case Failed():
                self._phase = _OVER
                return [Fail(event.error)]

    def _grow(self, log: Any) -> list[Effect]:
        is_first = not self._grown
        self._grown.add(log)
        return [Act.WAKE_SOON] if is_first else []

    def _signalled(self, signal: Signal, now: float) -> list[Effect]:
        if signal is _WOKEN:
            return self._try(now)
        if signal is Signal.TOO_LITTLE:
            return self._go_on(now)
        if signal is Signal.OPENED:
            self._opened = True
        elif signal is Signal.ANSWER_NOW:
            self._is_last = True
        elif signal is Signal.ABANDONED:
            self._phase = _OVER
            return [Act.RELEASE]
        return self._try(now)

    def _begin(self, wait: float, now: float) -> list[Effect]:
        self._phase = _WAITING
        self._deadline = now + wait
        self._is_brief = self._progress.is_behind
        return [WakeIn(min(wait, OFFSETS_WAIT) if self._is_brief else wait)]

    def _try(self, now: float) -> list[Effect]:
        """Check or attempt, unless an attempt is in progress: then the end of that one is followed by the next."""
        if self._phase is not _WAITING:
            return []
        grown, self._grown = self._grown, set()
        if not self._is_last and not self._opened and not self._progress.may_be_enough(grown):
            return self._shorten(now)
        self._phase = _ATTEMPTING
        self._was_opened, self._opened = self._opened, False
        return [Attempt(self._is_last)]

    def _go_on(self, now: float) -> list[Effect]:
        """Wait again after an attempt, or begin the next one."""
        self._phase = _WAITING
        effects: list[Effect] = [Act.WATCH_LOGS] if self._was_opened else []
        effects += self._shorten(now)
        return effects + self._try(now) if self._grown or self._is_last or self._opened else effects

    def _shorten(self, now: float) -> list[Effect]:
        """Answer soon if there are offsets that the follower does not know."""
        if self._is_brief or not self._progress.is_behind:
            return []
        self._is_brief = True
        return [WakeIn(max(min(self._deadline - now, OFFSETS_WAIT), 0.0))]
