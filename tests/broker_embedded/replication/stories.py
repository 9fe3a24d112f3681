"""Runs a story of one replicated partition: commands one a line, and after each what brokers and controller do.

What decides is the broker's own code: `Partition` and `divergence` at the leader, `decide` at a follower,
`LeaderEpochFileCache` in each log, `ClusterControl` and `ReplicationControl` at the controller.

partition 1 2 3 min 2 [elr]   a partition with these replicas and min.insync.replicas; the first one leads
append 1 a b                  let broker 1 append records with acks=all
fetch 2                       let broker 2 fetch from its leader until it has everything
wait 31                       let time pass; the leader checks for followers that lag
kill 1, start 1               end a broker: the controller fences it; start it again: it registers and is unfenced
pause 1, resume 1             let a broker send no heartbeats until it is fenced; let it go on: it is unfenced
stop 1                        stop a broker in order: it leaves its leadership first
reassign 3 4                  let the replicas be on other brokers
unclean                       elect any live replica as the leader
show                          print every broker and what the controller knows
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyclient import errors
from pyclient.broker_embedded.controller.partition_elections import Election
from pyclient.broker_embedded.log.leader_epoch_cache import UNDEFINED, LeaderEpochFileCache
from pyclient.broker_embedded.replication.fetch_reading import divergence
from pyclient.broker_embedded.replication.following import (
    Append,
    FindOffsets,
    Following,
    Ignore,
    Truncate,
    decide,
    restart_offset,
)
from pyclient.broker_embedded.replication.partition import FollowerFetch, IsrChange, Partition
from pyclient.protocol.messages.fetch import EpochEndOffset, FetchPartition, PartitionData
from pyclient.types import TopicPartition
from tests.broker_embedded.controller.cluster_model import TOPIC, ClusterModel, Options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

_TOPIC_PARTITION: Final = TopicPartition("t", 0)


class StoryLog:
    """A log in memory: records with their epochs, and the table of epochs that a log on a disk has."""

    topic, partition = _TOPIC_PARTITION
    start_offset = 0
    failure: str | None = None
    closed = False

    def __init__(self) -> None:
        self.records: list[tuple[int, str]] = []
        self.epochs = LeaderEpochFileCache()
        self.high_watermark = 0

    @property
    def end_offset(self) -> int:
        return len(self.records)

    @property
    def leader_epoch(self) -> int:
        return self.epochs.latest

    def end_offset_for_epoch(self, epoch: int, leader_epoch: int = UNDEFINED) -> tuple[int, int]:
        return self.epochs.end_offset(epoch, self.end_offset, leader_epoch)

    def append(self, records: Iterable[tuple[int, str]]) -> None:
        for epoch, record in records:
            self.epochs.assign(epoch, self.end_offset)
            self.records.append((epoch, record))

    def truncate_to(self, offset: int) -> str:
        """Remove the records from `offset` on, and return them."""
        removed = _texts(self.records[offset:])
        del self.records[offset:]
        self.epochs.truncate_from_end(offset)
        self.high_watermark = min(self.high_watermark, offset)
        return removed

    def advance(self, high_watermark: int) -> None:
        self.high_watermark = max(self.high_watermark, min(high_watermark, self.end_offset))


class StoryBroker:
    """A broker with a replica: its log, and what it knows of the partition."""

    def __init__(self, number: int, model: ClusterModel) -> None:
        self.number = number
        self.log = StoryLog()
        self.incarnation = 1
        self.is_down = self.is_paused = False
        self.clean_epoch = -1
        """The broker epoch of its last incarnation if that stopped in order."""
        self._model = model
        self.partition = self.restarted()

    @property
    def epoch(self) -> int:
        return self._model.image.brokers[self.number].epoch

    def restarted(self) -> Partition:
        """Return the partition as the broker knows it without any metadata."""
        self.partition = Partition(
            self.number, self._model.image.brokers.get, min_isr=self._model.options.min_isr, most_lag=30.0
        )
        return self.partition


class PartitionStory:
    """One partition whose brokers do only what the story says."""

    def __init__(self) -> None:
        self.now = 0.0
        self.lines: list[str] = []
        self.brokers: dict[int, StoryBroker] = {}
        self._model = ClusterModel()

    def run(self, command: str) -> list[str]:
        """Carry out one command; return the lines that it printed."""
        self.lines = []
        name, *words = command.split()
        getattr(self, f"do_{name}")(*words)
        return self.lines

    # Commands

    def do_partition(self, *words: str) -> None:
        at = words.index("min")
        ids = [int(each) for each in words[:at]]
        self._model = ClusterModel(elr="elr" in words, options=Options(int(words[at + 1])))
        self._join(ids)
        self._model.create(ids)
        self._apply_metadata()

    def do_append(self, number: str, *records: str) -> None:
        broker = self.brokers[int(number)]
        partition = broker.partition
        try:
            partition.check_min_isr()
        except errors.NotEnoughReplicas as error:
            self._say(f"{number} refuses {' '.join(records)}: NotEnoughReplicas: {error}")
            return
        self._say(f"{number} appends {' '.join(records)} at {broker.log.end_offset} in epoch {partition.leader_epoch}")
        broker.log.append((partition.leader_epoch, record) for record in records)
        self._advance(broker)

    def do_fetch(self, number: str) -> None:
        broker = self.brokers[int(number)]
        leader = self.brokers.get(broker.partition.leader)
        if leader is None or leader is broker or leader not in self._live():
            self._say(f"{number} has no leader to fetch from")
            return
        log = broker.log
        for _ in range(10):
            request = FetchPartition(
                partition=0,
                current_leader_epoch=broker.partition.leader_epoch,
                fetch_offset=log.end_offset,
                last_fetched_epoch=log.leader_epoch,
                partition_max_bytes=1 << 20,
            )
            answer, records = self._serve(leader, broker, request)
            # The fetch may have been the last one of a reassignment, after which another broker leads.
            match decide(Following(_TOPIC_PARTITION, TOPIC, broker.partition.leader_epoch), request, answer, log):
                case Append(answer):
                    log.append(records)
                    log.advance(answer.high_watermark)
                    if not records:
                        return
                    self._say(f"{number} fetches {_texts(records)}")
                case Truncate(offset):
                    lost = log.truncate_to(offset)
                    self._say(f"{number} diverges from {leader.number} and truncates to {offset}: {lost} is gone")
                case FindOffsets():
                    offset, _is_emptied = restart_offset(
                        leader_start=leader.log.start_offset, leader_end=leader.log.end_offset, end=log.end_offset
                    )
                    lost = log.truncate_to(offset)
                    self._say(
                        f"{number} is out of the range of {leader.number} and goes on at {offset}: {lost} is gone"
                    )
                case Ignore():
                    return
                case step:
                    raise AssertionError(f"{number} gets {answer}: {step}")

    def do_wait(self, seconds: str) -> None:
        self.now += float(seconds)
        for broker in self._live():
            if broker.partition.leads:
                end = broker.log.end_offset
                self._propose(broker, broker.partition.shrink(broker.epoch, end=end, now=self.now))
                self._advance(broker)

    def do_kill(self, number: str) -> None:
        self.brokers[int(number)].is_down = True
        self._control(lambda: self._model.fence(int(number)))

    def do_start(self, number: str) -> None:
        broker = self.brokers[int(number)]
        broker.is_down = False
        broker.restarted()
        broker.incarnation += 1
        clean_epoch, broker.clean_epoch = broker.clean_epoch, -1

        def register() -> None:
            self._model.register(broker.number, broker.incarnation, previous_broker_epoch=clean_epoch)
            self._model.beat(broker.number)

        self._control(register)

    def do_pause(self, number: str) -> None:
        self.brokers[int(number)].is_paused = True
        self._control(lambda: self._model.fence(int(number)))

    def do_resume(self, number: str) -> None:
        self.brokers[int(number)].is_paused = False
        self._control(lambda: self._model.beat(int(number)))

    def do_stop(self, number: str) -> None:
        broker = self.brokers[int(number)]

        def shut_down() -> None:
            for _ in range(5):
                if self._model.beat(broker.number, want_shut_down=True).should_shut_down:
                    return
                for other in self._live():
                    if other is not broker:
                        self._model.beat(other.number)
            raise AssertionError(f"{number} may not stop")

        self._control(shut_down)
        broker.is_down, broker.clean_epoch = True, broker.epoch
        self._say(f"{number} stops")

    def do_reassign(self, *words: str) -> None:
        target = [int(each) for each in words]
        self._join(number for number in target if number not in self.brokers)
        self._append(self._model.replication.reassign("t", 0, target, may_resize=True))

    def do_unclean(self) -> None:
        self._append(self._model.replication.elect_leader("t", 0, Election.UNCLEAN))

    def do_show(self) -> None:
        known = self._model.partition
        elr = f", eligible {_listed(known.elr)}" if self._model.elr else ""
        isr = _listed(known.isr)
        self._say(f"controller: leader {_leader(known.leader)} epoch {known.leader_epoch}, in sync {isr}{elr}")
        for broker in self.brokers.values():
            leads, leader = broker.partition.leads, broker.partition.leader
            role = "leads" if leads else f"follows {_leader(leader)}"
            role = "is paused" if broker.is_paused else "down" if broker.is_down else role
            log = broker.log
            self._say(
                f"{broker.number} {role}, high watermark {log.high_watermark}: {_texts(log.records) or 'nothing'}"
            )

    # The controller

    def _join(self, ids: Iterable[int]) -> None:
        for number in ids:
            self._model.start(number)
            self.brokers[number] = StoryBroker(number, self._model)

    def _append(self, record: object) -> None:
        self._control(lambda: self._model.append([] if record is None else [record]))

    def _control(self, act: Callable[[], object]) -> None:
        """Let the controller act, print what it changed, and let the brokers apply it."""
        known = self._model.partition
        leader, isr, elr, replicas = known.leader, list(known.isr), list(known.elr), list(known.replicas)
        act()
        known = self._model.partition
        changes = []
        if known.leader != leader:
            changes.append(f"leader {_leader(known.leader)} in epoch {known.leader_epoch}")
        if list(known.isr) != isr:
            changes.append(f"in sync {_listed(known.isr)}")
        if list(known.elr) != elr:
            changes.append(f"eligible {_listed(known.elr)}")
        if list(known.replicas) != replicas:
            changes.append(f"replicas {_listed(known.replicas)}")
        if changes:
            self._say(f"controller: {', '.join(changes)}")
        self._apply_metadata()

    def _apply_metadata(self) -> None:
        """Apply the newest metadata at the brokers that run."""
        state = self._model.partition
        for broker in self._live():
            log = broker.log
            if broker.number not in state.replicas:
                self._say(f"{broker.number} deletes its replica")
                del self.brokers[broker.number]
            elif state.leader == broker.number:
                end = log.end_offset
                if broker.partition.lead(state, end=end, high_watermark=log.high_watermark, now=self.now):
                    log.epochs.assign(state.leader_epoch, end)
                    self._say(f"{broker.number} leads epoch {state.leader_epoch} from offset {end}")
                self._advance(broker)
            else:
                broker.partition.follow(state)

    # The brokers

    def _live(self) -> list[StoryBroker]:
        return [broker for broker in self.brokers.values() if not broker.is_down and not broker.is_paused]

    def _serve(
        self, leader: StoryBroker, follower: StoryBroker, request: FetchPartition
    ) -> tuple[PartitionData, list[tuple[int, str]]]:
        """Return the leader's answer to a fetch, and the records that it has."""
        log, partition, diverging = leader.log, leader.partition, None
        answer = PartitionData(partition_index=0, error_code=0, high_watermark=log.high_watermark, records=b"")
        try:
            if request.last_fetched_epoch >= 0:
                diverging = divergence(log, request, partition.leader_epoch)
            elif not log.start_offset <= request.fetch_offset <= log.end_offset:
                raise errors.OffsetOutOfRange
        except errors.OffsetOutOfRange as error:
            answer.error_code = error.code
            return answer, []
        if diverging is not None:
            answer.diverging_epoch = EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.end_offset)
            return answer, []
        fetch = FollowerFetch(follower.number, request.fetch_offset, log.start_offset, follower.epoch)
        partition.check_follower(fetch, request.current_leader_epoch)
        partition.fetched(fetch, end=log.end_offset, now=self.now)
        self._propose(leader, partition.expand(follower.number, leader.epoch))
        self._advance(leader)
        answer.high_watermark = log.high_watermark
        return answer, log.records[request.fetch_offset :]

    def _propose(self, broker: StoryBroker, proposal: IsrChange | None) -> None:
        """Let the controller decide about in-sync replicas that a leader proposes by AlterPartition."""
        if proposal is None:
            return
        self._say(f"{broker.number} proposes in sync {_listed(sorted(proposal.members))}")
        answers: list[Any] = []

        def alter() -> None:
            answer = self._model.alter(
                [number for number, _epoch in proposal.isr],
                sender=broker.number,
                epochs=dict(proposal.isr),
                leader_epoch=proposal.leader_epoch,
                partition_epoch=proposal.partition_epoch,
            )
            answers.append(answer.data)

        self._control(alter)
        [data] = answers
        if data.error_code:
            assert not broker.partition.refused(proposal, data.error_code)
        else:
            broker.partition.accepted(proposal, frozenset(data.isr), data.leader_epoch, data.partition_epoch)

    def _advance(self, broker: StoryBroker) -> None:
        log, before = broker.log, broker.log.high_watermark
        log.advance(broker.partition.advance(end=log.end_offset, now=self.now))
        if log.high_watermark > before:
            committed = _texts(log.records[before : log.high_watermark])
            self._say(f"{broker.number} commits {committed}: high watermark {log.high_watermark}")

    def _say(self, line: str) -> None:
        self.lines.append(line)


def _texts(records: Iterable[tuple[int, str]]) -> str:
    return " ".join(record for _epoch, record in records)


def _listed(ids: Any) -> str:
    return "[" + " ".join(map(str, ids)) + "]"


def _leader(number: int) -> str:
    return "none" if number < 0 else str(number)


def run_story(path: Path) -> str:
    """Run a story file; return it with the output that its commands give now."""
    story = PartitionStory()
    written: list[str] = []
    for line in path.read_text().splitlines():
        if line.startswith(">"):
            continue
        written.append(line)
        if line and not line.startswith("#"):
            written.extend(f"> {each}" for each in story.run(line))
    return "\n".join(written) + "\n"
