"""Metadata responses of a small scripted cluster, made from plain values."""

import asyncio
import uuid

from pyclient.config import ClientConfig
from pyclient.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPIC_ID = uuid.UUID(int=7)


def broker(node_id, port, host="127.0.0.1", rack=None):
    return MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack)


def partition(index, leader, epoch=0, error_code=0):
    return MetadataResponsePartition(
        error_code=error_code,
        partition_index=index,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=[leader],
        isr_nodes=[leader],
    )


def topic(name, partitions=(), error_code=0, topic_id=TOPIC_ID, internal=False):
    return MetadataResponseTopic(
        error_code=error_code,
        name=name,
        topic_id=topic_id,
        is_internal=internal,
        partitions=list(partitions),
    )


def metadata(brokers, topics=(), controller=1, cluster_id="the-cluster", error_code=0):
    return MetadataResponse(
        brokers=list(brokers),
        cluster_id=cluster_id,
        controller_id=controller,
        topics=list(topics),
        error_code=error_code,
    )


def config(*addresses, **options):
    quick = {
        "retry_backoff_ms": 5,
        "retry_backoff_max_ms": 20,
        "reconnect_backoff_ms": 5,
        "reconnect_backoff_max_ms": 20,
    }
    return ClientConfig(bootstrap_servers=addresses, **{**quick, **options})


def run(scenario):
    return asyncio.run(asyncio.wait_for(scenario, 30))
