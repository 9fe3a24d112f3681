"""ACLs by the admin client, on a broker with an authorizer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pyclient import Admin, errors
from pyclient.acls import AclBinding, AclFilter, AclOperation, PatternType, ResourceType
from pyclient.broker_embedded import EmbeddedCluster

READ = AclBinding(ResourceType.TOPIC, "orders", "User:alice", AclOperation.READ)
ALL = AclBinding(ResourceType.GROUP, "g-", "User:*", AclOperation.ALL, pattern=PatternType.PREFIXED)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    users = {"alice": "hers", "admin": "his"}
    options = {"super.users": "User:admin"}
    with EmbeddedCluster(security="SASL_PLAINTEXT", users=users, acls=[], config=options) as cluster:
        yield cluster


def admin_of(cluster: EmbeddedCluster, user: str) -> Admin:
    return Admin(cluster.bootstrap_servers, **cluster.client_options(user))


def test_acls_are_created_described_and_deleted(cluster: EmbeddedCluster) -> None:
    with admin_of(cluster, "admin") as admin:
        admin.create_acls([READ, ("group", "g-", "User:*", "all", "allow", "prefixed"), READ])
        assert set(admin.describe_acls()) == {READ, ALL}
        assert len(admin.describe_acls()) == 2
        assert admin.describe_acls(AclFilter(name="orders", pattern=PatternType.MATCH)) == [READ]
        assert admin.delete_acls([AclFilter(ResourceType.TOPIC)]) == [READ]
        assert admin.describe_acls() == [ALL]
        assert admin.delete_acls([AclFilter(), AclFilter()]) == [ALL]


def test_only_those_with_the_right_change_acls(cluster: EmbeddedCluster) -> None:
    with admin_of(cluster, "alice") as admin:
        calls: list[Any] = [
            lambda: admin.create_acls([READ]),
            admin.describe_acls,
            lambda: admin.delete_acls([AclFilter()]),
        ]
        for call in calls:
            with pytest.raises(errors.ClusterAuthorizationFailed):
                call()


def test_impossible_acls_are_refused(cluster: EmbeddedCluster) -> None:
    with admin_of(cluster, "admin") as admin:
        with pytest.raises(errors.ConfigError, match="no AclBinding"):
            admin.create_acls(["orders"])  # type: ignore[list-item]  # the mistake
        with pytest.raises(errors.InvalidRequest, match="CLUSTER resource is kafka-cluster"):
            admin.create_acls([("cluster", "c", "User:alice", "alter")])


def test_a_broker_without_an_authorizer_says_so() -> None:
    with (
        EmbeddedCluster() as cluster,
        Admin(cluster.bootstrap_servers) as admin,
        pytest.raises(errors.SecurityDisabled),
    ):
        admin.describe_acls()
