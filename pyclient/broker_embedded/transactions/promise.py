"""A value that may come later, without a task or a future if it is there at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Callable

T = TypeVar("T")


class Promise(Generic[T]):
    """A value that is set once; callbacks get it then, or at once if it is there. Used from one thread."""

    __slots__ = ("_callbacks", "_has_value", "_value")

    def __init__(self) -> None:
        self._callbacks: list[Callable[[T], object]] = []
        self._has_value = False
        self._value: T | None = None

    @classmethod
    def of(cls, value: T) -> Promise[T]:
        """Return a promise that has its value."""
        made = cls()
        made.set(value)
        return made

    @property
    def value(self) -> T | None:
        """Return the value; None if it is not there yet."""
        return self._value

    def set(self, value: T) -> None:
        """Set the value and call back. A second value is ignored."""
        if self._has_value:
            return
        self._has_value, self._value = True, value
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(value)

    def then(self, callback: Callable[[T], object]) -> None:
        """Call `callback` with the value, at once if it is there."""
        if self._has_value:
            callback(self._value)  # type: ignore[arg-type]
        else:
            self._callbacks.append(callback)

    def future(self, loop: AbstractEventLoop) -> Future[T]:
        """Return a future of the value, which may be there already. A cancelled one is left alone."""
        future: Future[T] = loop.create_future()

        def complete(value: T) -> None:
            if not future.done():
                future.set_result(value)

        self.then(complete)
        return future

    def answer(self, loop: AbstractEventLoop, respond: Callable[[T], Any]) -> Any:
        """Return the response that `respond` makes of the value, or a future of it if the value is not there yet."""
        if self._has_value:
            return respond(self._value)  # type: ignore[arg-type]
        future = loop.create_future()

        def complete(value: T) -> None:
            if not future.done():  # a closed connection cancels the future
                future.set_result(respond(value))

        self._callbacks.append(complete)
        return future
