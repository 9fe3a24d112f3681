"""The cases of rights on a real Kafka and on our broker: the same errors without a right, with it, with a DENY."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Final, NamedTuple

import pytest

from pyclient import errors
from pyclient.acls import AclBinding
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.protocol.messages.describe_acls import DescribeAclsRequest
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker_embedded.conftest import RawClient
from tests.broker_embedded.security.right_cases import CASES, GIVEN, REFUSALS, Case
from tests.broker_embedded.security.rights_client import (
    USERS,
    errors_in_answer,
    errors_of,
    logged_in,
    make_topic,
    replace_acls,
)
from tests.kafka.needs import skip_without_kafka
from tests.kafka.runner import RealKafka, free_ports
from tests.waiting import until

MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
EVERY_ACL: Final = DescribeAclsRequest(
    resource_type_filter=1,
    resource_name_filter=None,
    pattern_type_filter=1,
    principal_filter=None,
    host_filter=None,
    operation=1,
    permission_type=1,
)


class Place(NamedTuple):
    """A broker's address, and clients of its administrator: at the broker, and at its controller."""

    address: str
    admin: RawClient
    controller: RawClient

    def set_acls(self, acls: list[AclBinding]) -> None:
        """Replace every ACL, and wait until broker and controller decide by the new ones."""
        replace_acls(self.admin, acls)
        wanted = len(set(acls))
        until(lambda: acls_known_to(self.admin) == acls_known_to(self.controller) == wanted)

    def make_topic(self) -> None:
        """Create the topic if it is not there, and wait until its partition has a leader."""
        make_topic(self.admin)
        until(self._has_leader)

    def _has_leader(self) -> bool:
        [topic] = self.admin.call(MetadataRequest(topics=[MetadataRequestTopic(name="rights")]), 9).topics
        return not topic.error_code and all(each.error_code == 0 for each in topic.partitions)


def acls_known_to(client: RawClient) -> int:
    return sum(len(resource.acls) for resource in client.call(EVERY_ACL, 3).resources)


def is_served(client: RawClient, case: Case) -> bool:
    return not errors_in_answer(client, case)


@contextmanager
def place_of(address: str, controller: str | None = None) -> Iterator[Place]:
    """Yield a broker whose topic has a leader, and whose coordinators have loaded."""
    with closing(logged_in(address, "admin")) as admin, closing(RawClient(controller or address)) as second:
        place = Place(address, admin, second if controller else admin)
        place.make_topic()
        for api in ("FindCoordinator", "OffsetFetch", "InitProducerId"):
            for case in (each for each in CASES if each.api == api):
                until(partial(is_served, admin, case))
        yield place


@pytest.fixture(scope="module")
def kafka() -> Iterator[Place]:
    skip_without_kafka()
    [port] = free_ports(1)
    users = "".join(f' user_{name}="{password}"' for name, password in USERS.items())
    settings = {
        "listeners": f"{{default}},SASL://127.0.0.1:{port}",
        "advertised.listeners": f"{{default}},SASL://127.0.0.1:{port}",
        "listener.security.protocol.map": "{default},SASL:SASL_PLAINTEXT",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f"{MODULE}{users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
    }
    with (
        RealKafka(heap="512M", settings=settings) as running,
        place_of(f"127.0.0.1:{port}", running.quorum.voters.partition("@")[2]) as place,
    ):
        yield place


@pytest.fixture(scope="module")
def ours() -> Iterator[Place]:
    options = {"super.users": "User:admin", "log.flush.interval.messages": "1000000"}
    with (
        EmbeddedCluster(security="SASL_PLAINTEXT", users=USERS, acls=[], config=options) as cluster,
        place_of(cluster.bootstrap_servers) as place,
    ):
        yield place


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
@pytest.mark.parametrize("given", GIVEN)
def test_an_api_answers_as_kafka_by_the_rights(kafka: Place, ours: Place, case: Case, given: str) -> None:
    found = []
    for place in (kafka, ours):
        place.set_acls(case.acls(given))
        found.append(errors_of(place.address, case))
        place.make_topic()
    assert found[0] == found[1]
    assert REFUSALS.intersection(found[0]) == (set() if given == "with" else {case.refusal})


def test_sync_group_without_its_protocol_is_refused_before_rights(kafka: Place, ours: Place) -> None:
    case = next(each for each in CASES if each.api == "SyncGroup" and each.version == 5)
    incomplete = case._replace(fields={**case.fields, "protocol_name": None})
    for place in (kafka, ours):
        place.set_acls([])
        assert errors_of(place.address, incomplete) == [errors.InconsistentGroupProtocol.code]
