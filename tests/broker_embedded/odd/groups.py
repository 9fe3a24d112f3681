"""Unusual requests for groups of both protocols and their committed offsets."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

from tests.broker_embedded.odd.data import ANOTHER_ID, LONG, NO_ID, TWO, T
from tests.broker_embedded.odd.table import ABSENT, Scenario, ask, derived
from tests.broker_embedded.odd.wire import IdOf

_PROTOCOL: Final = {"name": "range", "metadata": b"\0\0\0\0\0\0\0\0\0\0"}


def _joins() -> Iterator[Scenario]:
    def join(label: str, group: str, versions: tuple[int, ...] = (0, 1, 5, 9), **more: Any) -> Iterator[Scenario]:
        fields = {
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 1000,
            "protocol_type": "consumer",
            "protocols": [_PROTOCOL],
            **more,
        }
        yield from ask("JoinGroup", label, versions, group_id=group, **fields)

    yield from join("no group", "")
    yield from join("session 0", "j", session_timeout_ms=0)
    yield from join("session -1", "j", session_timeout_ms=-1)
    yield from join("a long session", "j", session_timeout_ms=1 << 30)
    yield from join("no protocols", "j", protocols=[])
    yield from join("no protocol type", "j", protocol_type="")
    yield from join("nameless protocol", "j", (4, 9), protocols=[{"name": "", "metadata": b""}])
    yield from join("unknown member", "j", member_id=ABSENT)
    yield from join("static without a name", "j1", (5, 9), group_instance_id="")
    yield from join("static of a long name", "j2", (5, 9), group_instance_id=LONG)
    yield from join("static of a bad name", "j3", (5, 9), group_instance_id="a b")
    yield from join("static of a dot", "j4", (5, 9), group_instance_id=".")
    yield from join("static and unknown", "j", (5, 9), group_instance_id="s", member_id=ABSENT)
    yield from join("rebalance timeout -1", "j", (4,), rebalance_timeout_ms=-1)
    yield from join("a new member", "classic", (1,), session_timeout_ms=300_000, rebalance_timeout_ms=300_000)
    yield from join("another protocol type", "classic", (0, 5, 9), protocol_type="connect")
    yield from join(
        "another protocol", "classic", (5, 9), protocols=[{"name": "other", "metadata": b""}], member_id=ABSENT
    )


def _members() -> Iterator[Scenario]:
    for api, extra in (("SyncGroup", {"assignments": []}), ("Heartbeat", {})):
        for label, group, member, generation in (
            ("no group", "", "", 0),
            ("unknown group", ABSENT, "m", 0),
            ("unknown member", "classic", "m", 1),
            ("no member", "classic", "", 1),
            ("generation -1", "classic", "m", -1),
            ("no member of generation -1", "classic", "", -1),
        ):
            named = {"protocol_type": "consumer", "protocol_name": "range"} if api == "SyncGroup" else {}
            fields = {"group_id": group, "member_id": member, "generation_id": generation, **extra, **named}
            yield from ask(api, label, **fields)
        yield from ask(
            api,
            "unknown instance",
            (3,),
            group_id="classic",
            member_id="m",
            generation_id=1,
            group_instance_id="i",
            **extra,
        )
    for label, named in (
        ("no protocol type", {"protocol_name": "range"}),
        ("no protocol name", {"protocol_type": "consumer"}),
        ("empty protocol", {"protocol_type": "", "protocol_name": ""}),
        ("another protocol type", {"protocol_type": "connect", "protocol_name": "range"}),
    ):
        yield from ask("SyncGroup", label, (5,), group_id="classic", member_id="m", generation_id=1, **named)


def _leaving() -> Iterator[Scenario]:
    for label, group, members in (
        ("no group", "", [("m", None)]),
        ("unknown group", ABSENT, [("m", None), ("", "i")]),
        ("no members", "classic", []),
        ("unknown member", "classic", [("m", None)]),
        ("unknown member twice", "classic", [("m", None), ("m", None)]),
        ("neither", "classic", [("", None)]),
        ("unknown instance", "classic", [("", "i"), ("m", "i"), ("", "")]),
    ):
        fields = {"members": [{"member_id": member, "group_instance_id": instance} for member, instance in members]}
        yield from ask("LeaveGroup", label, (3, 4, 5), group_id=group, **fields)
        yield from ask("LeaveGroup", label, (0, 2), group_id=group, member_id=members[0][0] if members else "")


def _looks() -> Iterator[Scenario]:
    for label, groups in (
        ("none", []),
        ("no name", [""]),
        ("unknown", [ABSENT]),
        ("unknown twice", [ABSENT, ABSENT]),
        ("one twice", ["classic", "classic"]),
        ("a long name", [LONG]),
        ("an odd name", ["a b/\u00e4"]),
    ):
        yield from ask("DescribeGroups", label, (0, 3, 5, 6), groups=groups)
        yield from ask("ConsumerGroupDescribe", label, (0, 1), group_ids=groups)
        if label != "one twice":
            yield from ask("DeleteGroups", label, (0, 1, 2), groups_names=groups)
    yield from ask(
        "DescribeGroups", "operations", (3, 6), groups=["classic", ABSENT], include_authorized_operations=True
    )
    yield from ask(
        "ConsumerGroupDescribe", "operations", (0, 1), group_ids=[ABSENT], include_authorized_operations=True
    )


def _lists() -> Iterator[Scenario]:
    for label, states in (
        ("an unknown state", ["Nope"]),
        ("an empty state", [""]),
        ("dead", ["Dead"]),
        ("a state twice", ["nope", "nope"]),
    ):
        yield from ask("ListGroups", label, (4, 5), states_filter=states)
    for label, types in (
        ("an unknown type", ["nope"]),
        ("an empty type", [""]),
        ("share", ["share"]),
        ("streams", ["STREAMS"]),
        ("a strange mix", ["Consumer", "nope"]),
    ):
        yield from ask("ListGroups", label, (5,), types_filter=types)
    for label, key, key_type in (
        ("no group", "", 0),
        ("a group", "x", 0),
        ("a long name", LONG, 0),
        ("type 9", "x", 9),
        ("type -1", "x", -1),
        ("a bad share", "x", 2),
    ):
        yield from ask("FindCoordinator", label, (0, 1, 3), key=key, key_type=key_type)
        yield from ask("FindCoordinator", label, (4, 5, 6), coordinator_keys=[key], key_type=key_type)
    yield from ask("FindCoordinator", "one twice", (4, 6), coordinator_keys=["x", "x"])
    yield from ask("FindCoordinator", "none", (4, 6), coordinator_keys=[])


def _commits() -> Iterator[Scenario]:
    def commit(
        label: str,
        *partitions: dict[str, Any],
        group: str = "c",
        topic: str = T,
        versions: tuple[int, ...] = (2, 6, 8, 9, 10),
        **more: Any,
    ) -> Iterator[Scenario]:
        topics = [{"name": topic, "topic_id": IdOf(topic), "partitions": list(partitions)}]
        fields = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics, **more}
        yield from ask("OffsetCommit", label, versions, **fields)

    partition: dict[str, Any] = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    yield from commit("good", partition)
    yield from commit("no group", partition, group="")
    yield from commit("no partition")
    yield from commit("no topic", topics=[])
    yield from commit("no topic of an unknown member", topics=[], member_id=ABSENT, generation_id_or_member_epoch=3)
    yield from commit("unknown topic", partition, topic=ABSENT)
    yield from commit("nameless", partition, topic="", versions=(2, 9))
    yield from commit("unknown partition", {**partition, "partition_index": 9})
    yield from commit("partition -1", {**partition, "partition_index": -1})
    yield from commit("partition twice", partition, {**partition, "committed_offset": 6})
    yield from commit("offset -1", {**partition, "committed_offset": -1})
    yield from commit("offset -5", {**partition, "committed_offset": -5})
    yield from commit("null metadata", {**partition, "committed_metadata": None})
    yield from commit("long metadata", {**partition, "committed_metadata": "x" * 5000})
    yield from commit("epoch -2", {**partition, "committed_leader_epoch": -2})
    yield from commit("epoch 99", {**partition, "committed_leader_epoch": 99})
    yield from commit("generation 0", partition, generation_id_or_member_epoch=0)
    yield from commit("generation -2", partition, generation_id_or_member_epoch=-2)
    yield from commit("a member of generation -1", partition, member_id="m")
    yield from commit("an instance of generation -1", partition, group_instance_id="i", versions=(7, 9))
    yield from commit(
        "unknown group, generation 3", partition, group=ABSENT, generation_id_or_member_epoch=3, member_id="m"
    )
    yield from commit("a retention", partition, group="kept", retention_time_ms=1 << 40, versions=(2, 4))
    yield from commit("a retention of -2", partition, group="kept", retention_time_ms=-2, versions=(2, 4))
    twice = [{"name": T, "topic_id": IdOf(T), "partitions": [partition]}] * 2
    yield from commit("topic twice", topics=twice)
    yield from ask(
        "OffsetCommit",
        "no id",
        (10,),
        group_id="c",
        generation_id_or_member_epoch=-1,
        topics=[{"topic_id": NO_ID, "partitions": [partition]}, {"topic_id": ANOTHER_ID, "partitions": [partition]}],
    )


def _committed() -> Iterator[Scenario]:
    def fetch(
        label: str, topics: list[tuple[str, list[int]]] | None, group: str = "c", **more: Any
    ) -> Iterator[Scenario]:
        asked = (
            None
            if topics is None
            else [{"name": name, "topic_id": IdOf(name), "partition_indexes": numbers} for name, numbers in topics]
        )
        yield from ask(
            "OffsetFetch", label, (1, 2, 5, 7) if asked is not None else (2, 5, 7), group_id=group, topics=asked, **more
        )
        groups = [{"group_id": group, "topics": asked, **more}]
        yield from ask("OffsetFetch", label, (8, 9, 10), groups=groups)

    yield from fetch("all", None)
    yield from fetch("no group", None, "")
    yield from fetch("no group's", [(T, [0])], "")
    yield from fetch("no topics", [])
    yield from fetch("no partitions", [(T, [])])
    yield from fetch("unknown group", [(T, [0])], ABSENT)
    yield from fetch("unknown topic", [(ABSENT, [0])])
    yield from fetch("odd partitions", [(T, [0, 9, -1])])
    yield from fetch("partition twice", [(T, [0, 0])])
    yield from fetch("topic twice", [(T, [0]), (T, [0])])
    yield from fetch("topic twice, another partition", [(TWO, [0]), (TWO, [1])])
    yield from ask("OffsetFetch", "no groups", (8, 10), groups=[])
    yield from ask("OffsetFetch", "group twice", (8, 10), groups=[{"group_id": "c", "topics": None}] * 2)
    member: dict[str, Any] = {"group_id": "c", "topics": None}
    yield from ask(
        "OffsetFetch", "an unknown member", (9, 10), groups=[{**member, "member_id": "m", "member_epoch": 3}]
    )
    yield from ask("OffsetFetch", "an epoch without a member", (9, 10), groups=[{**member, "member_epoch": 3}])
    yield from ask("OffsetFetch", "epoch -2", (9, 10), groups=[{**member, "member_id": "m", "member_epoch": -2}])


def _forgotten() -> Iterator[Scenario]:
    for label, group, topics in (
        ("no group", "", [(T, [0])]),
        ("unknown group", ABSENT, [(T, [0])]),
        ("no topic", "c", []),
        ("no partition", "c", [(T, [])]),
        ("unknown topic", "c", [(ABSENT, [0])]),
        ("odd partitions", "c", [(T, [9, -1])]),
        ("twice", "c", [(T, [0, 0]), (T, [0])]),
        ("a group with members", "classic", [(T, [0])]),
    ):
        wanted = [
            {"name": name, "partitions": [{"partition_index": index} for index in numbers]} for name, numbers in topics
        ]
        yield from ask("OffsetDelete", label, group_id=group, topics=wanted)


def _heartbeats() -> Iterator[Scenario]:
    def beat(label: str, versions: tuple[int, ...] = (0, 1), **more: Any) -> Iterator[Scenario]:
        fields: dict[str, Any] = {
            "group_id": "new",
            "member_id": "m",
            "member_epoch": 0,
            "rebalance_timeout_ms": 5000,
            "subscribed_topic_names": [T],
            "topic_partitions": [],
            **more,
        }
        yield from ask("ConsumerGroupHeartbeat", label, versions, **fields)

    yield from beat("no group", group_id="")
    yield from beat("a blank group", group_id=" ")
    yield from beat("no member", (1,), member_id="")
    yield from beat("no timeout", rebalance_timeout_ms=-1)
    yield from beat("no topics", subscribed_topic_names=None)
    yield from beat("owning already", topic_partitions=[{"topic_id": IdOf(T), "partitions": [0]}])
    yield from beat("no owned", topic_partitions=None)
    yield from beat("epoch 5 of no member", member_epoch=5)
    yield from beat("epoch -1 of no member", member_epoch=-1)
    yield from beat("epoch -2 of no member", member_epoch=-2)
    yield from beat("epoch -3", member_epoch=-3)
    yield from beat("an unknown assignor", server_assignor="nope")
    yield from beat("an empty assignor", server_assignor="")
    yield from beat("an empty instance", instance_id="")
    yield from beat("an empty rack", rack_id="")
    yield from beat("a bad expression", (1,), subscribed_topic_names=None, subscribed_topic_regex="[")
    yield from beat(
        "an empty expression", (1,), group_id="regex", subscribed_topic_names=None, subscribed_topic_regex=""
    )
    yield from beat("topics twice", (1,), group_id="dup", subscribed_topic_names=[T, T])
    yield from beat("a classic group", group_id="classic")
    yield from beat("a long member id", (1,), group_id="long", member_id=LONG)


SCENARIOS: Final = tuple(
    chain(
        derived("FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"),
        derived("DescribeGroups", "DeleteGroups", "OffsetDelete", "ConsumerGroupDescribe", "ConsumerGroupHeartbeat"),
        derived("OffsetCommit", "OffsetFetch"),
        _joins(),
        _members(),
        _leaving(),
        _looks(),
        _lists(),
        _commits(),
        _committed(),
        _forgotten(),
        _heartbeats(),
    )
)
