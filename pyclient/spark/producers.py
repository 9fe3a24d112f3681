"""One producer for each Python worker and configuration, kept between tasks, since workers are reused."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pyclient.errors import DeliveryFailed
from pyclient.producer import Producer

_lock = threading.Lock()
_producers: dict[tuple[int, str], Producer] = {}


def shared_producer(options: Mapping[str, Any]) -> Producer:
    """The worker's producer for these options, made on first use.

    Spark's daemon forks its workers, so one that came over a fork belongs to the parent: the process id is part of
    the key. Interpreter exit flushes and closes it.
    """
    key = (os.getpid(), repr(sorted(options.items())))
    with _lock:
        producer = _producers.get(key)
        if producer is None:
            producer = _producers[key] = Producer(**options)
        return producer


def discard(options: Mapping[str, Any]) -> None:
    """Forget the worker's producer, so that the next task starts with a new one; the caller raises what went wrong."""
    key = (os.getpid(), repr(sorted(options.items())))
    with _lock:
        producer = _producers.pop(key, None)
    if producer is not None:
        with suppress(DeliveryFailed):
            producer.close(timeout=0)
