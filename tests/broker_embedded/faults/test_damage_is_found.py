"""`verify_now`: bytes that changed on the disk are found by their checksum, and other partitions go on."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pyclient import Consumer, Producer, TopicPartition, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.controls import node
from pyclient.records import iter_batches
from tests.broker_embedded.faults.http_control import Http

SECONDS = 30


def spoil(cluster: EmbeddedCluster, partition: int) -> tuple[str, int]:
    """Flip a bit in the second batch of a partition's segment; the file, and where that batch begins."""
    path = Path(cluster.data_dir, f"orders-{partition}", f"{0:020}.log")
    content = bytearray(path.read_bytes())
    position = [at for at, _ in iter_batches(bytes(content))][1]
    content[position + 65] ^= 1
    path.write_bytes(content)
    return str(path), position


def fill(cluster: EmbeddedCluster) -> None:
    with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
        for number in range(5):
            for partition in (0, 1):
                producer.send("orders", b"%d" % number, partition=partition).result(SECONDS)


@pytest.mark.parametrize("processes", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
def test_flipped_bit_is_reported_with_its_file_and_position(
    processes: bool, restarted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedCluster(processes=processes, config={"num.partitions": 2}) as cluster:
        fill(cluster)
        assert cluster.verify_now() == []
        if restarted:
            cluster.brokers[0].stop()
        path, position = spoil(cluster, 1)
        if restarted:
            cluster.brokers[0].start()
        with caplog.at_level(logging.ERROR, "pyclient.broker_embedded"):
            [damage] = cluster.verify_now()
        described = f"{path}: damaged at byte {position}: "
        assert (damage["topic"], damage["partition"]) == ("orders", 1)
        assert (damage["path"], damage["position"]) == (path, position)
        assert described in damage["error"]
        assert processes or f"orders-1: {described}" in caplog.text
        assert cluster.verify_now("orders") == [damage]
        fill(cluster)  # both partitions take records
        with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("orders", 0)])
            seen: list[bytes] = []
            while len(seen) < 10:
                seen += [record.value for record in consumer.poll(timeout=SECONDS)]
            assert seen == [b"0", b"1", b"2", b"3", b"4"] * 2


def test_a_check_goes_on_between_requests_and_ends_with_its_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "SLICE_SECONDS", 0.0)  # a pause after every batch
    with EmbeddedCluster(config={"num.partitions": 2}, control_port=0) as cluster:
        assert cluster.control_url is not None
        control = Http(cluster.control_url)
        fill(cluster)
        assert control.ask("POST", "/verify", {"topic": "orders"}) == (200, {"damaged": []})
        monkeypatch.setattr(node, "PAUSE_SECONDS", 1.0)
        with ThreadPoolExecutor(1) as pool:
            checked = pool.submit(control.ask, "POST", "/verify")
            assert control.ask("GET", "/topics")[0] == 200
            assert control.ask("POST", "/broker/stop")[0] == 200
            status, answer = checked.result(SECONDS)
        assert (status, answer["error"]["type"]) == (409, "WrongState"), answer


def test_a_topic_that_there_is_not_cannot_be_checked(cluster: EmbeddedCluster) -> None:
    with pytest.raises(errors.ClientError, match="there is no topic 'nothing'"):
        cluster.verify_now("nothing")
