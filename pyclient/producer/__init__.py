"""Sending records: `Producer`, `AsyncProducer`, and the futures that they return."""

from pyclient.producer.async_producer import AsyncProducer
from pyclient.producer.config import ProducerConfig, ProducerOptions
from pyclient.producer.futures import BatchFuture, BatchMetadata, DeliveryFuture
from pyclient.producer.interceptors import ProducerInterceptor, ProducerRecord
from pyclient.producer.producer import Producer

__all__ = [
    "AsyncProducer",
    "BatchFuture",
    "BatchMetadata",
    "DeliveryFuture",
    "Producer",
    "ProducerConfig",
    "ProducerInterceptor",
    "ProducerOptions",
    "ProducerRecord",
]
