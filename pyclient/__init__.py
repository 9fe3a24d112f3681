"""A Kafka client for Python with an embedded broker.

Names are imported on first use, so `import pyclient` is fast and a consumer never loads the producer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient import errors
from pyclient.lazy_names import importer
from pyclient.types import (
    ErrorAction,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RecordMetadata,
    TopicPartition,
)
from pyclient.version import __version__ as __version__

if TYPE_CHECKING:
    from pyclient.admin import Admin, AsyncAdmin, NewTopic
    from pyclient.consumer import AsyncConsumer, Consumer, RebalanceListener, Records, SubscriptionPattern
    from pyclient.net.sasl.msk_iam import MskIamTokens
    from pyclient.processing import async_process_transactionally, process_transactionally
    from pyclient.producer import (
        AsyncProducer,
        BatchFuture,
        DeliveryFuture,
        Producer,
        ProducerInterceptor,
        ProducerRecord,
    )
    from pyclient.records import Record

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "BatchFuture",
    "Consumer",
    "DeliveryFuture",
    "ErrorAction",
    "GroupMetadata",
    "MskIamTokens",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Producer",
    "ProducerInterceptor",
    "ProducerRecord",
    "RebalanceListener",
    "Record",
    "RecordMetadata",
    "Records",
    "SubscriptionPattern",
    "TopicPartition",
    "async_process_transactionally",
    "errors",
    "process_transactionally",
]

_MODULES = {
    "Admin": "pyclient.admin",
    "AsyncAdmin": "pyclient.admin",
    "AsyncConsumer": "pyclient.consumer",
    "AsyncProducer": "pyclient.producer",
    "BatchFuture": "pyclient.producer",
    "Consumer": "pyclient.consumer",
    "DeliveryFuture": "pyclient.producer",
    "MskIamTokens": "pyclient.net.sasl.msk_iam",
    "NewTopic": "pyclient.admin",
    "Producer": "pyclient.producer",
    "ProducerInterceptor": "pyclient.producer",
    "ProducerRecord": "pyclient.producer",
    "RebalanceListener": "pyclient.consumer",
    "Record": "pyclient.records",
    "Records": "pyclient.consumer",
    "SubscriptionPattern": "pyclient.consumer",
    "async_process_transactionally": "pyclient.processing",
    "process_transactionally": "pyclient.processing",
}


if not TYPE_CHECKING:  # to a type checker, a module with this function has every name
    __getattr__ = importer(__name__, _MODULES)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
