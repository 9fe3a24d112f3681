"""Long work in short steps: a generator that pauses, and hands what would block to whoever runs it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from types import GeneratorType
from typing import Any, NamedTuple, TypeVar

A = TypeVar("A")
T = TypeVar("T")


class Blocking(NamedTuple):
    """Work that waits for a disk, or computes without the GIL: call it on any thread, and send its result back."""

    work: Callable[[], Any]


Steps = Generator[Blocking | None, Any, T]
"""Work whose steps are short: `None` is a pause, what it returns at the end a `T`."""


def run_here(steps: Steps[T]) -> T:
    """Does all of it at once."""
    answer: Any = None
    failure: Exception | None = None
    while True:
        try:
            step = steps.send(answer) if failure is None else steps.throw(failure)
        except StopIteration as end:
            result: T = end.value
            return result
        answer = failure = None
        if step is not None:
            try:
                answer = step.work()
            except Exception as error:
                failure = error


def in_steps(work: Callable[[A], T], items: Iterable[A]) -> Steps[list[T]]:
    """What `work` makes of each item, with a pause after each."""
    done = []
    for item in items:
        done.append(work(item))
        yield None
    return done


def finished(answer: Any) -> Any:
    """What `answer` is when it is no steps, else what they come to, all taken at once."""
    return run_here(answer) if type(answer) is GeneratorType else answer
