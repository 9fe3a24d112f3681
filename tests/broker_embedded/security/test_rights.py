"""Each API without a right that it needs, with it, and with a DENY."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from pyclient.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.authorizer.rights import RIGHTS
from pyclient.broker_embedded.faults.shapes import error_codes
from pyclient.broker_embedded.served_apis import CONTROLLER_SERVED, SERVED
from pyclient.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from pyclient.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pyclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pyclient.protocol.messages.sasl_handshake import SaslHandshakeRequest
from pyclient.protocol.versions import API_KEYS, request_class
from tests.broker_embedded.admin_replay import message_of
from tests.broker_embedded.conftest import RawClient
from tests.broker_embedded.security.right_cases import CASES, REFUSALS, Case, Right

USERS = {"alice": "hers", "admin": "his"}


def logged_in(cluster: EmbeddedCluster, user: str) -> RawClient:
    client = RawClient(cluster.bootstrap_servers)
    client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = client.call(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{USERS[user]}".encode()), 2)
    assert answer.error_code == 0
    return client


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    options = {"super.users": "User:admin", "log.flush.interval.messages": "1000000"}
    with EmbeddedCluster(security="SASL_PLAINTEXT", users=USERS, acls=[], config=options) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(cluster: EmbeddedCluster) -> Iterator[RawClient]:
    client = logged_in(cluster, "admin")
    client.call(MetadataRequest(topics=[MetadataRequestTopic(name="rights")], allow_auto_topic_creation=True), 9)
    yield client
    client.close()


def set_acls(admin: RawClient, acls: list[AclBinding]) -> None:
    """Replace alice's ACLs."""
    every = DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    admin.call(DeleteAclsRequest(filters=[every]), 3)
    creations = [
        AclCreation(
            resource_type=int(acl.resource_type),
            resource_name=acl.name,
            resource_pattern_type=int(acl.pattern),
            principal=acl.principal,
            host=acl.host,
            operation=int(acl.operation),
            permission_type=int(acl.permission),
        )
        for acl in acls
    ]
    answer = admin.call(CreateAclsRequest(creations=creations), 3)
    assert not any(each.error_code for each in answer.results)


def acl(right: Right, permission: AclPermission = AclPermission.ALLOW) -> AclBinding:
    return AclBinding(right.kind, right.name, "User:alice", right.operation, permission)


def refusals(cluster: EmbeddedCluster, case: Case) -> set[int]:
    """Return the codes of missing rights in the answer to alice."""
    request = message_of(request_class(API_KEYS[case.api]), case.fields)
    with contextlib.closing(logged_in(cluster, "alice")) as client:
        answer = client.call(request, case.version)
    return REFUSALS.intersection(error_codes(case.api, case.version, answer))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
@pytest.mark.parametrize("rights", ["without", "denied", "with"])
def test_an_api_needs_its_rights(cluster: EmbeddedCluster, admin: RawClient, case: Case, rights: str) -> None:
    acls = [acl(each) for each in case.others]
    if rights != "without":
        acls.append(acl(case.tested))
    if rights == "denied":
        acls.append(acl(case.tested, AclPermission.DENY))
    set_acls(admin, acls)
    assert refusals(cluster, case) == (set() if rights == "with" else {case.refusal})
    if case.api == "DeleteTopics" and rights == "with":
        admin.call(MetadataRequest(topics=[MetadataRequestTopic(name="rights")], allow_auto_topic_creation=True), 9)


def test_there_are_enough_cases() -> None:
    assert 3 * len(CASES) >= 180
    assert len({case.label for case in CASES}) == len(CASES)


def test_every_served_api_is_in_the_table_of_rights() -> None:
    assert SERVED.keys() | CONTROLLER_SERVED.keys() <= RIGHTS.keys()


def test_topics_that_a_client_may_not_describe_are_not_listed(cluster: EmbeddedCluster, admin: RawClient) -> None:
    def names() -> list[Any]:
        client = logged_in(cluster, "alice")
        answer = client.call(MetadataRequest(topics=None, include_topic_authorized_operations=True), 9)
        client.close()
        return [(topic.name, topic.topic_authorized_operations) for topic in answer.topics if topic.name == "rights"]

    set_acls(admin, [])
    assert names() == []
    set_acls(
        admin,
        [AclBinding(ResourceType.TOPIC, "ri", "User:*", AclOperation.READ, pattern=PatternType.PREFIXED)],
    )
    assert names() == [("rights", 1 << AclOperation.READ | 1 << AclOperation.DESCRIBE)]


def test_acls_are_there_after_a_restart() -> None:
    options = {"super.users": "User:admin"}
    with EmbeddedCluster(security="SASL_PLAINTEXT", users=USERS, acls=[], config=options) as cluster:
        client = logged_in(cluster, "admin")
        client.call(MetadataRequest(topics=[MetadataRequestTopic(name="rights")], allow_auto_topic_creation=True), 9)
        case = next(each for each in CASES if each.api == "Fetch")
        set_acls(client, [acl(case.tested)])
        client.close()
        cluster.restart()
        assert refusals(cluster, case) == set()
