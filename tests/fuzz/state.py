"""The fuzzer's knowledge of the broker: the names that it uses, and ids, epochs and offsets from responses."""

from __future__ import annotations

import uuid
from collections import deque
from random import Random
from typing import Any, Final, NamedTuple

TOPICS: Final = tuple(f"fuzz-{number}" for number in range(8))
GROUPS: Final = tuple(f"classic-{number}" for number in range(4)) + tuple(f"consumer-{number}" for number in range(4))
INSTANCES: Final = ("instance-0", "instance-1", "instance-2")
GOOD: Final = "good-"
"""The prefix of the names of the good client."""
RESERVED: Final = (GOOD, "__")
"""Topics and groups with these prefixes are not learned: the good client's, and those that it depends on."""


class Member(NamedTuple):
    """A group member as the broker last described it."""

    group: str
    member_id: str
    epoch: int
    instance: str | None


class ProducerIdentity(NamedTuple):
    """A producer id with its epoch."""

    producer_id: int
    epoch: int


class Topic(NamedTuple):
    """A topic that existed when the broker last mentioned it."""

    name: str
    topic_id: uuid.UUID


class State:
    """Pools of values from which requests are built; `learn` fills them from answers."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.topics: deque[Topic] = deque(maxlen=32)
        self.members: deque[Member] = deque(maxlen=48)
        self.producers: deque[ProducerIdentity] = deque(maxlen=16)
        self.sessions: deque[list[int]] = deque(maxlen=16)
        self.offsets: deque[int] = deque([0, 1, 2, 5, 10], maxlen=16)
        self.sequences: dict[tuple[int, str, int], int] = {}
        self._known: set[tuple[str, uuid.UUID]] = set()

    def any_topic(self) -> Topic:
        """Return a topic: mostly one that exists, sometimes only a name."""
        if self.topics and self.rng.random() < 0.9:
            return self.rng.choice(self.topics)
        return Topic(self.rng.choice(TOPICS), uuid.UUID(int=self.rng.getrandbits(128)))

    def any_member(self, kind: str = "") -> Member:
        """Return a member, mostly one that joined last, sometimes a new one; `kind` is how its group's name begins.

        Groups of one kind mostly have members of that kind alone: a group that is never of one kind for long has no
        state to mention.
        """
        rng = self.rng
        if self.members and rng.random() < 0.85:
            recent = min(len(self.members), 12 if rng.random() < 0.7 else 48)
            member = self.members[-1 - rng.randrange(recent)]
            if member.group.startswith(kind) or rng.random() < 0.1:
                return member
        groups = [each for each in GROUPS if each.startswith(kind)] if rng.random() < 0.95 else GROUPS
        instance = rng.choice(INSTANCES) if rng.random() < 0.2 else None
        member_id = "" if kind != "consumer" and rng.random() < 0.7 else str(uuid.UUID(int=rng.getrandbits(128)))
        return Member(rng.choice(groups), member_id, 0, instance)

    def any_producer(self) -> ProducerIdentity:
        """Return a producer id: mostly one that the broker gave out, else none."""
        if self.producers and self.rng.random() < 0.8:
            return self.rng.choice(self.producers)
        return ProducerIdentity(-1, -1)

    def any_session(self) -> tuple[int, int]:
        """Return a fetch session and its next epoch, or what asks for a new one."""
        if self.sessions and self.rng.random() < 0.6:
            session = self.rng.choice(self.sessions)
            session[1] += 1
            return session[0], session[1]
        return 0, 0 if self.rng.random() < 0.6 else -1

    def next_sequence(self, producer: ProducerIdentity, topic: str, partition: int, count: int) -> int:
        """Return the sequence number that continues what was sent to a partition."""
        if producer.producer_id < 0:
            return -1
        key = (producer.producer_id << 16 | producer.epoch & 0xFFFF, topic, partition)
        first = self.sequences.get(key, 0)
        if len(self.sequences) > 10_000:
            self.sequences.clear()
        if self.rng.random() < 0.95:
            self.sequences[key] = first + count
        return first

    def learn(self, name: str, answer: Any, asked: Member | None) -> list[str | bytes]:
        """Take what an answer of the API `name` says. Return its ids that another broker would choose differently."""
        learner = _LEARNERS.get(name)
        return [] if learner is None else learner(self, answer, asked)

    def add_topic(self, name: str | None, topic_id: uuid.UUID) -> bool:
        """Take a topic that the broker has. Return True if it is new."""
        if not name or name.startswith(RESERVED) or not topic_id.int or (name, topic_id) in self._known:
            return False
        self.topics.append(Topic(name, topic_id))
        self._known = {(each.name, each.topic_id) for each in self.topics}
        return True


def _metadata(state: State, answer: Any, asked: Member | None) -> list[str | bytes]:
    return [
        each.topic_id.bytes
        for each in answer.topics
        if not each.error_code and state.add_topic(each.name, each.topic_id)
    ]


def _join_group(state: State, answer: Any, asked: Member | None) -> list[str | bytes]:
    if not answer.member_id or asked is None:
        return []
    state.members.append(Member(asked.group, answer.member_id, answer.generation_id, asked.instance))
    return [answer.member_id]


def _heartbeat(state: State, answer: Any, asked: Member | None) -> list[str | bytes]:
    if answer.error_code or not answer.member_id or asked is None:
        return []
    state.members.append(Member(asked.group, answer.member_id, answer.member_epoch, asked.instance))
    return [answer.member_id]


def _init_producer_id(state: State, answer: Any, asked: Member | None) -> list[str | bytes]:
    if not answer.error_code:
        state.producers.append(ProducerIdentity(answer.producer_id, answer.producer_epoch))
    return []


def _fetch(state: State, answer: Any, asked: Member | None) -> list[str | bytes]:
    session = answer.session_id
    if not session or any(each[0] == session for each in state.sessions):
        return []
    state.sessions.append([session, 0])
    return [session.to_bytes(4, "big", signed=True)]


def _produce(state: State, answer: Any, asked: Member | None) -> list[str | bytes]:
    for topic in answer.responses:
        for partition in topic.partition_responses:
            if partition.base_offset > 0:
                state.offsets.append(partition.base_offset)
    return []


_LEARNERS: Final = {
    "Metadata": _metadata,
    "CreateTopics": lambda state, answer, asked: [
        each.topic_id.bytes
        for each in answer.topics
        if not each.error_code and state.add_topic(each.name, each.topic_id)
    ],
    "JoinGroup": _join_group,
    "ConsumerGroupHeartbeat": _heartbeat,
    "InitProducerId": _init_producer_id,
    "Fetch": _fetch,
    "Produce": _produce,
}
