"""Fixtures of the group tests: one classic group with a fake clock, and a coordinator with an in-memory log."""

from __future__ import annotations

import heapq
import itertools
import random

import pytest

from pyclient import errors
from pyclient.broker_embedded.groups.classic import next_deadline, step
from pyclient.broker_embedded.groups.config import GroupConfig
from pyclient.broker_embedded.groups.consumer.topics import KnownTopics
from pyclient.broker_embedded.groups.coordinator import GroupCoordinator
from pyclient.broker_embedded.groups.coordinator_runtime import StoredRecord, TransactionEnd
from pyclient.broker_embedded.groups.events import (
    Answer,
    Heartbeat,
    Join,
    Leave,
    MemberIdentity,
    Protocol,
    Store,
    Stored,
    Sync,
    Tick,
)
from pyclient.broker_embedded.groups.offset_metadata_manager import Commit
from pyclient.broker_embedded.groups.state import ClassicGroup
from pyclient.broker_embedded.log.incremental_task import finished
from pyclient.records import check_crc, decode_key_values, read_header
from pyclient.testing.clock import ManualClock
from pyclient.types import TopicPartition


def protocols(*names: str) -> tuple[Protocol, ...]:
    """Return protocols by name; `range=x` has the metadata `x`."""
    return tuple(Protocol(name.partition("=")[0], name.partition("=")[2].encode()) for name in names)


class Script:
    """Replays a transcript against one group: requests have a name, and `answers[name]` is the answer.

    Ids that the group gives out are `id-1`, `id-2`, ... in order. Stores succeed at once unless `hold` is set.
    """

    def __init__(self, *, initial_delay_ms: int = 0, max_size: int = 100) -> None:
        self.group = ClassicGroup("orders", initial_delay_ms, max_size)
        self.now = 1000.0
        self.answers: dict = {}
        self.stores: list[Store] = []
        self.hold = False
        self.ticks = 0
        self._ids = (f"id-{n}" for n in itertools.count(1))

    def step(self, event) -> None:
        todo = step(self.group, event, self.now)
        while todo:
            action = todo.pop(0)
            if isinstance(action, Answer):
                assert action.reply not in self.answers, f"{action.reply} is answered twice"
                self.answers[action.reply] = action.result
            else:
                self.stores.append(action)
                if not self.hold:
                    todo += step(self.group, Stored(action.serial), self.now)

    def join(self, reply, member_id="", *names, instance=None, known=False, skip=False, session=10, rebalance=60):
        """JoinGroup; `known` requires a known member id (JoinGroup 4), `skip` is skipAssignment (9); times in s."""
        self.step(
            Join(
                reply=reply,
                member_id=member_id,
                fresh_id=next(self._ids) if not member_id else "unused",
                protocol_type="consumer",
                protocols=protocols(*(names or ("range",))),
                session_timeout_ms=session * 1000,
                rebalance_timeout_ms=rebalance * 1000,
                instance_id=instance,
                client_id=reply,
                client_host="/127.0.0.1",
                needs_known_id=known,
                can_skip_assignment=skip,
            )
        )
        return self.answers.get(reply)

    def sync(self, reply, member_id, generation, instance=None, protocol_type=None, protocol_name=None, **assignments):
        """Send SyncGroup; the leader's assignments as keywords, `id_1=b"..."` for `id-1`."""
        self.step(
            Sync(
                reply=reply,
                member_id=member_id,
                generation=generation,
                instance_id=instance,
                protocol_type=protocol_type,
                protocol_name=protocol_name,
                assignments={name.replace("_", "-"): value for name, value in assignments.items()},
            )
        )
        return self.answers.get(reply)

    def heartbeat(self, member_id, generation, instance=None) -> int:
        reply = object()
        self.step(Heartbeat(reply=reply, member_id=member_id, generation=generation, instance_id=instance))
        return self.answers.pop(reply).error

    def leave(self, *members) -> list[int]:
        """Send LeaveGroup of member ids or (member id, instance id) pairs; return the error code of each."""
        reply = object()
        identities = tuple(MemberIdentity(*((m,) if isinstance(m, str) else m)) for m in members)
        self.step(Leave(reply=reply, members=identities))
        result = self.answers.pop(reply)
        assert [identity for identity, _ in result.members] == list(identities)
        return [error for _, error in result.members]

    def stored(self, error: int = 0) -> None:
        """Complete the oldest held store."""
        self.step(Stored(self.stores.pop(0).serial, error))

    def wait(self, seconds: float) -> None:
        """Advance the clock, with a tick at each deadline of the group."""
        end = self.now + seconds
        while (due := next_deadline(self.group)) is not None and due <= end:
            self.now = max(self.now, due)
            self.ticks += 1
            self.step(Tick())
        self.now = end

    @property
    def state(self) -> str:
        return self.group.state.value

    def stable(self, *replies: str) -> None:
        """Add new members, in this order, to a stable group; the first one leads."""
        for reply in replies:
            self.join(reply, "")
        for member_id in list(self.group.members):
            if self.group.members[member_id].join_reply is None:
                self.join(f"again-{member_id}", member_id, "range")
        generation = self.group.generation
        for member_id in sorted(self.group.members, key=lambda name: name == self.group.leader):
            self.sync(
                f"sync-{member_id}",
                member_id,
                generation,
                **{name.replace("-", "_"): f"part of {name}".encode() for name in self.group.members},
            )
        assert self.state == "Stable"


