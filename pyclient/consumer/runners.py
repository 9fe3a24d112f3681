"""The runners of the consumers: `AsyncRunner` awaits on the caller's loop, `ThreadRunner` has a loop thread."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, TypeVarTuple

from pyclient.consumer.client import ConsumerClient
from pyclient.errors import ConcurrentUse, KafkaError
from pyclient.net.latch import Flag
from pyclient.net.loop_thread import LoopThread

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
log = logging.getLogger("pyclient.consumer")

_EXIT_SECONDS: Final = 2.0
_GRACE: Final = 1.0  # after the time limit of a coroutine, until the thread that waits for it gives up

_abandoned: set[asyncio.Task[None]] = set()


class AsyncRunner:
    """Runs a consumer's coroutines on the caller's event loop, and awaits what the user's callbacks return.

    `ready` is set when a poll has something to do. `at_exit` is for `ThreadRunner`.
    """

    interrupt: Final = asyncio.CancelledError
    client: ConsumerClient

    def __init__(self, at_exit: Callable[[float], Coroutine[Any, Any, None]]) -> None:
        self.ready = asyncio.Event()

    @property
    def in_use(self) -> bool:
        """True if the consumer was started and not closed."""
        client = getattr(self, "client", None)
        return client is not None and client.loop is not None and not client.ended

    def caller(self) -> object:
        """Return the current task, which `Guard` compares; None before any loop runs."""
        try:
            return asyncio.current_task()
        except RuntimeError:
            return None

    def begin(self) -> None:
        """Do nothing: the first awaited call starts the consumer."""

    async def enter(self) -> None:
        """Start the consumer at the beginning of an `async with` block."""
        await self.start()

    async def start(self) -> None:
        """Start the consumer; raise `RuntimeError` on another event loop than the one it was first used on."""
        loop = self.client.loop
        if loop is None:
            await self.client.start()
        elif loop is not asyncio.get_running_loop():
            raise RuntimeError("an AsyncConsumer belongs to the event loop it was first used on")

    async def wait(self, seconds: float) -> None:
        """Wait until `ready` is set, at most so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.ready.wait()

    async def run(self, function: Callable[[*Ts], Coroutine[Any, Any, T]], *args: *Ts) -> T:
        """Return the result of `function(*args)`; start the consumer before the first call."""
        await self.start()
        return await function(*args)

    async def run_within(self, _seconds: float, function: Callable[[*Ts], Coroutine[Any, Any, T]], *args: *Ts) -> T:
        """Return the result of `function(*args)`, which keeps to its time limit by itself."""
        return await function(*args)

    async def finish(self, result: Any, _name: str) -> None:
        """Await what a callback has returned, if it is awaitable."""
        if inspect.isawaitable(result):
            await result

    async def close(self) -> None:
        """End every request and close every connection."""
        await self.client.shut_down()

    def abandon(self) -> None:
        """Close the connections without waiting; called by the garbage collector."""
        loop = self.client.loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(_shut_down_in_background, self.client)


class ThreadRunner:
    """Runs a consumer's coroutines on an event loop in a thread of its own; the caller waits.

    `ready` is set when a poll has something to do. `at_exit(seconds)` is called when the interpreter exits; only a
    weak reference to it is kept.
    """

    interrupt: Final = KeyboardInterrupt
    client: ConsumerClient

    def __init__(self, at_exit: Callable[[float], None]) -> None:
        self.ready = Flag()
        self._at_exit = weakref.WeakMethod(at_exit)
        self._thread: LoopThread | None = None

    @property
    def in_use(self) -> bool:
        """True if the thread was started."""
        return self._thread is not None

    def caller(self) -> object:
        """Return the current thread, which `Guard` compares."""
        return threading.current_thread()

    def begin(self) -> None:
        """Start the thread, so that the consumer connects before the first call that waits."""
        self.start()

    def enter(self) -> None:
        """Do nothing at the beginning of a `with` block: the first call starts the thread."""

    def start(self) -> None:
        """Start the thread and the consumer on it; continue a start that Ctrl-C interrupted."""
        if self.client.loop is None:
            self._start()

    def _start(self) -> LoopThread:
        if self._thread is None:
            thread = LoopThread("pyclient-consumer-io")
            ref = weakref.ref(self)

            def at_exit() -> None:
                runner = ref()
                if runner is not None:
                    runner.close_at_exit()

            thread.at_exit = at_exit
            thread.start()
            self._thread = thread
            thread.keep()
        if self.client.loop is None:
            self._thread.run(self.client.start)
        return self._thread

    def close_at_exit(self) -> None:
        """Close the consumer within two seconds; called when the interpreter exits."""
        close = self._at_exit()
        if close is None:
            return
        try:
            close(_EXIT_SECONDS)
        except ConcurrentUse:  # a daemon thread is polling: leave the group without a commit
            try:
                self.run_within(_EXIT_SECONDS, self.client.leave, "the process ended", _EXIT_SECONDS)
            except KafkaError as error:
                log.info("the process ended, but the group's coordinator may not know: %s", error)

    def wait(self, seconds: float) -> None:
        """Wait until `ready` is set, at most so many seconds."""
        self.ready.wait(seconds)

    def run(self, function: Callable[[*Ts], Coroutine[Any, Any, T]], *args: *Ts) -> T:
        """Return the result of `function(*args)`; start the thread before the first call."""
        return self._start().run(function, *args)

    def run_within(self, seconds: float, function: Callable[[*Ts], Coroutine[Any, Any, T]], *args: *Ts) -> T:
        """As `run`; raise `KafkaTimeout` if there is no result a moment after `seconds`, its own time limit."""
        return self._start().run(function, *args, timeout=seconds + _GRACE)

    def finish(self, result: Any, name: str) -> None:
        """Raise `TypeError` for what an `async def` callback has returned: nothing would await it."""
        if inspect.iscoroutine(result):
            result.close()
            raise TypeError(f"{name} is `async def`, which only an AsyncConsumer awaits: make it a plain function")

    def close(self) -> None:
        """End every request, close every connection, and end the thread."""
        thread = self._thread
        if thread is None:
            return
        try:
            thread.run_last(self.client.shut_down, _EXIT_SECONDS)
        except KafkaError as error:
            log.warning("closing the consumer's connections: %s", error)
        finally:
            thread.stop(_EXIT_SECONDS)

    def abandon(self) -> None:
        """Close the connections and end the thread without waiting; called by the garbage collector."""
        if self._thread is not None:
            self._thread.stop_after(self.client.shut_down)


Runner = AsyncRunner | ThreadRunner


def _shut_down_in_background(client: ConsumerClient) -> None:
    task = asyncio.get_running_loop().create_task(client.shut_down())
    _abandoned.add(task)
    task.add_done_callback(_abandoned.discard)
