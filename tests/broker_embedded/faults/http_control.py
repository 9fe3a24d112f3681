"""A client of the controls over HTTP, and a Kafka client that is not ours."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any

from confluent_kafka import Producer


class Http:
    """A client of the controls."""

    def __init__(self, url: str) -> None:
        self.host = url.removeprefix("http://").rstrip("/")

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self.host, timeout=60)
        try:
            text = body if isinstance(body, (str, bytes)) or body is None else json.dumps(body)
            connection.request(method, path, text, {name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def raw(self, data: bytes) -> bytes:
        host, _, port = self.host.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            answer = b""
            while more := sock.recv(65536):
                answer += more
        return answer


def confluent(bootstrap: str, **options: Any) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "log_level": 0, **options})


def deliver(producer: Producer, topic: str) -> list[Any]:
    """Send one record; return the results of its delivery: (error, offset)."""
    seen: list[Any] = []
    producer.produce(topic, b"value", on_delivery=lambda error, message: seen.append((error, message.offset())))
    producer.flush(60)
    return seen
