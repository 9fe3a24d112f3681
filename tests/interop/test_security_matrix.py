"""A record written and read by each client, over each protocol and with each way to authenticate."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokens
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens

from tests.security_matrix import CA, CELLS, OURS, PASSWORD, USER, VALUE, Cell, Client, Secured, secured_broker


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_broker(tmp_path_factory.mktemp("keys")) as broker:
        yield broker


def confluent(cell: Cell, address: str, secured: Secured, topic: str) -> bytes | None:
    options: dict[str, Any] = {"bootstrap.servers": address, "security.protocol": cell.protocol}
    if cell.uses_tls:
        options["ssl.ca.location"] = CA
    if cell.certificate is not None:
        options |= {"ssl.certificate.location": cell.certificate, "ssl.key.location": cell.certificate}
    if cell.mechanism is not None:
        options["sasl.mechanism"] = cell.mechanism
    if cell.mechanism == "OAUTHBEARER":
        options["oauth_cb"] = lambda _config: (secured.token(), time.time() + 600)
    elif cell.mechanism is not None:
        options |= {"sasl.username": USER, "sasl.password": PASSWORD}
    producer = confluent_kafka.Producer(options)
    producer.produce(topic, VALUE)
    assert producer.flush(60) == 0
    consumer = confluent_kafka.Consumer({**options, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    try:
        message = consumer.poll(60)
        assert message is not None and message.error() is None
        value: bytes | None = message.value()
        return value
    finally:
        consumer.close()


class _KafkaPythonTokens(KafkaPythonTokens):
    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    def token(self) -> str:
        return self._token()


class _AiokafkaTokens(AiokafkaTokens):
    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token()


def _python_options(cell: Cell, address: str) -> dict[str, Any]:
    """Return the options that kafka-python and aiokafka have alike."""
    options: dict[str, Any] = {"bootstrap_servers": address, "security_protocol": cell.protocol}
    if cell.mechanism is not None:
        options["sasl_mechanism"] = cell.mechanism
    if cell.mechanism not in (None, "OAUTHBEARER"):
        options |= {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    return options


def kafka_python(cell: Cell, address: str, secured: Secured, topic: str) -> bytes | None:
    options = _python_options(cell, address)
    if cell.uses_tls:
        options["ssl_cafile"] = CA
    if cell.certificate is not None:
        options |= {"ssl_certfile": cell.certificate, "ssl_keyfile": cell.certificate}
    if cell.mechanism == "OAUTHBEARER":
        options["sasl_oauth_token_provider"] = _KafkaPythonTokens(secured.token)
    producer = kafka.KafkaProducer(**options)
    try:
        producer.send(topic, VALUE).get(60)
    finally:
        producer.close(1)
    consumer = kafka.KafkaConsumer(auto_offset_reset="earliest", consumer_timeout_ms=60_000, **options)
    try:
        consumer.assign([kafka.TopicPartition(topic, 0)])
        value: bytes | None = next(consumer).value
        return value
    finally:
        consumer.close()


def aiokafka_client(cell: Cell, address: str, secured: Secured, topic: str) -> bytes | None:
    options = _python_options(cell, address)
    if cell.uses_tls:
        options["ssl_context"] = ssl.create_default_context(cafile=CA)
    if cell.certificate is not None:
        options["ssl_context"].load_cert_chain(cell.certificate)
    if cell.mechanism == "OAUTHBEARER":
        options["sasl_oauth_token_provider"] = _AiokafkaTokens(secured.token)

    async def main() -> bytes | None:
        producer = aiokafka.AIOKafkaProducer(**options)
        await producer.start()
        try:
            await producer.send_and_wait(topic, VALUE)
        finally:
            await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(auto_offset_reset="earliest", **options)
        await consumer.start()
        try:
            consumer.assign([aiokafka.TopicPartition(topic, 0)])
            value: bytes | None = (await consumer.getone()).value
            return value
        finally:
            await consumer.stop()

    return asyncio.run(main())


CLIENTS: Final[dict[str, Client]] = {
    **OURS,
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka_client,
}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.label)
def test_client_produces_and_consumes_with_security(secured: Secured, cell: Cell, client: str) -> None:
    topic = f"{client}-{cell.label}"
    assert CLIENTS[client](cell, secured.addresses[cell.listener], secured, topic) == VALUE
