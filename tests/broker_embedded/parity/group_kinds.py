"""Groups that migrate between the classic and the consumer protocol (KIP-848), and refused migrations."""

from __future__ import annotations

from typing import Any

from pyclient.broker_embedded.groups.log_records import GroupRecord, decode
from pyclient.broker_embedded.groups.partitioning import partition_for_id
from pyclient.protocol import codec
from pyclient.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from pyclient.records import decode_key_values, iter_batches
from tests.broker_embedded.parity.scenario import SETTINGS, Dialogue, Scenario
from tests.waiting import until

GROUP = "g"
TOPIC = "topic-of-two"
SUBSCRIPTION = codec.encode_versioned(ConsumerProtocolSubscription(topics=[TOPIC]), 3)
AT_ONCE = {"group.consumer.assignment.interval.ms": "0"}
"""The scenarios do not wait between two target assignments."""


def _assignment(*partitions: int, user_data: bytes | None = None) -> bytes:
    parts = [ConsumerProtocolAssignmentTopicPartition(topic=TOPIC, partitions=list(partitions))] if partitions else []
    return codec.encode_versioned(ConsumerProtocolAssignment(assigned_partitions=parts, user_data=user_data), 1)


def _prepare(dialogue: Dialogue, *groups: str) -> None:
    dialogue.create_topic(TOPIC, 2)
    dialogue.find_coordinator(*(groups or (GROUP,)))


def _join(dialogue: Dialogue, label: str, *, group: str = GROUP, version: int = 9, **more: Any) -> Any:
    """Join a classic consumer; a member without an id joins with the id that it receives."""
    fields = {
        "group_id": group,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
        **more,
    }
    response = dialogue.request("JoinGroup", version, client=label, **fields)
    if response.error_code == 79:
        response = dialogue.request("JoinGroup", version, client=label, **fields | {"member_id": response.member_id})
    if response.member_id and response.member_id != fields.get("member_id"):
        dialogue.name(response.member_id, f"{label} {version}")
    for member in response.members:
        member.metadata = b""
    dialogue.note(label, response)
    return response


def _stable(dialogue: Dialogue, assignment: bytes, *, group: str = GROUP, **more: Any) -> str:
    """Create a stable group of one classic member; return its id."""
    joined = _join(dialogue, "classic member", group=group, **more)
    member = {"member_id": joined.member_id, "assignment": assignment}
    dialogue.ask(
        "its sync", "SyncGroup", 5, group_id=group, generation_id=joined.generation_id, member_id=joined.member_id,
        protocol_type="consumer", protocol_name="range", assignments=[member], group_instance_id=None,
    )  # fmt: skip
    return str(joined.member_id)


def _beat(dialogue: Dialogue, label: str, member: str, epoch: int, *, group: str = GROUP, **more: Any) -> Any:
    """Send ConsumerGroupHeartbeat; with all fields if the member joins."""
    joining = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [TOPIC], "topic_partitions": []}
    fields = {
        "group_id": group,
        "member_id": member,
        "member_epoch": epoch,
        "rebalance_timeout_ms": -1,
        "subscribed_topic_names": None,
        "topic_partitions": None,
        "instance_id": None,
        "rack_id": None,
        "server_assignor": None,
        "subscribed_topic_regex": None,
        **(joining if epoch == 0 else {}),
        **more,
    }
    return dialogue.ask(label, "ConsumerGroupHeartbeat", 1, **fields)


def _describe(dialogue: Dialogue, label: str, group: str = GROUP) -> None:
    classic = dialogue.request("DescribeGroups", 6, groups=[group]).groups[0]
    dialogue.note(f"{label}: classic", [classic.error_code, classic.error_message, classic.group_state,
                                        [[m.member_id, m.group_instance_id] for m in classic.members]])  # fmt: skip
    consumer = dialogue.request("ConsumerGroupDescribe", 1, group_ids=[group]).groups[0]
    members = [[member.member_id, member.instance_id, member.member_type] for member in consumer.members]
    state = [consumer.error_code, consumer.group_state, consumer.group_epoch, members]
    dialogue.note(f"{label}: consumer", state)


def _log(dialogue: Dialogue, label: str, group: str = GROUP) -> None:
    """Record the classic group's records in `__consumer_offsets`."""
    partition = partition_for_id(group, int(SETTINGS["offsets.topic.num.partitions"]))
    wanted = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    [topic] = dialogue.request(
        "Fetch", 12, max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, replica_id=-1, session_epoch=-1, rack_id="",
        topics=[{"topic": "__consumer_offsets", "partitions": [wanted]}],
    ).responses  # fmt: skip
    data = bytes(topic.partitions[0].records or b"")
    for position, header in iter_batches(data):
        for _offset, _timestamp, key, value in decode_key_values(data, position, header):
            assert key is not None
            record = decode(key, value)
            if isinstance(record, GroupRecord) and record.group_id == group:
                snapshot = record.snapshot
                dialogue.note(label, None if snapshot is None else {
                    "generation": snapshot.generation, "type": snapshot.protocol_type,
                    "protocol": snapshot.protocol_name, "leader": snapshot.leader,
                    "members": [member.member_id for member in snapshot.members],
                })  # fmt: skip


