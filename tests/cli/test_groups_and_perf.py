"""`pyclient groups` and `pyclient perf`."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from pyclient import Consumer, Producer
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.cli.app import cli


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedCluster() as cluster:
        with Producer(cluster.bootstrap_servers) as producer:
            for number in range(10):
                producer.send("orders", b"value", timestamp_ms=1_700_000_000_000 + number)
        with Consumer(
            "orders", bootstrap_servers=cluster.bootstrap_servers, group_id="billing", auto_offset_reset="earliest"
        ) as consumer:
            while not len(consumer.poll(timeout=30, max_records=4)):
                pass
            consumer.commit()
        yield cluster.bootstrap_servers


def run(servers: str, command: str, action: str, *rest: str) -> Result:
    return CliRunner().invoke(cli, [command, action, "-b", servers, *rest])


def test_group_is_listed_described_reset_and_deleted(servers: str) -> None:
    assert run(servers, "groups", "list").stdout == "billing\tEmpty\tclassic\n"
    assert run(servers, "groups", "list", "--state", "Stable").stdout == ""
    described = run(servers, "groups", "describe", "billing").output
    assert "billing: Empty, classic, 0 members, at broker 1" in described
    assert re.search(r"orders-0\W+4\W+10\W+6\W", described), described
    for option, offset in (
        (("--to-earliest",), 0),
        (("--to-latest",), 10),
        (("--to-offset", "7"), 7),
        (("--to-offset", "70"), 10),
        (("--to-time", "1700000000005"), 5),
        (("--shift-by", "-2"), 2),
    ):
        done = run(servers, "groups", "reset", "billing", "--dry-run", *option)
        assert done.stdout == f"orders-0\t4\t->\t{offset}\n", done.output
    assert run(servers, "groups", "reset", "billing", "--topic", "orders", "--to-offset", "9").exit_code == 0
    assert re.search(r"orders-0\W+9\W+10\W+1\W", run(servers, "groups", "describe", "billing").output)
    assert run(servers, "groups", "delete", "billing").stdout == "deleted billing\n"
    gone = run(servers, "groups", "describe", "billing")
    assert gone.exit_code == 1
    assert gone.output.strip().endswith("GroupIdNotFound: describing group 'billing': GroupIdNotFound")
    assert "Traceback" not in gone.output


def test_reset_reports_missing_options(servers: str) -> None:
    assert "give one of --to-earliest" in run(servers, "groups", "reset", "some").output
    assert "name a --topic" in run(servers, "groups", "reset", "some", "--to-latest").output


def test_perf_prints_rates(servers: str) -> None:
    assert run(servers, "topics", "create", "measured").exit_code == 0  # perf creates no topic
    sent = run(servers, "perf", "produce", "measured", "--records", "2000", "--size", "10", "--config", "linger.ms=1")
    assert re.match(r"2000 records sent in [\d.]+ s: [\d,]+ records/s, [\d.]+ MB/s\nlatency: p50 ", sent.stdout), sent
    read = run(servers, "perf", "consume", "measured", "--records", "2000")
    assert re.match(r"2000 records read in [\d.]+ s: ", read.stdout), read
    nothing = run(servers, "perf", "consume", "orders", "--timeout", "0.1", "--config", "auto.offset.reset=latest")
    assert "no record from orders" in nothing.output
