"""Runs users' delivery callbacks: on one thread of the client, or on the caller's event loop."""

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

_END_SECONDS: Final = 2.0  # to join a thread that has nothing left to do

Callback = Callable[[Any], object]
Call = tuple[Callback, Any]
_Caught = type[BaseException] | tuple[type[BaseException], ...]


class CallbackRunner(Protocol):
    """Runs callbacks asynchronously, in the order of completion."""

    def submit(self, calls: list[Call]) -> None:
        """Schedule the calls and return at once. The list belongs to the runner from now on."""
        ...


def run_callback(callback: Callback, argument: Any, caught: _Caught = (Exception, asyncio.CancelledError)) -> None:
    """Call a user's function; log exceptions of the types `caught`."""
    try:
        returned = callback(argument)
        if returned is not None and asyncio.iscoroutine(returned):
            returned.close()
            logger.error("the delivery callback %r is a coroutine function and was not run", callback)
    except caught:
        logger.exception("the delivery callback %r raised", callback)


def run_in_order(calls: list[Call], caught: _Caught = (Exception, asyncio.CancelledError)) -> None:
    """Run the callbacks and empty the list, so that each future can be freed once its callback has run."""
    calls.reverse()
    while calls:
        run_callback(*calls.pop(), caught)


class CallbackThread:
    """Runs callbacks on one daemon thread, started by the first; a slow callback delays only later ones."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._calls: queue.SimpleQueue[list[Call]] = queue.SimpleQueue()
        self._started = False
        self._ended = Latch()
        self._thread: threading.Thread | None = None
        self._ident = 0
        self._stopped = False
        self.post: Callable[[list[Call]], None] | None = None
        """`submit` without checks, set while the thread is started and not stopped."""
        self.fast_path: Any = None
        """The producer's `FastPath`, from which the thread reads responses itself; a new call wakes it there."""

    @property
    def runs_here(self) -> bool:
        """True if called from a callback."""
        return threading.get_ident() == self._ident

    def submit(self, calls: list[Call]) -> None:
        """Schedule the calls after all submitted before; once stopped, run them at once in the calling thread.

        Raise `RuntimeError` if no thread can be started: they run once a later call can start one.
        """
        with self._lock:
            stopped = self._stopped
            if calls and not stopped:  # an empty list ends the thread
                self._put(calls)
                try:
                    self._ensure_started()
                except RuntimeError as error:
                    if "interpreter shutdown" not in str(error):  # Python 3.12: `stop` follows and runs them
                        raise
        if stopped:
            run_in_order(calls)

    def wait(self, timeout: float | None) -> bool:
        """Wait until all calls submitted before have run; return False after `timeout` seconds.

        Return at once if called from a callback, which would otherwise wait for itself.
        """
        with self._lock:
            if self._stopped or self.runs_here or not (self._started or self._calls.qsize()):
                return True
            self._ensure_started()
            reached = Latch()
            self._put([(lambda _: reached.open(), None)])
        return reached.wait(timeout)

    def stop(self, timeout: float | None) -> bool:
        """Run the remaining calls and end the thread; return False if that takes longer than `timeout` seconds."""
        with self._lock:
            self._stopped, self.post = True, None
            if self._started:
                self._put([])
        if not self._started:
            while self._calls.qsize():
                run_in_order(self._calls.get())
        elif not self.runs_here:
            if not self._ended.wait(timeout):
                return False
            if self._thread is not None:
                self._thread.join(_END_SECONDS)
        return True

    def _ensure_started(self) -> None:
        """Start the thread unless it was started. An interrupt comes at the earliest after a call of compiled code."""
        if self._started:
            return
        self._started, self.post = True, self._calls.put
        try:
            _thread.start_new_thread(self._start, ())
        except RuntimeError:
            self._started, self.post = False, None
            raise

    def _start(self) -> None:
        """Start the named thread from a helper thread: an interrupt during `Thread.start` could lose it."""
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no second thread: use this one
            self._thread = None
            self._run()

    def _put(self, calls: list[Call]) -> None:
        self._calls.put(calls)
        if self.fast_path is not None:
            self.fast_path.waiter.wake()

    def _next(self) -> list[Call]:
        """Return the next calls. Reads responses meanwhile: a wake-up for each would double the time for one."""
        if self.fast_path is not None:
            self.fast_path.waiter.for_calls(self._calls)
        return self._calls.get()

    def _run(self) -> None:
        self._ident = threading.get_ident()
        try:
            while calls := self._next():
                run_in_order(calls, BaseException)  # a SystemExit would end only this thread
        finally:
            self._ident = 0
            self._ended.open()


class LoopCallbacks:
    """Runs callbacks on an event loop, each as its own loop callback."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def submit(self, calls: list[Call]) -> None:
        """Schedule the calls on the loop; thread-safe."""
        on_loop = asyncio._get_running_loop() is self._loop
        schedule = self._loop.call_soon if on_loop else self._loop.call_soon_threadsafe
        for callback, argument in calls:
            schedule(run_callback, callback, argument)
