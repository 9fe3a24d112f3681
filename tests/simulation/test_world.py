"""Simulated processes depend on nothing outside of their world: not on garbage collections, nor on other threads."""

from __future__ import annotations

import gc
import inspect
import logging
import threading
from typing import Any

from tests.simulation.simulation import errors_of_the_log
from tests.simulation.world import Process, World


def process_in_a_cleanup(done: list[str]) -> tuple[World, Process]:
    """Return a process with a task that waits, which only its own future refers to, and which cleans up at its end."""
    world = World(0)
    process = Process(world, "process", "10.0.0.1")

    async def wait() -> None:
        try:
            await process.loop.create_future()
        finally:
            done.append("cleaned up")

    async def begin() -> None:
        process.loop.create_task(wait())

    process.spawn(begin(), "begin")
    world.run(1.0)
    return world, process


def test_garbage_collection_does_not_end_tasks_of_a_killed_process() -> None:
    done: list[str] = []
    _world, process = process_in_a_cleanup(done)
    process.kill()
    gc.collect()
    assert done == []
    process.discard()
    assert done == ["cleaned up"]


def test_discarded_process_leaves_no_coroutine_that_its_cleanup_began() -> None:
    process = Process(World(0), "process", "10.0.0.1")
    begun: list[Any] = []

    async def late() -> None:
        """Do nothing; this never runs."""

    async def wait() -> None:
        try:
            await process.loop.create_future()
        finally:
            begun.append(process.loop.create_task(late()))

    process.spawn(wait(), "wait")
    process.world.run(1.0)
    process.discard()
    assert [inspect.getcoroutinestate(task.get_coro()) for task in begun] == [inspect.CORO_CLOSED]


def test_errors_of_other_threads_in_the_log_are_not_of_the_world() -> None:
    logger, world = logging.getLogger("pyclient.test"), World(0)

    def fail(text: str) -> None:
        try:
            raise ValueError(text)
        except ValueError:
            logger.exception("failed")

    with errors_of_the_log(world):
        other = threading.Thread(target=fail, args=("elsewhere",))
        other.start()
        other.join()
        fail("here")
    assert world.failures == ["failed: ValueError('here')"]
