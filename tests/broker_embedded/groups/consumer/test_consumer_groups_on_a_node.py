"""Consumer groups inside a running broker: restarts, crashes, topics that go, and the options it obeys."""

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
from tests.broker_embedded.groups.consumer.mixed_talk import MixedTalk


def on(cluster: EmbeddedCluster, before: MixedTalk | None = None) -> MixedTalk:
    """Members on this broker; those of `before` go on with their group and topics."""
    talk = MixedTalk(cluster.bootstrap_servers)
    if before is None:
        talk.prepare()
        return talk
    talk.topic, talk.other, talk.group = before.topic, before.other, before.group
    talk.ids, talk.held = before.ids, before.held
    for name in before._people:
        talk.connection(name)
    assert talk.connection("admin").ask(FindCoordinatorRequest(key=talk.group), 1).error_code == 0
    return talk


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_members_go_on_after_a_restart(tmp_path: Path, how: str) -> None:
    with EmbeddedCluster(data_dir=str(tmp_path), processes=how == "kill") as cluster:
        before = on(cluster)
        before.enter("a")
        before.enter("b", subscribed_topic_names=[], subscribed_topic_regex=before.topic)
        before._until(lambda: before.epoch_of_group() == 3)  # the pattern is resolved
        told = before.parts(before.beat("a", 2).assignment)
        assert told == {"<topic>": [0, 1]}
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


def test_members_lose_a_topic_that_is_deleted() -> None:
    with EmbeddedCluster() as cluster:
        talk = on(cluster)
        talk.enter("a", talk.topic, talk.other)
        request = DeleteTopicsRequest(topic_names=[talk.other], timeout_ms=1000)
        assert talk.connection("admin").ask(request, 4).responses[0].error_code == 0
        answer = talk.beat("a", 2)
        assert talk.parts(answer.assignment) == {"<topic>": [0, 1, 2, 3]}
        assert talk.beat("a", 2, owns={talk.topic: [0, 1, 2, 3]}).member_epoch == 3
        talk.close()


def classic_member(talk: MixedTalk, **more: Any) -> str:
    member_id = talk.classic_join("k", talk.classic_join("k", "", **more).member_id, **more).member_id
    talk.classic_sync("k", member_id, 1)
    return str(member_id)


@pytest.mark.parametrize(("profile", "given_up"), [("test", True), ("kafka", False)])
def test_in_the_test_profile_a_silent_member_goes_after_ten_seconds(profile: str, given_up: bool) -> None:
    config = {"group.initial.rebalance.delay.ms": "0"}
    with EmbeddedCluster(profile=profile, config=config) as cluster:
        talk = on(cluster)
        member_id = classic_member(talk, session=45_000)
        cluster.advance_time(9)
        assert talk.classic_beat("k", member_id, 1).error_code == 0
        cluster.advance_time(11)
        code = talk.classic_beat("k", member_id, 1).error_code
        assert code == (errors.UnknownMemberId.code if given_up else 0)
        talk.close()


@pytest.mark.parametrize("policy", ["disabled", "upgrade", "downgrade", "bidirectional"])
def test_the_migration_policy_decides_who_may_enter(policy: str) -> None:
    with EmbeddedCluster(config={"group.consumer.migration.policy": policy}) as cluster:
        talk = on(cluster)
        classic_member(talk)
        refused = policy in ("disabled", "downgrade")
        assert talk.enter("a").error_code == (errors.GroupIdNotFound.code if refused else 0)
        talk.close()
        talk = on(cluster)
        talk.enter("a")
        joined = talk.classic_join("k", "")
        mixed = errors.InconsistentGroupProtocol if policy == "disabled" else errors.MemberIdRequired
        assert joined.error_code == mixed.code
        talk.close()


def test_a_group_that_may_not_be_downgraded_stays_a_consumer_group() -> None:
    with EmbeddedCluster(config={"group.consumer.migration.policy": "upgrade"}) as cluster:
        talk = on(cluster)
        member_id = classic_member(talk)
        talk.enter("a")
        talk.beat("a", -1)
        group = talk.group_is()
        assert (group.error_code, [member.member_type for member in group.members]) == (0, [0])
        assert talk.classic_beat("k", member_id, 1).error_code == errors.RebalanceInProgress.code
        talk.close()


def test_group_is_downgraded_although_a_subscription_of_the_chosen_protocol_is_empty() -> None:
    with EmbeddedCluster(config={"group.consumer.migration.policy": "bidirectional"}) as cluster:
        talk = on(cluster)
        talk.enter("a")
        subscription = codec.encode_versioned(ConsumerProtocolSubscription(topics=[talk.topic]), 1)
        protocols = [
            JoinGroupRequestProtocol(name="own", metadata=subscription),
            JoinGroupRequestProtocol(name="range", metadata=b""),
        ]
        request = JoinGroupRequest(
            group_id=talk.group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            member_id="k",
            protocol_type="consumer",
            protocols=protocols,
        )
        assert talk.connection("k").ask(request, 9).error_code == 0
        assert talk.classic_join("j", "j").error_code == 0
        assert talk.beat("a", -1).error_code == 0
        assert talk.group_is().error_code == errors.GroupIdNotFound.code  # no longer one of the new protocol
        talk.close()


