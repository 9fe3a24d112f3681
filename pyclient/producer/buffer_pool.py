"""BufferPool: the `buffer_memory` bytes of a producer's batches, granted first come first served."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

PACE: Final = 1_048_576  # bytes allocated between two checks whether the sender keeps up
AHEAD: Final = 4 * PACE  # bytes in use above which `send_many` briefly waits for the sender
FAR_AHEAD: Final = 16_777_216
"""Bytes in use above which single sends wait for the sender, too, rather than touch memory that was not used before."""
_PLENTY: Final = 8  # pooled buffers: this much free memory is granted at once, less may wait for more


class Waiter:
    """A caller that may have to wait for a buffer; `wake` is called once `buffer` is set or the producer closes."""

    __slots__ = ("buffer", "gone", "size", "wake", "woken")

    def __init__(self, wake: Callable[[], object]) -> None:
        self.wake = wake
        self.woken = False
        self.gone = False  # it no longer waits; set before `abandon`, which an interrupt may cut short
        self.size = 0  # bytes requested
        self.buffer: bytearray | None = None


class BufferPool:
    """Buffers of up to `total` bytes together; those of `pooled_size` bytes are reused.

    It neither locks nor waits: the caller holds the producer's lock, and waits outside it for its `Waiter` to be
    woken. Waiters are served strictly in order, so that small records do not starve a large one.
    """

    def __init__(self, total: int, pooled_size: int) -> None:
        self.total = total
        self.pooled_size = pooled_size
        self.available = total
        self._free: list[bytearray] = []
        self._waiters: deque[Waiter] = deque()  # the first may be gone or woken already
        self._granted: list[Waiter] = []  # have a buffer that they have not taken yet
        self._plenty = min(total // 4, _PLENTY * pooled_size)
        self._pace_at = 0  # value of `_handed_out` at the next check
        self._handed_out = 0
        self._paced: list[Callable[[], object]] = []
        self.unowned: bytearray | None = None
        """The buffer allocated last, until its batch is queued; after an interrupt in between, `take_back` frees it."""

    def __repr__(self) -> str:
        used = self.total - self.available
        return f"<BufferPool {used}/{self.total} bytes in use, {len(self._waiters)} waiting>"

    @property
    def waiting(self) -> int:
        """The number of waiters."""
        return len(self._waiters)

    def try_acquire(self, size: int) -> bytearray | None:
        """Return a buffer of at least `size` bytes, or None if memory is short or others wait for it already."""
        if self.available < size or self.available < self.pooled_size or (self._waiters and self._first() is not None):
            return None
        return self._allocate(size)

    def force_acquire(self, size: int) -> bytearray:
        """Return a buffer even if that exceeds the total, for records accepted before; its bytes still count."""
        return self._allocate(size)

    def wait(self, waiter: Waiter, size: int) -> None:
        """Enqueue a waiter for a buffer; it is woken under the producer's lock once it has one."""
        waiter.size = size
        waiter.gone = waiter.woken = False
        self._waiters.append(waiter)
        if self._granted or self.unowned is not None:
            self.grant()

    def take(self, waiter: Waiter) -> bytearray | None:
        """Take and return the buffer granted to the waiter; None if there is none."""
        buffer = waiter.buffer
        if buffer is not None:
            self.unowned, waiter.buffer = buffer, None
            self._granted.remove(waiter)
        return buffer

    def abandon(self, waiter: Waiter) -> None:
        """Remove a waiter; a buffer that it was granted and has not taken is released."""
        waiter.gone = True
        if waiter.buffer is not None:
            self.unowned, waiter.buffer = waiter.buffer, None
            self.take_back()
        elif self._waiters:
            try:
                self._waiters.remove(waiter)
            except ValueError:  # it was woken already, or never waited
                return
            self.grant()

    @property
    def far_ahead(self) -> bool:
        """True if callers are so far ahead of the sender that single sends should wait briefly."""
        return self.total - self.available > FAR_AHEAD

    def must_pace(self, wake: Callable[[], object]) -> bool:
        """Return True if more than `AHEAD` bytes are in use, at most once every `PACE` allocated bytes.

        `wake` is then called when less is in use.
        """
        if self._handed_out < self._pace_at or self.total - self.available <= AHEAD:
            return False
        self._pace_at = self._handed_out + PACE
        self._paced.append(wake)
        return True

    def forget(self, wake: Callable[[], object]) -> None:
        """Remove a `wake` that was given to `must_pace`."""
        self._paced = [other for other in self._paced if other is not wake]

    def release(self, buffer: bytearray, *, patient: bool = False) -> None:
        """Return a buffer to the pool. Its request must have ended, so that nothing can read it any more.

        A `patient` release of little memory wakes no waiter: the caller calls `grant` soon, so that not every single
        buffer wakes a thread (docs/measurements.md, "send_many").
        """
        size = len(buffer)
        if buffer is self.unowned:
            self.unowned = None
        self.available += size
        if size == self.pooled_size:
            self._free.append(buffer)
        if self._granted:
            self._recover()
        if self._paced and self.total - self.available <= AHEAD - PACE:
            paced, self._paced = self._paced, []
            for wake in paced:
                wake()
        if self._waiters and (not patient or self.available >= self._plenty):
            self.grant()

    @property
    def withheld(self) -> bool:
        """True if a waiter could be served from the available memory; `grant` does so."""
        first = self._first() if self._waiters else None
        return first is not None and self.available >= max(first.size, self.pooled_size)

    def wake_all(self) -> None:
        """Wake all waiters without a buffer, because the producer closes."""
        self._recover()
        while (waiter := self._first()) is not None:
            waiter.woken = True
            waiter.wake()

    def grant(self) -> None:
        """Serve waiters in order while memory is available."""
        self._recover()
        while (waiter := self._first()) is not None and self.available >= max(waiter.size, self.pooled_size):
            self._granted.append(waiter)
            waiter.buffer = self._allocate(waiter.size)
            self.unowned = None
            waiter.woken = True  # only now: until then it stays queued, so that an interrupt loses no waiter
            waiter.wake()

    def take_back(self) -> None:
        """Release the buffer that reached no batch because of an error or interrupt."""
        if self.unowned is not None:
            self.release(self.unowned)

    def _first(self) -> Waiter | None:
        """Return the waiter that has waited longest; drop those that are gone or woken."""
        waiters = self._waiters
        while waiters and (waiters[0].gone or waiters[0].woken):
            waiters.popleft()
        return waiters[0] if waiters else None

    def _recover(self) -> None:
        """Reclaim buffers leaked by a second interrupt during cleanup."""
        self._recover_unowned()
        for waiter in self._granted:
            if waiter.gone and waiter.buffer is not None:
                charged = len(waiter.buffer)
                waiter.buffer = None  # no call before the next line, so no interrupt
                self.available += charged
        self._granted = [waiter for waiter in self._granted if waiter.buffer is not None]

    def _recover_unowned(self) -> None:
        if self.unowned is not None:
            charged = len(self.unowned)
            self.unowned = None
            self.available += charged

    def _allocate(self, size: int) -> bytearray:
        if self.unowned is not None:
            self._recover_unowned()
        regular = self.pooled_size
        charged = size if size > regular else regular
        if charged == regular and self._free:
            buffer = self._free.pop()
        else:
            left = self.available - charged
            if len(self._free) * self.pooled_size > left:
                del self._free[: -(-(len(self._free) * self.pooled_size - left) // self.pooled_size)]
            buffer = bytearray(charged)
        self._handed_out += charged
        self.available -= charged  # no call before the next line, so no interrupt
        self.unowned = buffer
        return buffer
