"""The table of served APIs with their versions and handlers; ApiVersions answers from it, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyclient.broker_embedded.controller.forwarding import as_active_controller, by_active_controller
from pyclient.broker_embedded.replication.durability import Durable, hold_until_durable
from pyclient.broker_embedded.replication.unopened_logs import run_when_opened
from pyclient.broker_embedded.request_context import Route
from pyclient.broker_embedded.served_apis import OF_CONTROLLERS, SERVED, ListenerType, served_on
from pyclient.protocol.versions import API_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyclient.broker_embedded.replication.unopened_logs import Asked
    from pyclient.broker_embedded.request_context import Answer, Handler, RequestContext
    from pyclient.broker_embedded.services import BrokerServices
    from pyclient.protocol.fields import Request
    from pyclient.types import TopicPartition

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Declaration:
    """The arguments of `@handles` for one handler."""

    request: type[Request[Any]]
    versions: tuple[int, int]
    durable: Durable
    logs: Asked | None
    forwarded: bool
    refused_by: Handler | None


_HANDLERS: Final = "pyclient.broker_embedded.handlers"
_DECLARED: Final[dict[str, Declaration]] = {}  # by the handler's module


def handles(
    request: type[Request[Any]],
    *,
    versions: tuple[int, int],
    durable: Durable = Durable.NOTHING,
    logs: Callable[[Any, BrokerServices], Iterable[TopicPartition]] | None = None,
    forwarded: bool = False,
    refused_by: Handler | None = None,
) -> Callable[[F], F]:
    """Mark a function as the handler of `request` in `versions` (first and last), which must agree with `SERVED`.

    Its answers are held until what `durable` names is on the disk. With `logs`, which returns partitions of a request,
    it runs when the logs of those are open. A `forwarded` one runs on the active controller.
    `refused_by` is called before, on the node that the client asks; what it returns, if not None, is the answer.
    """

    def mark(handler: F) -> F:
        _DECLARED[handler.__module__] = Declaration(request, versions, durable, logs, forwarded, refused_by)
        return handler

    return mark


class Routes:
    """The routes of one kind of listener, made when they are first used."""

    __slots__ = ("_forward", "_made", "_names", "_served")

    def __init__(self, listener: ListenerType) -> None:
        self._forward = as_active_controller if listener in OF_CONTROLLERS else by_active_controller
        self._served = served_on(listener)
        self._names = {API_KEYS[name]: name for name in self._served}
        self._made: dict[int, Route] = {}

    def find(self, api_key: int, version: int) -> Route | None:
        """Return the route of a request; None if the listener does not serve that API or version."""
        if version < 0:
            return None
        found = self._made.get(api_key << 16 | version)
        return found if found is not None else self._make(api_key, version)

    def _make(self, api_key: int, version: int) -> Route | None:
        name = self._names.get(api_key)
        if name is None or not self._served[name].first <= version <= self._served[name].last:
            return None
        module = self._served[name].module
        handler = _handler_in(module)
        declared = _declaration_in(module)
        by_controller = bool(self._served[name].listeners & ListenerType.CONTROLLER)
        held = run_when_opened(
            declared.logs, hold_until_durable(declared.durable, handler, by_controller=by_controller)
        )
        if declared.forwarded:
            held = self._forward(held)
        if declared.refused_by is not None:
            held = _unless_refused(declared.refused_by, held)
        made = Route(name, declared.request, version, held, forwarded=declared.forwarded)
        self._made[api_key << 16 | version] = made
        return made


ROUTES: Final = {listener: Routes(listener) for listener in ListenerType}
"""The routes by the kind of listener."""

route: Final = ROUTES[ListenerType.CLIENT].find


def _unless_refused(refused_by: Handler, handler: Handler) -> Handler:
    def handle(request: Any, context: RequestContext) -> Answer:
        refusal = refused_by(request, context)
        return handler(request, context) if refusal is None else refusal

    return handle


def handler_of(name: str) -> Handler:
    """Return the function that serves the API `name` for clients."""
    return _handler_in(SERVED[name].module)


def declaration_of(name: str) -> Declaration:
    """Return what `@handles` says of the handler of the API `name` for clients."""
    return _declaration_in(SERVED[name].module)


def _handler_in(module: str) -> Handler:
    handler: Handler = import_module(f"{_HANDLERS}.{module}").handle
    return handler


def _declaration_in(module: str) -> Declaration:
    _handler_in(module)  # imports it
    return _DECLARED[f"{_HANDLERS}.{module}"]
