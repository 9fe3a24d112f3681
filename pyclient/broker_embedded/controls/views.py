"""Groups and topics of a node as the controls show them, and the conditions that a test can wait for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.dispatch import handler_of
from pyclient.broker_embedded.log.incremental_task import finished
from pyclient.broker_embedded.replication.unopened_logs import opened
from pyclient.broker_embedded.request_context import RequestContext
from pyclient.broker_embedded.served_apis import SERVED
from pyclient.config.options import nearest
from pyclient.errors import ConfigError
from pyclient.protocol.messages.describe_groups import DescribeGroupsRequest
from pyclient.protocol.messages.list_groups import ListGroupsRequest
from pyclient.protocol.versions import API_KEYS
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from pyclient.broker_embedded.broker import BrokerNode
    from pyclient.protocol.fields import Request

POLL_SECONDS: Final = 0.005
"""Seconds between two polls of a wait."""

STATES: Final = (
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Assigning",
    "Reconciling",
)
"""The states of groups: those of classic groups, then those of KIP-848."""

_DEAD: Final = "Dead"
_CONSUMER: Final = "consumer"
_STATES_SINCE: Final = 4
_BRIEF: Final = 300


async def groups(node: BrokerNode) -> list[dict[str, Any]]:
    """Return the groups that the node coordinates: their ids, states and types."""
    listed = await _ask(node, ListGroupsRequest())
    found = [
        {
            "group": each.group_id,
            "state": each.group_state,
            "type": each.group_type.lower() or "classic",
            "protocol_type": each.protocol_type,
        }
        for each in listed.groups
    ]
    return sorted(found, key=lambda each: str(each["group"]))


async def group(node: BrokerNode, group_id: str) -> dict[str, Any]:
    """Return a group with its members. One that does not exist is Dead and has no members, as in Kafka."""
    known = next((each for each in await groups(node) if each["group"] == group_id), None)
    if known is None:
        return {"group": group_id, "state": _DEAD, "type": "", "protocol_type": "", "members": []}
    if known["type"] == _CONSUMER:
        from pyclient.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest

        request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
        members = [(member, member.instance_id) for member in (await _ask(node, request)).groups[0].members]
    else:
        described = await _ask(node, DescribeGroupsRequest(groups=[group_id]))
        members = [(member, member.group_instance_id) for member in described.groups[0].members]
    return known | {
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host.removeprefix("/"),
            }
            for member, instance_id in members
        ]
    }


def group_condition(state: object, members: int | None) -> Callable[[dict[str, Any]], bool]:
    """Return a check that a group is in one of the states and has that many members; without both, that it exists.

    Raise `ConfigError` for an unknown state.
    """
    wanted = {_state(each) for each in _texts(state)}

    def fits(seen: dict[str, Any]) -> bool:
        if not wanted and members is None:
            return bool(seen["state"] != _DEAD)
        return (not wanted or seen["state"] in wanted) and members in (None, len(seen["members"]))

    return fits


async def topic(node: BrokerNode, name: str) -> dict[str, Any]:
    """Return a topic with the offsets of its partitions; one that does not exist has no partitions."""
    image = node.image.topics.get(name)
    if image is None:
        return {"topic": name, "topic_id": None, "partitions": []}
    partitions = []
    over = opened(node.services, (TopicPartition(name, index) for index in image.partitions))
    if over is not None:
        await over
    for index in sorted(image.partitions):
        log = node.partitions.existing(name, index)
        partitions.append(
            {
                "partition": index,
                "leader": image.partitions[index].leader,
                "leader_epoch": image.partitions[index].leader_epoch,
                "partition_epoch": image.partitions[index].partition_epoch,
                "replicas": list(image.partitions[index].replicas),
                "isr": list(image.partitions[index].isr),
                "start_offset": 0 if log is None else log.start_offset,
                "end_offset": 0 if log is None else log.end_offset,
                "high_watermark": 0 if log is None else log.high_watermark,
                "last_stable_offset": 0 if log is None else log.last_stable_offset,
            }
        )
    return {"topic": name, "topic_id": str(image.topic_id), "partitions": partitions}


def topic_condition(partitions: int | None, records: int | None) -> Callable[[dict[str, Any]], bool]:
    """Return a check that a topic has at least that many partitions, and offsets for that many records."""

    def fits(seen: dict[str, Any]) -> bool:
        found = seen["partitions"]
        in_all = sum(each["end_offset"] - each["start_offset"] for each in found)
        return len(found) >= (1 if partitions is None else partitions) and in_all >= (records or 0)

    return fits


def brief(seen: Mapping[str, Any]) -> str:
    """Return the last state in short, for an error text."""
    text = ", ".join(f"{name}={value}" for name, value in seen.items())
    return text if len(text) <= _BRIEF else f"{text[:_BRIEF]}..."


async def _ask(node: BrokerNode, request: Request[Any]) -> Any:
    """Return the node's answer to a request of a client, in the newest version."""
    name = type(request).name
    context = RequestContext(node, API_KEYS[name], SERVED[name].last, "control", None)  # type: ignore[arg-type]
    answer = finished(handler_of(name)(request, context))
    return await answer if isinstance(answer, Awaitable) else answer


def _texts(given: object) -> list[str]:
    if given is None:
        return []
    several = given.split(",") if isinstance(given, str) else given
    if not isinstance(several, list) or not all(isinstance(each, str) for each in several):
        raise ConfigError(f"state is {given!r:.100}: it must be a text, or a list of texts")
    return [each.strip() for each in several]


def _state(text: str) -> str:
    plain = text.replace("_", "").replace(" ", "").lower()
    for state in STATES:
        if state.lower() == plain:
            return state
    raise ConfigError(f"state is {text!r}: it must be one of {', '.join(STATES)}{nearest(text.capitalize(), STATES)}")
