"""Property tests of a classic group: its invariants hold for any order of requests, failures and timeouts."""

from __future__ import annotations

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pyclient import errors
from pyclient.broker_embedded.groups.classic import next_deadline, step
from pyclient.broker_embedded.groups.events import (
    Answer,
    Heartbeat,
    Join,
    JoinResult,
    Leave,
    MemberIdentity,
    Protocol,
    Stored,
    Sync,
    SyncResult,
    Tick,
)
from pyclient.broker_embedded.groups.leaving import mark_dead
from pyclient.broker_embedded.groups.state import ClassicGroup, GroupState

METADATA = {"x": b"", "range": b"r", "sticky": b"s"}
protocol_lists = st.sampled_from([("range",), ("range", "sticky"), ("sticky", "range"), ("sticky",), ("x",)])
small = st.integers(0, 6)


class Group(RuleBasedStateMachine):
    """Random requests of static and dynamic members, with writes that may fail and a clock that jumps."""

    def __init__(self) -> None:
        super().__init__()
        self.group = ClassicGroup("g", initial_delay_ms=2000, max_size=4)
        self.now = 0.0
        self.tokens = itertools.count()
        self.open: dict[int, type] = {}
        self.unstored: list[int] = []
        self.ids = [""]
        self.generation = 0
        self.assigned: dict[tuple[int, str], bytes] = {}

    def apply(self, event) -> None:
        for action in step(self.group, event, self.now):
            self.act(action)

    def act(self, action) -> None:
        if not isinstance(action, Answer):
            self.unstored.append(action.serial)
            return
        kind = self.open.pop(action.reply)  # KeyError: answered twice, or never sent
        assert isinstance(action.result, kind)
        if isinstance(action.result, JoinResult):
            self.check_join(action.result)
        elif isinstance(action.result, SyncResult):
            assert not (action.result.error and action.result.assignment)

    def check_join(self, result: JoinResult) -> None:
        if result.error == errors.MemberIdRequired.code:
            self.ids.append(result.member_id)
        if result.error:
            assert (result.generation, result.members, result.protocol_name) == (-1, (), None)
            return
        self.ids.append(result.member_id)
        assert result.generation == self.group.generation >= 1
        assert result.member_id in self.group.members
        assert result.protocol_name in METADATA
        if result.members:
            assert result.leader == result.member_id
            assert result.member_id in {member.member_id for member in result.members}

    def open_request(self, kind) -> int:
        token = next(self.tokens)
        self.open[token] = kind
        return token

    def recent_id(self, which: int) -> str:
        return self.ids[-1 - which % len(self.ids)]

    @rule(
        which=small,
        names=protocol_lists,
        instance=st.sampled_from([None, None, "one", "two"]),
        known=st.booleans(),
        skip=st.booleans(),
        rebalance=st.sampled_from([0, 1000, 5000, 60_000]),
    )
    def join(self, which, names, instance, known, skip, rebalance):
        self.apply(
            Join(
                reply=self.open_request(JoinResult),
                member_id=self.recent_id(which),
                fresh_id=f"id-{next(self.tokens)}",
                protocol_type="consumer",
                protocols=tuple(Protocol(name, METADATA[name]) for name in names),
                session_timeout_ms=3000,
                rebalance_timeout_ms=rebalance,
                instance_id=instance,
                needs_known_id=known,
                can_skip_assignment=skip,
            )
        )

    @rule(which=small, old=st.booleans(), instance=st.sampled_from([None, None, "one", "two"]))
    def sync(self, which, old, instance):
        self.apply(
            Sync(
                reply=self.open_request(SyncResult),
                member_id=self.recent_id(which),
                generation=self.group.generation - old,
                instance_id=instance,
                assignments={member_id: member_id.encode() for member_id in self.ids},
            )
        )

    @rule(which=small)
    def heartbeat(self, which):
        self.apply(
            Heartbeat(
                reply=self.open_request(object), member_id=self.recent_id(which), generation=self.group.generation
            )
        )

    @rule(which=small, instance=st.sampled_from([None, "one"]))
    def leave(self, which, instance):
        identity = MemberIdentity(self.recent_id(which), instance)
        self.apply(Leave(reply=self.open_request(object), members=(identity,)))

    @rule(fails=st.sampled_from([False, False, False, True]))
    def store(self, fails):
        if self.unstored:
            self.apply(Stored(self.unstored.pop(0), errors.NotCoordinator.code if fails else 0))

    @rule(seconds=st.sampled_from([0.5, 1, 3, 30, 400]))
    def wait(self, seconds):
        end = self.now + seconds
        for _ in range(5_000):
            due = next_deadline(self.group)
            if due is None or due > end:
                break
            self.now = max(self.now, due)
            self.apply(Tick())
        else:
            raise AssertionError("the deadlines do not end")
        self.now = end

    @invariant()
    def generations_only_rise(self):
        assert self.group.generation >= self.generation
        self.generation = self.group.generation

    @invariant()
    def instance_ids_and_protocol_counts_match_members(self):
        group = self.group
        assert group.static_ids == {m.instance_id: m.member_id for m in group.members.values() if m.instance_id}
        assert all(member_id == member.member_id for member_id, member in group.members.items())
        supported = [{protocol.name for protocol in member.protocols} for member in group.members.values()]
        for name in METADATA:
            assert group.supported[name] == sum(name in names for names in supported)
        assert (group.leader in group.members) if group.members else (group.leader is None)
        assert group.unsynced <= set(group.members)

    @invariant()
    def parked_requests_have_a_deadline(self):
        group = self.group
        joins = [m for m in group.members.values() if m.join_reply is not None]
        syncs = [m for m in group.members.values() if m.sync_reply is not None]
        assert not joins or (group.state is GroupState.PREPARING_REBALANCE and group.join_deadline is not None)
        assert not syncs or group.state is GroupState.COMPLETING_REBALANCE
        rejoins = sum(hasattr(waiting, "reply") for waiting in group.storing.values())
        assert len(joins) + len(syncs) + rejoins == len(self.open)
        if group.state is GroupState.COMPLETING_REBALANCE:
            assert group.sync_deadline is not None or group.storing or not group.unsynced
        assert (group.state is GroupState.EMPTY) <= (not group.members)

    @invariant()
    def members_without_parked_request_have_a_session(self):
        for member in self.group.members.values():
            if member.join_reply is None and member.sync_reply is None:
                assert member.deadline is not None

    def teardown(self):
        for action in mark_dead(self.group, errors.NotCoordinator.code):
            self.act(action)
        assert not self.open, "a request was not answered"


Group.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestGroup = Group.TestCase
