"""Names as long as the protocol has them, names with control characters, and numbers at the edge of their types."""

from __future__ import annotations

import logging
import os
import socket
from typing import Any

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.config.broker_config import BrokerConfig
from pyclient.broker_embedded.served_apis import SERVED
from pyclient.protocol.kinds import ZERO_UUID, ArrayOf, Fixed, Nested, RecordData, Text
from pyclient.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from pyclient.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pyclient.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pyclient.protocol.messages.fetch import FetchRequest, ForgottenTopic
from pyclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from pyclient.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pyclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyclient.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pyclient.protocol.parts import fields_of
from pyclient.protocol.versions import API_KEYS, request_class
from tests.broker_embedded.nodes import node_of
from tests.waiting import until

ASK = MetadataRequest(topics=[])
LONGEST = "n" * 32_767
FORGED = "x\n2026-01-01 00:00:00 ERROR all is lost\x1b[2J\u202e"
OBJECTS = ("metadata.version", "feature_level", "api_key", "name", "__class__", "__dict__", "items", "version", "")
WAITING = {"JoinGroup", "SyncGroup"}  # for members that do not come


def filled_with(cls: Any, version: int, text: str, number: int) -> Any:
    """Return a message with that text in every string, that number where it fits, and one item in every array."""

    def value(kind: Any) -> Any:
        if isinstance(kind, Nested):
            return filled_with(kind.cls, version, text, number)
        if isinstance(kind, ArrayOf):
            return [value(kind.item)]
        if isinstance(kind, Text):
            return text
        if isinstance(kind, RecordData) or not isinstance(kind, Fixed):
            return b""
        if kind.name in ("Bool", "Uuid", "Float64"):
            return {"Bool": number > 0, "Uuid": ZERO_UUID, "Float64": float(number)}[kind.name]
        bits = 8 * kind.size - (not kind.code.isupper())
        return max(min(number, 2**bits - 1), 0 if kind.code.isupper() else -(2**bits))

    return cls(**{each.name: value(each.kind) for each in fields_of(cls) if each.present_in(version)})


