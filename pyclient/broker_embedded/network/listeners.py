"""The listeners of a node: their sockets, and what the connections of each share."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyclient import errors
from pyclient.broker_embedded.config.listeners import INTER_BROKER_USER, WILDCARDS
from pyclient.broker_embedded.config.principal_rules import ANONYMOUS, PrincipalRules
from pyclient.broker_embedded.network.answer_cache import AnswerCache
from pyclient.broker_embedded.served_apis import ListenerType
from pyclient.config.addresses import format_address
from pyclient.net.stream import FrameStream
from pyclient.net.surroundings import SURROUNDINGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyclient.broker_embedded.config.broker_config import BrokerConfig
    from pyclient.broker_embedded.config.listeners import ListenerConfig
    from pyclient.broker_embedded.environment import NodeEnvironment
    from pyclient.broker_embedded.network.connection_quotas import ConnectionQuotas
    from pyclient.broker_embedded.network.descriptors import FileDescriptors
    from pyclient.broker_embedded.network.oauth import TokenValidator
    from pyclient.broker_embedded.network.redirects import Link
    from pyclient.broker_embedded.network.sasl import SaslConnection, SaslSession, Users
    from pyclient.broker_embedded.network.tls import ServerContexts
    from pyclient.broker_embedded.request_context import ClientConnection

log = logging.getLogger("pyclient.broker_embedded")

_ACCEPTS: Final = 64  # connections per iteration of the loop
_OUT_OF_FILES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Listener:
    """Accepts connections and hands them to `on_connection`, until closed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        on_connection: Callable[[socket.socket], None],
        on_exhausted: Callable[[], bool] = lambda: False,
    ) -> None:
        """`on_exhausted` is called when no file descriptor is free; it returns True if it has freed some."""
        self._loop = loop
        self._sock = sock
        self._on_connection = on_connection
        self._on_exhausted = on_exhausted
        self._retry_timer: asyncio.TimerHandle | None = None
        self._open = True
        self._paused = False
        self._held = False
        self._is_short = False  # no free descriptor, which was logged
        sock.setblocking(False)
        loop.add_reader(sock.fileno(), self._accept)

    def pause(self) -> None:
        """Stop accepting: the kernel takes as many connections as the backlog has room for."""
        self._paused = True
        self._loop.remove_reader(self._sock.fileno())

    def resume(self) -> None:
        """Accept again, first the connections in the backlog."""
        self._paused = False
        self._accept_if_allowed()

    def hold(self) -> None:
        """Accept nothing until `release`: a limit is reached."""
        if not self._held:
            self._held = True
            self._loop.remove_reader(self._sock.fileno())

    def release(self) -> None:
        """Accept again after `hold`."""
        if self._held:
            self._held = False
            self._accept_if_allowed()

    def close(self) -> None:
        """Stop listening."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()

    def _accept(self) -> None:
        for _ in range(_ACCEPTS):
            if self._held:
                return
            try:
                sock, _address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_FILES:
                    raise
                if self._on_exhausted():
                    continue
                self._wait_for_descriptors(error)
                return
            self._is_short = False
            self._on_connection(sock)

    def _wait_for_descriptors(self, error: OSError) -> None:
        """Pause for 0.1 s without descriptors or memory: accepting again at once would spin."""
        if not self._is_short:
            self._is_short = True
            log.error("cannot accept connections for now: %s", error.strerror)
        self._loop.remove_reader(self._sock.fileno())
        self._retry_timer = self._loop.call_later(0.1, self.retry)

    def retry(self) -> None:
        """Accept again after a lack of file descriptors: one has become free, or the pause is over."""
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None
            self._accept_if_allowed()

    def _accept_if_allowed(self) -> None:
        if self._open and not self._paused and not self._held and self._retry_timer is None:
            self._loop.add_reader(self._sock.fileno(), self._accept)


class BoundListener:
    """One listener. `config` has the port that it really has once `bind` was called."""

    def __init__(self, env: NodeEnvironment, config: ListenerConfig, sock: socket.socket | None = None) -> None:
        """`sock` listens already; without it `bind` makes one."""
        self.config = config
        if config.is_controller:
            self.kind = ListenerType.SASL_CONTROLLER if config.uses_sasl else ListenerType.CONTROLLER
        else:
            self.kind = ListenerType.SASL if config.uses_sasl else ListenerType.CLIENT
        self.answer_cache: AnswerCache | None = None
        self.contexts: ServerContexts | None = None
        self._rules: PrincipalRules | None = None
        self._users: Users | None = None
        self._tokens: TokenValidator | None = None
        self._env = env
        self._socket = sock
        self._listener: Listener | None = None

    def __repr__(self) -> str:
        at = format_address(self.config.host, self.config.port)
        return f"<BoundListener {self.config.name} {self.config.protocol} {at}>"

    def bind(self) -> int:
        """Listen, and check the options of TLS and OAUTHBEARER. Return the port. Raise `ConfigError`."""
        from dataclasses import replace

        config = self.config
        if self._socket is None:
            self._socket = _listen(self._env.config, config.host, config.port)
        self.config = replace(config, port=self._socket.getsockname()[1])
        # a node that listens on all addresses advertises the one that the client used: no shared responses
        if not config.is_controller and (config.advertised is not None or config.host not in WILDCARDS):
            self.answer_cache = AnswerCache(self._env.image)
        if config.uses_tls:
            from pyclient.broker_embedded.network.tls import ServerContexts

            self.contexts = ServerContexts(self.config)
            self._rules = PrincipalRules(str(config.options["ssl.principal.mapping.rules"]))
        if config.uses_sasl and "OAUTHBEARER" in config.mechanisms:
            self._tokens = self._token_validator()
        if config.is_open:
            log.warning(
                "listener %s (%s) is at %s, where other machines may reach it without a login",
                config.name,
                config.protocol,
                format_address(config.host, self.config.port),
            )
        return self.config.port

    def _token_validator(self) -> TokenValidator:
        name = "sasl.oauthbearer.jwks.endpoint.url"
        if not self.config.of_mechanism("OAUTHBEARER", name):
            raise errors.ConfigError(
                f"listener {self.config.name} offers OAUTHBEARER, and {name} is missing: set it to the URL of the keys "
                "(a JWKS), like https://identity.example/keys or file:///etc/kafka/jwks.json"
            )
        from pyclient.broker_embedded.network.oauth import TokenValidator

        return TokenValidator(self.config, SURROUNDINGS.get().clock)

    def serve(self, on_connection: Callable[[socket.socket], None], on_exhausted: Callable[[], bool]) -> Listener:
        """Accept connections."""
        assert self._socket is not None, "bind() comes first"
        self._listener = Listener(self._env.loop, self._socket, on_connection, on_exhausted)
        return self._listener

    def close(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        elif self._socket is not None:
            self._socket.close()
        self._socket = None

    @property
    def listener(self) -> Listener | None:
        """The listener that accepts connections; None while there is none."""
        return self._listener

    def stream(self, sock: socket.socket, **options: Any) -> FrameStream:
        """Return the stream of an accepted socket."""
        if self.contexts is None:
            return FrameStream(self._env.loop, sock, **options)
        from pyclient.net.tls import TlsEnd, TlsStream

        return TlsStream(self._env.loop, sock, TlsEnd(self.contexts.current(), server_side=True), **options)

    def is_ready(self, stream: FrameStream) -> bool:
        """Return True unless a TLS handshake is not over, or has failed."""
        if self.contexts is None:
            return True
        from pyclient.net.tls import TlsStream

        assert isinstance(stream, TlsStream)
        return stream.established

    def principal_of(self, stream: FrameStream) -> str:
        """Return the principal of a client that has not logged in by SASL: that of its certificate.

        Raise `ConfigError` if no rule applies to the certificate's name.
        """
        if self._rules is None or self.config.uses_sasl:
            return ANONYMOUS
        from pyclient.net.tls import TlsStream

        assert isinstance(stream, TlsStream)
        return self._rules.principal(stream.peer_certificate())

    def new_sasl_session(self, connection: SaslConnection) -> SaslSession:
        """Return what decides about a new connection."""
        from pyclient.broker_embedded.controller.delegation_tokens import TokenLogins
        from pyclient.broker_embedded.network.sasl import SaslSession, Users

        env = self._env
        if self._users is None:
            passwords = {**env.config.users, **self.config.passwords}
            # Tokens are for clients; the controllers' listener accepts forwarded requests of any principal.
            logins = None
            if not self.config.is_controller:
                logins = TokenLogins(env.config, env.image.delegation_tokens, env.clock.time_ms)
            self._users = Users(
                passwords, env.image.scram_credentials, self._tokens, logins, env.image.scram_iterations
            )
        return SaslSession(
            connection, self._users, self.config, env.config.seconds("connection.failed.authentication.delay.ms")
        )

    def address_for(self, connection: ClientConnection) -> tuple[str, int]:
        """Return the address that a client on `connection` gets."""
        config = self.config
        if config.advertised is not None:
            return config.advertised
        return connection.local_address[0] if config.host in WILDCARDS else config.host, config.port


class NodeSockets(NamedTuple):
    """Sockets of a node that exist before it: of the first listener for clients, and of the one for controllers."""

    client: socket.socket | None = None
    """Listens already; None: the node makes it."""
    controller: socket.socket | None = None
    link: Link | None = None
    """Maps other nodes' addresses to those that are dialled."""


