"""The objects that the parts of one consumer share."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from pyclient.backoff import Backoff
from pyclient.clock import Clock, Rng
from pyclient.cluster.client import ClusterClient
from pyclient.consumer.config import ConsumerConfig
from pyclient.consumer.subscription import SubscriptionState


@dataclass(frozen=True, slots=True, eq=False)
class ConsumerContext:
    """Options, cluster client, subscription, clock and random generator of one consumer.

    `lock` guards the subscription and the fetch buffer, which the polling thread and the event loop both access.
    """

    config: ConsumerConfig
    cluster: ClusterClient
    subscription: SubscriptionState
    lock: threading.Lock
    clock: Clock
    rng: Rng

    @property
    def backoff(self) -> Backoff:
        """The pauses between retries: `retry_backoff_ms` to `retry_backoff_max_ms`."""
        return Backoff(self.config.retry_backoff_ms / 1000, self.config.retry_backoff_max_ms / 1000)
