"""Where users' delivery callbacks run: one thread of the client, or the caller's event loop."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol

from pyclient.producer.lock import lock_timeout

logger: Final = logging.getLogger("pyclient.producer")

Callback = Callable[[Any], object]
Call = tuple[Callback, Any]


class CallbackRunner(Protocol):
    """Takes callbacks in completion order and runs them, later and somewhere else."""

    def submit(self, calls: list[Call]) -> None:
        """Runs these soon; returns at once. The list is the runner's from now on."""
        ...


def run_callback(callback: Callback, argument: Any, caught: type[BaseException] = Exception) -> None:
    """Calls a user's function; what it raises is logged and hurts nothing, as far as it is `caught`."""
    try:
        returned = callback(argument)
        if returned is not None and asyncio.iscoroutine(returned):
            returned.close()
            logger.error("the delivery callback %r is a coroutine function and was not run", callback)
    except caught:
        logger.exception("the delivery callback %r raised", callback)


def run_in_order(calls: list[Call], caught: type[BaseException] = Exception) -> None:
    """Runs the callbacks and empties the list: a future must be able to die once its own has run."""
    calls.reverse()
    while calls:
        run_callback(*calls.pop(), caught)


class CallbackThread:
    """One daemon thread, started by the first callback. A slow callback delays only those behind it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._calls: queue.SimpleQueue[list[Call]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self.post: Callable[[list[Call]], None] | None = None
        """`submit` without a check, while there is nothing to check: the thread runs, and was not stopped."""
        self.lane: Any = None
        """The producer's `SendLane`, at which the thread waits for answers itself; who posts wakes it there."""

    @property
    def runs_here(self) -> bool:
        """Whether a callback is what asks."""
        return threading.current_thread() is self._thread

    def submit(self, calls: list[Call]) -> None:
        """Runs these after everything submitted before; once stopped, at once in the calling thread."""
        with self._lock:
            stopped = self._stopped
            if calls and not stopped:  # an empty list is the end
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    thread.start()  # or the machine has none to give, and the next callback tries again
                    self._thread = thread
                    self.post = self._calls.put
                self._put(calls)
        if stopped:
            run_in_order(calls)

    def wait(self, timeout: float | None) -> bool:
        """Waits until what was submitted before has run; `timeout` in seconds. False if it has not.

        Returns at once when a callback itself calls, which would otherwise wait for its own end.
        """
        with self._lock:
            if self._thread is None or self._stopped or self.runs_here:
                return True
            reached = threading.Event()
            self._put([(lambda _: reached.set(), None)])
        return reached.wait(None if timeout is None else lock_timeout(timeout))

    def stop(self, timeout: float | None) -> bool:
        """Runs what is left and ends the thread; False if that took longer than `timeout` seconds."""
        with self._lock:
            thread, self._stopped, self.post = self._thread, True, None
            if thread is None:
                return True
            self._put([])
        if self.runs_here:
            return True
        thread.join(None if timeout is None else lock_timeout(timeout))
        return not thread.is_alive()

    def _put(self, calls: list[Call]) -> None:
        self._calls.put(calls)
        if self.lane is not None:
            self.lane.watch.wake()

    def _next(self) -> list[Call]:
        """What to run next. This thread takes answers itself: to be woken for one takes as long as all else here."""
        if self.lane is not None:
            self.lane.watch.for_calls(self._calls)
        return self._calls.get()

    def _run(self) -> None:
        while calls := self._next():
            run_in_order(calls, BaseException)  # an exit, say, would end this thread, and nobody else


class LoopCallbacks:
    """Runs callbacks on an event loop, each in a turn of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def submit(self, calls: list[Call]) -> None:
        """Runs these in the loop's next turns; may be called from any thread."""
        on_loop = asyncio._get_running_loop() is self._loop
        schedule = self._loop.call_soon if on_loop else self._loop.call_soon_threadsafe
        for callback, argument in calls:
            schedule(run_callback, callback, argument)
