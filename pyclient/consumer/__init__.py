"""Consumers: read records from topics, alone or as a member of a group."""

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
