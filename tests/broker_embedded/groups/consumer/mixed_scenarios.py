"""Scenarios of groups that change their type (KIP-848), and of groups with members of both protocols."""

from __future__ import annotations

from collections.abc import Callable

from tests.broker_embedded.groups.consumer.mixed_harness import MixedHarness


def empty_groups_change_their_kind(harness: MixedHarness) -> None:
    harness.commit_as("", -1)
    harness.list_types()
    harness.enter("a")
    harness.fetch_as(None, -1, every=True)
    harness.list_types()
    harness.beat("a", -1)
    joined = harness.connection("k")
    harness.join("k", "", 3)
    harness.list_types()
    harness.group_is()
    assert joined is harness.connection("k")


def a_classic_group_is_upgraded(harness: MixedHarness) -> None:
    k = harness.classic_join("k", harness.classic_join("k", "").member_id).member_id
    harness.classic_sync("k", k, 1, {k: {harness.topic: [0, 1, 2, 3]}})
    harness.classic_group()
    harness.beat("a", 1)
    harness.enter("a")
    harness.list_types()
    harness.classic_group(version=5)
    harness.members_by_kind()
    harness.classic_beat("k", k, 1)
    harness.classic_beat("k", k, 2)
    harness.classic_beat("k", "stranger", 1)
    harness.classic_beat("a", "a", 2)
    harness.classic_sync("k", k, 1)
    harness.classic_join("k", k, owned={}, generation=1)
    harness.members_by_kind()
    harness.classic_sync("k", k, 2)
    harness.classic_sync("k", k, 2, protocol_name="roundrobin")
    harness.classic_sync("k", k, 2, protocol_type="connect")
    harness.classic_sync("a", "a", 2)
    harness.classic_beat("k", k, 2)
    harness.beat("a", 2)
    harness.members_by_kind()
    harness.commit_as(k, 2, version=7, label="k")
    harness.commit_as(k, 1, version=7, label="k")
    harness.commit_as(k, 0, version=7, label="k")
    harness.commit_as(k, 3, version=7, label="k")
    harness.commit_as("a", 2, version=7)
    harness.classic_join("m", "", protocols=("roundrobin",))
    harness.classic_join("m", "", protocol_type="connect")
    harness.classic_leave("a", ("a", None), ("stranger", None))
    harness.classic_group()
    harness.beat("a", -1)
    harness.list_types()
    harness.classic_beat("k", k, 2)
    harness.classic_join("k", k)
    harness.classic_group()


def classic_members_enter_a_consumer_group(harness: MixedHarness) -> None:
    harness.enter("a")
    k = harness.classic_join("k", "").member_id
    harness.classic_join("k", k)
    harness.classic_sync("k", k, 3)
    harness.classic_beat("k", k, 3)
    harness.members_by_kind()
    harness.beat("a", 2)
    harness.classic_beat("k", k, 3)
    harness.beat("a", 2, owns={harness.topic: [0, 1]})
    harness.classic_beat("k", k, 3)
    harness.classic_sync("k", k, 3)
    harness.classic_join("k", k, generation=3)
    harness.classic_sync("k", k, 3)
    harness.members_by_kind()
    harness.classic_leave("k", (k, None))
    harness.beat("a", 3)
    harness.members_by_kind()


def a_cooperative_classic_member_gives_up(harness: MixedHarness) -> None:
    harness.enter("a", harness.other)
    k = harness.classic_join("k", "").member_id
    harness.classic_join("k", k)
    harness.classic_sync("k", k, 3)
    harness.enter("b")
    harness.classic_beat("k", k, 3)
    harness.classic_join("k", k, owned={harness.topic: [0, 1, 2, 3]}, generation=3)
    harness.classic_sync("k", k, 3)
    harness.classic_beat("k", k, 3)
    harness.members_by_kind()
    harness.classic_join("k", k, owned={harness.topic: [0, 1]}, generation=3)
    harness.classic_sync("k", k, 4)
    harness.classic_beat("k", k, 4)
    harness.beat("b", 4)
    harness.members_by_kind()


def a_static_member_changes_its_protocol(harness: MixedHarness) -> None:
    harness.enter("a", instance_id="one")
    harness.enter("b")
    harness.members_by_kind()
    k = harness.classic_join("k", "", group_instance_id="one").member_id
    harness.members_by_kind()
    harness.beat("a", 2, instance_id="one", says=False)
    harness.classic_beat("k", k, 2, group_instance_id="one")
    harness.classic_beat("k", "x", 2, group_instance_id="one")
    harness.classic_leave("x", ("x", "one"))
    harness.classic_leave("x", ("", "two"))
    harness.enter("c", instance_id="one")
    harness.members_by_kind()
    harness.classic_leave("x", ("", "one"))


MIXED: tuple[Callable[[MixedHarness], None], ...] = (
    empty_groups_change_their_kind,
    a_classic_group_is_upgraded,
    classic_members_enter_a_consumer_group,
    a_cooperative_classic_member_gives_up,
    a_static_member_changes_its_protocol,
)
