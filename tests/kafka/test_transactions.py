"""Our transactional producers and consumers on a real Kafka: the tests of tests/producer/test_transactions.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyclient import NewTopic, Producer
from tests.kafka import topics
from tests.kafka.conftest import Cluster
from tests.producer.test_transactions import (  # noqa: F401  # pytest runs them here, with this module's fixtures
    test_epochs_rise_as_the_generation_of_the_protocol_demands,
    test_newer_producer_with_the_same_id_shuts_out_the_older,
    test_offsets_are_committed_with_the_records_or_not_at_all,
    test_only_committed_transactions_are_read,
    test_producer_that_closes_aborts_its_transaction,
)
from tests.producer.transactional_clients import PARTITIONS, AsyncTransactions, Transactional


@pytest.fixture(params=[Producer, AsyncTransactions], ids=["sync", "async"])
def make(request: pytest.FixtureRequest, kafka: Cluster, topic: str) -> Iterator[Transactional]:
    """Make producers of this topic's transactional id; they are closed afterwards."""
    topics.create(kafka.bootstrap_servers, NewTopic(topic, PARTITIONS, 1))
    with Transactional(request.param, kafka.bootstrap_servers, topic, kafka.version) as made:
        yield made