NO_SOCKETS: Final = NodeSockets()


class NodeListeners:
    """The listeners of a node for clients, and the one for controllers."""

    def __init__(
        self,
        env: NodeEnvironment,
        connection_quotas: ConnectionQuotas,
        descriptors: FileDescriptors,
        sockets: NodeSockets,
    ) -> None:
        self._env = env
        self._connection_quotas = connection_quotas
        self._descriptors = descriptors
        self._paused = False
        listeners, quorum = env.config.listeners, env.config.quorum
        given = [sockets.client, *[None] * len(listeners.clients)]
        self.clients = [BoundListener(env, *each) for each in zip(listeners.clients, given, strict=False)]
        has_controller = sockets.controller is not None or (bool(quorum.voters) and quorum.is_controller)
        self.controller = BoundListener(env, listeners.controller, sockets.controller) if has_controller else None

    def __repr__(self) -> str:
        return f"<NodeListeners {self._all}>"

    def bind(self) -> None:
        """Listen on all addresses; nothing is accepted yet. Raise `ConfigError`."""
        for each in self._all:
            each.bind()

    @property
    def ports(self) -> dict[str, int]:
        """The ports of the listeners for clients."""
        return {each.config.name: each.config.port for each in self.clients}

    def serve_controllers(self) -> None:
        """Accept the connections of other nodes to this controller."""
        connection_quotas = self._connection_quotas
        if self.controller is not None:
            bound = self.controller
            bound.serve(lambda sock: connection_quotas.take_node(sock, bound), lambda: False)
        if self._paused:
            self.pause()

    def serve_clients(self) -> None:
        """Accept the connections of clients, and of brokers that replicate."""
        connection_quotas, run_out = self._connection_quotas, self._descriptors.run_out
        connection_quotas.listeners = [
            bound.serve(lambda sock, bound=bound: connection_quotas.take(sock, bound), run_out)  # type: ignore[misc]
            for bound in self.clients
        ]
        if self._paused:
            self.pause()

    def pause(self) -> None:
        """Accept nothing until `resume`."""
        self._paused = True
        for each in self._all:
            if each.listener is not None:
                each.listener.pause()

    def resume(self) -> None:
        """End the pause."""
        self._paused = False
        for each in self._all:
            if each.listener is not None:
                each.listener.resume()

    def close(self) -> None:
        """Stop listening."""
        for each in self._all:
            each.close()

    @property
    def serving(self) -> bool:
        """True while clients are accepted."""
        return any(each.listener is not None for each in self.clients)

    def endpoints(self) -> list[tuple[str, str, int, int]]:
        """Return name, host, port and protocol of the listeners for clients, as a broker registers them."""
        return [
            (each.name, *(each.advertised or (each.host, each.port)), each.protocol_number)
            for each in (bound.config for bound in self.clients)
        ]

    def advertised(self, connection: ClientConnection) -> Iterator[tuple[int, str, int, str | None]]:
        """Yield (node id, host, port, rack) of the brokers that have the listener of `connection`."""
        env, bound = self._env, connection.bound
        for broker in env.image.brokers.values():
            if broker.node_id == env.node_id:
                yield (env.node_id, *bound.address_for(connection), broker.rack)
            elif not broker.fenced and (place := broker.endpoint(bound.config.name)) is not None:
                yield (broker.node_id, *place, broker.rack)

    def inter_broker_users(self) -> dict[str, str]:
        """Return the users that have credentials of SCRAM: all but the one of the nodes."""
        users = self._env.config.users
        return {user: password for user, password in users.items() if user != INTER_BROKER_USER}

    @property
    def _all(self) -> list[BoundListener]:
        return [*self.clients, *([] if self.controller is None else [self.controller])]


def _listen(config: BrokerConfig, host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raise `ConfigError` if the address cannot be listened on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=config.integer("socket.listen.backlog.size"))
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
        raise errors.ConfigError(f"the broker cannot listen on {host}:{port}: {reason}") from error
