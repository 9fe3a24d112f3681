"""State restored by a restart, clean or after a crash: topics, options, records, offsets, producer ids."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.controller.image import MetadataImage
from pyclient.broker_embedded.controller.metadata_log import MetadataLog
from pyclient.broker_embedded.log.filesystem import RealFileSystem
from pyclient.clock import SYSTEM_CLOCK
from pyclient.protocol.messages.delete_topics import DeleteTopicsRequest
from pyclient.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pyclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from pyclient.protocol.messages.init_producer_id import InitProducerIdRequest
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pyclient.protocol.messages.metadata_log import PartitionChangeRecord
from pyclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyclient.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from pyclient.records import check_crc, decode_key_values, iter_batches
from tests.broker_embedded.topics import create, end_offset
from tests.waiting import PATIENCE

ENDS = pytest.mark.parametrize("end", ["restart", "kill", "kill the process"])


def bring_back(cluster: EmbeddedCluster, end: str) -> None:
    if end == "restart":
        cluster.restart()
    else:
        cluster.kill()
        cluster.start()


def describe(client: Any, name: str) -> Any:
    wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    return client.call(wanted, 12).topics[0]


@ENDS
def test_topics_options_and_records_are_restored(
    connect: Any, produce: Any, batch: Any, fetch_request: Any, end: str
) -> None:
    with EmbeddedCluster(processes=end == "kill the process") as cluster:
        client = connect(cluster)
        before = create(client, "kept", 2, retention_ms="3600000000")
        for value in (b"a", b"b", b"c"):
            assert produce(client, "kept", batch(value), partition=1).error_code == 0
        bring_back(cluster, end)

        client = connect(cluster)
        after = describe(client, "kept")
        assert (after.topic_id, len(after.partitions)) == (before.topic_id, 2)
        response = client.call(fetch_request("kept", {1: 0}, max_wait_ms=20_000), 11)  # the log may still be recovered
        [partition] = response.responses[0].partitions
        assert partition.error_code == 0
        data = partition.records
        values = [
            value
            for position, header in iter_batches(data)
            for _, _, _, value in decode_key_values(data, position, header)
        ]
        assert values == [b"a", b"b", b"c"]
        assert produce(client, "kept", batch(b"d"), partition=1).base_offset == 3
        resource = DescribeConfigsResource(resource_type=2, resource_name="kept", configuration_keys=["retention.ms"])
        [described] = client.call(DescribeConfigsRequest(resources=[resource]), 4).results
        assert [config.value for config in described.configs] == ["3600000000"]


@ENDS
def test_deleted_topic_stays_deleted(connect: Any, produce: Any, batch: Any, end: str) -> None:
    with EmbeddedCluster(processes=end == "kill the process") as cluster:
        client = connect(cluster)
        create(client, "gone", 2)
        produce(client, "gone", batch(b"a", b"b"))
        client.call(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=1000), 5)
        bring_back(cluster, end)

        client = connect(cluster)
        assert describe(client, "gone").error_code == errors.UnknownTopicOrPartition.code
        create(client, "gone", 2)
        assert end_offset(client, "gone") == 0


@ENDS
def test_producer_ids_continue_after_restart(connect: Any, end: str) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    with EmbeddedCluster(processes=end == "kill the process") as cluster:
        before = connect(cluster).call(request, 4).producer_id
        bring_back(cluster, end)
        assert connect(cluster).call(request, 4).producer_id > before


@ENDS
def test_last_batch_of_producer_is_deduplicated_after_restart(connect: Any, produce: Any, batch: Any, end: str) -> None:
    with EmbeddedCluster(processes=end == "kill the process") as cluster:
        client = connect(cluster)
        create(client, "idempotent", 2, message_timestamp_before_max_ms=str(2**62))
        first = batch(b"a", b"b", producer_id=4, producer_epoch=0, base_sequence=0)
        assert produce(client, "idempotent", first).base_offset == 0
        bring_back(cluster, end)

        client = connect(cluster)
        second = batch(b"c", producer_id=4, producer_epoch=0, base_sequence=2)
        assert produce(client, "idempotent", second).base_offset == 2
        assert produce(client, "idempotent", second).base_offset == 2
        assert end_offset(client, "idempotent") == 3


@ENDS
def test_committed_offsets_are_restored(connect: Any, end: str) -> None:
    with EmbeddedCluster(processes=end == "kill the process") as cluster:
        client = connect(cluster)
        create(client, "read", 2)
        while client.call(FindCoordinatorRequest(key="group", key_type=0), 2).error_code:
            pass
        partition = OffsetCommitRequestPartition(partition_index=1, committed_offset=42, committed_metadata="note")
        commit = OffsetCommitRequest(
            group_id="group", topics=[OffsetCommitRequestTopic(name="read", partitions=[partition])]
        )
        assert client.call(commit, 7).topics[0].partitions[0].error_code == 0
        bring_back(cluster, end)

        client = connect(cluster)
        wanted = OffsetFetchRequest(
            group_id="group", topics=[OffsetFetchRequestTopic(name="read", partition_indexes=[1])]
        )
        [found] = client.call(wanted, 5).topics[0].partitions
        assert (found.error_code, found.committed_offset, found.metadata) == (0, 42, "note")


def test_torn_batch_is_truncated_after_crash(connect: Any, produce: Any, batch: Any, data_dir: str) -> None:
    with EmbeddedCluster(data_dir=data_dir) as cluster:
        client = connect(cluster)
        create(client, "torn", 1)
        for value in (b"a", b"b", b"c"):
            produce(client, "torn", batch(value))
        cluster.kill()
        segment = Path(data_dir, "torn-0", f"{0:020}.log")
        segment.write_bytes(segment.read_bytes()[:-3])
        cluster.start()
        client = connect(cluster)
        assert end_offset(client, "torn") == 2
        assert produce(client, "torn", batch(b"d")).base_offset == 2


def test_torn_metadata_log_keeps_complete_batches(connect: Any, data_dir: str) -> None:
    with EmbeddedCluster(data_dir=data_dir) as cluster:
        client = connect(cluster)
        create(client, "first", 2)
        create(client, "second", 2)
        cluster.kill()
        segment = Path(data_dir, "__cluster_metadata-0", f"{0:020}.log")
        segment.write_bytes(segment.read_bytes()[:-1])
        cluster.start()
        client = connect(cluster)
        assert describe(client, "first").error_code == 0
        assert describe(client, "second").error_code == errors.UnknownTopicOrPartition.code
        create(client, "second", 2)


def test_start_increments_quorum_epoch(connect: Any, data_dir: str) -> None:
    epochs = []
    with EmbeddedCluster(data_dir=data_dir) as cluster:
        for _ in range(3):
            state = Path(data_dir, "__cluster_metadata-0", "quorum-state").read_text()
            epochs.append(int(state.partition('"leaderEpoch":')[2].partition(",")[0]))
            cluster.restart()
            assert connect(cluster).call(MetadataRequest(topics=[]), 1).controller_id == 1
    assert epochs == [1, 2, 3]


def test_only_crash_increments_leader_epochs(connect: Any, produce: Any, batch: Any, fetch_request: Any) -> None:
    with EmbeddedCluster() as cluster:
        create(connect(cluster), "led", 2)
        epochs = []
        for end in ("restart", "kill", "restart", "kill"):
            bring_back(cluster, end)
            epochs.append(describe(connect(cluster), "led").partitions[0].leader_epoch)
        assert epochs == [0, 1, 1, 2]
        client = connect(cluster)
        produce(client, "led", batch(b"a"))
        request = fetch_request("led", {0: 0})
        request.topics[0].partitions[0].current_leader_epoch = 1
        [partition] = client.call(request, 11).responses[0].partitions
        assert partition.error_code == errors.FencedLeaderEpoch.code


def test_partitions_without_leader_are_elected_at_start(connect: Any, produce: Any, batch: Any, data_dir: str) -> None:
    """A Kafka that shuts down resigns its leaderships in its metadata records."""
    with EmbeddedCluster(data_dir=data_dir) as cluster:
        topic_id = create(connect(cluster), "left", 2).topic_id
    metadata = MetadataLog.open(
        data_dir, MetadataImage(), fs=RealFileSystem(durable=False), clock=SYSTEM_CLOCK, node_id=1, clean=True
    )
    metadata.append(
        [
            PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=-1),
            PartitionChangeRecord(partition_id=1, topic_id=topic_id, leader=-1, isr=[]),
        ]
    )
    metadata.close()
    with EmbeddedCluster(data_dir=data_dir) as cluster:
        client = connect(cluster)
        found = describe(client, "left").partitions
        assert [(one.leader_id, one.leader_epoch, one.isr_nodes) for one in found] == [(1, 2, [1])] * 2
        assert produce(client, "left", batch(b"a")).base_offset == 0


def test_acknowledged_records_survive_kill_9_under_load(
    connect: Any, produce: Any, batch: Any, fetch_request: Any
) -> None:
    with EmbeddedCluster(processes=True) as cluster:
        create(connect(cluster), "load", 1)
        for round_number in range(3):
            acknowledged: list[int] = []
            enough = threading.Event()

            def write(into: list[int], reached: threading.Event, producer: Any, number: int) -> None:
                with contextlib.suppress(AssertionError, OSError):  # the broker was killed
                    while True:
                        answer = produce(producer, "load", batch(b"%d-%d" % (number, len(into)) * 100))
                        into.append(answer.base_offset)
                        if len(into) == 200:
                            reached.set()

            writer = threading.Thread(target=write, args=(acknowledged, enough, connect(cluster), round_number))
            writer.start()
            assert enough.wait(PATIENCE)
            cluster.kill()
            writer.join()
            cluster.start()

            client = connect(cluster)
            end = end_offset(client, "load")
            assert end in (acknowledged[-1] + 1, acknowledged[-1] + 2)  # one more may be written but not acknowledged
            values: dict[int, bytes] = {}
            offset = acknowledged[0]
            while offset < end:
                data = client.call(fetch_request("load", {0: offset}), 11).responses[0].partitions[0].records
                for position, header in iter_batches(data):
                    check_crc(data, position, header)
                    for found, _, _, value in decode_key_values(data, position, header):
                        values[found] = value or b""
                    offset = header.next_offset
            expected = {at: b"%d-%d" % (round_number, index) * 100 for index, at in enumerate(acknowledged)}
            assert {at: values[at] for at in expected} == expected
