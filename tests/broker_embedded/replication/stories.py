"""Runs a story of one replicated partition: commands one a line, and after each what brokers and controller do.

The brokers decide by `Partition`, the controller by `PartitionChange`, and logs are compared by their epochs.

partition 1 2 3 min 2 [elr]   a partition with these replicas and min.insync.replicas; the first one leads
append 1 a b                  let broker 1 append records with acks=all
fetch 2                       let broker 2 fetch from its leader until it has everything
wait 31                       let time pass; the leader looks for followers that lag
kill 1, start 1               end a broker: the controller fences it; start it again: it is unfenced
stop 1                        stop a broker in order: it leaves its leadership first
reassign 3 4                  let the replicas be on other brokers
unclean                       elect any live replica as the leader
show                          print every broker and what the controller knows
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from pyclient import errors
from pyclient.broker_embedded.controller import reassignment
from pyclient.broker_embedded.controller.image import MetadataImage, PartitionImage
from pyclient.broker_embedded.controller.partition_elections import Election, ElectionRules, PartitionChange
from pyclient.broker_embedded.controller.raft.replica_log import Diverging, ReplicaLog
from pyclient.broker_embedded.replication.partition import FollowerFetch, IsrChange, Partition
from pyclient.protocol.messages.metadata_log import PartitionRecord, TopicRecord

if TYPE_CHECKING:
    from pathlib import Path

_TOPIC_ID = UUID(int=7)
_LEVEL = 30


class StoryBroker:
    """A registered broker with a replica: its log as (epoch, record) pairs, and what it knows of the partition."""

    def __init__(self, number: int, brokers: dict[int, StoryBroker], min_isr: int) -> None:
        self.number = number
        self.epoch = number * 100
        self.fenced = False
        self.in_controlled_shutdown = False
        self.log: list[tuple[int, str]] = []
        self.partition = Partition(number, brokers.get, min_isr=min_isr)

    def view(self) -> ReplicaLog:
        """Return the offsets and epochs of the log."""
        epochs: list[tuple[int, int]] = []
        for offset, (epoch, _record) in enumerate(self.log):
            if not epochs or epochs[-1][0] != epoch:
                epochs.append((epoch, offset))
        return ReplicaLog(end_offset=len(self.log), epochs=epochs)


class PartitionStory:
    """One partition whose brokers do only what the story says."""

    def __init__(self) -> None:
        self.now = 0.0
        self.lines: list[str] = []
        self.brokers: dict[int, StoryBroker] = {}
        self._image = MetadataImage()
        self._min_isr = 1
        self._elr = False

    def run(self, command: str) -> list[str]:
        """Carry out one command; return the lines that it printed."""
        self.lines = []
        name, *words = command.split()
        getattr(self, f"do_{name}")(*words)
        return self.lines

    # Commands

    def do_partition(self, *words: str) -> None:
        at = words.index("min")
        ids, self._min_isr, self._elr = [int(each) for each in words[:at]], int(words[at + 1]), "elr" in words
        self._image.apply(TopicRecord(name="t", topic_id=_TOPIC_ID))
        self._image.apply(
            PartitionRecord(
                partition_id=0,
                topic_id=_TOPIC_ID,
                replicas=ids,
                isr=ids,
                removing_replicas=[],
                adding_replicas=[],
                leader=ids[0],
                leader_epoch=0,
                partition_epoch=0,
            )
        )
        for number in ids:
            self.brokers[number] = StoryBroker(number, self.brokers, self._min_isr)
        self._tell()

    def do_append(self, number: str, *records: str) -> None:
        broker = self.brokers[int(number)]
        partition = broker.partition
        try:
            partition.check_min_isr()
        except errors.NotEnoughReplicas as error:
            self._say(f"{number} refuses {' '.join(records)}: NotEnoughReplicas: {error}")
            return
        first = len(broker.log)
        broker.log.extend((partition.leader_epoch, record) for record in records)
        self._say(f"{number} appends {' '.join(records)} at {first} in epoch {partition.leader_epoch}")
        self._advance(broker)

    def do_fetch(self, number: str) -> None:
        broker = self.brokers[int(number)]
        leader = self.brokers.get(broker.partition.leader)
        if leader is None or leader.fenced:
            self._say(f"{number} has no leader to fetch from")
            return
        for _ in range(10):
            view = broker.view()
            place = leader.view().check_fetch(view.end_offset, view.last_epoch)
            if isinstance(place, Diverging):
                offset = view.truncation_point(place.end)
                lost = " ".join(record for _epoch, record in broker.log[offset:])
                del broker.log[offset:]
                self._say(f"{number} diverges from {leader.number} and truncates to {offset}: {lost} is gone")
                continue
            fetch = FollowerFetch(broker.number, len(broker.log), 0, broker.epoch)
            leader.partition.check_follower(fetch, leader.partition.leader_epoch)
            leader.partition.fetched(fetch, end=len(leader.log), now=self.now)
            self._send(leader, leader.partition.expand(broker.number, leader.epoch))
            self._advance(leader)
            broker.partition.high_watermark = min(leader.partition.high_watermark, len(broker.log))
            if len(broker.log) == len(leader.log):
                return
            new = leader.log[len(broker.log) :]
            broker.log.extend(new)
            self._say(f"{number} fetches {' '.join(record for _epoch, record in new)}")

    def do_wait(self, seconds: str) -> None:
        self.now += float(seconds)
        for broker in self.brokers.values():
            if broker.partition.leads and not broker.fenced:
                change = broker.partition.shrink(broker.epoch, end=len(broker.log), now=self.now)
                self._send(broker, change)
                self._advance(broker)

    def do_kill(self, number: str) -> None:
        broker = self.brokers[int(number)]
        broker.fenced = True
        known = self._known
        change = self._change()
        change.isr = [each for each in known.isr if each != broker.number] or ([] if self._elr else known.isr)
        self._commit(change)

    def do_start(self, number: str) -> None:
        broker = self.brokers[int(number)]
        broker.fenced = False
        broker.epoch += 1
        committed = broker.partition.high_watermark
        broker.partition = Partition(broker.number, self.brokers.get, min_isr=self._min_isr)
        broker.partition.high_watermark = committed
        self._commit(self._change())

    def do_stop(self, number: str) -> None:
        broker = self.brokers[int(number)]
        broker.in_controlled_shutdown = True
        change = self._change()
        change.isr = [each for each in self._known.isr if each != broker.number]
        self._commit(change)
        broker.fenced, broker.in_controlled_shutdown = True, False
        self._say(f"{number} stops")

    def do_reassign(self, *words: str) -> None:
        target = [int(each) for each in words]
        for number in target:
            self.brokers.setdefault(number, StoryBroker(number, self.brokers, self._min_isr))
        change = self._change()
        change.replicas, change.adding, change.removing = reassignment.plan(self._known.replicas, target)
        self._commit(change)

    def do_unclean(self) -> None:
        change = self._change()
        change.election = Election.UNCLEAN
        self._commit(change)

    def do_show(self) -> None:
        known = self._known
        elr = f", eligible {_listed(known.elr)}" if self._elr else ""
        isr = _listed(known.isr)
        self._say(f"controller: leader {_leader(known.leader)} epoch {known.leader_epoch}, in sync {isr}{elr}")
        for broker in self.brokers.values():
            partition = broker.partition
            role = "down" if broker.fenced else "leads" if partition.leads else f"follows {_leader(partition.leader)}"
            records = " ".join(record for _epoch, record in broker.log) or "nothing"
            self._say(f"{broker.number} {role}, high watermark {partition.high_watermark}: {records}")

    # The controller

    @property
    def _known(self) -> PartitionImage:
        known = self._image.partition("t", 0)
        assert known is not None
        return known

    def _change(self) -> PartitionChange:
        def acceptable(number: int) -> bool:
            return not self.brokers[number].fenced and not self.brokers[number].in_controlled_shutdown

        rules = ElectionRules(acceptable, self._min_isr, self._elr, _LEVEL, lambda _broker: UUID(int=0))
        return PartitionChange(_TOPIC_ID, self._known, rules)

    def _commit(self, change: PartitionChange) -> None:
        """Write a change, and tell the brokers."""
        before = self._known.leader, list(self._known.isr), list(self._known.elr), list(self._known.replicas)
        record = change.record()
        if record is not None:
            self._image.apply(record)
            known = self._known
            changes = []
            if known.leader != before[0]:
                changes.append(f"leader {_leader(known.leader)} in epoch {known.leader_epoch}")
            if list(known.isr) != before[1]:
                changes.append(f"in sync {_listed(known.isr)}")
            if list(known.elr) != before[2]:
                changes.append(f"eligible {_listed(known.elr)}")
            if known.replicas != before[3]:
                changes.append(f"replicas {_listed(known.replicas)}")
            if changes:
                self._say(f"controller: {', '.join(changes)}")
        self._tell()

    def _tell(self) -> None:
        for broker in list(self.brokers.values()):
            if broker.fenced:
                continue
            state = self._known
            if broker.number not in state.replicas:
                self._say(f"{broker.number} deletes its replica")
                del self.brokers[broker.number]
                continue
            if state.leader == broker.number:
                began = broker.partition.lead(
                    state, end=len(broker.log), high_watermark=broker.partition.high_watermark, now=self.now
                )
                if began:
                    self._say(f"{broker.number} leads epoch {state.leader_epoch} from offset {len(broker.log)}")
                self._advance(broker)
            else:
                broker.partition.follow(state)

    def _send(self, broker: StoryBroker, proposal: IsrChange | None) -> None:
        """Let the controller decide about in-sync replicas that a leader proposes by AlterPartition."""
        if proposal is None:
            return
        self._say(f"{broker.number} proposes in sync {_listed(sorted(proposal.members))}")
        change = self._change()
        change.isr = [number for number, _epoch in proposal.isr]
        self._commit(change)
        broker.partition.accepted(
            proposal, frozenset(self._known.isr), self._known.leader_epoch, self._known.partition_epoch
        )

    def _advance(self, broker: StoryBroker) -> None:
        before = broker.partition.high_watermark
        after = broker.partition.advance(end=len(broker.log), now=self.now)
        if after > before:
            committed = " ".join(record for _epoch, record in broker.log[before:after])
            self._say(f"{broker.number} commits {committed}: high watermark {after}")

    def _say(self, line: str) -> None:
        self.lines.append(line)


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
