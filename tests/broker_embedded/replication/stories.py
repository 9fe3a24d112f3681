"""Runs a story of one replicated partition: commands one a line, and after each what brokers and controller do.

What decides is the broker's own code: `HostedPartitions`, `FetcherState`, `DelayedProduce` and `divergence` at each
broker, `LeaderEpochFileCache` in each log, `ClusterControl` and `ReplicationControl` at the controller.

partition 1 2 3 min 2 [elr]   a partition with these replicas and min.insync.replicas; the first one leads
append 1 a b                  let broker 1 append records with acks=all
fetch 2                       let broker 2 fetch from its leader until it has everything
wait 31                       let time pass; the leader checks for followers that lag
kill 1, start 1               end a broker: the controller fences it; start it again: it registers and is unfenced
pause 1, resume 1             let a broker do nothing until it is fenced; let it go on: it is unfenced
cut 1, heal 1                 cut a broker off from the others until it is fenced, clients reach it; end that
stop 1                        stop a broker in order: it leaves its leadership first
reassign 3 4                  let the replicas be on other brokers
unclean                       elect any live replica as the leader
show                          print every broker and what the controller knows
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyclient import errors
from pyclient.broker_embedded.controller.partition_elections import Election
from pyclient.broker_embedded.replication.hosted_partitions import IsrAccepted, IsrRefused
from tests.broker_embedded.controller.cluster_model import ClusterModel, Options
from tests.broker_embedded.replication.pure_nodes import PureNode, World, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from pyclient.broker_embedded.replication.hosted_partitions import HostedPartition
    from pyclient.broker_embedded.replication.partition import IsrChange
    from tests.broker_embedded.replication.pure_nodes import Record

_FETCHES: Final = 10


class StoryBroker:
    """A broker of a story: its node, and whether that runs and is reached."""

    def __init__(self, number: int, world: World) -> None:
        self.number = number
        self.node = PureNode(number, world)
        self.incarnation = 1
        self.is_down = self.is_paused = self.is_cut = False
        self.clean_epoch = -1
        """The broker epoch of its last incarnation if that stopped in order."""

    @property
    def is_reached(self) -> bool:
        """Return True if the other brokers reach it."""
        return not self.is_down and not self.is_paused and not self.is_cut


class PartitionStory:
    """One partition whose brokers do only what the story says."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.brokers: dict[int, StoryBroker] = {}
        self._world = World(ClusterModel(), propose=self._propose, say=self._say)

    @property
    def _model(self) -> ClusterModel:
        return self._world.model

    def run(self, command: str) -> list[str]:
        """Carry out one command; return the lines that it printed."""
        self.lines = []
        name, *words = command.split()
        getattr(self, f"do_{name}")(*words)
        return self.lines

    # Commands

    def do_partition(self, *words: str) -> None:
        end = words.index("min")
        ids = [int(each) for each in words[:end]]
        self._world.model = ClusterModel(elr="elr" in words, options=Options(int(words[end + 1])))
        self._join(ids)
        self._model.create(ids)
        self._apply_metadata()

    def do_append(self, number: str, *values: str) -> None:
        try:
            self.brokers[int(number)].node.produce(values, lambda *given: self._answered(number, *given))
        except errors.BrokerError as error:
            self._say(f"{number} refuses {' '.join(values)}: {type(error).__name__}: {error}")

    def _answered(self, number: str, _offset: int, records: Sequence[Record], error: errors.BrokerError | None) -> None:
        if error is None:
            self._say(f"{number} acknowledges {texts(records)}")
        else:
            self._say(f"{number} does not acknowledge {texts(records)}: {type(error).__name__}")

    def do_fetch(self, number: str) -> None:
        node = self.brokers[int(number)].node
        leader = self.brokers.get(node.leader)
        if leader is None or not leader.is_reached:
            self._say(f"{number} has no leader to fetch from")
            return
        node.abandon()
        for _ in range(_FETCHES):
            if node.request is None:
                node.wake()
            request, before = node.request, list(node.log.records)
            if request is None or request.leader != node.leader:  # the last one of a reassignment: another one leads
                return
            request.answer = leader.node.serve(request)
            node.answered(request)
            if node.log.records == before and request.answer.diverging_epoch.epoch < 0:
                return

    def do_wait(self, seconds: str) -> None:
        self._world.now += float(seconds)
        for broker in self.brokers.values():
            if not broker.is_down and not broker.is_paused:
                broker.node.check_lag()

    def do_kill(self, number: str) -> None:
        self.brokers[int(number)].is_down = True
        self._lose_requests_to(int(number))
        self._control(lambda: self._model.fence(int(number)))

    def do_start(self, number: str) -> None:
        broker = self.brokers[int(number)]
        broker.is_down = False
        broker.node.start()
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

    def do_cut(self, number: str) -> None:
        self.brokers[int(number)].is_cut = True
        self._lose_requests_to(int(number))
        self._control(lambda: self._model.fence(int(number)))

    def do_heal(self, number: str) -> None:
        self.brokers[int(number)].is_cut = False
        self._control(lambda: self._model.beat(int(number)))

    def do_stop(self, number: str) -> None:
        broker = self.brokers[int(number)]

        def shut_down() -> None:
            for _ in range(5):
                if self._model.beat(broker.number, want_shut_down=True).should_shut_down:
                    return
                for other in self.brokers.values():
                    if other is not broker and other.is_reached:
                        self._model.beat(other.number)
            raise AssertionError(f"{number} may not stop")

        self._control(shut_down)
        broker.is_down, broker.clean_epoch = True, broker.node.broker_epoch
        self._lose_requests_to(broker.number)
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
            log, leader = broker.node.log, broker.node.known.leader if broker.node.known else -1
            role = "leads" if broker.node.leads else f"follows {_leader(leader)}"
            role = "is paused" if broker.is_paused else "down" if broker.is_down else role
            self._say(f"{broker.number} {role}, high watermark {log.high_watermark}: {texts(log.records) or 'nothing'}")

    # The controller

    def _join(self, ids: Iterable[int]) -> None:
        for number in ids:
            self._model.start(number)
            self.brokers[number] = StoryBroker(number, self._world)

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
        """Apply the newest metadata at the brokers that the controller reaches."""
        for broker in list(self.brokers.values()):
            if broker.is_reached:
                broker.node.read_metadata()
                if broker.number not in self._model.partition.replicas:
                    del self.brokers[broker.number]

    def _propose(self, node: PureNode, hosted: HostedPartition, proposal: IsrChange) -> None:
        """Let the controller decide about in-sync replicas that a leader proposes by AlterPartition."""
        self._say(f"{node.node_id} proposes in sync {_listed(sorted(proposal.members))}")
        if not self.brokers[node.node_id].is_reached:
            return
        answers: list[Any] = []

        def alter() -> None:
            answer = self._model.alter(
                [number for number, _epoch in proposal.isr],
                sender=node.node_id,
                epochs=dict(proposal.isr),
                leader_epoch=proposal.leader_epoch,
                partition_epoch=proposal.partition_epoch,
            )
            answers.append(answer.data)

        self._control(alter)
        [data] = answers
        if data.error_code:
            node.give(IsrRefused(hosted, proposal, data.error_code))
        else:
            node.give(IsrAccepted(hosted, proposal, frozenset(data.isr), data.leader_epoch, data.partition_epoch))

    # The brokers

    def _lose_requests_to(self, number: int) -> None:
        """End the connections of followers to a broker."""
        for broker in self.brokers.values():
            request = broker.node.request
            if request is not None and request.leader == number:
                broker.node.answered(request, is_lost=True)

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
