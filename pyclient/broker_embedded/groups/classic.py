"""The state machine of a classic consumer group: `step(group, event, now)` changes the group and returns actions.

It has no clock, socket or log: `now` (seconds) is passed in, parked requests are opaque replies, and a write is a
`Store` action that is answered by a `Stored` event. The transitions (KIP-134, KIP-345, KIP-394):

| from                | event                                           | to                  | effect                |
|---------------------|-------------------------------------------------|---------------------|-----------------------|
| Empty               | Join                                            | PreparingRebalance  | parked for the        |
|                     |                                                 |                     | initial delay         |
| PreparingRebalance  | all joined, or the deadline                     | CompletingRebalance | generation + 1, Joins |
|                     |                                                 |                     | answered, absent      |
|                     |                                                 |                     | members removed       |
| PreparingRebalance  | no members are left                             | Empty               | generation + 1        |
| CompletingRebalance | the leader's Sync is stored                     | Stable              | Syncs answered        |
| CompletingRebalance | new or changed member, removal, store failed    | PreparingRebalance  | parked Syncs get      |
|                     |                                                 |                     | REBALANCE_IN_PROGRESS |
| Stable              | new or changed member, leader's Join, removal   | PreparingRebalance  | Heartbeats get        |
|                     |                                                 |                     | REBALANCE_IN_PROGRESS |
| any                 | deleted, or moved to another broker             | Dead                | parked requests fail  |

A removal is a Leave, an expired session, or a member that did not send SyncGroup in time.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, assert_never

from pyclient.broker_embedded.groups import joining, leaving, syncing
from pyclient.broker_embedded.groups.events import (
    NONE,
    Answer,
    Heartbeat,
    HeartbeatResult,
    Join,
    Leave,
    Stored,
    Sync,
    Tick,
)
from pyclient.broker_embedded.groups.state import DEAD, PREPARING
from pyclient.errors import CoordinatorNotAvailable, IllegalGeneration, RebalanceInProgress

if TYPE_CHECKING:
    from pyclient.broker_embedded.groups.events import Action, Event
    from pyclient.broker_embedded.groups.state import ClassicGroup


def step(group: ClassicGroup, event: Event, now: float) -> list[Action]:
    """Apply one event and return the actions to perform, in order."""
    match event:
        case Heartbeat():
            return [Answer(event.reply, HeartbeatResult(_heartbeat(group, event, now)))]
        case Join():
            return joining.join(group, event, now)
        case Sync():
            return syncing.sync(group, event, now)
        case Leave():
            return leaving.leave(group, event, now)
        case Stored():
            return syncing.stored(group, event, now)
        case Tick():
            return leaving.tick(group, now)
        case _:
            assert_never(event)


def _heartbeat(group: ClassicGroup, event: Heartbeat, now: float) -> int:
    if group.state is DEAD:
        return CoordinatorNotAvailable.code
    error = group.check(event.member_id, event.instance_id)
    if error:
        return error
    if event.generation != group.generation:
        return IllegalGeneration.code
    group.refresh(group.members[event.member_id], now)
    return RebalanceInProgress.code if group.state is PREPARING else NONE


def next_deadline(group: ClassicGroup) -> float | None:
    """Return the time of the next `Tick` in seconds of the same clock; None if there is no deadline."""
    sessions = (member.deadline for member in group.members.values())
    deadlines = chain(sessions, group.pending.values(), (group.join_deadline, group.sync_deadline))
    return min((deadline for deadline in deadlines if deadline is not None), default=None)


def next_deadline_of(group: ClassicGroup, event: Join | Sync) -> float | None:
    """Return the earliest deadline that a member's event may have set without a state change of the group."""
    ids = {event.member_id, event.fresh_id} if isinstance(event, Join) else {event.member_id}
    ids.add(group.static_ids.get(event.instance_id or "", ""))
    sessions = (group.members[each].deadline for each in ids if each in group.members)
    pending = (group.pending.get(each) for each in ids)
    deadlines = chain(sessions, pending, (group.join_deadline, group.sync_deadline))
    return min((deadline for deadline in deadlines if deadline is not None), default=None)
