"""The parts inside a producer that its tests look into, so that only this module names its private attributes."""

from __future__ import annotations

from typing import Any

from pyclient.producer.delivery import Delivery, DeliveryContext


def client_of(producer: Any) -> Any:
    """Return the `ProducerClient`."""
    return producer._client


def runner_of(producer: Any) -> Any:
    """Return the `ThreadRunner` or the `AsyncRunner`."""
    return producer._runner


def fast_path_of(producer: Any) -> Any:
    """Return the compiled fast path of a `Producer`, None without one."""
    return producer._fast_path


def is_closing(producer: Any) -> bool:
    """Return True while a call of `Producer.close` is under way in another thread."""
    closing = runner_of(producer)._closing
    if free := closing.acquire(blocking=False):
        closing.release()
    return not free


def waiters_of(waited_for: Delivery | DeliveryContext) -> Any:
    """Return the waiters for records of a batch, or for the callbacks of any batch; a false value if there are none."""
    return waited_for.waiters if isinstance(waited_for, Delivery) else waited_for._waiters


def failures_lock_of(producer: Any) -> Any:
    """Return the lock of the failures that are not observed yet."""
    return client_of(producer).context.failures._lock
