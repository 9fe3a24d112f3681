"""DescribeCluster at controllers (KIP-919): clients that only know these find the active one."""

from __future__ import annotations

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.errors import MismatchedEndpointType
from tests.broker_embedded.parity.scenario import Dialogue

BROKERS, CONTROLLERS = 1, 2


def test_each_controller_describes_all_and_the_active_one() -> None:
    with EmbeddedCluster(1, controllers=3) as cluster:
        voters = dict(each.split("@") for each in cluster.controller_quorum_voters.split(","))
        for address in voters.values():
            dialogue = Dialogue(address)
            try:
                answer = dialogue.request("DescribeCluster", 2, endpoint_type=CONTROLLERS)
                assert (answer.error_code, answer.endpoint_type) == (0, CONTROLLERS)
                assert {str(each.broker_id): f"{each.host}:{each.port}" for each in answer.brokers} == voters
                assert (answer.cluster_id, answer.controller_id) == (cluster.cluster_id, cluster.controller_id)
                refused = dialogue.request("DescribeCluster", 2, endpoint_type=BROKERS)
                assert refused.error_code == MismatchedEndpointType.code
                assert "an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER" in str(
                    refused.error_message
                )
            finally:
                dialogue.close()
