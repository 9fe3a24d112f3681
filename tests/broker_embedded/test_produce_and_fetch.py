"""Produce, Fetch, ListOffsets and OffsetForLeaderEpoch over the wire."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from pyclient import errors
from pyclient.protocol.messages.fetch import FetchRequest
from pyclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from pyclient.protocol.messages.init_producer_id import InitProducerIdRequest
from pyclient.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pyclient.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from pyclient.records import decode_key_values, iter_batches
from tests.broker_embedded.nodes import node_of


def values_of(records: Any) -> list[tuple[int, bytes | None]]:
    found = []
    for position, header in iter_batches(records):
        found += [(offset, value) for offset, _, _, value in decode_key_values(records, position, header)]
    return found


def only_partition(response: Any) -> Any:
    [topic] = response.responses
    [partition] = topic.partitions
    return partition


@pytest.mark.parametrize("version", range(3, 13))
def test_produced_records_are_fetched_in_every_version(
    client: Any, topic: str, produce: Any, batch: Any, fetch_request: Any, version: int
) -> None:
    answer = produce(client, topic, batch(b"a", b"b"), version=version)
    assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, 0, -1)
    assert produce(client, topic, batch(b"c"), version=version).base_offset == 2
    partition = only_partition(client.call(fetch_request(topic, {0: 0}), min(version + 1, 12)))
    assert values_of(partition.records) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert (partition.error_code, partition.high_watermark, partition.last_stable_offset) == (0, 3, 3)


@pytest.mark.parametrize("acks", [-1, 1])
def test_produce_is_answered_for_every_acks(client: Any, topic: str, produce: Any, batch: Any, acks: int) -> None:
    assert produce(client, topic, batch(b"a"), acks=acks).error_code == 0


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_invalid_acks_are_refused_and_nothing_is_written(
    client: Any, topic: str, produce: Any, batch: Any, fetch_request: Any, acks: int
) -> None:
    assert produce(client, topic, batch(b"a"), acks=acks).error_code == errors.InvalidRequiredAcks.code
    assert only_partition(client.call(fetch_request(topic, {0: 0}), 11)).high_watermark == 0


@pytest.mark.parametrize("records", [None, b""])
def test_partition_without_records_is_refused(client: Any, topic: str, produce: Any, records: Any) -> None:
    assert produce(client, topic, records).error_code == errors.InvalidRecord.code


def test_flipped_byte_is_detected(client: Any, topic: str, produce: Any, batch: Any) -> None:
    data = bytearray(batch(b"value"))
    data[-1] ^= 1
    answer = produce(client, topic, bytes(data))
    assert answer.error_code == errors.CorruptMessage.code
    assert b"value" not in (answer.error_message or "").encode()


@pytest.mark.parametrize("size", [1, 12, 60, 61, 65])
def test_truncated_batch_is_refused(client: Any, topic: str, produce: Any, batch: Any, size: int) -> None:
    assert produce(client, topic, batch(b"value")[:size]).error_code in (
        errors.CorruptMessage.code,
        errors.InvalidRecord.code,
    )


def test_two_batches_for_partition_are_refused(client: Any, topic: str, produce: Any, batch: Any) -> None:
    assert produce(client, topic, batch(b"a") + batch(b"b")).error_code == errors.InvalidRecord.code


def test_batch_above_size_limit_is_refused(client: Any, topic: str, produce: Any, batch: Any) -> None:
    assert produce(client, topic, batch(b"x" * 1_048_588)).error_code == errors.MessageTooLarge.code


def test_transactional_batch_without_id_is_refused(client: Any, topic: str, produce: Any, batch: Any) -> None:
    data = batch(b"value", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    assert produce(client, topic, data).error_code == errors.TransactionalIdAuthorizationFailed.code


def test_control_batch_of_client_is_refused(client: Any, topic: str, produce: Any, batch: Any) -> None:
    assert produce(client, topic, batch(b"value", control=True)).error_code == errors.InvalidRecord.code


def test_internal_topic_refuses_records(client: Any, produce: Any, batch: Any) -> None:
    client.call(FindCoordinatorRequest(key="group", key_type=0), 2)
    assert produce(client, "__consumer_offsets", batch(b"value")).error_code == errors.InvalidTopic.code
    for name in ("__cluster_metadata", "__transaction_state"):
        assert produce(client, name, batch(b"value")).error_code == errors.UnknownTopicOrPartition.code


def test_produce_does_not_create_topic(client: Any, produce: Any, batch: Any) -> None:
    assert produce(client, "never-made", batch(b"value")).error_code == errors.UnknownTopicOrPartition.code
    assert produce(client, "never-made", batch(b"value")).error_code == errors.UnknownTopicOrPartition.code


def test_unknown_partition_is_refused(client: Any, topic: str, produce: Any, batch: Any) -> None:
    for partition in (2, -1, 2**31 - 1):
        answer = produce(client, topic, batch(b"value"), partition=partition)
        assert answer.error_code == errors.UnknownTopicOrPartition.code


def test_duplicate_batch_of_producer_is_written_once(client: Any, topic: str, produce: Any, batch: Any) -> None:
    granted = client.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
    data = batch(b"a", b"b", producer_id=granted.producer_id, producer_epoch=0, base_sequence=0)
    assert produce(client, topic, data).base_offset == 0
    assert produce(client, topic, data).base_offset == 0
    after = batch(b"c", producer_id=granted.producer_id, producer_epoch=0, base_sequence=2)
    assert produce(client, topic, after).base_offset == 2
    gap = batch(b"d", producer_id=granted.producer_id, producer_epoch=0, base_sequence=9)
    assert produce(client, topic, gap).error_code == errors.OutOfOrderSequenceNumber.code


def test_producer_ids_are_unique(client: Any) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
    granted = [client.call(request, version) for _ in range(300) for version in range(5)]
    assert all(answer.error_code == 0 and answer.producer_epoch == 0 for answer in granted)
    assert len({answer.producer_id for answer in granted}) == 1500


@pytest.mark.parametrize(("transactional_id", "error"), [("", errors.InvalidRequest), ("mine", errors.NotCoordinator)])
def test_transactional_id_is_refused(client: Any, transactional_id: str, error: Any) -> None:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000)
    assert client.call(request, 4).error_code == error.code


def test_find_coordinator_of_share_groups_is_refused(client: Any) -> None:
    answer = client.call(FindCoordinatorRequest(key="mine", key_type=2), 3)
    assert answer.error_code == errors.InvalidRequest.code
    assert "not serve" in answer.error_message


def test_fetch_inside_batch_returns_whole_batch(
    client: Any, topic: str, produce: Any, batch: Any, fetch_request: Any
) -> None:
    produce(client, topic, batch(b"a", b"b", b"c"))
    partition = only_partition(client.call(fetch_request(topic, {0: 2}), 11))
    assert values_of(partition.records) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_first_batch_is_returned_above_limits(
    client: Any, topic: str, produce: Any, batch: Any, fetch_request: Any
) -> None:
    for index in (0, 1):
        produce(client, topic, batch(b"x" * 5000), partition=index)
        produce(client, topic, batch(b"y" * 5000), partition=index)
    for limits in ({"max_bytes": 1}, {"max_bytes": 0}, {"partition_max_bytes": 0}):
        [answered] = client.call(fetch_request(topic, {1: 0, 0: 0}, **limits), 11).responses
        first, second = answered.partitions
        assert [offset for offset, _ in values_of(first.records)] == [0]
        assert values_of(second.records) == []


def test_max_bytes_limits_all_partitions_together(
    client: Any, topic: str, produce: Any, batch: Any, fetch_request: Any
) -> None:
    for index in (0, 1):
        for _ in range(4):
            produce(client, topic, batch(b"x" * 1000), partition=index)
    [answered] = client.call(fetch_request(topic, {0: 0, 1: 0}, max_bytes=5000, partition_max_bytes=3000), 11).responses
    sizes = [len(partition.records) for partition in answered.partitions]
    assert sizes[0] <= 3000
    assert sum(sizes) <= 5000
    assert sizes[1] > 0


def test_fetch_outside_log_is_out_of_range(
    client: Any, topic: str, produce: Any, batch: Any, fetch_request: Any
) -> None:
    produce(client, topic, batch(b"a"))
    for offset in (2, -1, 2**63 - 1):
        request = fetch_request(topic, {0: offset}, max_wait_ms=60_000)
        assert only_partition(client.call(request, 11)).error_code == errors.OffsetOutOfRange.code


def test_unknown_partition_ends_fetch_only_without_other_partitions(
    client: Any, topic: str, fetch_request: Any
) -> None:
    request = fetch_request("no-such-topic", {0: 0}, max_wait_ms=60_000)
    assert only_partition(client.call(request, 11)).error_code == errors.UnknownTopicOrPartition.code
    [answered] = client.call(fetch_request(topic, {0: 0, 7: 0}, max_wait_ms=50), 11).responses
    assert [partition.error_code for partition in answered.partitions] == [0, errors.UnknownTopicOrPartition.code]


def test_parked_fetch_completes_on_append(
    client: Any, connect: Any, broker: Any, topic: str, produce: Any, batch: Any, fetch_request: Any
) -> None:
    waiting = connect(broker)
    waiting.send(fetch_request(topic, {0: 0, 1: 0}, max_wait_ms=60_000), 11)
    while not len(node_of(broker).purgatory):
        client.call(fetch_request(topic, {0: 0}), 11)
    produce(client, topic, batch(b"news"), partition=1)
    response, _ = waiting.receive(FetchRequest, 11)
    [answered] = response.responses
    assert [values_of(partition.records) for partition in answered.partitions] == [[], [(0, b"news")]]
    assert len(node_of(broker).purgatory) == 0


def test_parked_fetch_waits_for_min_bytes(
    client: Any, connect: Any, broker: Any, topic: str, produce: Any, batch: Any, fetch_request: Any
) -> None:
    waiting = connect(broker)
    waiting.send(fetch_request(topic, {0: 0}, max_wait_ms=60_000, min_bytes=3000), 11)
    for _ in range(3):
        produce(client, topic, batch(b"x" * 1000))
    response, _ = waiting.receive(FetchRequest, 11)
    assert len(values_of(only_partition(response).records)) == 3


def test_fetch_does_not_wait_for_more_than_its_max_bytes(
    client: Any, topic: str, produce: Any, batch: Any, fetch_request: Any
) -> None:
    produce(client, topic, batch(b"x" * 1000))
    request = fetch_request(topic, {0: 0}, max_wait_ms=60_000, min_bytes=2**31 - 1, max_bytes=500)
    assert len(values_of(only_partition(client.call(request, 11)).records)) == 1


def test_fetch_returns_available_data_after_max_wait(
    client: Any, topic: str, produce: Any, batch: Any, fetch_request: Any
) -> None:
    produce(client, topic, batch(b"a"))
    partition = only_partition(client.call(fetch_request(topic, {0: 0}, max_wait_ms=20, min_bytes=2**31 - 1), 11))
    assert values_of(partition.records) == [(0, b"a")]


def test_client_can_disconnect_while_fetch_waits(
    client: Any, connect: Any, broker: Any, topic: str, produce: Any, batch: Any, fetch_request: Any
) -> None:
    waiting = connect(broker)
    waiting.send(fetch_request(topic, {0: 0}, max_wait_ms=2**31 - 1, min_bytes=2**31 - 1), 11)
    while not len(node_of(broker).purgatory):
        client.call(fetch_request(topic, {0: 0}), 11)
    produce(client, topic, batch(b"not enough"))
    waiting.close()
    partition = only_partition(client.call(fetch_request(topic, {0: 0}), 11))
    assert values_of(partition.records) == [(0, b"not enough")]
    node = node_of(broker)
    node.loop.call_soon_threadsafe(node.purgatory.answer_all)  # later tests share the broker


def test_fetch_with_replica_id_is_refused(client: Any, topic: str, fetch_request: Any) -> None:
    partition = only_partition(client.call(fetch_request(topic, {0: 0}, replica_id=1), 11))
    assert partition.error_code == errors.NotLeaderOrFollower.code


@pytest.mark.parametrize(("epoch", "error"), [(-1, 0), (0, 0), (1, errors.UnknownLeaderEpoch.code), (-2, 0)])
def test_fetch_checks_leader_epoch(client: Any, topic: str, fetch_request: Any, epoch: int, error: int) -> None:
    request = fetch_request(topic, {0: 0})
    request.topics[0].partitions[0].current_leader_epoch = epoch
    assert only_partition(client.call(request, 11)).error_code == error


@pytest.mark.parametrize(("epoch", "offset", "expected"), [(0, 2, (-1, -1)), (0, 3, (0, 2)), (5, 1, None)])
def test_fetch_reports_diverging_epoch(
    client: Any, topic: str, produce: Any, batch: Any, fetch_request: Any, epoch: int, offset: int, expected: Any
) -> None:
    produce(client, topic, batch(b"a", b"b"))
    request = fetch_request(topic, {0: offset})
    request.topics[0].partitions[0].last_fetched_epoch = epoch
    partition = only_partition(client.call(request, 12))
    if expected is None:
        assert partition.error_code == errors.OffsetOutOfRange.code
    else:
        assert (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset) == expected
        assert partition.error_code == 0


def list_offsets(client: Any, topic: str, timestamp: int, version: int = 8, **options: Any) -> Any:
    partition = ListOffsetsPartition(
        partition_index=0, timestamp=timestamp, current_leader_epoch=options.pop("epoch", -1)
    )
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])], **options
    )
    return client.call(request, version).topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 9))
def test_list_offsets_returns_log_ends(client: Any, topic: str, produce: Any, batch: Any, version: int) -> None:
    assert list_offsets(client, topic, -1, version).offset == 0
    produce(client, topic, batch(b"a", b"b", b"c"))
    latest, earliest = list_offsets(client, topic, -1, version), list_offsets(client, topic, -2, version)
    assert (latest.offset, earliest.offset) == (3, 0)
    assert latest.timestamp == earliest.timestamp == -1
    if version >= 4:
        assert latest.leader_epoch == 0


def test_list_offsets_finds_records_by_timestamp(client: Any, topic: str, produce: Any, batch: Any) -> None:
    for timestamp in (1000, 2000, 3000):
        produce(client, topic, batch(b"a", b"b", timestamp_ms=timestamp))
    assert [list_offsets(client, topic, at).offset for at in (0, 1000, 1001, 2500, 3000, 3001)] == [0, 0, 2, 4, 4, -1]
    found = list_offsets(client, topic, 1500)
    assert (found.offset, found.timestamp, found.leader_epoch) == (2, 2000, 0)
    newest = list_offsets(client, topic, -3, 7)
    assert (newest.offset, newest.timestamp) == (4, 3000)


def test_empty_log_has_no_newest_timestamp(client: Any, topic: str) -> None:
    newest = list_offsets(client, topic, -3)
    assert (newest.error_code, newest.offset, newest.timestamp) == (0, -1, -1)


@pytest.mark.parametrize(("timestamp", "version"), [(-3, 6), (-4, 7), (-5, 8), (-10, 8), (-(2**63), 1)])
def test_special_timestamp_of_later_version_is_unsupported(
    client: Any, topic: str, timestamp: int, version: int
) -> None:
    assert list_offsets(client, topic, timestamp, version).error_code == errors.UnsupportedVersion.code


def test_list_offsets_checks_topic_and_leader_epoch(client: Any, topic: str) -> None:
    assert list_offsets(client, "nowhere", -1).error_code == errors.UnknownTopicOrPartition.code
    assert list_offsets(client, topic, -1, epoch=5).error_code == errors.UnknownLeaderEpoch.code
    assert list_offsets(client, topic, -1, epoch=0, isolation_level=1).offset == 0


def test_duplicate_partition_in_list_offsets_is_refused(client: Any, topic: str) -> None:
    twice = [ListOffsetsPartition(partition_index=0, timestamp=-1) for _ in range(2)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=twice)])
    [answer] = client.call(request, 5).topics[0].partitions
    assert answer.error_code == errors.InvalidRequest.code


@pytest.mark.parametrize("version", [2, 3, 4])
def test_offset_for_leader_epoch_returns_epoch_end(
    client: Any, topic: str, produce: Any, batch: Any, version: int
) -> None:
    produce(client, topic, batch(b"a", b"b"))

    def ask(name: str, epoch: int, current: int = -1) -> Any:
        partition = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=name, partitions=[partition])])
        [answer] = client.call(request, version).topics[0].partitions
        return answer

    assert (ask(topic, 0).leader_epoch, ask(topic, 0).end_offset) == (0, 2)
    assert (ask(topic, 7).leader_epoch, ask(topic, 7).end_offset) == (-1, -1)
    assert ask(topic, 0, current=3).error_code == errors.UnknownLeaderEpoch.code
    assert ask("nowhere", 0).error_code == errors.UnknownTopicOrPartition.code


def test_parked_fetches_of_many_consumers_get_same_record(
    client: Any, connect: Any, broker: Any, topic: str, produce: Any, batch: Any, fetch_request: Any
) -> None:
    consumers = [connect(broker) for _ in range(20)]
    for consumer in consumers:
        consumer.send(fetch_request(topic, {0: 0}, max_wait_ms=60_000), 12)
    while len(node_of(broker).purgatory) < 20:
        client.call(fetch_request(topic, {0: 0}), 11)
    produce(client, topic, batch(b"for all"))
    answers = [consumer.receive(FetchRequest, 12)[0] for consumer in consumers]
    assert all(values_of(only_partition(answer).records) == [(0, b"for all")] for answer in answers)


def test_concurrent_producers_and_consumers_lose_nothing(
    connect: Any, broker: Any, topic: str, produce: Any, batch: Any, fetch_request: Any
) -> None:
    def write(number: int) -> None:
        producer = connect(broker)
        for index in range(100):
            assert produce(producer, topic, batch(b"%d-%d" % (number, index))).error_code == 0

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for writer in writers:
        writer.start()
    seen: list[tuple[int, bytes | None]] = []
    consumer = connect(broker)
    while len(seen) < 300:
        request = fetch_request(topic, {0: len(seen)}, max_wait_ms=5000)
        seen += values_of(only_partition(consumer.call(request, 11)).records)
    for writer in writers:
        writer.join()
    assert [offset for offset, _ in seen] == list(range(300))
    for number in range(3):
        own = [value for _, value in seen if value and value.startswith(b"%d-" % number)]
        assert own == [b"%d-%d" % (number, index) for index in range(100)]
