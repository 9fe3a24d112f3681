"""Scenarios of clients of a group coordinator: Kafka and the embedded broker must answer the same.

`kafka_answers.json` has the answers of Apache Kafka 4.3.1; `make test-kafka` compares them with a running Kafka, and
records the file with PYCLIENT_RECORD=1.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyclient.protocol.messages.delete_groups import DeleteGroupsRequest
from pyclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.broker_embedded.groups.group_harness import GroupHarness, Record, run_scenario

ANSWERS = Path(__file__).with_name("kafka_answers.json")


def strangers(harness: GroupHarness) -> None:
    for version in range(5):
        harness.heartbeat("a", "unknown", 1, version)
        harness.heartbeat("a", "", -1, version, group_id="")
    for version in range(6):
        harness.sync("a", "unknown", 1, version)
        harness.sync("a", "", 1, version, group_id="")
    for version in range(10):
        harness.join("a", "unknown", version)
        harness.join("a", "", version, group_id="")
    for version in range(3):
        harness.leave_alone("a", "unknown", version)
    for version in range(3, 6):
        harness.leave("a", ("unknown", None), ("", "static"), ("both", "static"), ("", None), version=version)
    for version in range(6):
        harness.describe("a", version)
    harness.describe("a", 5, include_authorized_operations=True)
    for version in range(3):
        harness.ask("a", "delete", DeleteGroupsRequest(groups_names=[harness.group, ""]), version)
    harness.offset_delete("a")


def bad_joins(harness: GroupHarness) -> None:
    for session in (5_999, 6_000, 1_800_000, 1_800_001, -1, 0):
        harness.join("a", "", 4, session=session)
    harness.join("a", "", 5, protocol_type="")
    harness.join("b", "", 5, protocol_type="", metadata=b"")
    ids = harness.stable("a")
    harness.join("b", "", 5, "other")
    harness.join("b", "", 5, protocol_type="connect")
    harness.join("b", "", 5, protocol_type="")
    harness.join("a", ids["a"], 5, "other", "range", protocol_type="connect")
    harness.sync("a", ids["a"], 1, 5, protocol_type="connect", protocol_name="range")
    harness.sync("a", ids["a"], 1, 5, protocol_type="consumer", protocol_name="other")
    harness.sync("a", ids["a"], 1, 5, protocol_type="consumer", protocol_name="range")
    harness.sync("a", ids["a"], 2, 5)


def one_member(harness: GroupHarness) -> None:
    """Let one member join, commit and leave in every version."""
    for version in range(10):
        joined = harness.join("a", "", version)
        if version >= 4:
            joined = harness.join("a", joined.member_id, version)
        harness.describe()
        harness.heartbeat("a", joined.member_id, joined.generation_id, min(version, 4))
        harness.join("a", joined.member_id, version)
        harness.commit("a", generation_id_or_member_epoch=joined.generation_id, member_id=joined.member_id)
        sync = min(version, 5)
        named = {"protocol_type": "consumer", "protocol_name": "range"} if sync == 5 else {}
        parts = {joined.member_id: b"everything"}
        harness.sync("a", joined.member_id, joined.generation_id, sync, parts=parts, **named)
        harness.describe(version=min(version, 5))
        harness.sync("a", joined.member_id, joined.generation_id, sync)
        harness.sync("a", joined.member_id, joined.generation_id, sync, **named)
        harness.heartbeat("a", joined.member_id, joined.generation_id + 1, min(version, 4))
        harness.commit("a", generation_id_or_member_epoch=joined.generation_id, member_id=joined.member_id)
        if version < 3:
            harness.leave_alone("a", joined.member_id, version)
        else:
            harness.leave("a", (joined.member_id, None), version=min(version, 5))
        harness.describe()
        harness.heartbeat("a", joined.member_id, joined.generation_id)
        harness.commit("a", generation_id_or_member_epoch=joined.generation_id, member_id=joined.member_id)
    harness.ask("a", "delete", DeleteGroupsRequest(groups_names=[harness.group]), 2)
    harness.fetch("a", every=True)


def rebalances(harness: GroupHarness) -> None:
    ids = harness.stable("a", "b")
    harness.join("b", ids["b"])
    harness.join("b", ids["b"], 3, metadata=harness.subscription(harness.other), wait=False)
    harness.wait_for("PreparingRebalance", 2)
    harness.describe()
    harness.heartbeat("a", ids["a"], harness.generation)
    harness.sync("a", ids["a"], harness.generation)
    harness.commit("a", generation_id_or_member_epoch=harness.generation, member_id=ids["a"])
    harness.commit("a")
    joined = harness.join("a", ids["a"])
    harness.answer("b", "join")
    harness.generation = joined.generation_id
    harness.describe()
    harness.join("b", ids["b"], 3, metadata=harness.subscription(harness.other))
    harness.heartbeat("b", ids["b"], harness.generation)
    harness.heartbeat("b", ids["b"], harness.generation - 1)
    harness.commit("b", generation_id_or_member_epoch=harness.generation, member_id=ids["b"])
    harness.sync("b", ids["b"], harness.generation, wait=False)
    harness.join("c", "", 3, wait=False)
    harness.answer("b", "sync")
    harness.wait_for("PreparingRebalance", 3)
    harness.join("a", ids["a"], wait=False)
    harness.join("b", ids["b"], wait=False)
    joined = {member: harness.answer(member, "join") for member in "abc"}
    ids["c"], harness.generation = joined["c"].member_id, joined["a"].generation_id
    harness.share(ids, joined["a"].leader)
    harness.leave("a", (ids["a"], None), ("unknown", None), (ids["b"], None))
    harness.heartbeat("c", ids["c"], harness.generation)
    joined = harness.join("c", ids["c"])
    harness.sync("c", ids["c"], joined.generation_id)
    harness.join("c", ids["c"])


def votes(harness: GroupHarness) -> None:
    first = harness.join("a", "", 3, "sticky", "range", "mine")
    harness.join("b", "", 3, "range", "sticky", wait=False)
    harness.wait_for("PreparingRebalance", 2)
    harness.join("c", "", 3, "range", "sticky", wait=False)
    harness.wait_for("PreparingRebalance", 3)
    harness.join("a", first.member_id, 3, "sticky", "range", "mine", wait=False)
    for member in "abc":
        harness.answer(member, "join")


def known_ids(harness: GroupHarness) -> None:
    given = harness.join("a", "", 4)
    harness.heartbeat("a", given.member_id, -1)
    harness.heartbeat("a", given.member_id, 0)
    harness.sync("a", given.member_id, 0)
    harness.commit("a", member_id=given.member_id)
    joined = harness.join("a", given.member_id, 9)
    harness.sync("a", joined.member_id, joined.generation_id, 4, parts={joined.member_id: b"x"})
    second = harness.join("b", "", 9)
    harness.leave("b", (second.member_id, "static"))
    harness.leave("b", (second.member_id, None))
    harness.join("b", second.member_id, 9)


def static_members(harness: GroupHarness) -> None:
    ids = harness.stable("a", "b", a="one", b="two")
    old = ids["b"]
    for version in (5, 6, 7, 8, 9):
        harness.join("b", "", version, group_instance_id="two")
        joined = harness.join("b", "", version, metadata=harness.subscription(harness.other), group_instance_id="two")
        harness.sync("b", joined.member_id, harness.generation, 3, group_instance_id="two")
        harness.describe()
    ids["b"] = joined.member_id
    harness.heartbeat("b", old, harness.generation, group_instance_id="two")
    harness.heartbeat("b", old, harness.generation)
    harness.heartbeat("b", ids["b"], harness.generation, group_instance_id="three")
    harness.heartbeat("b", ids["b"], harness.generation, group_instance_id="two")
    harness.sync("b", old, harness.generation, 3, group_instance_id="two")
    harness.join("b", old, 5, group_instance_id="two")
    harness.join("b", ids["b"], 5, group_instance_id="three")
    harness.commit("b", generation_id_or_member_epoch=harness.generation, member_id=old, group_instance_id="two")
    harness.commit("b", generation_id_or_member_epoch=harness.generation, member_id=ids["b"], group_instance_id="two")
    harness.leave("b", (old, "two"), (ids["b"], "three"))
    for version in (8, 9):
        joined = harness.join("a", "", version, group_instance_id="one")
        harness.sync("a", joined.member_id, harness.generation, 4, group_instance_id="one")
    ids["a"] = joined.member_id
    harness.join("b", "", 9, "sticky", group_instance_id="two")
    harness.join("b", "", 9, "range", "sticky", metadata=b"x", group_instance_id="two")
    harness.leave("admin", ("", "two"), ("", "absent"))
    harness.heartbeat("a", ids["a"], harness.generation, group_instance_id="one")
    joined = harness.join("a", ids["a"], 9, group_instance_id="one")
    harness.join("a", "", 9, group_instance_id="one")
    harness.describe()


def static_change_of_protocol(harness: GroupHarness) -> None:
    first = harness.join("a", "", 5, "range", "sticky", group_instance_id="one")
    harness.sync("a", first.member_id, 1, group_instance_id="one")
    second = harness.join("a", "", 9, "sticky", group_instance_id="one")
    harness.sync("a", second.member_id, 2, group_instance_id="one")
    harness.describe()
    harness.heartbeat("a", first.member_id, 2, group_instance_id="one")


def offsets(harness: GroupHarness) -> None:
    for version in range(1, 10):
        harness.fetch("a", version)
        if version >= 2:
            harness.fetch("a", version, every=True)
    for version in range(2, 10):
        harness.commit("a", version)
        harness.commit(
            "a", version, group_id=f"{harness.group}-other", generation_id_or_member_epoch=0, member_id="unknown"
        )
        harness.commit("a", version, metadata=None, member_id="unknown")
        harness.commit("a", version, metadata="x" * 4097)
        harness.fetch("a", version)
        harness.fetch("a", version, every=True)
    harness.commit("a", 4, retention_time_ms=86_400_000)
    harness.commit("a", 7, group_id="")
    harness.fetch("a", 1)
    harness.describe()
    harness.list("a")
    ids = harness.stable("b")
    harness.commit("a")
    harness.commit("b", generation_id_or_member_epoch=1, member_id=ids["b"])
    harness.commit("b", generation_id_or_member_epoch=2, member_id=ids["b"])
    harness.commit("b", generation_id_or_member_epoch=-1, member_id=ids["b"])
    harness.commit("b", generation_id_or_member_epoch=1, member_id="")
    harness.commit("b", generation_id_or_member_epoch=1, member_id=ids["b"], group_instance_id="static")
    harness.offset_delete("b")
    harness.ask("b", "delete", DeleteGroupsRequest(groups_names=[harness.group]), 2)
    harness.list("b")
    harness.leave("b", (ids["b"], None))
    harness.list("b")
    harness.offset_delete("b")
    harness.fetch("b", 9, every=True)
    harness.ask("b", "delete", DeleteGroupsRequest(groups_names=[harness.group]), 2)
    harness.list("b")
    harness.describe()


def garbage_subscriptions(harness: GroupHarness) -> None:
    joined = harness.join("a", "", 3, metadata=b"\0")
    harness.sync("a", joined.member_id, 1, parts={joined.member_id: b""})
    harness.commit("a", generation_id_or_member_epoch=1, member_id=joined.member_id)
    harness.offset_delete("a")
    harness.leave("a", (joined.member_id, None))
    joined = harness.join("a", "", 3, protocol_type="connect")
    harness.sync("a", joined.member_id, 3, parts={joined.member_id: b""})
    harness.offset_delete("a")
    harness.describe()


def finding_coordinators(harness: GroupHarness) -> None:
    for version in range(4):
        harness.ask("a", "find", FindCoordinatorRequest(key=harness.group), version)
        harness.ask("a", "find no key", FindCoordinatorRequest(key=""), version)
    harness.ask("a", "find", FindCoordinatorRequest(coordinator_keys=[harness.group, "", "x"]), 4)
    harness.ask("a", "find none", FindCoordinatorRequest(coordinator_keys=[]), 4)


SCENARIOS: tuple[Callable[[GroupHarness], None], ...] = (
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


def replay(scenario: Callable[[GroupHarness], None], bootstrap_servers: str) -> Record:
    """Return the answers of a scenario, in order."""
    return run_scenario(GroupHarness(bootstrap_servers), scenario)
