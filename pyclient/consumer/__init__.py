"""Consumers: read records from topics, alone or as a member of a group.

`Consumer`, which is generated from `AsyncConsumer`, polls in the user's thread; requests run on an event loop.
`ConsumerClient` holds both together around one lock, with these parts:

- `SubscriptionState`: the subscription, and an `AssignedPartition` with the position of each assigned partition.
- `ConsumerMetadata`: the topics to request, their problems, and the assignment without a group.
- `ConsumerCoordinator`: the group member (`ClassicMember` or `ConsumerMember`, pure state machines that
  `MembershipManager` runs), `CommitRequestManager`, and `RebalanceListenerInvoker` for the thread that polls.
- `OffsetsRequestManager`: positions that are not known yet: committed, reset, validated.
- `Fetcher`: `FetchPlanner` and `FetchSessionHandler` decide what is requested; `FetchCollector` adds the response to
  the `FetchBuffer` as `CompletedFetch` objects, and polls take their batches as `Records`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.lazy_names import importer

if TYPE_CHECKING:
    from pyclient.consumer.async_consumer import AsyncConsumer
    from pyclient.consumer.config import ConsumerConfig, ConsumerOptions
    from pyclient.consumer.consumer import Consumer
    from pyclient.consumer.rebalance_listener import RebalanceListener
    from pyclient.consumer.records import Records
    from pyclient.consumer.subscription import SubscriptionPattern

__all__ = [
    "AsyncConsumer",
    "Consumer",
    "ConsumerConfig",
    "ConsumerOptions",
    "RebalanceListener",
    "Records",
    "SubscriptionPattern",
]

_MODULES = {
    "AsyncConsumer": "pyclient.consumer.async_consumer",
    "Consumer": "pyclient.consumer.consumer",
    "ConsumerConfig": "pyclient.consumer.config",
    "ConsumerOptions": "pyclient.consumer.config",
    "RebalanceListener": "pyclient.consumer.rebalance_listener",
    "Records": "pyclient.consumer.records",
    "SubscriptionPattern": "pyclient.consumer.subscription",
}

if not TYPE_CHECKING:  # to a type checker, a module with this function has every name
    __getattr__ = importer(__name__, _MODULES)