def custom_assignor_keeps_a_group_classic(dialogue: Dialogue) -> None:
    groups = ("with-data", "empty-data", "null-data", "subscription-data", "malformed", "malformed-subscription")
    _prepare(dialogue, *groups)
    _stable(dialogue, _assignment(0, 1, user_data=b"mine"), group="with-data")
    _beat(dialogue, "with user data", "m", 0, group="with-data")
    _describe(dialogue, "with user data", "with-data")
    _stable(dialogue, _assignment(user_data=b"mine"), group="with-data", version=8)
    _stable(dialogue, _assignment(0, 1, user_data=b""), group="empty-data")
    _beat(dialogue, "with empty user data", "m", 0, group="empty-data")
    _stable(dialogue, _assignment(0, 1), group="null-data")
    _beat(dialogue, "without user data", "m", 0, group="null-data")
    data = codec.encode_versioned(ConsumerProtocolSubscription(topics=[TOPIC], user_data=b"mine"), 3)
    _stable(dialogue, _assignment(0), group="subscription-data", protocols=[{"name": "range", "metadata": data}])
    _beat(dialogue, "with user data of a subscription", "m", 0, group="subscription-data")
    _stable(dialogue, b"nonsense", group="malformed")
    _beat(dialogue, "malformed", "m", 0, group="malformed")
    _stable(dialogue, _assignment(0), group="malformed-subscription", protocols=[{"name": "range", "metadata": b"no"}])
    _beat(dialogue, "malformed subscription", "m", 0, group="malformed-subscription")


def new_classic_group_is_in_the_log(dialogue: Dialogue) -> None:
    _prepare(dialogue, "asked", "joined", "refused", "static", "committed")
    fields = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000, "protocol_type": "consumer",
              "protocols": [{"name": "range", "metadata": SUBSCRIPTION}]}  # fmt: skip
    given = dialogue.request("JoinGroup", 9, group_id="asked", **fields)
    dialogue.name(given.member_id, "asked")
    dialogue.note("a member id", given)
    dialogue.request("JoinGroup", 9, group_id="asked", **fields)
    _describe(dialogue, "a member id", "asked")
    _log(dialogue, "log of a member id", "asked")
    dialogue.ask("no such member", "JoinGroup", 9, group_id="refused", member_id="unknown", **fields)
    dialogue.ask("no protocols", "JoinGroup", 5, group_id="refused", **fields | {"protocols": []})
    dialogue.ask("no protocol type", "JoinGroup", 5, group_id="refused", **fields | {"protocol_type": ""})
    _describe(dialogue, "refused", "refused")
    _log(dialogue, "log of refused joins", "refused")
    _stable(dialogue, _assignment(0, 1), group="joined", version=3)
    _stable(dialogue, _assignment(0, 1), group="static", version=9, group_instance_id="i")
    _log(dialogue, "log of a group", "joined")
    _log(dialogue, "log of a static member's group", "static")
    _stable(dialogue, _assignment(0, 1), group="committed", version=2)


def inconsistent_protocol_answers_no_member_id(dialogue: Dialogue) -> None:
    _prepare(dialogue, GROUP, "consumers")
    member = _stable(dialogue, _assignment(0, 1))
    other = {"protocols": [{"name": "other", "metadata": SUBSCRIPTION}]}
    for version in (0, 3, 5, 7, 9):
        _join(dialogue, f"other protocol {version}", version=version, **other)
        _join(dialogue, f"other type {version}", version=version, protocol_type="connect")
        _join(dialogue, f"no protocols {version}", version=version, protocols=[])
        _join(dialogue, f"stranger {version}", version=version, member_id="unknown", **other)
        _join(dialogue, f"known {version}", version=version, member_id=member, **other)
    _beat(dialogue, "consumer", "m", 0, group="consumers")
    _join(dialogue, "other type in consumers", group="consumers", protocol_type="connect")
    _join(
        dialogue, "stranger of other type in consumers", group="consumers", protocol_type="connect", member_id="unknown"
    )
    _join(dialogue, "no protocols in consumers", group="consumers", protocols=[], member_id="unknown")
    _join(dialogue, "malformed in consumers", group="consumers", protocols=[{"name": "range", "metadata": b"no"}])
    _join(dialogue, "stranger in consumers", group="consumers", member_id="unknown")


