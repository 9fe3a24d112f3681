"""What clients say to a group coordinator, scene by scene: a real Kafka and ours must answer alike.

`kafka_answers.json` has what an Apache Kafka 4.3.1 answered; `make test-kafka` checks that it still does, and with
PYCLIENT_RECORD=1 writes the file anew.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyclient.protocol.messages.delete_groups import DeleteGroupsRequest
from pyclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.broker_embedded.groups.group_talk import Record, Talk, told

ANSWERS = Path(__file__).with_name("kafka_answers.json")


def strangers(talk: Talk) -> None:
    for version in range(5):
        talk.heartbeat("a", "who", 1, version)
        talk.heartbeat("a", "", -1, version, group_id="")
    for version in range(6):
        talk.sync("a", "who", 1, version)
        talk.sync("a", "", 1, version, group_id="")
    for version in range(10):
        talk.join("a", "who", version)
        talk.join("a", "", version, group_id="")
    for version in range(3):
        talk.leave_alone("a", "who", version)
    for version in range(3, 6):
        talk.leave("a", ("who", None), ("", "static"), ("both", "static"), ("", None), version=version)
    for version in range(6):
        talk.describe("a", version)
    talk.describe("a", 5, include_authorized_operations=True)
    for version in range(3):
        talk.ask("a", "delete", DeleteGroupsRequest(groups_names=[talk.group, ""]), version)
    talk.offset_delete("a")


def bad_joins(talk: Talk) -> None:
    for session in (5_999, 6_000, 1_800_000, 1_800_001, -1, 0):
        talk.join("a", "", 4, session=session)
    talk.join("a", "", 5, protocol_type="")
    talk.join("b", "", 5, protocol_type="", metadata=b"")
    ids = talk.stable("a")
    talk.join("b", "", 5, "other")
    talk.join("b", "", 5, protocol_type="connect")
    talk.join("b", "", 5, protocol_type="")
    talk.join("a", ids["a"], 5, "other", "range", protocol_type="connect")
    talk.sync("a", ids["a"], 1, 5, protocol_type="connect", protocol_name="range")
    talk.sync("a", ids["a"], 1, 5, protocol_type="consumer", protocol_name="other")
    talk.sync("a", ids["a"], 1, 5, protocol_type="consumer", protocol_name="range")
    talk.sync("a", ids["a"], 2, 5)


def one_member(talk: Talk) -> None:
    """Every version of a member's life, alone."""
    for version in range(10):
        joined = talk.join("a", "", version)
        if version >= 4:
            joined = talk.join("a", joined.member_id, version)
        talk.describe()
        talk.heartbeat("a", joined.member_id, joined.generation_id, min(version, 4))
        talk.join("a", joined.member_id, version)
        talk.commit("a", generation_id_or_member_epoch=joined.generation_id, member_id=joined.member_id)
        sync = min(version, 5)
        named = {"protocol_type": "consumer", "protocol_name": "range"} if sync == 5 else {}
        parts = {joined.member_id: b"everything"}
        talk.sync("a", joined.member_id, joined.generation_id, sync, parts=parts, **named)
        talk.describe(version=min(version, 5))
        talk.sync("a", joined.member_id, joined.generation_id, sync)
        talk.sync("a", joined.member_id, joined.generation_id, sync, **named)
        talk.heartbeat("a", joined.member_id, joined.generation_id + 1, min(version, 4))
        talk.commit("a", generation_id_or_member_epoch=joined.generation_id, member_id=joined.member_id)
        if version < 3:
            talk.leave_alone("a", joined.member_id, version)
        else:
            talk.leave("a", (joined.member_id, None), version=min(version, 5))
        talk.describe()
        talk.heartbeat("a", joined.member_id, joined.generation_id)
        talk.commit("a", generation_id_or_member_epoch=joined.generation_id, member_id=joined.member_id)
    talk.ask("a", "delete", DeleteGroupsRequest(groups_names=[talk.group]), 2)
    talk.fetch("a", every=True)


