"""The table of served APIs with their versions and handlers; ApiVersions answers from it, too."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyclient.broker_embedded.config.principal_rules import ANONYMOUS, user_of
from pyclient.broker_embedded.controller.forwarding import as_active_controller, by_active_controller
from pyclient.broker_embedded.replication.durability import Durable, hold_until_durable
from pyclient.broker_embedded.replication.unopened_logs import run_when_opened
from pyclient.broker_embedded.served_apis import OF_CONTROLLERS, SERVED, ListenerType, served_on
from pyclient.errors import MalformedMessage
from pyclient.protocol import codec
from pyclient.protocol.versions import API_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyclient.acls import AclOperation, ResourceType
    from pyclient.broker_embedded.network.quotas import Client, MutationQuota
    from pyclient.broker_embedded.network.server import BrokerConnection
    from pyclient.broker_embedded.replication.unopened_logs import Asked
    from pyclient.broker_embedded.services import BrokerServices
    from pyclient.protocol.fields import Request
    from pyclient.types import TopicPartition

Answer = Any
"""A response, a future or coroutine of one, or None for no response (Produce with acks=0).

A handler of requests that may have many items is a generator function: it pauses after each, and returns one of these.
"""

Handler = Callable[[Any, "RequestContext"], Answer]
F = TypeVar("F", bound=Callable[..., Any])


class CloseConnection(Exception):
    """Raised for a request that Kafka answers by closing the connection; the text is the reason."""


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


class RequestContext:
    """The context of a request that a handler gets with it."""

    __slots__ = ("api_key", "client_id", "connection", "services", "version")

    def __init__(
        self, services: BrokerServices, api_key: int, version: int, client_id: str | None, connection: BrokerConnection
    ) -> None:
        self.services = services
        self.api_key = api_key
        self.version = version
        self.client_id = client_id or ""
        self.connection = connection

    def mutation_quota(self, *, strict: bool) -> MutationQuota:
        """Return the quota of partitions that this request may create and delete (KIP-599)."""
        services = self.services
        return services.quotas.mutation.of_request(self.quota_client, services.clock.monotonic(), strict=strict)

    @property
    def quota_client(self) -> Client:
        """Return the user and the client id whose quotas apply to the request."""
        return user_of(self.principal), self.client_id

    def throttle(self, seconds: float) -> int:
        """Mute the connection for `seconds` (KIP-219). Return the throttle time for the response, in milliseconds."""
        if seconds > 0:
            self.connection.mute(seconds)
        return round(seconds * 1000)

    @property
    def principal(self) -> str:
        """Return the client's principal, like `User:alice`."""
        return self.connection.principal

    @property
    def token_authenticated(self) -> bool:
        """Return True if the client logged in by a delegation token."""
        return self.connection.token_authenticated

    @property
    def may_manage_tokens(self) -> bool:
        """Return True if the client may ask for delegation tokens: it is known, and not by such a token (KIP-48)."""
        protocol = self.connection.bound.config.protocol
        known = protocol != "PLAINTEXT" and (protocol != "SSL" or self.principal != ANONYMOUS)
        return known and not self.token_authenticated

    def may(self, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        """Return True if the client may do it; without an authorizer every client may do everything."""
        authorizer = self.services.authorizer
        if authorizer is None or self.connection is None:
            return True
        return authorizer.may(self.principal, self.client_host.lstrip("/"), operation, kind, name)

    def may_any(self, operation: AclOperation, kind: ResourceType) -> bool:
        """Return True if the client may do it to at least one resource of that type."""
        authorizer = self.services.authorizer
        return authorizer is None or authorizer.may_any(self.principal, self.client_host.lstrip("/"), operation, kind)

    def operations(self, possible: int, kind: ResourceType, name: str) -> int:
        """Return those of the `possible` operations, as bits, that the client may do."""
        authorizer = self.services.authorizer
        if authorizer is None or self.connection is None:
            return possible
        return authorizer.operations(self.principal, self.client_host.lstrip("/"), possible, kind, name)

    @property
    def client_host(self) -> str:
        """Return the client's address as Kafka shows it, with a leading slash: `/127.0.0.1`."""
        return self.connection.client_host

    @property
    def connection_id(self) -> int:
        """Return the connection's number, which is unique in this node."""
        return self.connection.number


class ForwardedContext(RequestContext):
    """The context of a request of a client that another broker has sent on: its address and principal."""

    __slots__ = ("_host", "_principal", "_token_authenticated")

    def __init__(
        self,
        services: BrokerServices,
        api_key: int,
        version: int,
        client_id: str | None,
        connection: BrokerConnection,
        host: str,
        principal: str,
        token_authenticated: bool,
    ) -> None:
        super().__init__(services, api_key, version, client_id, connection)
        self._host = host
        self._principal = principal
        self._token_authenticated = token_authenticated

    @property
    def principal(self) -> str:
        """Return the client's principal."""
        return self._principal

    @property
    def token_authenticated(self) -> bool:
        """Return True if the client logged in by a delegation token."""
        return self._token_authenticated

    @property
    def may_manage_tokens(self) -> bool:
        """Return True unless the client logged in by a token: the other broker has looked at its listener."""
        return not self._token_authenticated

    def throttle(self, seconds: float) -> int:
        """Return the throttle time in milliseconds: the other broker mutes its client."""
        return round(seconds * 1000)

    @property
    def client_host(self) -> str:
        """Return the client's address as Kafka shows it."""
        return f"/{self._host}"


class Route:
    """The decoder and handler of one API in one version; `forwarded` if only the active controller answers it."""

    __slots__ = ("_request", "_version", "decode", "forwarded", "handler", "name", "response")

    def __init__(
        self, name: str, request: type[Request[Any]], version: int, handler: Handler, *, forwarded: bool = False
    ) -> None:
        decode = codec.decoder(request, version)
        self.name = name
        self.decode = _lenient(decode) if name in _ONE_BYTE_MORE else decode
        self.handler = handler
        self.forwarded = forwarded
        self.response = request.response
        self._request = request
        self._version = version

    def with_handler(self, handler: Handler) -> Route:
        """Return the route with another handler."""
        return Route(self.name, self._request, self._version, handler, forwarded=self.forwarded)

    def decode_in_steps(self, frame: memoryview, position: int) -> Generator[None, None, Request[Any]]:
        """Decode with pauses, for a frame that may have many items."""
        decode = codec.decoder_in_steps(self._request, self._version)
        try:
            request: Request[Any] = yield from decode(frame, position)
        except MalformedMessage:
            if self.name not in _ONE_BYTE_MORE or len(frame) <= position or frame[-1]:
                raise
            request = yield from decode(frame[:-1], position)
        return request


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


_ONE_BYTE_MORE: Final = frozenset({"AlterUserScramCredentials"})
"""APIs whose requests librdkafka ends with one empty section of tags too many, which Kafka ignores."""


def _lenient(decode: Callable[..., Request[Any]]) -> Callable[..., Request[Any]]:
    def read(frame: memoryview, position: int) -> Request[Any]:
        try:
            return decode(frame, position)
        except MalformedMessage:
            if len(frame) <= position or frame[-1]:
                raise
            return decode(frame[:-1], position)

    return read


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