@pytest.mark.parametrize("name", sorted(SERVED.keys() - WAITING))
def test_every_api_answers_extreme_names_and_numbers(
    name: str, connect: Any, broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker logs no failure, no response exceeds its field limits, and no log line can be forged."""
    caplog.set_level(logging.INFO)
    for text in (LONGEST, FORGED, *OBJECTS):
        for number in (0, 2**63 - 1, -(2**63)):
            for version in {SERVED[name].first, SERVED[name].last}:
                _ask(connect(broker), name, version, filled_with(request_class(API_KEYS[name]), version, text, number))
    assert connect(broker).call(ASK, 9).controller_id == 1
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
    lines = [record.getMessage() for record in caplog.records]
    assert [line[:200] for line in lines if not line.isprintable() or len(line) > 3000] == []


def _ask(client: Any, name: str, version: int, request: Any) -> None:
    if name == "Fetch":
        request.max_wait_ms = min(request.max_wait_ms, 1)
    if name == "Produce":
        request.acks = -1
    client.send(request, version)
    if not name.endswith("Acls"):  # an unknown enumeration value closes the connection
        client.receive(type(request), version)
    client.close()


def test_name_too_long_for_response_fails_only_its_partition(client: Any, topic: str, batch: Any) -> None:
    records = batch(b"value")
    data = [
        TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=records)])
        for name in (topic, LONGEST)
    ]
    response = client.call(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data), 8)
    found = {each.name: each.partition_responses[0] for each in response.responses}
    assert (found[topic].error_code, found[topic].base_offset) == (0, 0)
    assert found[LONGEST].error_code == 3
    assert len(found[LONGEST].error_message) < 1100


def test_resource_named_like_feature_is_no_feature(client: Any) -> None:
    name = "metadata.version"
    wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    assert client.call(CreateTopicsRequest(topics=[wanted]), 7).topics[0].error_code in (0, 36)
    user = ScramCredentialUpsertion(name=name, mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32))
    answer = client.call(AlterUserScramCredentialsRequest(deletions=[], upsertions=[user]), 0)
    assert answer.results[0].error_code == 0
    for kind in (4, 16, 32):  # broker, client metrics, group: an unknown option is refused or stored
        resource = AlterConfigsResource(
            resource_type=kind,
            resource_name="" if kind == 4 else name,
            configs=[AlterableConfig(name=name, config_operation=0, value="1")],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        assert client.call(request, 1).responses[0].error_code in (0, 40, 42)


def test_removed_member_cannot_forge_log_line(
    client: Any, broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    group = f"group {FORGED}"
    client.call(FindCoordinatorRequest(key=group, key_type=0), 3)
    joining = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=f"member {FORGED}",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert client.call(joining, 1).error_code == 0
    with caplog.at_level(logging.INFO):
        broker.advance_time(3600)
        until(lambda: "removing member" in caplog.text)
    assert all(record.getMessage().isprintable() for record in caplog.records)


def test_retention_beyond_int64_is_limited(client: Any, topic: str) -> None:
    client.call(FindCoordinatorRequest(key="late", key_type=0), 3)
    partitions = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=7, committed_metadata="")
        for number in range(2)
    ]
    request = OffsetCommitRequest(
        group_id="late",
        retention_time_ms=2**63 - 1,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)],
    )
    assert [each.error_code for each in client.call(request, 4).topics[0].partitions] == [0, 0]


def test_fetch_session_is_usable_on_two_connections(
    connect: Any, broker: EmbeddedCluster, topic: str, fetch_request: Any, produce: Any, batch: Any
) -> None:
    """The second connection continues the session while the first one waits: the first request fails."""
    first, second, third = (connect(broker) for _ in range(3))
    session = first.call(fetch_request(topic, {0: 0, 1: 0}, session_id=0, session_epoch=0), 11).session_id
    assert session
    first.send(fetch_request(topic, {}, session_id=session, session_epoch=1, max_wait_ms=20_000), 11)
    until(lambda: len(node_of(broker).purgatory) == 1)
    forgotten = [ForgottenTopic(topic=topic, partitions=[0])]
    request = fetch_request(topic, {}, session_id=session, session_epoch=2, forgotten_topics_data=forgotten)
    assert second.call(request, 11).error_code == 0
    assert produce(third, topic, batch(b"value")).error_code == 0  # to the partition removed from the session
    response, _ = first.receive(FetchRequest, 11)
    assert response.error_code == 71  # INVALID_FETCH_SESSION_EPOCH


def altered(client: Any, name: str, value: str | None) -> Any:
    configs = [AlterableConfig(name=name, config_operation=0 if value is not None else 1, value=value)]
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=configs)
    return client.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1).responses[0]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("max.connections", "0", "Invalid max.connections 0 for configuration"),
        ("max.connections", "1_000", "whole number"),
        ("max.connections.per.ip", "0", "can be set to zero only if max.connections.per.ip.overrides"),
        ("max.connections.per.ip.overrides", "nonsense", "max.connections.per.ip.overrides"),
        ("max.connections.per.ip.overrides", "127.0.0.1:99999999999", "max.connections.per.ip.overrides"),
        ("max.connection.creation.rate", "0", "at least 1"),
    ],
)
def test_connection_limits_without_clients_are_refused(client: Any, name: str, value: str, text: str) -> None:
    """As in Kafka 4.3.1: no client could connect to change them back, even after a restart."""
    answer = altered(client, name, value)
    assert answer.error_code == 42
    assert text in answer.error_message
    assert client.call(ASK, 9).controller_id == 1


def test_per_ip_limit_of_0_is_accepted_with_overrides(client: Any) -> None:
    assert altered(client, "max.connections.per.ip.overrides", "127.0.0.1:100").error_code == 0
    try:
        assert altered(client, "max.connections.per.ip", "0").error_code == 0
        assert altered(client, "max.connections.per.ip", None).error_code == 0
    finally:
        assert altered(client, "max.connections.per.ip.overrides", None).error_code == 0


def test_stored_connection_limits_without_clients_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    config = BrokerConfig.build(data_dir="/nowhere")
    changed = config.with_dynamic({"max.connections": "0", "max.connections.per.ip": "0", "log.roll.ms": "86400000"})
    assert changed.integer("max.connections") == changed.integer("max.connections.per.ip") == 2**31 - 1
    assert changed.explicit["log.roll.ms"] == "86400000"
    assert "no client could connect" in caplog.text


def test_request_for_too_many_records_is_refused_as_a_whole(client: Any, broker: EmbeddedCluster) -> None:
    """The limit is 10,000 records; as in Kafka 4.3.1 the whole request is refused."""

    def created(*topics: tuple[str, int]) -> set[tuple[int, str | None]]:
        wanted = [
            CreatableTopic(name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[])
            for name, count in topics
        ]
        answers = client.call(CreateTopicsRequest(topics=wanted, validate_only=True), 7).topics
        return {(answer.error_code, answer.error_message) for answer in answers}

    assert created(*((f"many{number}", 1) for number in range(5001))) == {
        (44, "Unable to perform excessively large batch operation.")
    }
    assert created(("two", 6000), ("three", 6000)) == {(44, "Excessively large number of partitions per request.")}
    assert created(("one", 10_000)) == {(44, "Unable to perform excessively large batch operation.")}
    assert created(("one", 9999)) == {(0, None)}
    names = [MetadataRequestTopic(name=f"auto{number}") for number in range(5001)]
    assert {each.error_code for each in client.call(MetadataRequest(topics=names), 9).topics} == {3}


def test_accepted_socket_has_keepalive(client: Any, broker: EmbeddedCluster) -> None:
    client.call(ASK, 9)
    node = node_of(broker)
    connections = list(node.connections.values())
    assert connections
    for connection in connections:
        with socket.socket(fileno=os.dup(connection.stream.fileno())) as same:
            assert same.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