def test_member_id_made_of_the_longest_instance_id_fits_into_an_answer() -> None:
    with EmbeddedCluster() as cluster:
        talk = on(cluster)
        answer = talk.classic_join("k", "", group_instance_id="é" * 16_383)
        assert answer.error_code == 0
        assert len(answer.member_id.encode()) <= 32_767
        talk.close()


def test_the_group_is_as_large_as_it_may_be() -> None:
    with EmbeddedCluster(config={"group.consumer.max.size": 1}) as cluster:
        talk = on(cluster)
        talk.enter("a")
        assert talk.enter("b").error_code == errors.GroupMaxSizeReached.code
        assert talk.classic_join("k", "k").error_code == errors.GroupMaxSizeReached.code
        assert talk.beat("a", 2).error_code == 0
        talk.close()


def test_a_groups_own_options_are_set_listed_checked_and_obeyed() -> None:
    with EmbeddedCluster(profile="kafka") as cluster:
        talk = on(cluster)
        assert alter(talk, "consumer.heartbeat.interval.ms", "7000") == 0
        assert alter(talk, "consumer.heartbeat.interval.ms", "15001") == errors.InvalidConfig.code
        assert alter(talk, "consumer.session.timeout.ms", "44999") == errors.InvalidConfig.code
        assert alter(talk, "consumer.session.timeout.ms", "soon") == errors.InvalidConfig.code
        assert alter(talk, "session.timeout.ms", "50000") == errors.InvalidConfig.code
        assert alter(talk, "consumer.heartbeat.interval.ms", "7000", group="") == errors.InvalidRequest.code
        assert talk.enter("a").heartbeat_interval_ms == 7000
        resource = DescribeConfigsResource(resource_type=32, resource_name=talk.group, configuration_keys=None)
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        [described] = talk.connection("admin").ask(request, 4).results
        found = {each.name: (each.value, each.config_source, len(each.synonyms)) for each in described.configs}
        assert {name: each for name, each in found.items() if name.startswith("consumer.")} == {
            "consumer.assignment.interval.ms": ("1000", 5, 1),
            "consumer.heartbeat.interval.ms": ("7000", 8, 2),
            "consumer.session.timeout.ms": ("45000", 5, 1),
        }
        assert all(each[1:] == (5, 1) for name, each in found.items() if name != "consumer.heartbeat.interval.ms")
        listed = talk.connection("admin").ask(ListConfigResourcesRequest(resource_types=[32]), 1).config_resources
        assert [(each.resource_type, each.resource_name) for each in listed] == [(32, talk.group)]
        talk.close()


def alter(talk: MixedTalk, name: str, value: str, *, group: str | None = None) -> int:
    change = AlterableConfig(name=name, config_operation=0, value=value)
    wanted = talk.group if group is None else group
    resource = AlterConfigsResource(resource_type=32, resource_name=wanted, configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    return int(talk.connection("admin").ask(request, 1).responses[0].error_code)


def test_who_waits_for_a_classic_rebalance_is_told_when_the_group_becomes_a_consumer_group() -> None:
    with EmbeddedCluster() as cluster:
        talk = on(cluster)
        member_id = classic_member(talk)
        talk.join("late", "", 3, wait=False, metadata=talk.subscription())
        talk.wait_for("PreparingRebalance", 2)  # the first member has to come back
        assert talk.enter("a").error_code == 0
        assert talk.answer("late", "told").error_code == errors.RebalanceInProgress.code
        assert talk.classic_beat("k", member_id, 1).error_code == errors.RebalanceInProgress.code
        rejoined = talk.classic_join("k", member_id, generation=1)
        assert (rejoined.error_code, rejoined.generation_id) == (0, 2)
        assert len(talk.group_is().members) == 3
        talk.close()


def test_a_group_that_became_a_classic_one_is_one_after_a_restart(tmp_path: Path) -> None:
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


def test_a_classic_member_that_does_not_come_back_is_given_up() -> None:
    with EmbeddedCluster(profile="kafka", config={"group.consumer.assignment.interval.ms": "0"}) as cluster:
        talk = on(cluster)
        talk.enter("a")
        member_id = talk.classic_join("k", "k", rebalance=2_000).member_id
        assert talk.classic_sync("k", member_id, 3).error_code == 0
        cluster.advance_time(3)
        talk.enter("b")
        assert talk.classic_beat("k", member_id, 3).error_code == errors.RebalanceInProgress.code
        cluster.advance_time(1)
        assert talk.classic_beat("k", member_id, 3).error_code == errors.RebalanceInProgress.code
        cluster.advance_time(1.5)
        assert talk.classic_beat("k", member_id, 3).error_code == errors.UnknownMemberId.code
        talk.classic_join("m", "m", rebalance=2_000)
        cluster.advance_time(2.5)  # it never asks for its assignment
        assert sorted(member.member_id for member in talk.group_is().members) == ["a", "b"]
        talk.close()
