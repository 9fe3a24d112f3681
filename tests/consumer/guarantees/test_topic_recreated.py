"""A recreated topic is another topic: it is read from where the policy says, not at the old position."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable

import pytest

from pyclient import Admin, NewTopic, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.cluster import connection_pool
from pyclient.protocol.messages.offset_commit import OffsetCommitRequest
from tests.consumer.consumer_factory import PATIENCE, ConsumerFactory, partitions, read, values
from tests.producer.network import FaultyNetwork

Produce = Callable[..., None]


def recreate(admin: Admin, topic: str) -> None:
    admin.delete_topics([topic])
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            admin.create_topics([NewTopic(topic, partitions=1)])
        except errors.TopicAlreadyExists:  # it is still being deleted
            assert time.monotonic() < deadline, f"{topic} could not be recreated"
        else:
            return


def test_group_reads_a_recreated_topic_from_its_beginning(
    consumers: ConsumerFactory, admin: Admin, produce: Produce, group: str
) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(topic, partitions=1)])
    produce(topic, *[b"old %d" % n for n in range(5)])
    consumer = consumers(
        topic, group_id=group, allow_auto_create_topics=False, metadata_max_age_ms=50, auto_commit_interval_ms=50
    )
    assert len(read(consumer, 5)) == 5
    consumer.commit()
    recreate(admin, topic)
    produce(topic, *[b"new %d" % n for n in range(8)])
    assert values(read(consumer, 8)) == [b"new %d" % n for n in range(8)]
    consumer.commit()
    assert consumer.committed(partitions(topic, 0))[topic, 0].offset == 8


def test_offset_of_the_old_topic_is_never_committed_for_the_new_one(
    consumers: ConsumerFactory,
    admin: Admin,
    produce: Produce,
    group: str,
    cluster: EmbeddedCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = FaultyNetwork()  # it shows what the consumer sends
    monkeypatch.setattr(connection_pool, "TcpConnector", network.connector)
    topic = f"t-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(topic, partitions=1)])
    produce(topic, *[b"old %d" % n for n in range(5)])
    consumer = consumers(
        topic, group_id=group, enable_auto_commit=False, allow_auto_create_topics=False, client_id="unaware"
    )
    assert len(read(consumer, 5)) == 5
    with cluster.faults.hold("Metadata", client="unaware", times=None) as unheard:
        recreate(admin, topic)

        def release_metadata() -> None:  # the new topic becomes known during the commit, and not before
            network.wait_for(OffsetCommitRequest.api_key)
            unheard.release()

        releasing = threading.Thread(target=release_metadata)
        releasing.start()
        with pytest.raises(errors.CommitFailed, match=f"{topic} does not exist, or was recreated"):
            consumer.commit({(topic, 0): 5})
        releasing.join()
    other = consumers(group_id=group)
    found = other.committed(partitions(topic, 0))[topic, 0]
    assert found is None
