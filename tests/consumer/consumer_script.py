"""A scripted member of the consumer protocol (KIP-848), with its actions in words; topic a has id 1, b id 2, ..."""

from __future__ import annotations

import uuid

from pyclient import errors
from pyclient.consumer.consumer_member import ConsumerMember
from pyclient.consumer.member import MemberOptions
from pyclient.consumer.member_events import (
    Action,
    ConsumerHeartbeatAnswered,
    IdPartitions,
    InstanceReleased,
    Refused,
    ReleaseInstance,
    ResolveTopics,
    SendConsumerHeartbeat,
    SendLeave,
    TopicsResolved,
)
from tests.consumer.member_script import MemberScript, show_in_any_protocol

INTERVAL = 5.0


def topic_id(name: str) -> uuid.UUID:
    return uuid.UUID(int=ord(name) - ord("a") + 1)


def topic_name(topic: uuid.UUID) -> str:
    return chr(topic.int - 1 + ord("a"))


def ids(names: str) -> IdPartitions:
    """Return partitions by their topics' ids: `ids("a0 b1")` is partition 0 of topic a, and 1 of b."""
    return tuple((topic_id(name[0]), int(name[1:])) for name in names.split())


def show_ids(partitions: IdPartitions) -> str:
    return " ".join(f"{topic_name(topic)}{number}" for topic, number in partitions) or "nothing"


def show(action: Action) -> str:
    match action:
        case SendConsumerHeartbeat():
            said = [f"node {action.node}", f"epoch {action.epoch}"]
            said += ["everything"] if action.complete else []
            said += [f"topics {','.join(action.topics)}"] if action.topics is not None else []
            said += [f"pattern {action.pattern!r}"] if action.pattern is not None else []
            said += [f"owning {show_ids(action.owned)}"] if action.owned is not None else []
            return f"heartbeat: {', '.join(said)}"
        case ResolveTopics():
            return f"resolve {' '.join(topic_name(topic) for topic in action.topic_ids)}"
        case ReleaseInstance():
            return f"release the instance id of {action.member_id} at node {action.node}"
        case SendLeave():
            return f"leave: {action.reason}"
        case _:
            return show_in_any_protocol(action)


RELEASE = "release the instance id of m at node 1"
JOIN = "heartbeat: node 1, epoch 0, everything, topics a, owning nothing"


class Script(MemberScript):
    """A member; responses belong to the last request of their kind."""

    JOIN = HEARTBEAT = SendConsumerHeartbeat
    GONE = errors.FencedMemberEpoch

    def __init__(self, *, instance_id: str | None = None) -> None:
        super().__init__()
        options = MemberOptions("g", INTERVAL, 300.0, lambda failures: 0.1 * 2**failures, instance_id)
        self.member = ConsumerMember(options, "m")

    def show(self, action: Action) -> str:
        return show(action)

    def heartbeat_answered(self, epoch: int, partitions: str | None = None) -> list[str]:
        """Complete the heartbeat; with `partitions` the coordinator assigns them."""
        assigned = None if partitions is None else ids(partitions)
        return self.step(ConsumerHeartbeatAnswered(self.last[SendConsumerHeartbeat].attempt, epoch, INTERVAL, assigned))

    def resolved(self, names: str) -> list[str]:
        found = {topic_id(name): name for name in names.split()}
        return self.step(TopicsResolved(self.last[ResolveTopics].attempt, found))

    def released(self) -> list[str]:
        return self.step(InstanceReleased(self.last[ReleaseInstance].attempt))

    def refused(self, request: type, error: type[errors.KafkaError]) -> list[str]:
        return self.step(Refused(self.last[request].attempt, error("refused")))

    def join(self, node: int = 1, _reason: str = "") -> str:
        return f"heartbeat: node {node}, epoch 0, everything, topics a, owning nothing"

    def heartbeat(self, node: int = 1) -> str:
        return f"heartbeat: node {node}, epoch 1"

    def assigned(self, partitions: str) -> list[str]:
        self.heartbeat_answered(1, partitions)
        return self.resolved("a b")

    def settle(self) -> None:
        super().settle()
        self.heartbeat_answered(1)