def rebalances(talk: Talk) -> None:
    ids = talk.stable("a", "b")
    talk.join("b", ids["b"])
    talk.join("b", ids["b"], 3, metadata=talk.subscription(talk.other), wait=False)
    talk.wait_for("PreparingRebalance", 2)
    talk.describe()
    talk.heartbeat("a", ids["a"], talk.generation)
    talk.sync("a", ids["a"], talk.generation)
    talk.commit("a", generation_id_or_member_epoch=talk.generation, member_id=ids["a"])
    talk.commit("a")
    joined = talk.join("a", ids["a"])
    talk.answer("b", "join")
    talk.generation = joined.generation_id
    talk.describe()
    talk.join("b", ids["b"], 3, metadata=talk.subscription(talk.other))
    talk.heartbeat("b", ids["b"], talk.generation)
    talk.heartbeat("b", ids["b"], talk.generation - 1)
    talk.commit("b", generation_id_or_member_epoch=talk.generation, member_id=ids["b"])
    talk.sync("b", ids["b"], talk.generation, wait=False)
    talk.join("c", "", 3, wait=False)
    talk.answer("b", "sync")
    talk.wait_for("PreparingRebalance", 3)
    talk.join("a", ids["a"], wait=False)
    talk.join("b", ids["b"], wait=False)
    joined = {who: talk.answer(who, "join") for who in "abc"}
    ids["c"], talk.generation = joined["c"].member_id, joined["a"].generation_id
    talk.share(ids, joined["a"].leader)
    talk.leave("a", (ids["a"], None), ("who", None), (ids["b"], None))
    talk.heartbeat("c", ids["c"], talk.generation)
    joined = talk.join("c", ids["c"])
    talk.sync("c", ids["c"], joined.generation_id)
    talk.join("c", ids["c"])


def votes(talk: Talk) -> None:
    first = talk.join("a", "", 3, "sticky", "range", "mine")
    talk.join("b", "", 3, "range", "sticky", wait=False)
    talk.wait_for("PreparingRebalance", 2)
    talk.join("c", "", 3, "range", "sticky", wait=False)
    talk.wait_for("PreparingRebalance", 3)
    talk.join("a", first.member_id, 3, "sticky", "range", "mine", wait=False)
    for who in "abc":
        talk.answer(who, "join")


def known_ids(talk: Talk) -> None:
    given = talk.join("a", "", 4)
    talk.heartbeat("a", given.member_id, -1)
    talk.heartbeat("a", given.member_id, 0)
    talk.sync("a", given.member_id, 0)
    talk.commit("a", member_id=given.member_id)
    joined = talk.join("a", given.member_id, 9)
    talk.sync("a", joined.member_id, joined.generation_id, 4, parts={joined.member_id: b"x"})
    second = talk.join("b", "", 9)
    talk.leave("b", (second.member_id, "static"))
    talk.leave("b", (second.member_id, None))
    talk.join("b", second.member_id, 9)


def static_members(talk: Talk) -> None:
    ids = talk.stable("a", "b", a="one", b="two")
    old = ids["b"]
    for version in (5, 6, 7, 8, 9):
        talk.join("b", "", version, group_instance_id="two")
        joined = talk.join("b", "", version, metadata=talk.subscription(talk.other), group_instance_id="two")
        talk.sync("b", joined.member_id, talk.generation, 3, group_instance_id="two")
        talk.describe()
    ids["b"] = joined.member_id
    talk.heartbeat("b", old, talk.generation, group_instance_id="two")
    talk.heartbeat("b", old, talk.generation)
    talk.heartbeat("b", ids["b"], talk.generation, group_instance_id="three")
    talk.heartbeat("b", ids["b"], talk.generation, group_instance_id="two")
    talk.sync("b", old, talk.generation, 3, group_instance_id="two")
    talk.join("b", old, 5, group_instance_id="two")
    talk.join("b", ids["b"], 5, group_instance_id="three")
    talk.commit("b", generation_id_or_member_epoch=talk.generation, member_id=old, group_instance_id="two")
    talk.commit("b", generation_id_or_member_epoch=talk.generation, member_id=ids["b"], group_instance_id="two")
    talk.leave("b", (old, "two"), (ids["b"], "three"))
    for version in (8, 9):
        joined = talk.join("a", "", version, group_instance_id="one")
        talk.sync("a", joined.member_id, talk.generation, 4, group_instance_id="one")
    ids["a"] = joined.member_id
    talk.join("b", "", 9, "sticky", group_instance_id="two")
    talk.join("b", "", 9, "range", "sticky", metadata=b"x", group_instance_id="two")
    talk.leave("admin", ("", "two"), ("", "nobody"))
    talk.heartbeat("a", ids["a"], talk.generation, group_instance_id="one")
    joined = talk.join("a", ids["a"], 9, group_instance_id="one")
    talk.join("a", "", 9, group_instance_id="one")
    talk.describe()


