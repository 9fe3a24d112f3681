"""Long work while requests are served: slices of it run on the loop with pauses, blocking calls on a thread."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyclient.errors import KafkaError
from pyclient.net.surroundings import SURROUNDINGS

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from pyclient.broker_embedded.log.disk_thread import DiskThread
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask

log = logging.getLogger("pyclient.broker_embedded")

_SLICE: Final = 0.0005
"""Seconds after which a slice ends. Steps are short; a slow machine runs fewer of them in a slice."""
_PAUSE: Final = 0.001
"""Seconds between two slices: more than half of the loop's time is left for requests."""


class BackgroundTasks:
    """Runs at most one task of each name at a time. `close` ends all tasks and must precede that of the disk thread."""

    def __init__(self, loop: AbstractEventLoop, disk_thread: DiskThread) -> None:
        self._loop = loop
        self._disk_thread = disk_thread
        self._running: dict[str, IncrementalTask[Any]] = {}
        self._busy: set[str] = set()  # tasks with a step on the disk thread
        self._closed = False
        self._clock = SURROUNDINGS.get().clock.monotonic
        disk_thread.wake = self._wake

    def run(self, name: str, steps: IncrementalTask[Any]) -> None:
        """Start a task unless one of that name is still running. Its failure is logged."""
        if self._closed or name in self._running:
            steps.close()
            return
        self._running[name] = steps
        self._continue(name, None, None)

    def close(self) -> None:
        """End the running tasks; one with a step on the disk thread ends when the step is collected."""
        self._closed = True
        for name, steps in list(self._running.items()):
            if name not in self._busy:
                steps.close()
                del self._running[name]

    def _continue(self, name: str, answer: Any, failure: Exception | None) -> None:
        self._busy.discard(name)
        steps = self._running.get(name)
        if steps is None:
            return
        if self._closed:
            del self._running[name]
            steps.close()
            return
        end = self._clock() + _SLICE
        try:
            step = steps.send(answer) if failure is None else steps.throw(failure)
            while step is None and self._clock() < end:
                step = steps.send(None)
        except StopIteration:
            del self._running[name]
        except (OSError, KafkaError) as error:  # expected failures of a disk
            del self._running[name]
            log.error("%s failed; it is tried again later: %s", name, error)
        except Exception:  # a bug in one task must not stop the others
            del self._running[name]
            log.exception("%s failed; it is tried again later", name)
        else:
            if step is None:
                self._loop.call_later(_PAUSE, self._continue, name, None, None)
            else:
                self._busy.add(name)
                self._disk_thread.submit(step.work, partial(self._continue, name))

    def _wake(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: there is no task to continue
            self._loop.call_soon_threadsafe(self._disk_thread.collect)
