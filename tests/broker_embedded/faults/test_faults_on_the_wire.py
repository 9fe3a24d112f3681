"""Each fault as a plain socket sees it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.errors import ClientError, KafkaTimeout
from pyclient.protocol.messages.api_versions import ApiVersionsRequest
from pyclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from pyclient.protocol.messages.heartbeat import HeartbeatRequest
from pyclient.protocol.messages.init_producer_id import InitProducerIdRequest
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pyclient.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker_embedded.nodes import node_of

ASK = MetadataRequest(topics=[])


@pytest.fixture(autouse=True)
def no_faults(broker: EmbeddedCluster) -> Iterator[None]:
    yield
    broker.faults.clear()


def two_partitions(topic: str, records: bytes, acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=records) for index in (0, 1)]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)])


def codes(response: Any) -> list[int]:
    return [each.error_code for each in response.responses[0].partition_responses]


def end_offset(client: Any, topic: str, fetch_request: Any, partition: int = 0) -> int:
    answer = client.call(fetch_request(topic, {partition: 0}), 11)
    [found] = answer.responses[0].partitions
    assert found.error_code == 0
    return int(found.high_watermark)


def abandon(client: Any, request: Any, version: int, fault: Any) -> None:
    """Send a request that the fault holds, and close the connection before it goes on."""
    client.send(request, version)
    fault.wait()
    client.close()
    fault.release()


@pytest.mark.parametrize("version", [3, 8, 9, 11])
def test_one_partition_fails_and_the_other_is_written(
    broker: Any, client: Any, topic: str, batch: Any, fetch_request: Any, version: int
) -> None:
    fault = broker.faults.fail("Produce", errors.NotLeaderOrFollower, topic=topic, partition=1)
    assert codes(client.call(two_partitions(topic, batch(b"a")), version)) == [0, 6]
    assert (end_offset(client, topic, fetch_request, 0), end_offset(client, topic, fetch_request, 1)) == (1, 0)
    assert fault.hits() == 1
    assert fault.over
    assert codes(client.call(two_partitions(topic, batch(b"a")), version)) == [0, 0]


def test_fault_after_the_append_keeps_the_record_and_returns_an_error(
    broker: Any, client: Any, topic: str, produce: Any, batch: Any, fetch_request: Any
) -> None:
    broker.faults.fail("Produce", errors.RequestTimedOut, when="after")
    answer = produce(client, topic, batch(b"a"))
    assert (answer.error_code, answer.base_offset) == (errors.RequestTimedOut.code, -1)
    assert "RequestTimedOut" in answer.error_message
    assert end_offset(client, topic, fetch_request) == 1


def test_faults_come_one_after_the_other_and_may_let_some_pass_before(
    broker: Any, client: Any, topic: str, produce: Any, batch: Any
) -> None:
    broker.faults.fail("Produce", errors.NotEnoughReplicas, skip=1, times=2)
    broker.faults.fail("Produce", 87)
    seen = [produce(client, topic, batch(b"a")).error_code for _ in range(5)]
    assert seen == [87, 19, 19, 0, 0]


def test_unknown_error_code_can_be_sent(broker: Any, client: Any, topic: str, produce: Any, batch: Any) -> None:
    broker.faults.fail("Produce", 31_000)
    assert produce(client, topic, batch(b"a")).error_code == 31_000


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_produce_without_an_answer_that_fails_costs_the_connection(
    broker: Any, connect: Any, topic: str, produce: Any, batch: Any, when: str
) -> None:
    broker.faults.fail("Produce", errors.NotLeaderOrFollower, when=when)
    client = connect(broker)
    produce(client, topic, batch(b"a"), acks=0)
    assert client.is_closed()


@pytest.mark.parametrize(("when", "written"), [("before", 0), ("after", 1)])
def test_a_disconnect_is_before_or_after_the_work(
    broker: Any, client: Any, connect: Any, topic: str, batch: Any, fetch_request: Any, when: str, written: int
) -> None:
    fault = broker.faults.disconnect("Produce", topic=topic, when=when)
    other = connect(broker)
    other.send(two_partitions(topic, batch(b"a")), 9)
    assert other.is_closed()
    assert fault.hits() == 1
    assert end_offset(client, topic, fetch_request) == written


@pytest.mark.parametrize(("when", "written"), [("before", 0), ("after", 1)])
def test_dropped_request_and_those_after_it_get_no_answer(
    broker: Any, client: Any, connect: Any, topic: str, batch: Any, fetch_request: Any, when: str, written: int
) -> None:
    fault = broker.faults.drop("Produce", when=when)
    other = connect(broker)
    other.send(two_partitions(topic, batch(b"a")), 9)
    assert fault.wait() == 1
    other.send(ASK, 1)
    assert end_offset(client, topic, fetch_request) == written
    other.socket.settimeout(0.1)
    with pytest.raises(TimeoutError):
        other.socket.recv(1)
    other.socket.settimeout(30)  # a busy broker closes it later than in 0.1 s
    broker.faults.clear()
    assert other.is_closed()


@pytest.mark.parametrize(("when", "written"), [("before", 0), ("after", 1)])
def test_held_request_is_served_when_it_is_released(
    broker: Any, client: Any, connect: Any, topic: str, batch: Any, fetch_request: Any, when: str, written: int
) -> None:
    with broker.faults.hold("Produce", topic=topic, times=None, when=when) as fault:
        others = [connect(broker) for _ in range(2)]
        for other in others:
            other.send(two_partitions(topic, batch(b"a")), 9)
        assert fault.wait(2) == 2
        assert fault.held == 2
        assert end_offset(client, topic, fetch_request) == 2 * written
        fault.release()
        for other in others:
            assert codes(other.receive(ProduceRequest, 9)[0]) == [0, 0]
        assert codes(client.call(two_partitions(topic, batch(b"a")), 9)) == [0, 0]
        assert (fault.hits(), fault.held, fault.over) == (2, 0, True)
    assert end_offset(client, topic, fetch_request) == 3


def test_a_delay_ends_when_the_broker_s_time_has_passed(broker: Any, client: Any) -> None:
    fault = broker.faults.delay("Metadata", 3600)
    sent = client.send(ASK, 1)
    fault.wait()
    broker.advance_time(3600)
    assert client.receive(MetadataRequest, 1)[1] == sent


def test_a_delay_and_an_error_meet_in_one_request(broker: Any, client: Any) -> None:
    slow = broker.faults.delay("InitProducerId", 0.01, times=None)
    failing = broker.faults.fail("InitProducerId", errors.CoordinatorLoadInProgress)
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    assert client.call(request, 4).error_code == errors.CoordinatorLoadInProgress.code
    assert client.call(request, 4).error_code == 0
    assert (slow.hits(), failing.hits()) == (2, 1)


def test_a_fetch_that_waits_is_answered_at_once_where_a_partition_fails(
    broker: Any, client: Any, topic: str, fetch_request: Any
) -> None:
    broker.faults.fail("Fetch", errors.NotLeaderOrFollower, topic=topic, partition=1)
    response = client.call(fetch_request(topic, {0: 0, 1: 0}, max_wait_ms=60_000), 11)
    assert {each.partition_index: each.error_code for each in response.responses[0].partitions} == {0: 0, 1: 6}


def test_a_partition_that_only_the_fetch_session_names_fails_too(
    broker: Any, client: Any, topic: str, fetch_request: Any
) -> None:
    first = client.call(fetch_request(topic, {0: 0, 1: 0}, session_epoch=0), 12)
    assert first.session_id > 0
    fault = broker.faults.fail("Fetch", errors.NotLeaderOrFollower, topic=topic, partition=1)
    again = fetch_request(topic, {}, session_id=first.session_id, session_epoch=1, max_wait_ms=60_000)
    again.topics = []
    response = client.call(again, 12)
    [partition] = response.responses[0].partitions
    assert (response.error_code, partition.partition_index, partition.error_code) == (0, 1, 6)
    assert fault.hits() == 1


def test_a_fetch_whose_session_is_said_to_be_unknown_fails_as_a_whole(
    broker: Any, client: Any, topic: str, fetch_request: Any
) -> None:
    broker.faults.fail("Fetch", "FETCH_SESSION_ID_NOT_FOUND")
    response = client.call(fetch_request(topic, {0: 0}), 12)
    assert (response.error_code, response.responses) == (errors.FetchSessionIdNotFound.code, [])


def test_records_that_were_read_for_nothing_give_their_files_back(
    broker: Any, client: Any, connect: Any, topic: str, produce: Any, batch: Any, fetch_request: Any
) -> None:
    produce(client, topic, batch(b"a" * 1000))
    files = node_of(broker).logs.get(topic, 0).segments
    broker.faults.fail("Fetch", errors.NotLeaderOrFollower, when="after")
    broker.faults.disconnect("Fetch", when="after")
    [failed] = client.call(fetch_request(topic, {0: 0}), 11).responses[0].partitions
    assert (failed.error_code, failed.records) == (6, b"")
    other = connect(broker)
    other.send(fetch_request(topic, {0: 0}), 11)
    assert other.is_closed()
    [read] = client.call(fetch_request(topic, {0: 0}), 11).responses[0].partitions
    assert read.error_code == 0
    assert len(read.records) > 1000
    assert files is node_of(broker).logs.get(topic, 0).segments


@pytest.mark.parametrize("version", [0, 4, 12])
def test_metadata_still_has_the_brokers_when_its_topic_fails(
    broker: Any, client: Any, topic: str, version: int
) -> None:
    broker.faults.fail("Metadata", errors.LeaderNotAvailable, topic="nobody-has-made-this")
    broker.faults.fail("Metadata", errors.LeaderNotAvailable, topic=topic)
    names = ["nobody-has-made-this", topic]
    for name in names:
        response = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), version)
        assert [broker.node_id for broker in response.brokers] == [1]
        assert [(each.name, each.error_code, each.partitions) for each in response.topics] == [(name, 5, [])]
    everything = client.call(MetadataRequest(topics=None if version else []), version)
    assert topic in [each.name for each in everything.topics]
    assert names[0] not in [each.name for each in everything.topics]


def test_one_partition_of_metadata_has_no_leader(broker: Any, client: Any, topic: str) -> None:
    broker.faults.fail("Metadata", errors.LeaderNotAvailable, topic=topic, partition=1)
    [found] = client.call(MetadataRequest(topics=None), 8).topics[-1:]
    partitions = {each.partition_index: (each.error_code, each.leader_id) for each in found.partitions}
    assert found.name == topic
    assert partitions == {0: (0, 1), 1: (5, -1)}


def test_unsupported_version_of_api_versions_is_answered_in_version_0(broker: Any, client: Any) -> None:
    broker.faults.fail("ApiVersions", errors.UnsupportedVersion)
    client.send(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
    answer, _ = client.receive(ApiVersionsRequest, 0)
    assert answer.error_code == errors.UnsupportedVersion.code


@pytest.mark.parametrize("version", [0, 3, 4])
def test_a_coordinator_is_looked_for_by_group(broker: Any, client: Any, version: int) -> None:
    fault = broker.faults.fail("FindCoordinator", errors.CoordinatorNotAvailable, group="g1", times=None)

    def ask(group: str) -> int:
        if version < 4:
            return int(client.call(FindCoordinatorRequest(key=group, key_type=0), version).error_code)
        [found] = client.call(FindCoordinatorRequest(coordinator_keys=[group], key_type=0), version).coordinators
        assert found.key == group
        return int(found.error_code)

    assert (ask("g0"), ask("g1"), ask("g2")) == (0, errors.CoordinatorNotAvailable.code, 0)
    assert fault.hits() == 1


def test_only_the_client_or_group_that_is_meant_meets_a_fault(broker: Any, client: Any) -> None:
    client.call(FindCoordinatorRequest(key="g"), 1)  # without it a Heartbeat is answered with NOT_COORDINATOR
    others = broker.faults.fail("*", errors.UnknownServerError, client="some-other-*", times=None)
    mine = broker.faults.fail("Heartbeat", errors.RebalanceInProgress, client="ra*", group="g-*", times=None)
    beat = [HeartbeatRequest(group_id=group, generation_id=1, member_id="m") for group in ("g-1", "h-1")]
    assert [client.call(each, 4).error_code for each in beat] == [
        errors.RebalanceInProgress.code,
        errors.UnknownMemberId.code,
    ]
    assert (others.hits(), mine.hits()) == (0, 1)


def test_a_fault_of_all_apis_leaves_those_alone_that_have_no_topic(broker: Any, client: Any, topic: str) -> None:
    fault = broker.faults.disconnect("*", topic=topic)
    assert client.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4).error_code == 0
    client.send(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9)
    assert client.is_closed()
    assert fault.hits() == 1


def test_connections_call_handlers_directly_without_faults(broker: Any, client: Any) -> None:
    assert node_of(broker).interceptor is None
    with broker.faults.delay("Produce", 1) as fault:
        assert node_of(broker).interceptor is not None
        assert client.call(ASK, 1).controller_id == 1
        assert fault.hits() == 0
    assert node_of(broker).interceptor is None


def test_waiting_for_what_does_not_come_says_what_is_there(broker: Any) -> None:
    fault = broker.faults.fail("Produce", errors.NotLeaderOrFollower)
    with pytest.raises(KafkaTimeout, match=r"1 hits are waited for.*fail next 1 Produce.*0 hits"):
        fault.wait(timeout=0.05)
    fault.cancel()
    with pytest.raises(ClientError, match="is over after 0 requests"):
        fault.wait()


def test_a_thread_may_wait_while_another_sends(broker: Any, client: Any) -> None:
    fault = broker.faults.delay("Metadata", 0, times=None)
    counted: list[int] = []
    waiting = threading.Thread(target=lambda: counted.append(fault.wait(3)))
    waiting.start()
    for _ in range(3):
        client.call(ASK, 1)
    waiting.join(30)
    assert counted == [3]


def test_held_request_is_served_even_if_its_client_is_gone(
    broker: Any, client: Any, connect: Any, topic: str, batch: Any, fetch_request: Any
) -> None:
    fault = broker.faults.hold("Produce", topic=topic)
    abandon(connect(broker), two_partitions(topic, batch(b"a")), 9, fault)
    while node_of(broker).interceptor is not None:
        client.call(ASK, 1)
    assert end_offset(client, topic, fetch_request) == 1


def test_held_fetch_response_releases_its_files_when_its_client_is_gone(
    broker: Any, client: Any, connect: Any, topic: str, produce: Any, batch: Any, fetch_request: Any
) -> None:
    produce(client, topic, batch(b"a"))
    fault = broker.faults.hold("Fetch", when="after", topic=topic)
    abandon(connect(broker), fetch_request(topic, {0: 0}), 11, fault)
    while node_of(broker).interceptor is not None:
        client.call(ASK, 1)
    assert end_offset(client, topic, fetch_request) == 1


def test_a_cluster_closes_with_requests_held_and_dropped(connect: Any) -> None:
    with EmbeddedCluster() as cluster:
        held, dropped = cluster.faults.hold("Metadata"), cluster.faults.drop("InitProducerId")
        clients = [connect(cluster) for _ in range(2)]
        clients[0].send(ASK, 1)
        clients[1].send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
        held.wait()
        dropped.wait()
    assert all(client.is_closed() for client in clients)
