"""Property tests of a consumer group: no partition has two owners, and every partition gets one."""

from __future__ import annotations

from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyclient import errors
from pyclient.broker_embedded.groups.consumer.events import ConsumerAnswer, ConsumerHeartbeat
from pyclient.broker_embedded.groups.consumer.model import GroupPhase
from pyclient.broker_embedded.groups.consumer.state import ConsumerGroup
from pyclient.broker_embedded.groups.consumer.topics import KnownTopics, TopicInfo
from pyclient.broker_embedded.groups.coordinator import GroupCoordinator
from tests.broker_embedded.groups.conftest import Node

GROUP = "g"
KEPT = (
    "epoch",
    "metadata_hash",
    "target_epoch",
    "target_made_ms",
    "members",
    "targets",
    "regexes",
    "static_ids",
    "owners",
)
subscriptions = st.sampled_from([("a",), ("a", "b"), ("b", "c"), ("none",), ()])
regexes = st.sampled_from(["", "", "[ab]", "c.*"])
which = st.integers(0, 5)


class Client:
    """A correct client: it uses assigned partitions immediately and revokes those no longer assigned."""

    def __init__(self, member_id: str, instance_id: str | None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.epoch = 0
        self.topics: tuple[str, ...] = ()
        self.regex = ""
        self.assignor: str | None = None
        self.assigned: set[tuple[UUID, int]] = set()
        self.uses: set[tuple[UUID, int]] = set()
        self.in_group = False

    def heartbeat(self, *, full: bool) -> ConsumerHeartbeat:
        owned: dict[UUID, frozenset[int]] = {}
        for topic_id, partition in self.uses:
            owned[topic_id] = owned.get(topic_id, frozenset()) | {partition}
        full = full or self.epoch == 0
        return ConsumerHeartbeat(
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=20_000 if full else -1,
            topics=self.topics if full else None,
            regex=self.regex if full else None,
            assignor=self.assignor,
            owned=owned,
        )

    def hear(self, answer: ConsumerAnswer) -> None:
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.assigned = {(topic, partition) for topic, parts in answer.assignment.items() for partition in parts}
            self.uses |= self.assigned

    def lose_all(self) -> None:
        self.epoch = 0
        self.uses.clear()
        self.assigned.clear()


class Members(RuleBasedStateMachine):
    """Up to six static and dynamic clients, and a coordinator with failing writes and restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.node = Node(group_consumer_assignment_interval_ms=0, group_consumer_max_size=5)
        self.sizes = {"a": 3, "b": 2}
        self.publish()
        instances = (None, None, None, None, "one", "one")
        self.clients = [Client(f"m{number}", instance) for number, instance in enumerate(instances)]
        self.epochs = (0, 0)

    def publish(self) -> None:
        version = self.node.topics.version + 1
        known = {name: TopicInfo(UUID(int=ord(name[0])), size) for name, size in self.sizes.items()}
        self.node.topics = KnownTopics(known, version)

    @property
    def group(self) -> ConsumerGroup | None:
        entry = self.node.groups.groups.find(GROUP)
        return None if entry is None else entry.consumer

    def send(self, client: Client, *, full: bool = False, lost: bool = False) -> None:
        try:
            answer = self.node.groups.consumer_heartbeat(GROUP, client.heartbeat(full=full), makes_own_id=True)
        except (errors.FencedMemberEpoch, errors.UnknownMemberId, errors.FencedInstanceId, errors.GroupIdNotFound):
            client.lose_all()
        except (errors.UnreleasedInstanceId, errors.GroupMaxSizeReached, errors.CoordinatorNotAvailable):
            pass
        else:
            if not lost:
                client.hear(answer)

    @rule(n=which, topics=subscriptions, regex=regexes, assignor=st.sampled_from([None, None, "range", "uniform"]))
    def join_or_subscribe(self, n, topics, regex, assignor):
        client = self.clients[n]
        client.topics, client.regex, client.assignor = topics, regex, assignor
        self.send(client, full=True)

    @rule(n=which, lost=st.sampled_from([False, False, True]))
    def beat(self, n, lost):
        if self.clients[n].epoch > 0:
            self.send(self.clients[n], lost=lost)

    @rule(n=which)
    def give_up_what_it_should(self, n):
        self.clients[n].uses &= self.clients[n].assigned

    @rule(n=which)
    def crash(self, n):
        self.clients[n].lose_all()

    @rule(n=which, shortly=st.booleans())
    def leave(self, n, shortly):
        client = self.clients[n]
        if client.epoch > 0:
            client.uses.clear()
            client.epoch = -2 if shortly and client.instance_id is not None else -1
            self.send(client)
            client.lose_all()

    @rule(seconds=st.sampled_from([1, 10, 25, 50]))
    def wait(self, seconds):
        end = self.node.clock.monotonic() + seconds
        alive = self.group is not None and any(ends > end for ends in self.group.sessions.values())
        self.node.pass_time(seconds)
        if self.group is None:  # expiration, every ten minutes, deletes an unused group with its epochs
            assert not alive
            assert coordinator_over(self.node.log, self.node.topics).groups.find(GROUP) is None
            self.epochs = (0, 0)

    @rule(name=st.sampled_from("abc"), size=st.integers(0, 4))
    def change_topics(self, name, size):
        if size == 0:
            self.sizes.pop(name, None)
        else:
            self.sizes[name] = max(self.sizes.get(name, 0), size)
        self.publish()

    @rule(n=which)
    def the_log_fails(self, n):
        before = None if self.group is None else kept(self.group)
        self.node.failure = errors.NotEnoughReplicas("not now")
        self.send(self.clients[n], full=True)
        self.node.failure = None
        assert before == (None if self.group is None else kept(self.group))

    @precondition(lambda self: self.group is not None)
    @rule()
    def restart(self):
        assert self.group is not None
        before = kept(self.group)
        self.node.restart()
        assert kept(self.group) == before

    @invariant()
    def no_member_uses_what_another_one_uses(self):
        group = self.group
        used: set[tuple[UUID, int]] = set()
        for client in self.clients:
            member = None if group is None else group.members.get(client.member_id)
            if member is not None and member.current.epoch != -2:  # the other clients were removed from the group
                assert not client.uses & used
                used |= client.uses

    @invariant()
    def the_table_of_owners_is_right(self):
        if self.group is None:
            return
        owners: dict[tuple[UUID, int], str] = {}
        for member in self.group.members.values():
            for topic_id, partitions in member.current.held().items():
                for partition in partitions:
                    assert (topic_id, partition) not in owners, "two members have it"
                    owners[topic_id, partition] = member.member_id
        assert owners == self.group.owners
        names = {m.metadata.instance_id: m.member_id for m in self.group.members.values() if m.metadata.instance_id}
        assert names == self.group.static_ids

    @invariant()
    def epochs_only_rise(self):
        group = self.group
        epochs = (0, 0) if group is None else (group.epoch, group.target_epoch)
        assert epochs >= self.epochs
        assert epochs[1] <= epochs[0]
        self.epochs = epochs

    @invariant()
    def a_replay_gives_the_same_group(self):
        if self.group is None:
            return
        assert kept(replayed(self.node, compacted=True)) == kept(self.group)

    @invariant()
    def every_member_has_a_session_that_ends(self):
        if self.group is not None:
            assert self.group.sessions.keys() == self.group.members.keys()
            assert self.group.revocations.keys() <= self.group.members.keys()
            assert not self.group.members or self.node.armed

    def teardown(self):
        """After enough heartbeats of all clients, every subscribed partition has an owner."""
        for client in self.clients:
            client.lose_all()
        self.node.pass_time(60)
        assert self.group is None or not self.group.members
        living = [client for client in self.clients[:5] if client.topics or client.regex]
        for _ in range(12):
            for client in living:
                self.send(client, full=client.epoch == 0)
                client.uses &= client.assigned
                self.node.pass_time(0)  # resolves regular expressions, which follows the heartbeat
        if not living:
            return
        group = self.group
        assert group is not None
        assert group.phase is GroupPhase.STABLE
        read = {name for name in group.subscribed_topics() if name in self.sizes}
        everything = {(UUID(int=ord(name[0])), number) for name in read for number in range(self.sizes[name])}
        assert group.owners.keys() == everything
        assert {partition for client in living for partition in client.uses} == everything


def kept(group: ConsumerGroup) -> dict[str, object]:
    """Return the group's state that is in the log."""
    return {name: getattr(group, name) for name in KEPT}


def replayed(node: Node, *, compacted: bool) -> ConsumerGroup:
    """Return the group as a new coordinator loads it."""
    log = [list(partition) for partition in node.log]
    if compacted:
        last = [{key: place for place, (key, _) in enumerate(partition)} for partition in log]
        log = [
            [record for place, record in enumerate(partition) if places[record[0]] == place and record[1] is not None]
            for partition, places in zip(log, last, strict=True)
        ]
    entry = coordinator_over(log, node.topics).groups.find(GROUP)
    assert entry is not None
    assert entry.consumer is not None
    return entry.consumer


def coordinator_over(log: list[list], topics: KnownTopics) -> GroupCoordinator:
    """Return a new coordinator with this log."""
    other = Node()
    other.log, other.topics = log, topics
    return other.restart()


Members.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestMembers = Members.TestCase
