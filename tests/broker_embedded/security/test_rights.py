"""Each API without a right that it needs, with it, and with a DENY."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pyclient import errors
from pyclient.acls import AclBinding, AclOperation, PatternType, ResourceType
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.authorizer.rights import RIGHTS
from pyclient.broker_embedded.served_apis import CONTROLLER_SERVED, SERVED
from pyclient.protocol.messages.metadata import MetadataRequest
from tests.broker_embedded.conftest import RawClient
from tests.broker_embedded.security.right_cases import CASES, GIVEN, REFUSALS, WITHOUT_A_CASE, Case
from tests.broker_embedded.security.rights_client import USERS, errors_of, logged_in, make_topic, replace_acls


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    options = {"super.users": "User:admin", "log.flush.interval.messages": "1000000"}
    with EmbeddedCluster(security="SASL_PLAINTEXT", users=USERS, acls=[], config=options) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(cluster: EmbeddedCluster) -> Iterator[RawClient]:
    client = logged_in(cluster.bootstrap_servers, "admin")
    make_topic(client)
    yield client
    client.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
@pytest.mark.parametrize("rights", GIVEN)
def test_an_api_needs_its_rights(cluster: EmbeddedCluster, admin: RawClient, case: Case, rights: str) -> None:
    replace_acls(admin, case.acls(rights))
    found = errors_of(cluster.bootstrap_servers, case)
    assert REFUSALS.intersection(found) == (set() if rights == "with" else {case.refusal})
    make_topic(admin)


def test_sync_group_without_its_protocol_is_refused_before_rights(cluster: EmbeddedCluster, admin: RawClient) -> None:
    case = next(each for each in CASES if each.api == "SyncGroup" and each.version == 5)
    replace_acls(admin, [])
    incomplete = case._replace(fields={**case.fields, "protocol_name": None})
    assert errors_of(cluster.bootstrap_servers, incomplete) == [errors.InconsistentGroupProtocol.code]


def test_there_are_enough_cases() -> None:
    assert len(GIVEN) * len(CASES) >= 180
    assert len({case.label for case in CASES}) == len(CASES)


def test_every_served_api_is_in_the_table_of_rights() -> None:
    assert SERVED.keys() | CONTROLLER_SERVED.keys() <= RIGHTS.keys()


def test_every_served_api_has_a_case_or_a_reason() -> None:
    tested = {case.api for case in CASES}
    assert not tested & WITHOUT_A_CASE.keys()
    assert tested | WITHOUT_A_CASE.keys() == SERVED.keys() | CONTROLLER_SERVED.keys() | {
        "SaslHandshake",
        "SaslAuthenticate",
    }


def test_topics_that_a_client_may_not_describe_are_not_listed(cluster: EmbeddedCluster, admin: RawClient) -> None:
    def names() -> list[Any]:
        client = logged_in(cluster.bootstrap_servers, "alice")
        answer = client.call(MetadataRequest(topics=None, include_topic_authorized_operations=True), 9)
        client.close()
        return [(topic.name, topic.topic_authorized_operations) for topic in answer.topics if topic.name == "rights"]

    replace_acls(admin, [])
    assert names() == []
    replace_acls(
        admin,
        [AclBinding(ResourceType.TOPIC, "ri", "User:*", AclOperation.READ, pattern=PatternType.PREFIXED)],
    )
    assert names() == [("rights", 1 << AclOperation.READ | 1 << AclOperation.DESCRIBE)]


def test_acls_are_there_after_a_restart() -> None:
    options = {"super.users": "User:admin"}
    with EmbeddedCluster(security="SASL_PLAINTEXT", users=USERS, acls=[], config=options) as cluster:
        client = logged_in(cluster.bootstrap_servers, "admin")
        make_topic(client)
        case = next(each for each in CASES if each.api == "Fetch")
        replace_acls(client, case.acls("with"))
        client.close()
        cluster.restart()
        assert errors_of(cluster.bootstrap_servers, case) == []
