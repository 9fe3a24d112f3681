"""Where users' delivery callbacks run: one thread of the client, or the caller's event loop."""

from __future__ import annotations

import _thread
import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol

from pyclient.net.latch import Latch

logger: Final = logging.getLogger("pyclient.producer")

_END_SECONDS: Final = 2.0  # for a thread that has nothing left to do

Callback = Callable[[Any], object]
Call = tuple[Callback, Any]
_Caught = type[BaseException] | tuple[type[BaseException], ...]


class CallbackRunner(Protocol):
    """Takes callbacks in completion order and runs them, later and somewhere else."""

    def submit(self, calls: list[Call]) -> None:
        """Runs these soon; returns at once. The list is the runner's from now on."""
        ...


def run_callback(callback: Callback, argument: Any, caught: _Caught = (Exception, asyncio.CancelledError)) -> None:
    """Calls a user's function; what it raises is logged and hurts nothing, as far as it is `caught`."""
    try:
        returned = callback(argument)
        if returned is not None and asyncio.iscoroutine(returned):
            returned.close()
            logger.error("the delivery callback %r is a coroutine function and was not run", callback)
    except caught:
        logger.exception("the delivery callback %r raised", callback)


def run_in_order(calls: list[Call], caught: _Caught = (Exception, asyncio.CancelledError)) -> None:
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
        self._begun = False
        self._ended = Latch()
        self._thread: threading.Thread | None = None
        self._ident = 0
        self._stopped = False
        self.post: Callable[[list[Call]], None] | None = None
        """`submit` without a check, while there is nothing to check: the thread was begun, and not stopped."""
        self.lane: Any = None
        """The producer's `SendLane`, at which the thread waits for answers itself; who posts wakes it there."""

    @property
    def runs_here(self) -> bool:
        """Whether a callback is what asks."""
        return threading.get_ident() == self._ident

    def submit(self, calls: list[Call]) -> None:
        """Runs these after everything submitted before; once stopped, at once in the calling thread.

        `RuntimeError` if the machine has no thread to give: they run when it has one for those of a later call.
        """
        with self._lock:
            stopped = self._stopped
            if calls and not stopped:  # an empty list is the end
                self._put(calls)
                try:
                    self._begin()
                except RuntimeError as error:
                    if "interpreter shutdown" not in str(error):  # Python 3.12: then `stop` follows and runs them
                        raise
        if stopped:
            run_in_order(calls)

    def wait(self, timeout: float | None) -> bool:
        """Waits until what was submitted before has run; `timeout` in seconds. False if it has not.

        Returns at once when a callback itself calls, which would otherwise wait for its own end.
        """
        with self._lock:
            if self._stopped or self.runs_here or not (self._begun or self._calls.qsize()):
                return True
            self._begin()
            reached = Latch()
            self._put([(lambda _: reached.open(), None)])
        return reached.wait(timeout)

    def stop(self, timeout: float | None) -> bool:
        """Runs what is left and ends the thread; False if that took longer than `timeout` seconds."""
        with self._lock:
            self._stopped, self.post = True, None
            if self._begun:
                self._put([])
        if not self._begun:
            while self._calls.qsize():
                run_in_order(self._calls.get())
        elif not self.runs_here:
            if not self._ended.wait(timeout):
                return False
            if self._thread is not None:
                self._thread.join(_END_SECONDS)
        return True

    def _begin(self) -> None:
        """Starts the thread, if that was not done. Ctrl-C comes behind a call of compiled code at the earliest."""
        if self._begun:
            return
        self._begun, self.post = True, self._calls.put
        try:
            _thread.start_new_thread(self._start, ())
        except RuntimeError:
            self._begun, self.post = False, None
            raise

    def _start(self) -> None:
        """Ends once the thread proper, which has a name, runs: Ctrl-C in the midst of its start could hide it."""
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # there is no other: this one, then
            self._thread = None
            self._run()

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
        self._ident = threading.get_ident()
        try:
            while calls := self._next():
                run_in_order(calls, BaseException)  # an exit, say, would end this thread, and nobody else
        finally:
            self._ident = 0
            self._ended.open()


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
