"""A scripted member of the classic protocol, with its actions in words."""

from __future__ import annotations

from pyclient import errors
from pyclient.assignment import MemberSubscription
from pyclient.consumer.classic_member import ClassicMember
from pyclient.consumer.member import MemberOptions
from pyclient.consumer.member_events import (
    Action,
    Joined,
    PlanAssignment,
    Refused,
    Revoke,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    Synced,
)
from pyclient.types import TopicPartition
from tests.consumer.member_script import MemberScript, names, show_in_any_protocol


def tp(names: str) -> tuple[TopicPartition, ...]:
    """Return partitions: `tp("a0 b1")` is partition 0 of topic a, and 1 of b."""
    return tuple(TopicPartition(name[:-1], int(name[-1])) for name in names.split())


def show(action: Action) -> str:
    match action:
        case SendJoin():
            return (
                f"join node {action.node} as {action.member_id or '?'}, topics {','.join(action.topics)}, owning "
                f"{names(action.owned)} of generation {action.generation}: {action.reason}"
            )
        case PlanAssignment():
            return f"plan {action.protocol} for {','.join(action.members)}"
        case SendSync():
            shares = {member: names(partitions) for member, partitions in action.assignments.items()}
            return f"sync generation {action.generation} as {action.member_id} {shares or ''}".rstrip()
        case SendHeartbeat():
            return f"heartbeat to node {action.node} as {action.member_id}, generation {action.generation}"
        case SendLeave():
            return f"leave as {action.member_id}: {action.reason}"
        case Revoke():
            return f"REVOKE {names(action.partitions)}"
        case _:
            return show_in_any_protocol(action)


class Script(MemberScript):
    """A member; responses belong to the last request by default."""

    JOIN, HEARTBEAT, GONE = SendJoin, SendHeartbeat, errors.UnknownMemberId

    def __init__(self, *, cooperative: bool = False, instance_id: str | None = None) -> None:
        super().__init__()
        self.member = ClassicMember(
            MemberOptions("g", 3.0, 300.0, lambda failures: 0.1 * 2**failures, instance_id, cooperative)
        )

    def show(self, action: Action) -> str:
        return show(action)

    def joined(self, generation: int = 1, *, member_id: str = "m1", leader: bool = False, **members: str) -> list[str]:
        group = {name: MemberSubscription(tuple(topics.split())) for name, topics in members.items()}
        return self.step(Joined(self.last[SendJoin].attempt, member_id, generation, "range", leader, group))

    def synced(self, partitions: str) -> list[str]:
        return self.step(Synced(self.last[SendSync].attempt, tp(partitions)))

    def refused(self, request: type, error: type[errors.KafkaError], member_id: str = "") -> list[str]:
        return self.step(Refused(self.last[request].attempt, error("refused"), member_id))

    def join(self, node: int = 1, reason: str = "subscribed") -> str:
        return f"join node {node} as ?, topics a, owning nothing of generation -1: {reason}"

    def heartbeat(self, node: int = 1) -> str:
        return f"heartbeat to node {node} as m1, generation 1"

    def assigned(self, partitions: str) -> list[str]:
        self.joined()
        return self.synced(partitions)
