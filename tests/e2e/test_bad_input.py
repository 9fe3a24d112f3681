"""Each kind of bad input gets one clear error that says what to do, and no accepted record is lost."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pyclient import Admin, Consumer, Producer, errors
from pyclient.broker_embedded import EmbeddedCluster
from tests.free_ports import closed_port
from tests.patience import retry_until_error
from tests.reading import read_all


@contextmanager
def server_that_answers(answer: bytes) -> Iterator[str]:
    """Serve a port that reads a little, sends `answer` and closes the connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                try:
                    connection.recv(4096)
                    connection.sendall(answer)
                except OSError:
                    continue

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def values_in(cluster: EmbeddedCluster, topic: str) -> list[bytes | None]:
    return [record.value for record in read_all(cluster.bootstrap_servers, topic)]


@pytest.mark.parametrize(
    "make", [Producer, Admin, lambda servers, **options: Consumer(bootstrap_servers=servers, **options)]
)
def test_unknown_option_is_named_with_nearest_known_one(make: Any) -> None:
    with pytest.raises(errors.ConfigError, match=r"request_timeout_m\b.*request_timeout_ms"):
        make("127.0.0.1:9", request_timeout_m=5)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"acks": 2}, "acks"),
        ({"linger_ms": -1}, "linger_ms"),
        ({"batch_size": "many"}, "batch_size"),
        ({"compression_type": "rar"}, "compression_type"),
        ({"acks": 1, "enable_idempotence": True}, "enable_idempotence"),
        ({"max_in_flight_requests_per_connection": 6}, "max_in_flight"),
        ({"delivery_timeout_ms": 10, "linger_ms": 100}, "delivery_timeout_ms"),
        ({"linger_ms": 5, "config": {"linger.ms": "5"}}, "linger_ms"),
    ],
)
def test_impossible_producer_option_is_refused_at_once(options: dict[str, Any], named: str) -> None:
    with pytest.raises(errors.ConfigError, match=named):
        Producer("127.0.0.1:9", **options)


@pytest.mark.parametrize("servers", ["", "host", "host:", "host:notaport", "host:70000", []])
def test_malformed_address_is_refused_at_once(servers: Any) -> None:
    with pytest.raises(errors.ConfigError, match="bootstrap_servers"):
        Producer(servers)


def test_unreachable_address_names_address_and_cause() -> None:
    with closed_port() as port, Producer(f"127.0.0.1:{port}", max_block_ms=500) as producer:
        retry_until_error(lambda: producer.send("topic", b"value"), rf"127\.0\.0\.1:{port}.*refused")


@pytest.mark.parametrize(
    ("answer", "pattern"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS.*security_protocol"),
    ],
    ids=["http", "tls"],
)
def test_error_names_protocol_of_port_that_is_not_kafka(answer: bytes, pattern: str) -> None:
    with (
        server_that_answers(answer) as address,
        Producer(address) as producer,
        pytest.raises(errors.ClusterUnreachable, match=f"{address}.*{pattern}"),
    ):
        producer.send("topic", b"value")


def test_error_names_port_that_closes_connections() -> None:
    with server_that_answers(b"") as address, Producer(address, max_block_ms=500) as producer:
        retry_until_error(lambda: producer.send("topic", b"value"), f"{address}.*closed")


def test_error_names_tls_against_plain_broker(kafka_cluster: EmbeddedCluster) -> None:
    context = ssl.create_default_context()
    servers = kafka_cluster.bootstrap_servers
    with (
        pytest.raises(errors.ClusterUnreachable, match=f"{servers}: TLS failed: .* without TLS"),
        Producer(servers, security_protocol="SSL", ssl_context=context) as producer,
    ):
        producer.send("topic", b"value").result(60)


@pytest.mark.parametrize("value", ["text", 5, {"a": 1}])
def test_value_that_is_not_bytes_suggests_a_serializer(
    value: Any, kafka_cluster: EmbeddedCluster, kafka_topic: str
) -> None:
    with Producer(kafka_cluster.bootstrap_servers) as producer:
        producer.send(kafka_topic, b"accepted")
        with pytest.raises(errors.SerializationError, match=rf"(?s){kafka_topic}.*value_serializer"):
            producer.send(kafka_topic, value)
    assert values_in(kafka_cluster, kafka_topic) == [b"accepted"]


def test_record_above_max_request_size_is_refused_others_are_delivered(
    kafka_cluster: EmbeddedCluster, kafka_topic: str
) -> None:
    with Producer(kafka_cluster.bootstrap_servers, max_request_size=10_000) as producer:
        producer.send(kafka_topic, b"before")
        with pytest.raises(errors.KafkaError, match=r"(?s)max_request_size.*10.?000"):
            producer.send(kafka_topic, bytes(20_000))
        producer.send(kafka_topic, b"after")
    assert values_in(kafka_cluster, kafka_topic) == [b"before", b"after"]


@pytest.mark.parametrize("topic", ["", ".", "..", "no spaces", "no/slash", "x" * 250])
def test_invalid_topic_name_is_refused_without_waiting(topic: str, kafka_cluster: EmbeddedCluster) -> None:
    with Producer(kafka_cluster.bootstrap_servers) as producer, pytest.raises(errors.InvalidTopic, match="249"):
        producer.send(topic, b"value")
    with Admin(kafka_cluster.bootstrap_servers) as admin, pytest.raises(errors.InvalidTopic):
        from pyclient import NewTopic

        admin.create_topics([NewTopic(topic, 1, 1)])


def test_closed_client_raises_at_once(kafka_cluster: EmbeddedCluster, kafka_topic: str) -> None:
    servers = kafka_cluster.bootstrap_servers
    producer, consumer, admin = Producer(servers), Consumer(bootstrap_servers=servers), Admin(servers)
    for client in (producer, consumer, admin):
        client.close()
        client.close()  # idempotent
    with pytest.raises(errors.ClosedError, match="closed"):
        producer.send(kafka_topic, b"value")
    with pytest.raises(errors.ClosedError, match="closed"):
        consumer.poll(timeout=0)
    with pytest.raises(errors.ClosedError, match="closed"):
        admin.list_topics()


def test_records_accepted_before_close_are_delivered(kafka_cluster: EmbeddedCluster, kafka_topic: str) -> None:
    producer = Producer(kafka_cluster.bootstrap_servers, linger_ms=1000)
    futures = [producer.send(kafka_topic, b"%d" % n) for n in range(1000)]
    producer.close()
    assert [future.result(0).offset for future in futures] == list(range(1000))
    assert values_in(kafka_cluster, kafka_topic) == [b"%d" % n for n in range(1000)]


def test_data_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(errors.ConfigError, match=r"cannot keep its data in .*file"):
        EmbeddedCluster(data_dir=tmp_path / "file").start()
