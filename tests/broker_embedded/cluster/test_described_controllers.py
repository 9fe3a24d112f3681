"""Controllers describe themselves and the metadata (KIP-919), to clients that know no broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyclient import Admin, NewTopic
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.errors import DelegationTokenRequestNotAllowed, InvalidRequest, MismatchedEndpointType, NotController
from tests.broker_embedded.parity.scenario import Dialogue
from tests.waiting import until

BROKERS, CONTROLLERS = 1, 2
TOPIC, BROKER = 2, 4
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
PATIENT = {"broker.session.timeout.ms": 60_000}
"""On a busy machine, too, the only broker is never fenced: it gets the replicas of new topics."""


def voters_of(cluster: EmbeddedCluster) -> dict[str, str]:
    """Return the addresses of the controllers by their ids."""
    return dict(each.split("@") for each in cluster.controller_quorum_voters.split(","))


@contextmanager
def at(address: str) -> Iterator[Dialogue]:
    dialogue = Dialogue(address)
    try:
        yield dialogue
    finally:
        dialogue.close()


def options(dialogue: Dialogue, kind: int, name: str, *wanted: str) -> dict[str, Any]:
    """Return the values of options in the answer to DescribeConfigs."""
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": list(wanted)}
    [result] = dialogue.request("DescribeConfigs", 4, resources=[resource]).results
    return {each.name: each.value for each in result.configs} if result.error_code == 0 else {"": result.error_code}


def test_each_controller_describes_all_and_the_active_one() -> None:
    with EmbeddedCluster(1, controllers=3) as cluster:
        voters = voters_of(cluster)
        for address in voters.values():
            with at(address) as dialogue:
                answer = dialogue.request("DescribeCluster", 2, endpoint_type=CONTROLLERS)
                assert (answer.error_code, answer.endpoint_type) == (0, CONTROLLERS)
                assert answer.cluster_id == cluster.cluster_id
                until(lambda dialogue=dialogue: _described(dialogue) == (voters, cluster.controller_id))  # type: ignore[misc]
                refused = dialogue.request("DescribeCluster", 2, endpoint_type=BROKERS)
                assert refused.error_code == MismatchedEndpointType.code
                assert "an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER" in str(
                    refused.error_message
                )


def _described(dialogue: Dialogue) -> tuple[dict[str, str], int]:
    """Return the addresses of the controllers by their ids, and the active one, as a controller knows them."""
    answer = dialogue.request("DescribeCluster", 2, endpoint_type=CONTROLLERS)
    return {str(each.broker_id): f"{each.host}:{each.port}" for each in answer.brokers}, answer.controller_id


def test_each_controller_describes_options_acls_and_users() -> None:
    with EmbeddedCluster(1, controllers=3, config={**AUTHORIZER, **PATIENT}) as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", 1, 1, configs={"retention.ms": "5000"})])
            admin.create_acls([("topic", "t", "User:alice", "read", "allow", "prefixed")])
        user = {"name": "alice", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"p" * 32}
        with at(cluster.bootstrap_servers) as dialogue:
            answer = dialogue.request("AlterUserScramCredentials", 0, deletions=[], upsertions=[user])
            assert [each.error_code for each in answer.results] == [0]
        for node_id, address in voters_of(cluster).items():
            with at(address) as dialogue:
                until(lambda dialogue=dialogue: _acls(dialogue) == [("t", "User:alice")])  # type: ignore[misc]
                assert options(dialogue, TOPIC, "t", "retention.ms") == {"retention.ms": "5000"}
                own = options(dialogue, BROKER, node_id, "node.id", "process.roles")
                assert own == {"node.id": node_id, "process.roles": "controller"}
                assert options(dialogue, BROKER, "1", "node.id") == {"": InvalidRequest.code}
                until(lambda dialogue=dialogue: _users(dialogue) == ["alice"])  # type: ignore[misc]
                tokens = dialogue.request("DescribeDelegationToken", 3, owners=None)
                assert tokens.error_code == DelegationTokenRequestNotAllowed.code  # as by any listener without a login


def _acls(dialogue: Dialogue) -> list[tuple[str, str]]:
    wanted = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    anything = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
    answer = dialogue.request("DescribeAcls", 3, **wanted, **anything)
    assert answer.error_code == 0
    return [(each.resource_name, acl.principal) for each in answer.resources for acl in each.acls]


def _users(dialogue: Dialogue) -> list[str]:
    return [each.user for each in dialogue.request("DescribeUserScramCredentials", 0, users=None).results]


def test_active_controller_changes_options_of_each_controller() -> None:
    with EmbeddedCluster(1, controllers=3) as cluster:
        voters = voters_of(cluster)
        change = {"configs": [{"name": "log.cleaner.threads", "config_operation": 0, "value": "3"}]}

        def changed(node: str) -> int:
            resource = {"resource_type": BROKER, "resource_name": node, **change}
            active = until(lambda: cluster.controller_id, "no controller is active")
            with at(voters[str(active)]) as dialogue:
                answer = dialogue.request("IncrementalAlterConfigs", 1, resources=[resource], validate_only=False)
            code: int = answer.responses[0].error_code
            return code

        for node_id, address in voters.items():
            until(lambda node_id=node_id: changed(node_id) == 0)  # type: ignore[misc]  # until it is registered
            with at(address) as dialogue:
                until(lambda node=node_id, at=dialogue: _threads(at, node) == "3")  # type: ignore[misc]
        # the answer that `until` has got: with the next one another controller may be active
        assert until(lambda: [code for code in [changed("77")] if code != NotController.code]) == [InvalidRequest.code]


def _threads(dialogue: Dialogue, node: str) -> Any:
    return options(dialogue, BROKER, node, "log.cleaner.threads")["log.cleaner.threads"]
