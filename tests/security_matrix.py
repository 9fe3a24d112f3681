"""Protocols and ways to authenticate: one broker with a listener for each, and what its clients need."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyclient import AsyncConsumer, AsyncProducer, Consumer, Producer
from pyclient.broker_embedded import EmbeddedCluster
from tests.identity_server import ISSUER, Signer

TLS: Final = Path(__file__).parent / "net" / "tls"
CA, CERTIFICATE = str(TLS / "ca.pem"), str(TLS / "client.pem")
USER, PASSWORD = "alice", "secret"
VALUE: Final = b"secured"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROTOCOLS: Final = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "MUTUAL": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
}
"""The security protocol of each listener."""


class Cell(NamedTuple):
    """A listener, and the mechanism of SASL that a client uses there; None without SASL."""

    listener: str
    mechanism: str | None = None

    @property
    def label(self) -> str:
        return self.listener if self.mechanism is None else f"{self.listener}-{self.mechanism}"

    @property
    def protocol(self) -> str:
        return PROTOCOLS[self.listener]

    @property
    def uses_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def certificate(self) -> str | None:
        """The client's certificate and key, where the listener demands one."""
        return CERTIFICATE if self.listener == "MUTUAL" else None


Client = Callable[[Cell, str, "Secured", str], bytes | None]
"""Writes a record to a topic at an address, and returns the value that it reads."""

CELLS: Final = (
    *(Cell(listener) for listener in ("PLAINTEXT", "SSL", "MUTUAL")),
    *(Cell(listener, mechanism) for listener in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in MECHANISMS),
)


class Secured(NamedTuple):
    """A broker's addresses by listener, and a function that returns a token of its user."""

    addresses: dict[str, str]
    token: Callable[[], str]


@contextmanager
def secured_broker(directory: Path) -> Iterator[Secured]:
    """Yield an embedded broker with all listeners; the keys of its tokens are in the directory."""
    signer = Signer()
    keys = directory / "keys.json"
    keys.write_text(json.dumps({"keys": [signer.public]}))
    settings: dict[str, Any] = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in PROTOCOLS),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in PROTOCOLS.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(TLS / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": CA,
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": "kafka",
    }
    with EmbeddedCluster(users={USER: PASSWORD}, config=settings) as cluster:
        listeners = cluster.brokers[0].config.listeners.clients
        yield Secured({each.name: f"127.0.0.1:{each.port}" for each in listeners}, lambda: signer.token(USER))


def options_of(cell: Cell, secured: Secured) -> dict[str, Any]:
    """Return our client's options."""
    options: dict[str, Any] = {"security_protocol": cell.protocol}
    if cell.uses_tls:
        options["ssl_cafile"] = CA
    if cell.certificate is not None:
        options["ssl_certfile"] = cell.certificate
    if cell.mechanism is not None:
        options["sasl_mechanism"] = cell.mechanism
    if cell.mechanism == "OAUTHBEARER":
        options["sasl_oauth_token_provider"] = secured.token
    elif cell.mechanism is not None:
        options |= {"sasl_username": USER, "sasl_password": PASSWORD}
    return options


def sync_client(cell: Cell, address: str, secured: Secured, topic: str) -> bytes | None:
    options = options_of(cell, secured)
    with Producer(address, **options) as producer:
        producer.send(topic, VALUE).result(60)
    with Consumer(topic, bootstrap_servers=address, auto_offset_reset="earliest", **options) as consumer:
        return consumer.poll(60)[0].value


def asyncio_client(cell: Cell, address: str, secured: Secured, topic: str) -> bytes | None:
    options = options_of(cell, secured)

    async def main() -> bytes | None:
        async with AsyncProducer(address, **options) as producer:
            await producer.send(topic, VALUE)
        async with AsyncConsumer(topic, bootstrap_servers=address, auto_offset_reset="earliest", **options) as consumer:
            return (await consumer.poll(60))[0].value

    return asyncio.run(main())


OURS: Final[dict[str, Client]] = {"pyclient": sync_client, "pyclient-asyncio": asyncio_client}
"""Our clients."""