@pytest.fixture
def script() -> Script:
    """Return an empty group that does not wait for more members."""
    return Script()


@pytest.fixture
def delayed() -> Script:
    """Return an empty group with Kafka's initial delay of 3 s."""
    return Script(initial_delay_ms=3000)


@pytest.fixture
def small() -> Script:
    """Return an empty group of at most two members."""
    return Script(max_size=2)


class Timer:
    """A scheduled callback that can be cancelled."""

    def __init__(self, callback) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Node:
    """A coordinator runtime in memory: a log of lists, a fake clock, and timers that `pass_time` runs."""

    def __init__(self, **config) -> None:
        self.clock = ManualClock()
        self.rng = random.Random(7)
        self.group_config = GroupConfig(**{"group_initial_rebalance_delay_ms": 0, **config})
        self.log: list[list] = [[], [], []]
        self.failure: errors.BrokerError | None = None
        self.topics = KnownTopics({})
        self.own_options: dict[str, dict[str, str]] = {}
        self.timers: list = []
        self.order = itertools.count()
        self.restart()

    def restart(self) -> GroupCoordinator:
        """Replace the coordinator by a new one over the same log, without closing the old one."""
        self.timers.clear()
        self.groups = GroupCoordinator(self)
        for partition in range(len(self.log)):
            self.groups.load(partition)
        return self.groups

    def group_options(self, group_id):
        return self.own_options.get(group_id, {})

    def schedule(self, delay, callback):
        assert delay >= 0
        timer = Timer(callback)
        heapq.heappush(self.timers, (self.clock.monotonic() + delay, next(self.order), timer))
        return timer

    def pass_time(self, seconds) -> None:
        end = self.clock.monotonic() + seconds
        while self.timers and self.timers[0][0] <= end:
            due, _, timer = heapq.heappop(self.timers)
            self.clock.advance(max(due - self.clock.monotonic(), 0))
            if not timer.cancelled:
                timer.callback()
        self.clock.advance(max(end - self.clock.monotonic(), 0))

    @property
    def armed(self) -> int:
        return sum(not timer.cancelled for _, _, timer in self.timers)

    def partition_count(self) -> int:
        return len(self.log)

    def append(self, partition, batch) -> None:
        if self.failure is not None:
            raise self.failure
        header = read_header(batch)
        check_crc(batch, 0, header)
        assert header.size == len(batch)
        records = [(key, value) for _, _, key, value in decode_key_values(batch, 0, header)]
        if header.is_transactional:
            records = [StoredRecord(*each, header.producer_id) for each in records]
        self.log[partition] += records

    def end_transaction(self, partition, producer_id, *, commit) -> None:
        """Append a marker, and pass it to the coordinator."""
        self.log[partition].append(TransactionEnd(producer_id, commit))
        self.groups.transaction_ended(partition, producer_id, commit=commit)

    def read_partition(self, partition):
        for each in list(self.log[partition]):
            yield each if isinstance(each, StoredRecord | TransactionEnd) else StoredRecord(*each)


@pytest.fixture
def node() -> Node:
    """Return a coordinator over three empty partitions."""
    return Node()


def committed(node: Node, group: str, commit: Commit) -> dict[TopicPartition, int]:
    """Run all steps of an OffsetCommit; return an error code for each partition."""
    codes: dict[TopicPartition, int] = finished(node.groups.offsets.commit(group, commit))
    return codes
