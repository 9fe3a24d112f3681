"""Records in flight when their broker is stopped cleanly and restarted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from tests.producer.log import read_log
from tests.producer.lost_answers import ONE_BATCH_A_RECORD, check_written_once
from tests.producer.producer_clients import CLIENTS


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.mark.parametrize("kind", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("count", [2, 3, 5])
def test_batches_with_lost_answers_are_written_once_over_a_restart(own_cluster, topic, network, kind, count):
    servers = own_cluster.bootstrap_servers
    client = kind(servers, **ONE_BATCH_A_RECORD)
    try:
        check_written_once(
            client, network, topic,
            lambda: [record.value for record in read_log(servers, topic)[0]], own_cluster.restart,
            count=count,
        )  # fmt: skip
    finally:
        client.end()
