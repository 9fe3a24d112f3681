"""`buffer_memory`: the bytes that batches may take, handed out first come first served."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

PACE: Final = 1_048_576  # bytes between two looks whether the sender keeps up
AHEAD: Final = 4 * PACE  # bytes in use from which it is waited for, a moment each time
FAR_AHEAD: Final = 33_554_432
"""Bytes in use from which single sends wait for the sender, too: more would be memory that was not in use before."""
_PLENTY: Final = 8  # usual buffers: so much is handed out at once, less may wait for more to become free


class Waiter:
    """Somebody who may have to wait for a buffer; `wake` is called once `buffer` is there, or the producer closes."""

    __slots__ = ("buffer", "gone", "size", "wake", "woken")

    def __init__(self, wake: Callable[[], object]) -> None:
        self.wake = wake
        self.woken = False
        self.gone = False  # it waits no more, and takes no buffer: set before it says so, which Ctrl-C may end
        self.size = 0  # what it has asked for
        self.buffer: bytearray | None = None


class BufferPool:
    """Hands out buffers up to `total` bytes together; those of `pooled_size` bytes are kept and used again.

    It neither locks nor waits: the caller holds the producer's lock, and waits outside it for its `Waiter` to be
    woken. Waiters are served strictly in order, so that a large record is not starved by small ones.
    """

    def __init__(self, total: int, pooled_size: int) -> None:
        self.total = total
        self.pooled_size = pooled_size
        self.available = total
        self._free: list[bytearray] = []
        self._waiters: deque[Waiter] = deque()  # the first ones may be gone, or woken already
        self._granted: list[Waiter] = []  # and have not taken it, or given it back
        self._plenty = min(total // 4, _PLENTY * pooled_size)
        self._pace_at = 0  # what has to be handed out until the next look
        self._handed_out = 0
        self._behind: list[Callable[[], object]] = []
        self.unowned: bytearray | None = None
        """What was handed out last, until its batch is listed: should Ctrl-C come in between, it is `take_back`'s."""

    def __repr__(self) -> str:
        used = self.total - self.available
        return f"<BufferPool {used}/{self.total} bytes in use, {len(self._waiters)} waiting>"

    @property
    def waiting(self) -> int:
        """How many wait for memory."""
        return len(self._waiters)

    def try_acquire(self, size: int) -> bytearray | None:
        """A buffer of at least `size` bytes, or None if there is not enough memory or others wait for it already."""
        if self.available < size or self.available < self.pooled_size or (self._waiters and self._first() is not None):
            return None
        return self._allocate(size)

    def force_acquire(self, size: int) -> bytearray:
        """A buffer even if that exceeds the total, for records accepted before; it is charged all the same."""
        return self._allocate(size)

    def wait(self, waiter: Waiter, size: int) -> None:
        """Queues for a buffer; the waiter is woken, under the caller's lock, when it is granted."""
        waiter.size = size
        waiter.gone = waiter.woken = False
        self._waiters.append(waiter)
        if self._granted or self.unowned is not None:
            self.grant()

    def take(self, waiter: Waiter) -> bytearray | None:
        """What the waiter was granted, once; None if it has not been granted anything."""
        buffer = waiter.buffer
        if buffer is not None:
            self.unowned, waiter.buffer = buffer, None
            self._granted.remove(waiter)
        return buffer

    def abandon(self, waiter: Waiter) -> None:
        """The waiter waits no more; a buffer that it was granted and has not taken goes back."""
        waiter.gone = True
        if waiter.buffer is not None:
            self.unowned, waiter.buffer = waiter.buffer, None
            self.take_back()
        elif self._waiters:
            try:
                self._waiters.remove(waiter)
            except ValueError:  # it was woken, or never had to wait
                return
            self.grant()

    @property
    def far_ahead(self) -> bool:
        """Whether callers are so far ahead of the sender that single sends should let it catch up for a moment."""
        return self.total - self.available > FAR_AHEAD

    def falls_behind(self, wake: Callable[[], object]) -> bool:
        """Whether much is in use, `PACE` bytes after this was said last; `wake` is called when it is less."""
        if self._handed_out < self._pace_at or self.total - self.available <= AHEAD:
            return False
        self._pace_at = self._handed_out + PACE
        self._behind.append(wake)
        return True

    def forget(self, wake: Callable[[], object]) -> None:
        """Takes back what `falls_behind` was given."""
        self._behind = [other for other in self._behind if other is not wake]

    def release(self, buffer: bytearray, *, patient: bool = False) -> None:
        """Takes a buffer back. Only when nothing can read it any more: its request has ended, or it never had one.

        A `patient` release of a little memory wakes no waiter: the caller calls `grant` soon, so that not every single
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
        if self._behind and self.total - self.available <= AHEAD - PACE:
            behind, self._behind = self._behind, []
            for wake in behind:
                wake()
        if self._waiters and (not patient or self.available >= self._plenty):
            self.grant()

    @property
    def withheld(self) -> bool:
        """Whether somebody waits although there is memory for him: `grant` hands it out."""
        first = self._first() if self._waiters else None
        return first is not None and self.available >= max(first.size, self.pooled_size)

    def wake_all(self) -> None:
        """Wakes everybody without a buffer, because the producer closes."""
        self._recover()
        while (waiter := self._first()) is not None:
            waiter.woken = True
            waiter.wake()

    def grant(self) -> None:
        """Serves those who wait, as far as memory goes."""
        self._recover()
        while (waiter := self._first()) is not None and self.available >= max(waiter.size, self.pooled_size):
            self._granted.append(waiter)
            waiter.buffer = self._allocate(waiter.size)
            self.unowned = None
            waiter.woken = True  # it is in line until then, so that Ctrl-C in between takes nobody's turn
            waiter.wake()

    def take_back(self) -> None:
        """After an interrupt: what was handed out and reached no batch goes back."""
        if self.unowned is not None:
            self.release(self.unowned)

    def _first(self) -> Waiter | None:
        """Who has waited longest."""
        waiters = self._waiters
        while waiters and (waiters[0].gone or waiters[0].woken):
            waiters.popleft()
        return waiters[0] if waiters else None

    def _recover(self) -> None:
        """Takes what belongs to nobody, because Ctrl-C came again where the first one was cleaned up after."""
        self._recover_unowned()
        for waiter in self._granted:
            if waiter.gone and waiter.buffer is not None:
                charged = len(waiter.buffer)
                waiter.buffer = None  # with the next line: nothing is called in between
                self.available += charged
        self._granted = [waiter for waiter in self._granted if waiter.buffer is not None]

    def _recover_unowned(self) -> None:
        if self.unowned is not None:
            charged = len(self.unowned)
            self.unowned = None
            self.available += charged

    def _allocate(self, size: int) -> bytearray:
        if self.unowned is not None:  # since an interrupt
            self._recover_unowned()
        usual = self.pooled_size
        charged = size if size > usual else usual
        if charged == usual and self._free:
            buffer = self._free.pop()
        else:
            left = self.available - charged
            if len(self._free) * self.pooled_size > left:
                del self._free[: -(-(len(self._free) * self.pooled_size - left) // self.pooled_size)]
            buffer = bytearray(charged)
        self._handed_out += charged
        self.available -= charged  # from here on nothing is called, so no signal's handler runs before it is noted:
        self.unowned = buffer
        return buffer