def static_change_of_protocol(talk: Talk) -> None:
    first = talk.join("a", "", 5, "range", "sticky", group_instance_id="one")
    talk.sync("a", first.member_id, 1, group_instance_id="one")
    second = talk.join("a", "", 9, "sticky", group_instance_id="one")
    talk.sync("a", second.member_id, 2, group_instance_id="one")
    talk.describe()
    talk.heartbeat("a", first.member_id, 2, group_instance_id="one")


def offsets(talk: Talk) -> None:
    for version in range(1, 10):
        talk.fetch("a", version)
        if version >= 2:
            talk.fetch("a", version, every=True)
    for version in range(2, 10):
        talk.commit("a", version)
        talk.commit("a", version, group_id=f"{talk.group}-other", generation_id_or_member_epoch=0, member_id="who")
        talk.commit("a", version, metadata=None, member_id="whoever")
        talk.commit("a", version, metadata="x" * 4097)
        talk.fetch("a", version)
        talk.fetch("a", version, every=True)
    talk.commit("a", 4, retention_time_ms=86_400_000)
    talk.commit("a", 7, group_id="")
    talk.fetch("a", 1)
    talk.describe()
    talk.list("a")
    ids = talk.stable("b")
    talk.commit("a")
    talk.commit("b", generation_id_or_member_epoch=1, member_id=ids["b"])
    talk.commit("b", generation_id_or_member_epoch=2, member_id=ids["b"])
    talk.commit("b", generation_id_or_member_epoch=-1, member_id=ids["b"])
    talk.commit("b", generation_id_or_member_epoch=1, member_id="")
    talk.commit("b", generation_id_or_member_epoch=1, member_id=ids["b"], group_instance_id="static")
    talk.offset_delete("b")
    talk.ask("b", "delete", DeleteGroupsRequest(groups_names=[talk.group]), 2)
    talk.list("b")
    talk.leave("b", (ids["b"], None))
    talk.list("b")
    talk.offset_delete("b")
    talk.fetch("b", 9, every=True)
    talk.ask("b", "delete", DeleteGroupsRequest(groups_names=[talk.group]), 2)
    talk.list("b")
    talk.describe()


def garbage_subscriptions(talk: Talk) -> None:
    joined = talk.join("a", "", 3, metadata=b"\0")
    talk.sync("a", joined.member_id, 1, parts={joined.member_id: b""})
    talk.commit("a", generation_id_or_member_epoch=1, member_id=joined.member_id)
    talk.offset_delete("a")
    talk.leave("a", (joined.member_id, None))
    joined = talk.join("a", "", 3, protocol_type="connect")
    talk.sync("a", joined.member_id, 3, parts={joined.member_id: b""})
    talk.offset_delete("a")
    talk.describe()


def finding_coordinators(talk: Talk) -> None:
    for version in range(4):
        talk.ask("a", "find", FindCoordinatorRequest(key=talk.group), version)
        talk.ask("a", "find nobody", FindCoordinatorRequest(key=""), version)
    talk.ask("a", "find", FindCoordinatorRequest(coordinator_keys=[talk.group, "", "x"]), 4)
    talk.ask("a", "find none", FindCoordinatorRequest(coordinator_keys=[]), 4)


SCENES: tuple[Callable[[Talk], None], ...] = (
    strangers,
    bad_joins,
    one_member,
    rebalances,
    votes,
    known_ids,
    static_members,
    static_change_of_protocol,
    offsets,
    garbage_subscriptions,
    finding_coordinators,
)


def play(scene: Callable[[Talk], None], bootstrap_servers: str) -> Record:
    """What everybody was told, in order."""
    return told(Talk(bootstrap_servers), scene)
