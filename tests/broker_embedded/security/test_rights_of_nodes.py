"""The APIs of controllers: a user that may not act as a node is refused by each that only nodes use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.faults.shapes import error_codes
from pyclient.broker_embedded.served_apis import CONTROLLER_SERVED
from pyclient.protocol.messages.describe_cluster import DescribeClusterRequest
from pyclient.protocol.parts import blank
from pyclient.protocol.versions import API_KEYS, request_class
from tests.broker_embedded.conftest import RawClient
from tests.broker_embedded.security.right_cases import WITHOUT_A_CASE
from tests.broker_embedded.security.rights_client import USERS, logged_in
from tests.waiting import until

OF_NODES = sorted(CONTROLLER_SERVED.keys() & WITHOUT_A_CASE.keys() - {"ApiVersions", "DescribeCluster"})
OF_NODES = [name for name in OF_NODES if "DelegationToken" not in name]


@pytest.fixture(scope="module")
def controller() -> Iterator[RawClient]:
    """Yield a client logged in as alice at the active controller's listener."""
    options = {"super.users": "User:admin"}
    with EmbeddedCluster(3, security="SASL_PLAINTEXT", users=USERS, acls=[], config=options) as cluster:
        active = until(lambda: cluster.controller_id, "no controller is active")
        port = cluster.node(active).config.listeners.controller.port
        client = logged_in(f"127.0.0.1:{port}", "alice")
        yield client
        client.close()


@pytest.mark.parametrize("name", OF_NODES)
def test_api_of_nodes_is_refused_to_a_user(controller: RawClient, name: str) -> None:
    served = CONTROLLER_SERVED[name]
    for version in range(served.first, served.last + 1):
        answer = controller.call(blank(request_class(API_KEYS[name])), version)
        assert error_codes(name, version, answer) == [errors.ClusterAuthorizationFailed.code]


def test_controllers_are_described_to_those_that_may_alter_the_cluster(controller: RawClient) -> None:
    wanted = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2)
    answer = controller.call(wanted, 2)
    assert (answer.error_code, answer.brokers) == (errors.ClusterAuthorizationFailed.code, [])
    assert answer.cluster_id == ""
