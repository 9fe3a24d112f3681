"""`__consumer_offsets`: its creation, and the coordinator's answers before it exists."""

from __future__ import annotations

from tests.broker_embedded.parity.scenario import Dialogue, Scenario
from tests.waiting import until

_JOIN = {
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 1000,
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b""}],
}
_ONE = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 3}]}]
_CONSUMER = {
    "member_id": "m",
    "member_epoch": 0,
    "rebalance_timeout_ms": 1000,
    "subscribed_topic_names": ["t"],
    "topic_partitions": [],
}


def _group_requests(dialogue: Dialogue) -> None:
    group = "g"
    dialogue.ask("fetch", "OffsetFetch", 5, group_id=group, topics=None)
    dialogue.ask("fetch of groups", "OffsetFetch", 8, groups=[{"group_id": group, "topics": None}])
    dialogue.ask("commit", "OffsetCommit", 7, group_id=group, generation_id_or_member_epoch=-1, topics=_ONE)
    joined = dialogue.request("JoinGroup", 3, group_id=group, **_JOIN)
    dialogue.name(joined.member_id or "no member", "member")
    dialogue.note("join", joined)
    dialogue.ask("join without a group", "JoinGroup", 3, **_JOIN | {"group_id": ""})
    dialogue.ask("join with a short session", "JoinGroup", 3, group_id=group, **_JOIN | {"session_timeout_ms": 1})
    dialogue.ask("sync", "SyncGroup", 3, group_id=group, generation_id=1, member_id="m")
    dialogue.ask("heartbeat", "Heartbeat", 3, group_id=group, generation_id=1, member_id="m")
    dialogue.ask("leave alone", "LeaveGroup", 2, group_id=group, member_id="m")
    dialogue.ask("leave", "LeaveGroup", 3, group_id=group, members=[{"member_id": "m"}])
    for version in (5, 6):
        dialogue.ask(f"describe {version}", "DescribeGroups", version, groups=[group, ""])
    dialogue.ask("list", "ListGroups", 4)
    dialogue.ask("delete", "DeleteGroups", 2, groups_names=[group, ""])
    partitions = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    dialogue.ask("delete offsets", "OffsetDelete", 0, group_id=group, topics=partitions)
    answer = dialogue.request("ConsumerGroupHeartbeat", 1, group_id="new", **_CONSUMER)
    dialogue.note("consumer heartbeat", [answer.error_code, answer.member_epoch])
    dialogue.ask("consumer heartbeat without a group", "ConsumerGroupHeartbeat", 1, group_id="", **_CONSUMER)
    described = dialogue.request("ConsumerGroupDescribe", 0, group_ids=[group, ""]).groups
    dialogue.note("describe consumer groups", [[each.group_id, each.error_code] for each in described])
    [topic] = dialogue.request(
        "Metadata", 8, topics=[{"name": "__consumer_offsets"}], allow_auto_topic_creation=False
    ).topics
    dialogue.note("the topic", [topic.error_code, topic.is_internal, len(topic.partitions)])


def offsets_topic_is_created_by_find_coordinator(dialogue: Dialogue) -> None:
    dialogue.create_topic("t")
    _group_requests(dialogue)
    dialogue.find_coordinator("g", "new")
    _group_requests(dialogue)


def offsets_topic_is_created_by_create_topics(dialogue: Dialogue) -> None:
    dialogue.create_topic("t")
    _group_requests(dialogue)
    dialogue.create_topic("__consumer_offsets", 5)
    until(
        lambda: all(
            dialogue.request("OffsetFetch", 5, group_id=group, topics=None).error_code == 0 for group in ("g", "new")
        ),
        "the groups are coordinated",
    )
    _group_requests(dialogue)


SCENARIOS = (
    Scenario(offsets_topic_is_created_by_find_coordinator),
    Scenario(offsets_topic_is_created_by_create_topics),
)
