"""Consumer groups inside a running broker: restarts, crashes, deleted topics, and options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.protocol import codec
from pyclient.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from pyclient.protocol.messages.delete_topics import DeleteTopicsRequest
from pyclient.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pyclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from pyclient.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pyclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pyclient.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.broker_embedded.groups.consumer.mixed_harness import MixedHarness
from tests.waiting import until


def on(cluster: EmbeddedCluster, before: MixedHarness | None = None) -> MixedHarness:
    """Create a harness on this broker; it continues the group and topics of `before`."""
    harness = MixedHarness(cluster.bootstrap_servers)
    if before is None:
        harness.prepare()
        return harness
    harness.topic, harness.other, harness.group = before.topic, before.other, before.group
    harness.ids, harness.held = before.ids, before.held
    for name in before.clients:
        harness.connection(name)
    assert harness.connection("admin").ask(FindCoordinatorRequest(key=harness.group), 1).error_code == 0
    return harness


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_members_continue_after_restart(tmp_path: Path, how: str) -> None:
    with EmbeddedCluster(data_dir=str(tmp_path), processes=how == "kill") as cluster:
        before = on(cluster)
        before.enter("a")
        before.enter("b", subscribed_topic_names=[], subscribed_topic_regex=before.topic)
        until(lambda: before.epoch_of_group() == 3)  # the pattern is resolved
        assigned = before.parts(before.beat("a", 2).assignment)
        assert assigned == {"<topic>": [0, 1]}
        before.commit_as("a", 2)
        here = before.group_is()
        before.close()
        if how == "kill":
            cluster.kill()
    with EmbeddedCluster(data_dir=str(tmp_path)) as cluster:
        after = on(cluster, before)
        assert after.group_is() == here
        assert after.beat("a", 2, owns={after.topic: [0, 1]}).member_epoch == 3
        assert after.parts(after.beat("b", 2).assignment) == {"<topic>": [2, 3]}
        [found] = after.fetch_as("a", 3, every=True).groups
        assert [(part.partition_index, part.committed_offset) for part in found.topics[0].partitions] == [(0, 7)]
        after.close()


def test_deleted_topic_is_removed_from_assignments() -> None:
    with EmbeddedCluster() as cluster:
        harness = on(cluster)
        harness.enter("a", harness.topic, harness.other)
        request = DeleteTopicsRequest(topic_names=[harness.other], timeout_ms=1000)
        assert harness.connection("admin").ask(request, 4).responses[0].error_code == 0
        answer = harness.beat("a", 2)
        assert harness.parts(answer.assignment) == {"<topic>": [0, 1, 2, 3]}
        assert harness.beat("a", 2, owns={harness.topic: [0, 1, 2, 3]}).member_epoch == 3
        harness.close()


def classic_member(harness: MixedHarness, **more: Any) -> str:
    member_id = harness.classic_join("k", harness.classic_join("k", "", **more).member_id, **more).member_id
    harness.classic_sync("k", member_id, 1)
    return str(member_id)


@pytest.mark.parametrize(("profile", "given_up"), [("test", True), ("kafka", False)])
def test_silent_member_is_removed_after_ten_seconds_in_test_profile(profile: str, given_up: bool) -> None:
    config = {"group.initial.rebalance.delay.ms": "0"}
    with EmbeddedCluster(profile=profile, config=config) as cluster:
        harness = on(cluster)
        member_id = classic_member(harness, session=45_000)
        cluster.advance_time(5)
        assert harness.classic_beat("k", member_id, 1).error_code == 0
        cluster.advance_time(11)
        code = harness.classic_beat("k", member_id, 1).error_code
        assert code == (errors.UnknownMemberId.code if given_up else 0)
        harness.close()


@pytest.mark.parametrize("policy", ["disabled", "upgrade", "downgrade", "bidirectional"])
def test_migration_policy_admits_or_refuses_members(policy: str) -> None:
    with EmbeddedCluster(config={"group.consumer.migration.policy": policy}) as cluster:
        harness = on(cluster)
        classic_member(harness)
        refused = policy in ("disabled", "downgrade")
        assert harness.enter("a").error_code == (errors.GroupIdNotFound.code if refused else 0)
        harness.close()
        harness = on(cluster)
        harness.enter("a")
        joined = harness.classic_join("k", "")
        mixed = errors.InconsistentGroupProtocol if policy == "disabled" else errors.MemberIdRequired
        assert joined.error_code == mixed.code
        harness.close()


def test_group_stays_consumer_group_if_policy_forbids_downgrade() -> None:
    with EmbeddedCluster(config={"group.consumer.migration.policy": "upgrade"}) as cluster:
        harness = on(cluster)
        member_id = classic_member(harness)
        harness.enter("a")
        harness.beat("a", -1)
        group = harness.group_is()
        assert (group.error_code, [member.member_type for member in group.members]) == (0, [0])
        assert harness.classic_beat("k", member_id, 1).error_code == errors.RebalanceInProgress.code
        harness.close()


def test_group_with_empty_subscription_is_downgraded() -> None:
    with EmbeddedCluster(config={"group.consumer.migration.policy": "bidirectional"}) as cluster:
        harness = on(cluster)
        harness.enter("a")
        subscription = codec.encode_versioned(ConsumerProtocolSubscription(topics=[harness.topic]), 1)
        protocols = [
            JoinGroupRequestProtocol(name="own", metadata=subscription),
            JoinGroupRequestProtocol(name="range", metadata=b""),
        ]
        request = JoinGroupRequest(
            group_id=harness.group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            member_id="k",
            protocol_type="consumer",
            protocols=protocols,
        )
        assert harness.connection("k").ask(request, 9).error_code == 0
        assert harness.classic_join("j", "j").error_code == 0
        assert harness.beat("a", -1).error_code == 0
        assert harness.group_is().error_code == errors.GroupIdNotFound.code  # no longer a consumer group
        harness.close()


def test_member_id_of_longest_instance_id_fits_into_response() -> None:
    with EmbeddedCluster() as cluster:
        harness = on(cluster)
        answer = harness.classic_join("k", "", group_instance_id="é" * 16_383)
        assert answer.error_code == 0
        assert len(answer.member_id.encode()) <= 32_767
        harness.close()


def test_group_size_limit_is_enforced() -> None:
    with EmbeddedCluster(config={"group.consumer.max.size": 1}) as cluster:
        harness = on(cluster)
        harness.enter("a")
        assert harness.enter("b").error_code == errors.GroupMaxSizeReached.code
        assert harness.classic_join("k", "k").error_code == errors.GroupMaxSizeReached.code
        assert harness.beat("a", 2).error_code == 0
        harness.close()


def test_group_options_are_set_listed_validated_and_applied() -> None:
    with EmbeddedCluster(profile="kafka") as cluster:
        harness = on(cluster)
        assert alter(harness, "consumer.heartbeat.interval.ms", "7000") == 0
        assert alter(harness, "consumer.heartbeat.interval.ms", "15001") == errors.InvalidConfig.code
        assert alter(harness, "consumer.session.timeout.ms", "44999") == errors.InvalidConfig.code
        assert alter(harness, "consumer.session.timeout.ms", "soon") == errors.InvalidConfig.code
        assert alter(harness, "session.timeout.ms", "50000") == errors.InvalidConfig.code
        assert alter(harness, "consumer.heartbeat.interval.ms", "7000", group="") == errors.InvalidRequest.code
        assert harness.enter("a").heartbeat_interval_ms == 7000
        resource = DescribeConfigsResource(resource_type=32, resource_name=harness.group, configuration_keys=None)
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        [described] = harness.connection("admin").ask(request, 4).results
        found = {each.name: (each.value, each.config_source, len(each.synonyms)) for each in described.configs}
        assert {name: each for name, each in found.items() if name.startswith("consumer.")} == {
            "consumer.assignment.interval.ms": ("1000", 5, 1),
            "consumer.heartbeat.interval.ms": ("7000", 8, 2),
            "consumer.session.timeout.ms": ("45000", 5, 1),
        }
        assert all(each[1:] == (5, 1) for name, each in found.items() if name != "consumer.heartbeat.interval.ms")
        listed = harness.connection("admin").ask(ListConfigResourcesRequest(resource_types=[32]), 1).config_resources
        assert [(each.resource_type, each.resource_name) for each in listed] == [(32, harness.group)]
        harness.close()


def alter(harness: MixedHarness, name: str, value: str, *, group: str | None = None) -> int:
    change = AlterableConfig(name=name, config_operation=0, value=value)
    wanted = harness.group if group is None else group
    resource = AlterConfigsResource(resource_type=32, resource_name=wanted, configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    return int(harness.connection("admin").ask(request, 1).responses[0].error_code)


def test_parked_classic_join_is_answered_when_group_is_upgraded() -> None:
    with EmbeddedCluster() as cluster:
        harness = on(cluster)
        member_id = classic_member(harness)
        harness.join("late", "", 3, wait=False, metadata=harness.subscription())
        harness.wait_for("PreparingRebalance", 2)  # the first member has to rejoin
        assert harness.enter("a").error_code == 0
        assert harness.answer("late", "join").error_code == errors.RebalanceInProgress.code
        assert harness.classic_beat("k", member_id, 1).error_code == errors.RebalanceInProgress.code
        rejoined = harness.classic_join("k", member_id, generation=1)
        assert (rejoined.error_code, rejoined.generation_id) == (0, 2)
        assert len(harness.group_is().members) == 3
        harness.close()


def test_downgraded_group_stays_classic_after_restart(tmp_path: Path) -> None:
    with EmbeddedCluster(data_dir=str(tmp_path)) as cluster:
        before = on(cluster)
        member_id = classic_member(before)
        before.enter("a")
        before.classic_join("k", member_id, generation=1)
        before.classic_sync("k", member_id, 2)
        before.beat("a", -1)
        before.list_types()
        before.close()
    with EmbeddedCluster(data_dir=str(tmp_path)) as cluster:
        after = on(cluster, before)
        after.group_is()
        assert after.record[-1][1]["error_code"] == errors.GroupIdNotFound.code
        assert after.classic_beat("k", member_id, 2).error_code == 0
        joined = after.classic_join("k", member_id, generation=2)
        assert (joined.error_code, joined.generation_id, len(joined.members)) == (0, 3, 1)
        after.close()


def test_classic_member_without_rejoin_is_removed() -> None:
    with EmbeddedCluster(profile="kafka", config={"group.consumer.assignment.interval.ms": "0"}) as cluster:
        harness = on(cluster)
        harness.enter("a")
        member_id = harness.classic_join("k", "k", rebalance=8_000).member_id
        assert harness.classic_sync("k", member_id, 3).error_code == 0
        cluster.advance_time(9)
        harness.enter("b")
        assert harness.classic_beat("k", member_id, 3).error_code == errors.RebalanceInProgress.code
        cluster.advance_time(4)
        assert harness.classic_beat("k", member_id, 3).error_code == errors.RebalanceInProgress.code
        cluster.advance_time(6)
        assert harness.classic_beat("k", member_id, 3).error_code == errors.UnknownMemberId.code
        harness.classic_join("m", "m", rebalance=8_000)
        cluster.advance_time(9)  # it never sends SyncGroup
        assert sorted(member.member_id for member in harness.group_is().members) == ["a", "b"]
        harness.close()


def test_assignment_sent_on_a_former_connection_is_sent_again() -> None:
    with EmbeddedCluster() as cluster:
        harness = on(cluster)
        harness.enter("a")
        everything = {harness.topic: [0, 1, 2, 3]}
        again = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [harness.topic], "owns": everything}
        assert harness.beat("a on its next connection", 2, member_id="a", **again).error_code == 0
        harness.enter("b")
        late = harness.beat("a", 2)  # the client gave up this connection: it does not read the answer
        assert harness.parts(late.assignment) == {"<topic>": [0, 1]}
        response = harness.beat("a on its next connection", 2, member_id="a")
        assert harness.parts(response.assignment) == {"<topic>": [0, 1]}
        assert harness.beat("a on its next connection", 2, member_id="a").assignment is None
        harness.close()
