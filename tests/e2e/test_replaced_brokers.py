"""All brokers are replaced by others with the same host name: clients find them by their bootstrap addresses."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from pyclient import AsyncProducer, Consumer, Producer
from pyclient.broker_embedded import EmbeddedCluster

NAME = "kafka.test"
QUICK: dict[str, Any] = {
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 100,
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 100,
}


class Resolver:
    """Resolves `NAME` instead of DNS."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.address = "127.0.0.1"
        ask = socket.getaddrinfo

        def getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
            return ask(self.address if host == NAME else host, *arguments, **options)

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    return Resolver(monkeypatch)


def test_producers_and_group_continue_when_all_brokers_are_replaced(resolver: Resolver, tmp_path: Path) -> None:
    async def scenario(producer: Producer, consumer: Consumer[Any, Any], old: EmbeddedCluster, port: int) -> None:
        async with AsyncProducer(f"{NAME}:{port}", **QUICK) as other:
            await asyncio.to_thread(producer.send("orders", b"one").result, 40)
            await (await other.send("orders", b"two"))
            assert await asyncio.to_thread(read, consumer, 2) == [b"one", b"two"]
            old.close()
            resolver.address = "127.0.0.2"
            with EmbeddedCluster(host=resolver.address, port=port, data_dir=tmp_path):
                await asyncio.to_thread(producer.send("orders", b"three").result, 40)
                await asyncio.wait_for(await other.send("orders", b"four"), 40)
                assert await asyncio.to_thread(read, consumer, 2) == [b"three", b"four"]
                assert f"127.0.0.2:{port}" in producer.health()["connected_nodes"]
                await asyncio.to_thread(consumer.close)
                await asyncio.to_thread(producer.close)
                await other.close()

    with EmbeddedCluster(data_dir=tmp_path) as old:
        port = int(old.bootstrap_servers.rpartition(":")[2])
        servers = f"{NAME}:{port}"
        with (
            Producer(servers, **QUICK) as producer,
            Consumer(
                "orders", bootstrap_servers=servers, group_id="billing", auto_offset_reset="earliest", **QUICK
            ) as consumer,
        ):
            asyncio.run(scenario(producer, consumer, old, port))


def read(consumer: Consumer[Any, Any], count: int) -> list[bytes | None]:
    """Return the values of the next records."""
    found: list[bytes | None] = []
    for _ in range(40):
        found += [record.value for record in consumer.poll(timeout=1.0)]
        if len(found) >= count:
            return found
    return found
