"""The example of docs/spark.md, against a broker."""

from __future__ import annotations

from typing import Any

from pyclient import Producer
from pyclient.broker_embedded import EmbeddedCluster
from tests.e2e.test_readme import SPARK
from tests.reading import read_all
from tests.spark.conftest import needs_java

pytestmark = needs_java


def test_example_writes_what_it_reads_in_upper_case(spark: Any, kafka_cluster: EmbeddedCluster) -> None:
    servers = kafka_cluster.bootstrap_servers
    with Producer(servers) as producer:
        producer.send("orders", b"three apples", key=b"42")
    [code] = SPARK.values()
    exec(code.replace("host:9092", servers), {"spark": spark})
    [record] = read_all(servers, "shouted", 1)
    assert (record.key, record.value) == (b"42", b"THREE APPLES")
