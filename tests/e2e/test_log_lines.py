"""The clients log each change of their cluster and their group once, at a level that is visible by default."""

from __future__ import annotations

import logging

import pytest

from pyclient import Admin, Consumer, NewTopic, Producer, errors
from pyclient.broker_embedded import EmbeddedCluster
from tests.free_ports import closed_port
from tests.waiting import until


def logged(caplog: pytest.LogCaptureFixture, client: str, level: int) -> list[str]:
    """Return the log messages of one client at a level."""
    messages = (record.getMessage() for record in caplog.records if record.levelno == level)
    return [message.removeprefix(f"client {client!r}: ") for message in messages if repr(client) in message]


def test_client_logs_once_when_it_loses_its_cluster_and_once_on_return(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "pyclient")

    def connected(client: str) -> list[str]:
        return [line for line in logged(caplog, client, logging.INFO) if line.startswith("connected to cluster ")]

    with (
        EmbeddedCluster() as cluster,
        Producer(cluster.bootstrap_servers, client_id="producer") as producer,
        Consumer("orders", bootstrap_servers=cluster.bootstrap_servers, client_id="consumer") as consumer,
    ):
        producer.send("orders", b"1").result(30)
        consumer.poll(0.1)
        for client in ("producer", "consumer"):
            until(lambda client=client: connected(client))
            assert len(connected(client)) == 1
            assert logged(caplog, client, logging.WARNING) == []
        broker = cluster.brokers[0]
        for outage in (1, 2):
            broker.kill()
            for client in ("producer", "consumer"):
                until(
                    lambda client=client, outage=outage: len(logged(caplog, client, logging.WARNING)) == 2 * outage - 1
                )
                warning = logged(caplog, client, logging.WARNING)[-1]
                assert warning.startswith("lost the cluster, no broker answers, retrying: "), warning
                assert "connection refused" in warning or "closed" in warning or "reset" in warning, warning
            broker.start()
            for client in ("producer", "consumer"):
                until(lambda client=client, outage=outage: len(logged(caplog, client, logging.WARNING)) == 2 * outage)
                warning = logged(caplog, client, logging.WARNING)[-1]
                assert warning.startswith("a broker answers after ") and " s: cluster " in warning, warning
        producer.send("orders", b"2").result(30)
    assert [len(logged(caplog, client, logging.WARNING)) for client in ("producer", "consumer")] == [4, 4]


def test_client_warns_once_of_cluster_that_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    with closed_port() as port, Admin(f"127.0.0.1:{port}", client_id="early") as admin:
        for _ in range(2):
            with pytest.raises(errors.KafkaTimeout):
                admin.list_topics(timeout=0.5)
        until(lambda: logged(caplog, "early", logging.WARNING))
    (warning,) = logged(caplog, "early", logging.WARNING)
    assert warning.startswith(f"no broker answers yet, retrying: 127.0.0.1:{port}: connection refused")


def test_producer_logs_its_producer_id(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pyclient")
    with EmbeddedCluster() as cluster, Producer(cluster.bootstrap_servers, client_id="mine") as producer:
        producer.send("orders", b"1").result(30)
    lines = [line for line in logged(caplog, "mine", logging.INFO) if line.startswith("its producer id is ")]
    assert len(lines) == 1 and lines[0].endswith(", epoch 0")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consumer_logs_changes_of_its_group(caplog: pytest.LogCaptureFixture, protocol: str) -> None:
    caplog.set_level(logging.INFO, "pyclient.consumer")

    def lines(*words: str) -> list[str]:
        return [line for line in caplog.messages if line.startswith("group 'g', ") and all(w in line for w in words)]

    with EmbeddedCluster() as cluster, Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("orders", 2)])
        options = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "g", "group_protocol": protocol}
        with Consumer("orders", **options) as first:
            until(lambda: first.poll(0.01) or len(first.assignment()) == 2)
            assert lines(": joined") and lines(": assigned orders-0, orders-1; added orders-0, orders-1, revoked none")
            with Consumer("orders", **options) as second:
                until(lambda: first.poll(0.01) or second.poll(0.01) or len(second.assignment()) == 1)
                until(lambda: first.poll(0.01) or len(first.assignment()) == 1)
                kept, given = first.assignment().pop(), second.assignment().pop()
                assert lines(f": assigned {given}; added {given}")
                assert lines("revoked ", str(given)) or lines(": revoked ")
                assert kept != given
    assert {record.levelname for record in caplog.records if "group 'g'" in record.getMessage()} == {"INFO"}


def test_consumer_logs_partitions_that_it_lost(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pyclient.consumer")
    with (
        EmbeddedCluster() as cluster,
        Consumer("orders", bootstrap_servers=cluster.bootstrap_servers, group_id="g") as consumer,
    ):
        until(lambda: consumer.poll(0.01) or consumer.assignment())
        with cluster.faults.fail("Heartbeat", "UnknownMemberId", group="g", times=1):
            until(lambda: consumer.poll(0.01) or any(": lost orders-0" in line for line in caplog.messages))
