"""Groups that change their kind (KIP-848), and members of both protocols in one group: scenes as those beside it."""

from __future__ import annotations

from collections.abc import Callable

from tests.broker_embedded.groups.consumer.mixed_talk import MixedTalk


def empty_groups_change_their_kind(talk: MixedTalk) -> None:
    talk.commit_as("", -1)
    talk.list_types()
    talk.enter("a")
    talk.fetch_as(None, -1, every=True)
    talk.list_types()
    talk.beat("a", -1)
    joined = talk.connection("k")
    talk.join("k", "", 3)
    talk.list_types()
    talk.group_is()
    assert joined is talk.connection("k")


def a_classic_group_is_upgraded(talk: MixedTalk) -> None:
    k = talk.classic_join("k", talk.classic_join("k", "").member_id).member_id
    talk.classic_sync("k", k, 1, {k: {talk.topic: [0, 1, 2, 3]}})
    talk.classic_group()
    talk.beat("a", 1)
    talk.enter("a")
    talk.list_types()
    talk.classic_group(version=5)
    talk.members_by_kind()
    talk.classic_beat("k", k, 1)
    talk.classic_beat("k", k, 2)
    talk.classic_beat("k", "stranger", 1)
    talk.classic_beat("a", "a", 2)
    talk.classic_sync("k", k, 1)
    talk.classic_join("k", k, owned={}, generation=1)
    talk.members_by_kind()
    talk.classic_sync("k", k, 2)
    talk.classic_sync("k", k, 2, protocol_name="roundrobin")
    talk.classic_sync("k", k, 2, protocol_type="connect")
    talk.classic_sync("a", "a", 2)
    talk.classic_beat("k", k, 2)
    talk.beat("a", 2)
    talk.members_by_kind()
    talk.commit_as(k, 2, version=7, label="k")
    talk.commit_as(k, 1, version=7, label="k")
    talk.commit_as(k, 0, version=7, label="k")
    talk.commit_as(k, 3, version=7, label="k")
    talk.commit_as("a", 2, version=7)
    talk.classic_join("m", "", protocols=("roundrobin",))
    talk.classic_join("m", "", protocol_type="connect")
    talk.classic_leave("a", ("a", None), ("stranger", None))
    talk.classic_group()
    talk.beat("a", -1)
    talk.list_types()
    talk.classic_beat("k", k, 2)
    talk.classic_join("k", k)
    talk.classic_group()


def classic_members_enter_a_consumer_group(talk: MixedTalk) -> None:
    talk.enter("a")
    k = talk.classic_join("k", "").member_id
    talk.classic_join("k", k)
    talk.classic_sync("k", k, 3)
    talk.classic_beat("k", k, 3)
    talk.members_by_kind()
    talk.beat("a", 2)
    talk.classic_beat("k", k, 3)
    talk.beat("a", 2, owns={talk.topic: [0, 1]})
    talk.classic_beat("k", k, 3)
    talk.classic_sync("k", k, 3)
    talk.classic_join("k", k, generation=3)
    talk.classic_sync("k", k, 3)
    talk.members_by_kind()
    talk.classic_leave("k", (k, None))
    talk.beat("a", 3)
    talk.members_by_kind()


def a_cooperative_classic_member_gives_up(talk: MixedTalk) -> None:
    talk.enter("a", talk.other)
    k = talk.classic_join("k", "").member_id
    talk.classic_join("k", k)
    talk.classic_sync("k", k, 3)
    talk.enter("b")
    talk.classic_beat("k", k, 3)
    talk.classic_join("k", k, owned={talk.topic: [0, 1, 2, 3]}, generation=3)
    talk.classic_sync("k", k, 3)
    talk.classic_beat("k", k, 3)
    talk.members_by_kind()
    talk.classic_join("k", k, owned={talk.topic: [0, 1]}, generation=3)
    talk.classic_sync("k", k, 4)
    talk.classic_beat("k", k, 4)
    talk.beat("b", 4)
    talk.members_by_kind()


def a_static_member_changes_its_protocol(talk: MixedTalk) -> None:
    talk.enter("a", instance_id="one")
    talk.enter("b")
    talk.members_by_kind()
    k = talk.classic_join("k", "", group_instance_id="one").member_id
    talk.members_by_kind()
    talk.beat("a", 2, instance_id="one", says=False)
    talk.classic_beat("k", k, 2, group_instance_id="one")
    talk.classic_beat("k", "x", 2, group_instance_id="one")
    talk.classic_leave("x", ("x", "one"))
    talk.classic_leave("x", ("", "two"))
    talk.enter("c", instance_id="one")
    talk.members_by_kind()
    talk.classic_leave("x", ("", "one"))


MIXED: tuple[Callable[[MixedTalk], None], ...] = (
    empty_groups_change_their_kind,
    a_classic_group_is_upgraded,
    classic_members_enter_a_consumer_group,
    a_cooperative_classic_member_gives_up,
    a_static_member_changes_its_protocol,
)
