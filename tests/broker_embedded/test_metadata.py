"""Metadata: all topics, some, by id; auto-creation and its limits."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.protocol.messages.describe_cluster import DescribeClusterRequest
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic


def ask(client: Any, *names: str, version: int = 9, **options: Any) -> Any:
    return client.call(MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **options), version)


@pytest.mark.parametrize("version", range(13))
def test_every_version_has_brokers_and_topics(client: Any, broker: Any, topic: str, version: int) -> None:
    response = ask(client, topic, version=version)
    [node] = response.brokers
    assert f"{node.host}:{node.port}" == broker.bootstrap_servers
    [found] = response.topics
    assert (found.error_code, found.name, len(found.partitions)) == (0, topic, 2)
    if version >= 1:
        assert response.controller_id == node.node_id == 1
    if version >= 2:
        assert len(response.cluster_id) == 22


@pytest.mark.parametrize(("version", "all_topics"), [(0, []), (1, None), (9, None), (12, None)])
def test_null_topics_request_all_topics(client: Any, topic: str, version: int, all_topics: Any) -> None:
    response = client.call(MetadataRequest(topics=all_topics), version)
    assert topic in {found.name for found in response.topics}


def test_empty_list_requests_no_topic_since_version_1(client: Any, topic: str) -> None:
    assert ask(client, version=1).topics == []


def test_unknown_topic_is_created_on_request(client: Any) -> None:
    [found] = ask(client, "made-by-asking").topics
    assert found.error_code == 0
    assert [partition.leader_id for partition in found.partitions] == [1]


def test_unknown_topic_is_not_created_if_client_forbids_it(client: Any) -> None:
    [found] = ask(client, "not-wanted", allow_auto_topic_creation=False).topics
    assert (found.error_code, found.partitions) == (errors.UnknownTopicOrPartition.code, [])


def test_auto_creation_can_be_disabled(connect: Any) -> None:
    with EmbeddedCluster(config={"auto.create.topics.enable": "false"}) as cluster:
        [found] = ask(connect(cluster), "forbidden", version=1).topics
        assert found.error_code == errors.UnknownTopicOrPartition.code


@pytest.mark.parametrize("name", ["", "..", "a/b", "x" * 250])
def test_topic_with_invalid_name_is_not_created(client: Any, name: str) -> None:
    [found] = ask(client, name).topics
    assert found.error_code == errors.InvalidTopic.code


def test_topic_with_colliding_name_is_not_created(client: Any) -> None:
    ask(client, "collides.here")
    [found] = ask(client, "collides_here").topics
    assert found.error_code == errors.InvalidTopic.code


def test_topic_is_described_by_id(client: Any, topic: str) -> None:
    topic_id = ask(client, topic, version=12).topics[0].topic_id
    wanted = [MetadataRequestTopic(name=None, topic_id=one) for one in (topic_id, uuid.UUID(int=9))]
    found, unknown = client.call(MetadataRequest(topics=wanted), 12).topics
    assert (found.error_code, found.name) == (0, topic)
    assert (unknown.error_code, unknown.name, unknown.topic_id) == (errors.UnknownTopicId.code, None, uuid.UUID(int=9))


def test_authorized_operations_are_included_on_request(client: Any, topic: str) -> None:
    assert ask(client, topic, version=8).topics[0].topic_authorized_operations == -(2**31)
    described = ask(client, topic, version=8, include_topic_authorized_operations=True)
    assert described.topics[0].topic_authorized_operations == sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))


@pytest.mark.parametrize("version", [0, 1])
def test_describe_cluster_equals_metadata(client: Any, version: int) -> None:
    metadata = ask(client, version=7)
    response = client.call(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    assert (response.cluster_id, response.controller_id) == (metadata.cluster_id, 1)
    assert [(node.broker_id, node.port) for node in response.brokers] == [(1, metadata.brokers[0].port)]
    assert response.cluster_authorized_operations > 0


@pytest.mark.parametrize(
    ("endpoint_type", "error"), [(2, errors.MismatchedEndpointType), (7, errors.UnsupportedEndpointType)]
)
def test_describe_cluster_refuses_other_endpoint_types(client: Any, endpoint_type: int, error: Any) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=endpoint_type)
    assert client.call(request, 1).error_code == error.code


def test_broker_on_all_addresses_advertises_address_of_connection(connect: Any) -> None:
    with EmbeddedCluster(host="0.0.0.0") as cluster:
        [node] = ask(connect(cluster)).brokers
        assert node.host == "127.0.0.1"
