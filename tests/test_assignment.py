"""The assignors: fixed examples from Java, and properties that hold for any group."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclient.assignment import (
    ASSIGNORS,
    MemberSubscription,
    TopicsWithRacks,
    assign_cooperative_sticky,
    assign_eager_sticky,
    assign_range,
    assign_round_robin,
    assign_sticky,
    decode_sticky_data,
    encode_sticky_data,
)
from pyclient.types import TopicPartition

TOPICS = ("a", "b", "c", "d")

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9), max_size=len(TOPICS))
member_ids = st.text("mnop0123", min_size=1, max_size=3)
partitions = st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 10))
subscriptions = st.builds(
    MemberSubscription,
    topics=st.lists(st.sampled_from(TOPICS), unique=True).map(tuple),
    owned=st.lists(partitions, unique=True, max_size=12).map(tuple),
    generation=st.integers(-1, 3),
    instance_id=st.none() | st.text("xyz", min_size=1, max_size=2),
)
groups = st.dictionaries(member_ids, subscriptions, min_size=1, max_size=6)


def members(**topics: str) -> dict[str, MemberSubscription]:
    return {member: MemberSubscription(tuple(names.split())) for member, names in topics.items()}


def shape(assignment: dict[str, list[TopicPartition]]) -> dict[str, str]:
    return {member: " ".join(f"{p.topic}{p.partition}" for p in held) for member, held in assignment.items()}


def all_partitions(sizes: dict[str, int], group: dict[str, MemberSubscription]) -> set[TopicPartition]:
    wanted = {topic for subscription in group.values() for topic in subscription.topics}
    return {TopicPartition(topic, p) for topic in wanted for p in range(sizes.get(topic, 0))}


def test_range_assigns_remainder_of_each_topic_to_first_members() -> None:
    assignment = assign_range({"a": 3, "b": 3}, members(m1="a b", m0="a b"))
    assert shape(assignment) == {"m0": "a0 a1 b0 b1", "m1": "a2 b2"}


def test_range_leaves_surplus_members_without_partitions() -> None:
    assert shape(assign_range({"a": 1}, members(m0="a", m1="a"))) == {"m0": "a0", "m1": ""}


def test_range_skips_members_that_are_not_subscribed() -> None:
    assert shape(assign_range({"a": 3, "b": 2}, members(m0="a", m1="a b"))) == {"m0": "a0 a1", "m1": "a2 b0 b1"}


def test_static_members_come_first_ordered_by_instance_id() -> None:
    group = {
        "m0": MemberSubscription(("a",)),
        "m1": MemberSubscription(("a",), instance_id="y"),
        "m2": MemberSubscription(("a",), instance_id="x"),
    }
    assert shape(assign_range({"a": 3}, group)) == {"m2": "a0", "m1": "a1", "m0": "a2"}


def test_round_robin_skips_members_that_are_not_subscribed() -> None:
    assignment = assign_round_robin({"a": 3, "b": 3}, members(m0="a b", m1="a b"))
    assert shape(assignment) == {"m0": "a0 a2 b1", "m1": "a1 b0 b2"}
    uneven = assign_round_robin({"a": 1, "b": 2, "c": 3}, members(m0="a", m1="a b", m2="a b c"))
    assert shape(uneven) == {"m0": "a0", "m1": "b0", "m2": "b1 c0 c1 c2"}


def test_sticky_moves_only_partitions_for_the_new_member() -> None:
    owned = tuple(TopicPartition("a", p) for p in range(6))
    group = {"m0": MemberSubscription(("a",), owned[:3], 1), "m1": MemberSubscription(("a",), owned[3:], 1)}
    after = assign_sticky({"a": 6}, {**group, "m2": MemberSubscription(("a",))})
    assert set(after["m0"]) < set(owned[:3])
    assert set(after["m1"]) < set(owned[3:])
    assert {len(held) for held in after.values()} == {2}


def test_cooperative_sticky_moves_partition_after_its_owner_revoked_it() -> None:
    owned = tuple(TopicPartition("a", p) for p in range(2))
    group = {"m0": MemberSubscription(("a",), owned, 1), "m1": MemberSubscription(("a",))}
    first = assign_cooperative_sticky({"a": 2}, group)
    assert shape(first) == {"m0": "a0", "m1": ""}
    kept = {"m0": MemberSubscription(("a",), owned[:1], 2), "m1": MemberSubscription(("a",), (), 2)}
    assert shape(assign_cooperative_sticky({"a": 2}, kept)) == {"m0": "a0", "m1": "a1"}


def test_newer_generation_wins_between_conflicting_claims() -> None:
    partition = TopicPartition("a", 0)
    old, new = (MemberSubscription(("a",), (partition,), generation) for generation in (1, 2))
    assert shape(assign_sticky({"a": 1}, {"m0": old, "m1": new})) == {"m0": "", "m1": "a0"}
    assert shape(assign_cooperative_sticky({"a": 1}, {"m0": new, "m1": new})) == {"m0": "a0", "m1": ""}


@settings(max_examples=50, deadline=None)
@given(counts, groups)
def test_every_partition_is_assigned_to_one_subscribed_member(
    sizes: dict[str, int], group: dict[str, MemberSubscription]
) -> None:
    for assign in (assign_range, assign_round_robin, assign_sticky):
        assignment = assign(sizes, group)
        given_out = [partition for held in assignment.values() for partition in held]
        assert set(assignment) == set(group)
        assert len(given_out) == len(set(given_out))
        assert set(given_out) == all_partitions(sizes, group)
        assert all(p.topic in group[member].topics for member, held in assignment.items() for p in held)


@settings(max_examples=50, deadline=None)
@given(counts, groups)
def test_assignment_is_independent_of_member_order(sizes: dict[str, int], group: dict[str, MemberSubscription]) -> None:
    backwards = dict(reversed(group.items()))
    unique = len({s.instance_id for s in group.values() if s.instance_id}) == sum(
        s.instance_id is not None for s in group.values()
    )
    if unique:
        assert assign_range(sizes, group) == assign_range(sizes, backwards)
        assert assign_round_robin(sizes, group) == assign_round_robin(sizes, backwards)


@settings(max_examples=50, deadline=None)
@given(counts, groups)
def test_sticky_assignment_is_balanced(sizes: dict[str, int], group: dict[str, MemberSubscription]) -> None:
    assignment = assign_sticky(sizes, group)
    for giver, held in assignment.items():
        for partition in held:
            others = [m for m in group if partition.topic in group[m].topics and m != giver]
            assert all(len(assignment[taker]) + 1 >= len(held) for taker in others)


@settings(max_examples=50, deadline=None)
@given(counts, groups)
def test_sticky_assignment_is_stable_when_repeated(sizes: dict[str, int], group: dict[str, MemberSubscription]) -> None:
    first = assign_sticky(sizes, group)
    again = {
        member: MemberSubscription(subscription.topics, tuple(first[member]), 9)
        for member, subscription in group.items()
    }
    assert assign_sticky(sizes, again) == first
    assert assign_cooperative_sticky(sizes, again) == first


@settings(max_examples=50, deadline=None)
@given(counts, groups)
def test_cooperative_members_never_share_partition_and_need_two_rounds(
    sizes: dict[str, int], group: dict[str, MemberSubscription]
) -> None:
    believed = {m: MemberSubscription(s.topics, (), 1) for m, s in group.items()}
    for _ in range(2):
        assignment = assign_cooperative_sticky(sizes, believed)
        given_out = [partition for held in assignment.values() for partition in held]
        assert len(given_out) == len(set(given_out))
        believed = {m: MemberSubscription(s.topics, tuple(assignment[m]), 2) for m, s in group.items()}
    assert {p for held in assignment.values() for p in held} == all_partitions(sizes, group)


def test_names_match_wire_names() -> None:
    assert set(ASSIGNORS) == {"range", "roundrobin", "sticky", "cooperative-sticky"}
    assert [name for name, assignor in ASSIGNORS.items() if assignor.cooperative] == ["cooperative-sticky"]


# ---- sticky for eager members


def test_sticky_user_data_match_java_format() -> None:
    partitions = (TopicPartition("ab", 0), TopicPartition("ab", 2), TopicPartition("c", 1))
    data = bytes.fromhex("00000002 0002 6162 00000002 00000000 00000002 0001 63 00000001 00000001 00000007")
    assert encode_sticky_data(partitions, 7) == data
    assert decode_sticky_data(data) == (partitions, 7)
    assert decode_sticky_data(data[:-4]) == (partitions, -1)  # as members before Kafka 2.0 write it


@given(st.lists(partitions, unique=True, max_size=12), st.integers(-1, 2**31 - 1))
def test_sticky_user_data_round_trip_and_refuse_truncation(held: list[TopicPartition], generation: int) -> None:
    held.sort()
    data = encode_sticky_data(held, generation)
    assert decode_sticky_data(data) == (tuple(held), generation)
    for end in range(len(data) - 4):
        with pytest.raises(ValueError, match="user data of the sticky assignor"):
            decode_sticky_data(data[:end])


@pytest.mark.parametrize(
    "data", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\1\xff\xff", b"\0\0\0\1\0\1\xff\0\0\0\0"]
)
def test_truncated_sticky_user_data_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="user data of the sticky assignor"):
        decode_sticky_data(data)


def test_eager_sticky_members_keep_their_claimed_partitions() -> None:
    def member(held: str, generation: int) -> MemberSubscription:
        had = [TopicPartition("a", int(number)) for number in held.split()]
        return MemberSubscription(("a",), user_data=encode_sticky_data(had, generation))

    group = {"m0": member("3 5", 4), "m1": member("1 2", 4), "m2": MemberSubscription(("a",), user_data=b"strange")}
    assert shape(assign_eager_sticky({"a": 6}, group)) == {"m0": "a3 a5", "m1": "a1 a2", "m2": "a0 a4"}
    late = {"m0": member("0 1", 4), "m1": member("0 1", 5)}
    assert shape(assign_eager_sticky({"a": 2}, late)) == {"m0": "a1", "m1": "a0"}


# ---- racks (KIP-881)


def racked(sizes: dict[str, int], where: str) -> TopicsWithRacks:
    """Return topics with racks: by "a0:xy a1:z" partition 0 of a has replicas in the racks x and y, 1 in z."""
    racks = {}
    for entry in where.split():
        name, _, letters = entry.partition(":")
        racks[TopicPartition(name[:-1], int(name[-1]))] = frozenset(letters)
    return TopicsWithRacks(sizes, racks)


def in_racks(**racks: str) -> dict[str, MemberSubscription]:
    return {member: MemberSubscription(("a", "b"), rack=rack or None) for member, rack in racks.items()}


def test_range_prefers_members_in_the_partitions_rack() -> None:
    sizes = racked({"a": 4}, "a0:y a1:x a2:y a3:x")
    assert shape(assign_range(sizes, in_racks(m0="x", m1="y"))) == {"m0": "a1 a3", "m1": "a0 a2"}
    crowded = racked({"a": 4}, "a0:y a1:y a2:y a3:x")
    assert shape(assign_range(crowded, in_racks(m0="x", m1="y"))) == {"m0": "a2 a3", "m1": "a0 a1"}


def test_range_co_partitions_equal_topics_where_racks_allow() -> None:
    sizes = racked({"a": 2, "b": 2}, "a0:y a1:x b0:y b1:x")
    assert shape(assign_range(sizes, in_racks(m0="x", m1="y"))) == {"m0": "a1 b1", "m1": "a0 b0"}


def test_racks_without_distinction_change_nothing() -> None:
    plain = shape(assign_range({"a": 4, "b": 3}, in_racks(m0="", m1="")))
    everywhere = " ".join(f"a{n}:xy" for n in range(4)) + " " + " ".join(f"b{n}:xy" for n in range(3))
    for group in (in_racks(m0="x", m1="y"), in_racks(m0="q", m1="r"), in_racks(m0="", m1="")):
        assert shape(assign_range(racked({"a": 4, "b": 3}, everywhere), group)) == plain


def test_sticky_prefers_members_in_rack_for_free_partitions_only() -> None:
    sizes = racked({"a": 4}, "a0:y a1:x a2:y a3:x")
    assert shape(assign_sticky(sizes, in_racks(m0="x", m1="y"))) == {"m0": "a1 a3", "m1": "a0 a2"}
    held = {
        "m0": MemberSubscription(("a",), (TopicPartition("a", 0),), 1, rack="x"),
        "m1": MemberSubscription(("a",), rack="y"),
    }
    assert shape(assign_sticky(sizes, held)) == {"m0": "a0 a1", "m1": "a2 a3"}


@given(counts, groups, st.data())
def test_rack_aware_assignment_is_complete_and_balanced(
    sizes: dict[str, int], group: dict[str, MemberSubscription], data: st.DataObject
) -> None:
    racks = {p: data.draw(st.frozensets(st.sampled_from("xyz"))) for p in all_partitions(sizes, group)}
    placed = {m: replace(s, rack=data.draw(st.sampled_from([None, "x", "y", "z"]))) for m, s in group.items()}
    for assign in (assign_range, assign_sticky):
        plain, racked_ = assign(sizes, group), assign(TopicsWithRacks(sizes, racks), placed)
        given_out = [partition for held in racked_.values() for partition in held]
        assert sorted(given_out) == sorted(partition for held in plain.values() for partition in held)
        assert all(p.topic in placed[m].topics for m, held in racked_.items() for p in held)
        if assign is assign_range:
            for topic in sizes:
                loads = [sorted(sum(p.topic == topic for p in held) for held in a.values()) for a in (plain, racked_)]
                assert loads[0] == loads[1]
