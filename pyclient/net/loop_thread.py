"""An event loop in a thread of its own, on which a synchronous client runs its coroutines."""

from __future__ import annotations

import asyncio
import atexit
import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Generic, Protocol, TypeVar, TypeVarTuple

from pyclient.errors import ClosedError, ForkError, KafkaTimeout
from pyclient.net.latch import Latch

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
log = logging.getLogger(__name__)

_EXIT_SECONDS: Final = 2.0
_CHECK_SECONDS: Final = 0.25  # a waiting call checks that its loop is not closed
_ROUNDS: Final = 10  # at most, in which the tasks of a loop that stops are cancelled


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop event loop if uvloop is installed, else an asyncio one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class LoopThread:
    """A daemon thread that runs an event loop from `start` to `stop`.

    It stops when it is garbage, unless its owner has called `keep`. At interpreter exit `at_exit`, if set, is called
    first (a client's own bounded close); then the loop is stopped within two seconds. In a forked child every use
    raises `ForkError`.
    """

    _thread: threading.Thread | None = None  # for `__del__`, if KeyboardInterrupt ends `__init__`

    def __init__(self, name: str, *, at_exit: Callable[[], None] | None = None) -> None:
        self.name = name
        self.at_exit = at_exit
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()
        self._stopping = False
        self._ended = Latch()
        self._shutdown_tasks: list[asyncio.Task[None]] = []

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The thread's event loop; raises `ClosedError` before `start`."""
        if self._loop is None:
            raise ClosedError(f"{self.name} was not started")
        return self._loop

    @property
    def running(self) -> bool:
        """True if the loop runs in this process and accepts work."""
        usable = self._thread is not None and self._pid == os.getpid()
        return usable and not self._stopping and not self._ended.opened

    def start(self) -> None:
        """Start the thread and its loop."""
        self._check_process()
        if self._thread is not None:
            raise RuntimeError(f"the loop thread {self.name} was started before")
        self._loop = new_event_loop()
        arguments = (self._loop, self._ended)
        self._thread = threading.Thread(target=_run_loop, args=arguments, name=self.name, daemon=True)
        self._thread.start()
        _live.add(self)

    def keep(self) -> None:
        """Run until `stop`, also if only garbage refers to this: for an owner whose finalizer still uses the loop.

        A garbage collection calls the finalizers of a cycle in any order, so this one could come before the owner's.
        """
        _kept.add(self)

    def run(self, function: Callable[[*Ts], Coroutine[Any, Any, T]], *args: *Ts, timeout: float | None = None) -> T:
        """Run the coroutine function `function(*args)` on the loop; return its result or raise its error.

        Ctrl-C in the waiting thread cancels it and is raised. After `timeout` seconds it is cancelled and
        `KafkaTimeout` raised. Raise `ClosedError` if the loop does not run. The coroutine is created on the loop's
        thread, so that an interrupt cannot leave one that is never awaited.
        """

        async def work() -> T:
            return await function(*args)

        return self._wait_for(work, timeout)

    def run_last(self, close: Callable[[], Coroutine[Any, Any, T]], timeout: float) -> T:
        """Run the coroutine function that closes the loop's connections, before `stop`; see `run`.

        It is not cancelled after `timeout` seconds or by Ctrl-C: a loop that is late starts it before it stops.
        """
        return self._wait_for(close, timeout, cancels=False)

    def _wait_for(
        self, work: Callable[[], Coroutine[Any, Any, T]], timeout: float | None, *, cancels: bool = True
    ) -> T:
        self._check_usable()
        if threading.current_thread() is self._thread:
            raise RuntimeError(f"a blocking call inside {self.name} would wait for its own thread")
        call = _Call(self.loop, work)
        try:
            self.call_soon(call.start)
            return call.wait(timeout, self.name)
        except asyncio.CancelledError:
            raise ClosedError(f"{self.name} was closed during the call") from None
        except BaseException:
            if cancels:
                call.cancel()
            raise

    def call_soon(self, function: Callable[..., object], *args: Any) -> None:
        """Call `function(*args)` on the loop's thread; raise `ClosedError` if the loop does not run."""
        self._check_usable()
        try:
            self.loop.call_soon_threadsafe(function, *args)
        except RuntimeError as error:  # closed between the check and the call
            raise ClosedError(f"{self.name} is closed") from error

    def stop(self, timeout: float | None = None) -> bool:
        """Cancel the loop's tasks and end the thread; return True if it ended within `timeout` seconds.

        A no-op in a forked child.
        """
        if self._thread is None or self._pid != os.getpid():
            return True
        _live.discard(self)
        _kept.discard(self)
        if not self._stopping:
            with suppress(RuntimeError):  # the loop has ended already
                self.loop.call_soon_threadsafe(_start_shutdown, self.loop, self._shutdown_tasks)
            self._stopping = True  # last, so that a stop interrupted by Ctrl-C can be repeated
        if threading.current_thread() is self._thread or not self._ended.wait(timeout):
            return False
        if timeout != 0:  # with 0, the caller may be the garbage collector in any thread
            self._thread.join(_EXIT_SECONDS)
        return True

    def stop_after(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `close()` on the loop and then stop it, without waiting; safe to call from the garbage collector."""

        async def close_and_stop() -> None:
            try:
                await close()
            finally:
                self.stop(0)

        def start() -> None:
            task = self.loop.create_task(close_and_stop())
            _closing_tasks.add(task)
            task.add_done_callback(_closing_tasks.discard)

        with suppress(ClosedError, ForkError):
            self.call_soon(start)

    def __del__(self) -> None:
        self.stop(0)

    def _check_usable(self) -> None:
        self._check_process()
        if not self.running:
            raise ClosedError(f"{self.name} {'is closed' if self._thread else 'was not started'}")

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise ForkError(f"{self.name} belongs to process {self._pid}: after fork() create a new client")

    def __repr__(self) -> str:
        return f"<LoopThread {self.name} {'running' if self.running else 'stopped'}>"


class _Call(Generic[T]):
    """A coroutine on the loop that another thread waits for.

    Uses a `Latch` and not `concurrent.futures.Future`, which has a lock inside: an interrupt between
    acquiring that lock and entering its `with` would leave it held, and the loop's thread would hang.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self._cancelled = False
        self._done = Latch()

    def start(self) -> None:
        """Create the task; called on the loop."""
        if not self._cancelled:
            self._task = self._loop.create_task(self._work())
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[T]) -> None:
        if self._cancelled and not task.cancelled() and task.exception() is not None:
            log.debug("a call failed after its caller stopped waiting", exc_info=task.exception())
        self._done.open()

    def cancel(self) -> None:
        """Cancel the work, or prevent its start, unless it has ended."""
        self._cancelled = True
        with suppress(RuntimeError):  # the loop is closed, and all its work ended
            self._loop.call_soon_threadsafe(self._cancel_on_loop)

    def _cancel_on_loop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def wait(self, timeout: float | None, name: str) -> T:
        """Wait for the result and return it."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = math.inf if deadline is None else deadline - time.monotonic()
            if self._done.wait(min(_CHECK_SECONDS, left)):
                task, self._task = self._task, None
                assert task is not None
                return task.result()
            if deadline is not None and time.monotonic() >= deadline:
                raise KafkaTimeout(f"{name}: no result within {timeout:g} s")
            if self._loop.is_closed():
                raise ClosedError(f"{name} was closed during the call")


class _Closable(Protocol):
    def close(self) -> object: ...


def _run_loop(loop: asyncio.AbstractEventLoop, ended: Latch) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        asyncio.set_event_loop(None)
        loop.close()
        ended.open()


def _start_shutdown(loop: asyncio.AbstractEventLoop, started: list[asyncio.Task[None]]) -> None:
    if not started:
        started.append(loop.create_task(_shut_down()))


async def _shut_down() -> None:
    """Cancel every other task, wait until they end, and stop the loop.

    Tasks that have not begun yet begin first: one that is cancelled before that closes nothing of what it was given,
    as the task of asyncio's server that takes an accepted socket. What tasks begin at their end is cancelled, too.
    """
    loop = asyncio.get_running_loop()
    current = asyncio.current_task()
    for _ in range(_ROUNDS):
        await asyncio.sleep(0)
        tasks = [task for task in asyncio.all_tasks() if task is not current]
        if not tasks:
            break
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                log.error("a task failed while its loop was stopped", exc_info=outcome)
    await loop.shutdown_asyncgens()
    loop.call_soon(loop.stop)


_live: weakref.WeakSet[LoopThread] = weakref.WeakSet()
_kept: set[LoopThread] = set()
_closing_tasks: set[asyncio.Task[None]] = set()
_after_clients: weakref.WeakSet[_Closable] = weakref.WeakSet()


def close_after_clients(resource: _Closable) -> None:
    """Close a resource at interpreter exit, after every `at_exit`, if it exists then: clients may need it to close.

    Its `close()` must be a no-op if it is closed.
    """
    _after_clients.add(resource)


@atexit.register
def _stop_all() -> None:
    for thread in [thread for thread in list(_live) if thread.at_exit is not None]:
        try:
            if thread.running and thread.at_exit is not None:
                thread.at_exit()
        except Exception:  # the remaining clients must still be closed
            log.exception("closing %s at interpreter exit failed", thread.name)
        finally:
            thread.stop(_EXIT_SECONDS)
    for resource in list(_after_clients):
        try:
            resource.close()
        except Exception:  # the others must be closed, too
            log.exception("closing %r at interpreter exit failed", resource)
    for thread in list(_live):
        thread.stop(_EXIT_SECONDS)
