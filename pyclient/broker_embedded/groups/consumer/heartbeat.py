"""ConsumerGroupHeartbeat of a member that joins or stays: subscription, target assignment, reconciliation.

The group is not changed here: the decision has the records that change it once they are in the log.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyclient.broker_embedded.groups.consumer.events import ConsumerAnswer, Decision
from pyclient.broker_embedded.groups.consumer.membership import admit
from pyclient.broker_embedded.groups.consumer.model import JOINING, owned
from pyclient.broker_embedded.groups.consumer.planning import Plan

if TYPE_CHECKING:
    from pyclient.broker_embedded.groups.consumer.events import ConsumerHeartbeat, Limits
    from pyclient.broker_embedded.groups.consumer.model import MemberMetadata, Record
    from pyclient.broker_embedded.groups.consumer.state import ConsumerGroup
    from pyclient.broker_embedded.groups.consumer.topics import Topics


def heartbeat(group: ConsumerGroup, event: ConsumerHeartbeat, topics: Topics, limits: Limits, now_ms: int) -> Decision:
    """Decide on one heartbeat. Raise the `BrokerError` for the response."""
    records: list[Record] = []
    before = admit(group, event, limits, records)
    member = replace(before, metadata=updated(before.metadata, event))
    plan = Plan(group, before, member, topics, limits, now_ms, records)
    plan.update_subscription()
    plan.update_target()
    current = plan.reconcile(event.owned)
    assignment = None
    if event.member_epoch == JOINING or event.is_full or owned(current.assigned) != owned(before.current.assigned):
        assignment = owned(current.assigned)
    answer = ConsumerAnswer(member.member_id, current.epoch, assignment)
    return Decision(answer, records, must_resolve=plan.must_resolve)


def updated(metadata: MemberMetadata, event: ConsumerHeartbeat) -> MemberMetadata:
    """Return the member's metadata after this heartbeat. The sender uses the consumer protocol from now on."""
    topics = metadata.topics if event.topics is None else tuple(sorted(set(event.topics)))
    return replace(
        metadata,
        instance_id=metadata.instance_id if event.instance_id is None else event.instance_id,
        rack_id=metadata.rack_id if event.rack_id is None else event.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        topics=topics,
        regex=metadata.regex if event.regex is None else event.regex,
        rebalance_timeout_ms=_given(event.rebalance_timeout_ms, metadata.rebalance_timeout_ms),
        assignor=metadata.assignor if event.assignor is None else event.assignor,
        classic=None,
    )


def _given(value: int, otherwise: int) -> int:
    return otherwise if value == -1 else value
