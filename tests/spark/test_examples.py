"""The Spark examples, each in a process of its own: state by key, Spark Connect, a declarative pipeline."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from pyclient import Producer
from pyclient.broker_embedded import EmbeddedCluster
from tests.reading import read_all
from tests.spark.conftest import needs_java
from tests.spark.processes import CONNECT, ROOT, connect_server, run_with_packages

pytestmark = [*needs_java, pytest.mark.slow, pytest.mark.timeout(900)]

EXAMPLES = ROOT / "examples"


def test_stateful_counts_go_on_from_the_checkpoint() -> None:
    printed = run_with_packages(CONNECT, sys.executable, str(EXAMPLES / "spark_stateful.py"))
    assert printed.splitlines()[-1] == "[('ann', 2), ('ann', 3), ('bob', 1)]"


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a Spark Connect server."""
    with connect_server(tmp_path_factory.mktemp("connect")) as address:
        yield address


def test_spark_connect_reads_and_writes(connect: str) -> None:
    printed = run_with_packages(CONNECT, sys.executable, str(EXAMPLES / "spark_connect.py"), connect)
    assert printed.splitlines()[-1] == "[('ann', 2), ('bob', 1)]"


def test_a_declarative_pipeline_writes_to_a_sink(kafka_cluster: EmbeddedCluster, connect: str, tmp_path: Path) -> None:
    servers = kafka_cluster.bootstrap_servers
    spec = (EXAMPLES / "spark_pipeline" / "spark-pipeline.yml").read_text()
    spec = spec.replace("localhost:9092", servers).replace("/tmp/orders-pipeline", str(tmp_path / "storage"))
    (tmp_path / "spark-pipeline.yml").write_text(spec)
    flows = tmp_path / "transformations"
    flows.mkdir()
    flow = EXAMPLES / "spark_pipeline" / "transformations" / "shouted.py"
    (flows / "shouted.py").write_text(flow.read_text())
    with Producer(servers) as producer:
        producer.send_many("orders", [b"apples", b"pears"])
    command = Path(pyspark.__file__).parent / "bin" / "spark-pipelines"
    run_with_packages(CONNECT, str(command), "--remote", connect, "run", "--spec", str(tmp_path / "spark-pipeline.yml"))
    found = [record.value or b"" for record in read_all(servers, "shouted", 1)]
    assert sorted(found) == [b"APPLES", b"PEARS"]
