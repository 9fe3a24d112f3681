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
