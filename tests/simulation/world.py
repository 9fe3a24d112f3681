"""Virtual time, and the simulated processes that live in it: an event loop each, run one at a time in seeded order."""

from __future__ import annotations

import asyncio
import heapq
import sys
import warnings
import zlib
from collections import deque
from contextlib import suppress
from contextvars import Context, copy_context
from random import Random
from typing import TYPE_CHECKING, Any, Final

from pyclient.net.surroundings import SURROUNDINGS, Surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pyclient.net.connect import Connector

EPOCH_MS: Final = 1_700_000_000_000
_ITERATION: Final = (10e-6, 60e-6)
"""Seconds that an iteration of a process's loop takes, at least and at most."""
_KEPT_LINES: Final = 4000
_MOST_WAITS: Final = 50


class Unfinished(Exception):
    """Something that was waited for did not happen within its limit of virtual time."""


class World:
    """The clock, the events to come, and the trace of those that were. Everything random comes from `rng`."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.now = 0.0
        self.digest = 0
        self.steps = 0
        self.trace: list[str] = []
        self.deliveries: deque[str] = deque(maxlen=_KEPT_LINES)
        self.failures: list[str] = []
        """Errors that no code expected: exceptions in callbacks and tasks of any process."""
        self.processes: list[Process] = []
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0

    def at(self, time: float, action: Callable[[], object]) -> None:
        """Call `action` at a time."""
        self._count += 1
        heapq.heappush(self._events, (max(time, self.now), self._count, action))

    def after(self, delay: float, action: Callable[[], object]) -> None:
        """Call `action` in `delay` seconds."""
        self.at(self.now + delay, action)

    def note(self, text: str) -> None:
        """Add a line to the trace, and to its digest."""
        line = f"{self.now:12.6f} {text}"
        self.digest = zlib.crc32(line.encode(), self.digest)
        self.trace.append(line)

    def note_delivery(self, source: tuple[str, int], target: tuple[str, int], data: bytes) -> None:
        """Add bytes that arrive to the digest of the trace, and keep the last of them as text."""
        line = f"{self.now:.6f} {source[0]}:{source[1]} > {target[0]}:{target[1]} {len(data)} {zlib.crc32(data):08x}"
        self.digest = zlib.crc32(line.encode(), self.digest)
        self.deliveries.append(line)

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self._step()
        self.now = end

    def run_until(self, condition: Callable[[], bool], limit: float, what: str) -> None:
        """Let time pass until `condition` holds. Raise `Unfinished` after `limit` seconds."""
        end = self.now + limit
        while not condition():
            if not self._events or self._events[0][0] > end:
                raise Unfinished(f"{what}: not within {limit:g} s")
            self._step()

    def _step(self) -> None:
        self.now, _number, action = heapq.heappop(self._events)
        self.steps += 1
        action()


class SimulatedLoop(asyncio.BaseEventLoop):
    """The event loop of one process: its time is the world's, its descriptors are simulated sockets."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process
        self._selector = self
        self._watched: dict[int, asyncio.Handle] = {}
        self._writers: dict[int, asyncio.Handle] = {}
        self._hot: dict[int, None] = {}
        self.is_readable: Callable[[int], bool] = lambda _fd: False
        self.is_writable: Callable[[int], bool] = lambda _fd: False
        self.set_exception_handler(process.report)

    def __del__(self) -> None:
        """Do nothing: there is nothing to close."""

    def time(self) -> float:
        return self._process.world.now

    def select(self, _timeout: float | None) -> list[asyncio.Handle]:
        """Return the handles of the descriptors that are ready."""
        ready = []
        for fd in list(self._hot):
            handle = self._watched.get(fd)
            if handle is not None and self.is_readable(fd):
                ready.append(handle)
            else:
                del self._hot[fd]
        ready += [handle for fd, handle in self._writers.items() if self.is_writable(fd)]
        return ready

    def _process_events(self, event_list: list[asyncio.Handle]) -> None:
        self._ready.extend(event_list)  # type: ignore[attr-defined]

    def _write_to_self(self) -> None:
        self._process.wake()

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:
        self._watched[fd] = asyncio.Handle(callback, args, self)
        self.heat(fd)

    def remove_reader(self, fd: Any) -> bool:
        handle = self._watched.pop(fd, None)
        if handle is not None:
            handle.cancel()
        return handle is not None

    def add_writer(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:
        self._writers[fd] = asyncio.Handle(callback, args, self)
        self._process.wake()

    def remove_writer(self, fd: Any) -> bool:
        handle = self._writers.pop(fd, None)
        if handle is not None:
            handle.cancel()
        return handle is not None

    def heat(self, fd: int) -> None:
        """Look at a descriptor in the next iteration: it may be readable."""
        if fd in self._watched:
            self._hot[fd] = None
            self._process.wake()

    def room_made(self, fd: int) -> None:
        """Let the loop write, if it waits for that."""
        if fd in self._writers:
            self._process.wake()

    def next_due(self) -> float | None:
        """Return when the loop has something to do; None if it has nothing to wait for."""
        if self._ready or any(map(self.is_writable, self._writers)):  # type: ignore[attr-defined]
            return self.time()
        if any(fd in self._watched and self.is_readable(fd) for fd in self._hot):
            return self.time()
        scheduled = self._scheduled  # type: ignore[attr-defined]
        return scheduled[0].when() if scheduled else None

    def iterate(self) -> None:
        """Run one iteration."""
        self._run_once()  # type: ignore[attr-defined]


def _close(coroutine: Any) -> None:
    """End a coroutine that nothing will run any more, though it waits again where it cleans up."""
    for _ in range(_MOST_WAITS):
        with suppress(Exception), warnings.catch_warnings(action="ignore"):  # of coroutines that it begins
            coroutine.close()
            return


class ProcessClock:
    """A process's clocks: `time_ms` may be wrong by `skew_ms`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.skew_ms = 0

    def monotonic(self) -> float:
        return self._world.now

    def time_ms(self) -> int:
        return EPOCH_MS + int(self._world.now * 1000) + self.skew_ms


class Process:
    """A simulated process on a host of its own: it can be paused and killed at any moment between two callbacks."""

    def __init__(self, world: World, name: str, host: str) -> None:
        self.world = world
        self.name = name
        self.host = host
        self.alive = True
        self.clock = ProcessClock(world)
        self.loop = SimulatedLoop(self)
        self.on_killed: list[Callable[[], object]] = []
        self._context = copy_context()
        self._due = float("inf")
        self._paused = False
        self._tasks: list[asyncio.Task[Any]] = []
        self._seeds = Random(world.rng.getrandbits(64))
        world.processes.append(self)

    def connect_with(self, connector: Connector) -> None:
        """Let what is created in the process take its time, its random numbers and its connections from the world."""
        surroundings = Surroundings(self.clock, self.new_rng, connector)
        self._context.run(SURROUNDINGS.set, surroundings)

    def new_rng(self) -> Random:
        """Return a random generator that depends on the world's seed alone."""
        return Random(self._seeds.getrandbits(64))

    def within(self, call: Callable[[], Any]) -> Any:
        """Return the result of `call()`, made as if by the process."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self.loop)
        try:
            return Context.run(self._context.copy(), call)
        finally:
            asyncio._set_running_loop(before)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run a coroutine in the process. An exception that it raises is a failure of the world."""
        task: asyncio.Task[Any] = self.within(lambda: self.loop.create_task(coroutine, name=name))
        task.add_done_callback(self._ended)
        self._tasks.append(task)
        self.wake()
        return task

    def call(self, function: Callable[[], object]) -> None:
        """Call a function in the process's next iteration."""
        self.within(lambda: self.loop.call_soon(function))
        self.wake()

    def pause(self) -> None:
        """Run nothing until `resume`; what arrives waits in the sockets."""
        self._paused = True

    def resume(self) -> None:
        """End the pause."""
        self._paused = False
        self.wake()

    def kill(self) -> None:
        """End the process: nothing of it runs any more, nor does a garbage collection end its tasks."""
        if self.alive:
            self.alive = False
            self._tasks += asyncio.all_tasks(self.loop)
            for call in self.on_killed:
                call()

    def wake(self) -> None:
        """Let the loop run soon."""
        self._run_at(self.world.now + self.world.rng.uniform(*_ITERATION))

    def report(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Note an exception that nothing has caught, unless the process is dead."""
        if self.alive:
            error = context.get("exception")
            self.world.failures.append(f"{self.name}: {context.get('message')}: {error!r}")

    def discard(self) -> None:
        """Forget what the loop still has to do, when the simulation is over."""
        self.alive = False
        closed = set[asyncio.Task[Any]]()
        while tasks := asyncio.all_tasks(self.loop) - closed:  # what they clean up may begin others
            for task in tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                _close(task.get_coro())
            closed |= tasks

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if self.alive and not task.cancelled() and (error := task.exception()) is not None:
            self.world.failures.append(f"{self.name}: {task.get_name()} ended with {error!r}")

    def _run_at(self, time: float) -> None:
        if time < self._due and self.alive and not self._paused:
            self._due = time
            self.world.at(time, lambda: self._run(time))

    def _run(self, due: float) -> None:
        if self._due != due:
            return  # an earlier run has taken its place
        self._due = float("inf")
        if not self.alive or self._paused:
            return
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(self.loop._asyncgen_firstiter_hook, self.loop._asyncgen_finalizer_hook)  # type: ignore[attr-defined]
        asyncio._set_running_loop(self.loop)
        try:
            self.loop.iterate()
        finally:
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
        following = self.loop.next_due()
        if following is not None:
            self._run_at(max(following, self.world.now + self.world.rng.uniform(*_ITERATION)))
