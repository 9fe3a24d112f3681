"""Long work in short steps: a generator that yields pauses, and blocking calls for its runner."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from types import GeneratorType
from typing import Any, NamedTuple, TypeVar

A = TypeVar("A")
T = TypeVar("T")


class BlockingCall(NamedTuple):
    """Work that blocks on the disk, or computes without the GIL: call it on any thread, and send its result back."""

    work: Callable[[], Any]


IncrementalTask = Generator[BlockingCall | None, Any, T]
"""Work in short steps: `None` is a pause; the generator returns a `T`."""


def run_here(steps: IncrementalTask[T]) -> T:
    """Run all steps at once, in this thread. Return their result."""
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


def in_steps(work: Callable[[A], T], items: Iterable[A]) -> IncrementalTask[list[T]]:
    """Return the results of `work` for each item, with a pause after each."""
    done = []
    for item in items:
        done.append(work(item))
        yield None
    return done


def finished(answer: Any) -> Any:
    """Return `answer`; if it is steps, run them all at once and return their result."""
    return run_here(answer) if type(answer) is GeneratorType else answer
