"""A request on its way to its handler: its route, its context, and the parts of a node that it passes."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyclient.broker_embedded.config.principal_rules import ANONYMOUS, user_of
from pyclient.errors import MalformedMessage
from pyclient.protocol import codec

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Iterator

    from pyclient.acls import AclOperation, ResourceType
    from pyclient.broker_embedded.config.listeners import ListenerConfig
    from pyclient.broker_embedded.network.quotas import Client, MutationQuota
    from pyclient.broker_embedded.network.sasl import SaslSession
    from pyclient.broker_embedded.served_apis import ListenerType
    from pyclient.broker_embedded.services import BrokerServices
    from pyclient.net.stream import FrameStream
    from pyclient.protocol.fields import Request

Answer = Any
"""A response, a future or coroutine of one, or None for no response (Produce with acks=0).

A handler of requests that may have many items is a generator function: it pauses after each, and returns one of these.
"""

Handler = Callable[[Any, "RequestContext"], Answer]


class CloseConnection(Exception):
    """Raised for a request that Kafka answers by closing the connection; the text is the reason."""


class ClientListener(Protocol):
    """The listener of a connection."""

    @property
    def config(self) -> ListenerConfig:
        """Its options, with the port that it really has."""

    def address_for(self, connection: ClientConnection) -> tuple[str, int]:
        """Return the address that a client on `connection` gets."""


class ClientConnection(Protocol):
    """The connection of a request, as handlers use it."""

    on_abandoned: Callable[[], None] | None
    """Called when the connection closes while its request waits; set by the code that makes it wait."""
    on_ended: Callable[[], None] | None
    """Called when the client has closed its sending side while its request waits."""

    @property
    def number(self) -> int:
        """The number of the connection at its node."""

    @property
    def bound(self) -> ClientListener:
        """The listener."""

    @property
    def listener(self) -> ListenerType:
        """The kind of the listener."""

    @property
    def local_address(self) -> tuple[str, int]:
        """The address at which the client has reached the node."""

    @property
    def client_host(self) -> str:
        """The client's address as Kafka shows it, with a leading slash."""

    @property
    def principal(self) -> str:
        """The client's principal, like `User:alice`."""

    @property
    def token_authenticated(self) -> bool:
        """True if the client logged in by a delegation token."""

    @property
    def sasl(self) -> SaslSession | None:
        """The login of the client; None on a listener without SASL."""

    @property
    def stream(self) -> FrameStream:
        """The frames of the connection."""

    @property
    def last_active(self) -> float:
        """The loop's time of the last request."""

    def mute(self, seconds: float) -> None:
        """Read nothing for `seconds`: the client is above its quota (KIP-219)."""

    def answer_now(self, waiting: Future[Any]) -> None:
        """Send the answer in `waiting`, which is done, in this iteration of the loop, if the request waits for it."""

    def stalled(self, now: float, seconds: float) -> bool:
        """Return True if an incomplete request hardly grew for `seconds`, as seen by repeated calls."""

    def close(self) -> None:
        """Close the socket."""

    def close_after_answer(self) -> None:
        """Close the socket once the answer of the request that is served now was given to it."""


class AdvertisedListeners(Protocol):
    """The listeners of a node, as clients and controllers are shown them."""

    def endpoints(self) -> list[tuple[str, str, int, int]]:
        """Return name, host, port and protocol of the listeners for clients, as a broker registers them."""

    def advertised(self, connection: ClientConnection) -> Iterator[tuple[int, str, int, str | None]]:
        """Yield (node id, host, port, rack) of the brokers that have the listener of `connection`."""


class RequestAuthorization(Protocol):
    """Serves requests with the rights of their clients."""

    def serve(
        self, route: Route, request: Request[Any], context: RequestContext, serve: Callable[[Route, Any], Any]
    ) -> Any:
        """Return the answer: that of `serve(route, request)`, or one with errors for what is not allowed."""


class RequestInterceptor(Protocol):
    """Applies faults to requests, and logs them."""

    def serve(self, route: Route, request: Request[Any], context: RequestContext, correlation_id: int) -> Any:
        """Return the handler's answer to a request, or a task that makes the answer."""

    def forget(self, connection: ClientConnection) -> None:
        """Cancel the requests of a closed connection."""

    async def close(self) -> None:
        """Cancel all waiting requests."""


class RequestContext:
    """The context of a request that a handler gets with it."""

    __slots__ = ("api_key", "client_id", "connection", "services", "version")

    def __init__(
        self, services: BrokerServices, api_key: int, version: int, client_id: str | None, connection: ClientConnection
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
        connection: ClientConnection,
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
