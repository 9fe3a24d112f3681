"""One request of Kafka's protocol to a broker, on a connection of its own, for what a cluster does to itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

from pyclient.broker_embedded.cluster.faults import POLL_SECONDS
from pyclient.broker_embedded.config.listeners import WILDCARDS
from pyclient.config import ClientConfig
from pyclient.errors import KafkaError, from_code
from pyclient.net.connection import Connection
from pyclient.net.loop_thread import LoopThread
from pyclient.net.surroundings import SURROUNDINGS
from pyclient.protocol.fields import Request, Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyclient.broker_embedded.config.broker_config import BrokerConfig

R = TypeVar("R", bound=Response)

_END_SECONDS: Final = 5.0


def call(broker: BrokerConfig, request: Request[R], timeout: float = 30.0) -> R:
    """Send a request to a broker as its fellow nodes would, and return the response.

    The connection is to the listener between brokers, with the options of TLS and the login of the nodes, which are
    super users if there is an authorizer. Raise `ConfigError` if the nodes have no login, `ConnectionFailed`,
    `KafkaTimeout` after `timeout` seconds, `UnsupportedVersion` for an API that the broker does not offer.
    """
    listener = broker.listeners.between_brokers
    host, port = listener.advertised or (listener.host, listener.port)
    if host in WILDCARDS:
        host = "::1" if host == "::" else "127.0.0.1"
    config = ClientConfig(
        bootstrap_servers=("localhost:9092",),  # required, and not used
        client_id="pyclient-cluster",
        **broker.login_at(listener),
    )
    thread = LoopThread(f"pyclient-cluster-{type(request).name}")
    thread.start()
    try:
        return thread.run(_exchange, host, port, config, request, timeout, timeout=timeout)
    finally:
        thread.stop(_END_SECONDS)


def until_done(ask: Callable[[float], None], timeout: float, *, passing: tuple[type[KafkaError], ...] = ()) -> None:
    """Call `ask` with the seconds that are left until it raises no error that can be retried, or that is `passing`."""
    end = time.monotonic() + timeout
    while True:
        try:
            ask(max(POLL_SECONDS, end - time.monotonic()))
            return
        except KafkaError as error:
            if not (error.retriable or isinstance(error, passing)) or time.monotonic() >= end:
                raise
        time.sleep(POLL_SECONDS)  # there is no event for a controller that has caught up, or was elected


def check_code(code: int, message: str | None, what: str) -> None:
    """Raise the error of a code from a response; `what` is what was asked for."""
    if code:
        raise from_code(code, f"{what}: {message}" if message else what)


async def _exchange(host: str, port: int, config: ClientConfig, request: Request[R], timeout: float) -> R:
    connection = await Connection.open(host, port, config=config, clock=SURROUNDINGS.get().clock)
    try:
        version = connection.version_for(type(request), type(request).versions[1])
        return await connection.request(request, timeout=timeout, version=version)
    finally:
        connection.end("the request is answered")
