"""Answers that depend on rights: what is listed, which operations are named as authorised, what is created."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyclient import errors
from pyclient.acls import CLUSTER_NAME, AclBinding, AclOperation, AclPermission, ResourceType
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pyclient.protocol.messages.describe_cluster import DescribeClusterRequest
from pyclient.protocol.messages.describe_groups import DescribeGroupsRequest
from pyclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from pyclient.protocol.messages.init_producer_id import InitProducerIdRequest
from pyclient.protocol.messages.list_groups import ListGroupsRequest
from pyclient.protocol.messages.list_transactions import ListTransactionsRequest
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pyclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.broker_embedded.conftest import RawClient
from tests.broker_embedded.security.rights_client import USERS, logged_in, make_topic, replace_acls
from tests.waiting import until

CLUSTER, TOPIC, GROUP = ResourceType.CLUSTER, ResourceType.TOPIC, ResourceType.GROUP
TRANSACTION = ResourceType.TRANSACTIONAL_ID
DESCRIBE, READ, DELETE, CREATE = AclOperation.DESCRIBE, AclOperation.READ, AclOperation.DELETE, AclOperation.CREATE
ALTER, ALL = AclOperation.ALTER, AclOperation.ALL
OF_CLUSTER = [
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
]
OF_GROUPS = [READ, DELETE, DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS]
NOT_REQUESTED = -(2**31)
Acls = Callable[..., RawClient]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """Yield a broker with two groups and two transactional ids."""
    options = {"super.users": "User:admin", "log.flush.interval.messages": "1000000"}
    with EmbeddedCluster(security="SASL_PLAINTEXT", users=USERS, acls=[], config=options) as cluster:
        admin = logged_in(cluster.bootstrap_servers, "admin")
        make_topic(admin)
        for group in ("g1", "g2"):
            until(lambda group=group: is_committed(admin, group))  # type: ignore[misc]  # when its coordinator is there
        for name in ("x1", "x2"):
            until(lambda name=name: has_producer_id(admin, name))  # type: ignore[misc]
        admin.close()
        yield cluster


def is_committed(client: RawClient, group: str) -> bool:
    """Commit an offset of a group; return False if its coordinator is not ready."""
    client.call(FindCoordinatorRequest(key=group, key_type=0), 3)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name="rights", partitions=[partition])]
    request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)
    [topic] = client.call(request, 8).topics
    return bool(topic.partitions[0].error_code == 0)


def has_producer_id(client: RawClient, name: str) -> bool:
    client.call(FindCoordinatorRequest(key=name, key_type=1), 3)
    answer = client.call(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=9000), 4)
    return bool(answer.error_code == 0)


@pytest.fixture
def alice(cluster: EmbeddedCluster) -> Iterator[Acls]:
    """Give alice ACLs in place of former ones; return a connection of hers."""
    admin = logged_in(cluster.bootstrap_servers, "admin")
    client = logged_in(cluster.bootstrap_servers, "alice")

    def give(*acls: tuple[ResourceType, str, AclOperation]) -> RawClient:
        replace_acls(admin, [AclBinding(kind, name, "User:alice", operation) for kind, name, operation in acls])
        return client

    yield give
    admin.close()
    client.close()


def bits(*operations: AclOperation) -> int:
    return sum(1 << each for each in operations)


@pytest.mark.parametrize(
    ("given", "listed"),
    [
        ([], []),
        ([(GROUP, "g1", DESCRIBE)], ["g1"]),
        ([(GROUP, "g2", READ)], ["g2"]),
        ([(GROUP, "*", DELETE)], ["g1", "g2"]),
        ([(GROUP, "g1", AclOperation.DESCRIBE_CONFIGS)], []),
        ([(CLUSTER, CLUSTER_NAME, DESCRIBE)], ["g1", "g2"]),
        ([(CLUSTER, CLUSTER_NAME, ALTER)], ["g1", "g2"]),
        ([(CLUSTER, CLUSTER_NAME, CREATE)], []),
    ],
)
def test_only_groups_that_a_client_may_describe_are_listed(alice: Acls, given: Any, listed: list[str]) -> None:
    answer = alice(*given).call(ListGroupsRequest(), 4)
    assert answer.error_code == 0
    assert sorted(group.group_id for group in answer.groups) == listed


@pytest.mark.parametrize(
    ("given", "listed"),
    [
        ([], []),
        ([(TRANSACTION, "x1", DESCRIBE)], ["x1"]),
        ([(TRANSACTION, "x2", AclOperation.WRITE)], ["x2"]),
        ([(TRANSACTION, "*", ALL)], ["x1", "x2"]),
        ([(CLUSTER, CLUSTER_NAME, ALL)], []),
    ],
)
def test_only_transactions_that_a_client_may_describe_are_listed(alice: Acls, given: Any, listed: list[str]) -> None:
    answer = alice(*given).call(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 0)
    assert answer.error_code == 0
    assert sorted(each.transactional_id for each in answer.transaction_states) == listed


@pytest.mark.parametrize(
    ("given", "operations"),
    [
        ([], 0),
        ([CREATE], 0),  # nothing, if the cluster may not be described
        ([DESCRIBE], bits(DESCRIBE)),
        ([DESCRIBE, CREATE], bits(DESCRIBE, CREATE)),
        ([ALTER], bits(DESCRIBE, ALTER)),
        ([ALL], bits(*OF_CLUSTER)),
    ],
)
def test_operations_of_the_cluster_are_those_that_a_client_may_do(alice: Acls, given: Any, operations: int) -> None:
    client = alice(*[(CLUSTER, CLUSTER_NAME, operation) for operation in given])
    answer = client.call(DescribeClusterRequest(include_cluster_authorized_operations=True), 0)
    assert answer.error_code == 0
    assert answer.brokers
    assert answer.cluster_authorized_operations == operations
    metadata = client.call(MetadataRequest(topics=[], include_cluster_authorized_operations=True), 9)
    assert metadata.cluster_authorized_operations == operations
    unasked = client.call(DescribeClusterRequest(include_cluster_authorized_operations=False), 0)
    assert unasked.cluster_authorized_operations == NOT_REQUESTED


@pytest.mark.parametrize(
    ("given", "operations"),
    [
        ([DESCRIBE], bits(DESCRIBE)),
        ([READ], bits(READ, DESCRIBE)),
        ([DELETE, AclOperation.DESCRIBE_CONFIGS], bits(DELETE, DESCRIBE, AclOperation.DESCRIBE_CONFIGS)),
        ([ALL], bits(*OF_GROUPS)),
    ],
)
def test_operations_of_a_group_are_those_that_a_client_may_do(alice: Acls, given: Any, operations: int) -> None:
    client = alice(*[(GROUP, "g1", operation) for operation in given])
    groups = client.call(DescribeGroupsRequest(groups=["g1", "g2"], include_authorized_operations=True), 5).groups
    found = {group.group_id: (group.error_code, group.authorized_operations) for group in groups}
    assert found == {"g1": (0, operations), "g2": (errors.GroupAuthorizationFailed.code, NOT_REQUESTED)}
    [unasked] = client.call(DescribeGroupsRequest(groups=["g1"]), 5).groups
    assert unasked.authorized_operations == NOT_REQUESTED


def test_denied_operation_of_the_cluster_is_not_named(cluster: EmbeddedCluster, alice: Acls) -> None:
    client = alice()
    admin = logged_in(cluster.bootstrap_servers, "admin")
    allowed = AclBinding(CLUSTER, CLUSTER_NAME, "User:alice", ALL)
    denied = AclBinding(CLUSTER, CLUSTER_NAME, "User:*", CREATE, AclPermission.DENY)
    replace_acls(admin, [allowed, denied])
    answer = client.call(DescribeClusterRequest(include_cluster_authorized_operations=True), 0)
    assert answer.cluster_authorized_operations == bits(*(each for each in OF_CLUSTER if each is not CREATE))
    admin.close()


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ([], errors.TopicAuthorizationFailed.code),
        ([(TOPIC, "*", DESCRIBE)], errors.TopicAuthorizationFailed.code),
        ([(TOPIC, "*", DESCRIBE), (CLUSTER, CLUSTER_NAME, CREATE)], 0),
        ([(TOPIC, "*", DESCRIBE), (TOPIC, "*", CREATE)], 0),
        ([(CLUSTER, CLUSTER_NAME, CREATE)], errors.TopicAuthorizationFailed.code),
    ],
)
def test_topic_is_created_by_metadata_only_with_the_right_to_create_it(alice: Acls, given: Any, code: int) -> None:
    name = f"auto-{uuid.uuid4().hex}"
    client = alice(*given)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    assert [topic.error_code for topic in client.call(request, 9).topics] == [code]
    described = alice((TOPIC, "*", DESCRIBE)).call(
        MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False), 9
    )
    assert [topic.error_code for topic in described.topics] == [code and errors.UnknownTopicOrPartition.code]


def test_topic_without_the_right_to_describe_its_options_hides_them(alice: Acls) -> None:
    def created(*more: tuple[ResourceType, str, AclOperation]) -> Any:
        topic = CreatableTopic(
            name=f"made-{uuid.uuid4().hex}", num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        client = alice((CLUSTER, CLUSTER_NAME, CREATE), *more)
        [made] = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=9000), 7).topics
        assert made.error_code == 0
        return made

    hidden, shown = created(), created((TOPIC, "*", AclOperation.DESCRIBE_CONFIGS))
    assert (hidden.topic_config_error_code, bool(hidden.configs)) == (errors.TopicAuthorizationFailed.code, False)
    assert shown.topic_config_error_code == 0
    assert shown.configs