def classic_member_takes_the_place_of_the_last_consumer(dialogue: Dialogue) -> None:
    _prepare(dialogue, "alone", "two", "others")
    _beat(dialogue, "alone", "m", 0, group="alone", instance_id="i")
    _describe(dialogue, "alone", "alone")
    joined = _join(dialogue, "alone: classic", group="alone", group_instance_id="i")
    _describe(dialogue, "alone, replaced", "alone")
    _beat(dialogue, "alone: the old one", "m", 2, group="alone", instance_id="i")
    dialogue.ask("alone: heartbeat", "Heartbeat", 4, group_id="alone", generation_id=joined.generation_id,
                 member_id=joined.member_id, group_instance_id="i")  # fmt: skip
    dialogue.ask(
        "alone: sync", "SyncGroup", 5, group_id="alone", generation_id=joined.generation_id,
        member_id=joined.member_id, protocol_type="consumer", protocol_name="range", group_instance_id="i",
        assignments=[{"member_id": joined.member_id, "assignment": _assignment(0, 1)}],
    )  # fmt: skip
    _describe(dialogue, "alone, synced", "alone")
    _log(dialogue, "alone: log", "alone")


def classic_member_takes_the_place_of_a_consumer_beside_others(dialogue: Dialogue) -> None:
    _prepare(dialogue, "two")
    _beat(dialogue, "consumer", "m", 0, group="two", instance_id="i")
    _beat(dialogue, "second consumer", "n", 0, group="two")
    _join(dialogue, "classic for i", group="two", group_instance_id="i")
    _describe(dialogue, "a consumer is left", "two")
    _beat(dialogue, "the last consumer leaves", "n", -1, group="two")
    _describe(dialogue, "left", "two")


def consumer_protocol_that_is_off(dialogue: Dialogue) -> None:
    _prepare(dialogue)
    _beat(dialogue, "heartbeat", "m", 0)
    _beat(dialogue, "heartbeat of nothing", "", 3, group="")
    dialogue.ask("describe", "ConsumerGroupDescribe", 1, group_ids=[GROUP, ""])
    _stable(dialogue, _assignment(0, 1))
    _beat(dialogue, "heartbeat to a classic group", "m", 0)


def group_version_0(dialogue: Dialogue) -> None:
    _prepare(dialogue)
    _beat(dialogue, "heartbeat", "m", 0)
    updates = [{"feature": "group.version", "max_version_level": 0, "upgrade_type": 3}]
    assert dialogue.request("UpdateFeatures", 2, feature_updates=updates, timeout_ms=30_000).error_code == 0
    until(lambda: dialogue.request("ConsumerGroupDescribe", 1, group_ids=[GROUP]).groups[0].error_code == 35, "off")
    _beat(dialogue, "heartbeat of a member", "m", 1)
    _beat(dialogue, "heartbeat of a new one", "n", 0)
    dialogue.ask("describe", "ConsumerGroupDescribe", 1, group_ids=[GROUP, ""])


def pattern_is_resolved_after_the_join(dialogue: Dialogue) -> None:
    _prepare(dialogue)
    regex = {"subscribed_topic_names": [], "subscribed_topic_regex": "topic-of-.*"}
    _beat(dialogue, "join", "m", 0, **regex)

    def epoch() -> int:
        return int(dialogue.request("ConsumerGroupDescribe", 1, group_ids=[GROUP]).groups[0].group_epoch)

    until(lambda: epoch() == 2, "the pattern is resolved")
    _describe(dialogue, "resolved")
    _beat(dialogue, "next", "m", 1)
    _beat(dialogue, "with all", "m", 2, topic_partitions=[])
    _beat(dialogue, "second member, same pattern", "n", 0, **regex)
    _describe(dialogue, "two")
    _beat(dialogue, "third member, another pattern and a name", "o", 0,
          subscribed_topic_names=[TOPIC], subscribed_topic_regex="none.*")  # fmt: skip
    _describe(dialogue, "three")


SCENARIOS = (
    Scenario(
        custom_assignor_keeps_a_group_classic,
        AT_ONCE,
        differs={"malformed": "Kafka fails with UNKNOWN_SERVER_ERROR; ours says that the assignment is malformed"},
    ),
    Scenario(new_classic_group_is_in_the_log, AT_ONCE),
    Scenario(
        inconsistent_protocol_answers_no_member_id,
        AT_ONCE,
        differs={"malformed in consumers": "INCONSISTENT_GROUP_PROTOCOL; Kafka fails with UNKNOWN_SERVER_ERROR"},
    ),
    Scenario(classic_member_takes_the_place_of_the_last_consumer, AT_ONCE),
    Scenario(classic_member_takes_the_place_of_a_consumer_beside_others, AT_ONCE),
    Scenario(consumer_protocol_that_is_off, {"group.coordinator.rebalance.protocols": "classic"}),
    Scenario(group_version_0),
    Scenario(pattern_is_resolved_after_the_join, AT_ONCE),
)
