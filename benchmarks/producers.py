"""The producers that are measured: made with the same settings, connected, and warm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.timed_work import BATCH_BYTES, LINGER_MS


def ours(servers: str, topic: str, codec: str, *, linger_ms: int = LINGER_MS, **options: Any) -> Any:
    """Return pyclient's producer, with more options."""
    from pyclient import Producer

    producer = Producer(servers, compression_type=codec, linger_ms=linger_ms, batch_size=BATCH_BYTES, **options)
    producer.send(topic, b"warm up").result(30)
    return producer


def confluent(
    servers: str,
    topic: str,
    codec: str,
    *,
    linger_ms: int = LINGER_MS,
    on_delivery: Callable[[Any, Any], None] | None = None,
    more: dict[str, Any] | None = None,
) -> Any:
    """Return confluent-kafka's producer, with `more` settings; `on_delivery` gets the warming record, too."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": codec,
            "linger.ms": linger_ms,
            "batch.size": BATCH_BYTES,
            "acks": "all",
            "enable.idempotence": True,
            **(more or {}),
        }
    )
    if on_delivery is None:
        producer.produce(topic, b"warm up")
    else:
        producer.produce(topic, b"warm up", on_delivery=on_delivery)
    producer.flush(30)
    return producer


def confirmations() -> tuple[Callable[[Any, Any], None], Callable[[], int]]:
    """Return confluent-kafka's delivery report, and a count of what it confirmed; a failed record ends the run."""
    confirmed = 0

    def delivered(error: Any, _message: Any) -> None:  # a closure: the quickest that can be called for every record
        nonlocal confirmed
        if error is not None:
            raise RuntimeError(error)
        confirmed += 1

    return delivered, lambda: confirmed
