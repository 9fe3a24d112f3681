"""Clients of scripted clusters."""

from __future__ import annotations

from pyclient.cluster.client import ClusterClient
from pyclient.protocol.messages.metadata import MetadataRequest
from tests.cluster.scripts import broker, config, metadata, partition, topic


def cluster_of(*brokers, topics=("a",), partitions=2, controller=1):
    """Make brokers respond to Metadata as one cluster with node ids 1, 2, ...; unknown topics get error 3."""
    nodes = [broker(number, each.port) for number, each in enumerate(brokers, 1)]

    def answer(request, version, correlation_id):
        names = topics if request.topics is None else [each.name for each in request.topics]
        known = [
            topic(name, [partition(n, 1 + n % len(nodes)) for n in range(partitions)])
            if name in topics
            else topic(name, error_code=3)
            for name in names
        ]
        return metadata(nodes, known, controller=controller)

    for each in brokers:
        each.answers[MetadataRequest] = answer


async def started(*addresses, **options):
    client = ClusterClient(config(*addresses, **options))
    await client.start()
    return client


def has_nodes(snapshot):
    return bool(snapshot.nodes)
