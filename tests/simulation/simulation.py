"""A whole cluster and its clients on virtual time: one seed decides everything that happens, and checkers judge it."""

from __future__ import annotations

import gc
import logging
import threading
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.chaos.checkers import Limits, acknowledged, check
from tests.chaos.history import History, Send
from tests.simulation.cluster import Cluster
from tests.simulation.copying import COPIES, Copying, ReadingCommitted, copy_violations
from tests.simulation.faults import Nemesis
from tests.simulation.late_requests import LateRequests
from tests.simulation.watching import Watcher
from tests.simulation.workload import (
    DELIVERY_SECONDS,
    TOPIC,
    Client,
    Creator,
    Draining,
    Member,
    Producing,
    ProducingPlainly,
    Reading,
    ReadingUncommitted,
    Transacting,
)
from tests.simulation.world import Unfinished, World

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEALING_SECONDS: Final = 60.0
_PROCESSING_SECONDS: Final = 0.1
_FAULTS: Final = 6
_LONG_SECONDS: Final = 20.0
_PROGRESS: Final = 100
"""The records that are acknowledged in a fault that leaves a majority connected for so long."""
_EACH_APPEND_SYNCED: Final = {"log.flush.interval.messages": 1}
_OFTEN_CHECKED: Final = {"internal.replica.check.interval.ms": 300}
LIMITS: Final = Limits(DELIVERY_SECONDS, _HEALING_SECONDS, progress=_PROGRESS, progress_seconds=_LONG_SECONDS)


@dataclass
class Outcome:
    """The outcome of a seed."""

    seed: int
    seconds: float
    digest: int
    steps: int
    faults: list[str]
    history: History
    violations: list[str]
    trace: list[str] = field(repr=False)
    replay: str
    """The command that repeats the run."""
    killed_in_rebalances: int = 0
    powerless: list[int] = field(default_factory=list)
    """The nodes that lost their power, in order."""
    restored: list[int] = field(default_factory=list)
    """The nodes that got an older copy of their disk, in order."""
    damaged: list[int] = field(default_factory=list)
    """The nodes with a flipped bit in a log, in order."""

    @property
    def acknowledged(self) -> int:
        """The number of records that must be readable."""
        return sum(1 for _ in acknowledged(self.history))

    def report(self, lines: int = 60) -> str:
        """Return the violations, the faults, how to replay them, and the end of the trace."""
        return "\n".join(
            [
                f"seed {self.seed}: {len(self.violations)} violations in {self.seconds:.1f} s of virtual time",
                *self.violations[:20],
                f"faults: {', '.join(self.faults)}",
                f"replay: {self.replay}",
                *self.trace[-lines:],
            ]
        )


@dataclass(frozen=True)
class Scenario:
    """The events of a run in addition to the random faults."""

    faults: int = _FAULTS
    kill_in_rebalances: bool = False
    """There are copiers, one of which is killed whenever a rebalance begins."""
    power_in_turn: bool = False
    """After each fault a node loses its power, when all are in sync."""
    power_of_all: bool = False
    """All nodes lose their power at once, and nodes lose it at random; each append is synced."""
    older_copies: bool = False
    """The disks of nodes are copied before faults, and replaced by the copies after them."""
    damage: bool = False
    """Before each fault a bit of a log is flipped, when all are in sync and nothing is damaged."""
    long_isolation: bool = False
    """After the last fault a leader is cut off from the other nodes for 20 s, when all are in sync."""
    unsynced: bool = False
    """No append is synced: with `power_of_all` records are lost then."""

    @property
    def arguments(self) -> str:
        """The arguments of `python -m tests.simulation` for it."""
        flags = [f"--{name.replace('_', '-')}" for name, value in vars(self).items() if value is True]
        return " ".join([f"--faults {self.faults}", *flags])


def simulate(seed: int, **scenario: Any) -> Outcome:
    """Run a cluster through a `Scenario`, heal it, read everything, and check what happened."""
    with free_clients_of_dead_processes():
        world = World(seed)
        with errors_of_the_log(world):
            outcome = _Simulation(seed, world, Scenario(**scenario)).run()
        del world
    return outcome


@contextmanager
def free_clients_of_dead_processes() -> Iterator[None]:
    """Collect the garbage of a simulation when it is over: clients of dead processes were not closed, and warn then.

    Earlier garbage is collected before: its warnings are not ignored.
    """
    gc.collect()
    try:
        yield
    finally:
        with warnings.catch_warnings(action="ignore", category=ResourceWarning):
            gc.collect()


class _Simulation:
    def __init__(self, seed: int, world: World, scenario: Scenario) -> None:
        self.seed = seed
        self.scenario = scenario
        self.world = world
        self.history = History()
        self.rng = Random(seed)
        old = self.rng.random() < 0.25  # transactions without epochs of their own, no groups of KIP-848
        self.protocols = ("classic",) if old else ("classic", "consumer")
        synced = scenario.power_of_all and not scenario.unsynced
        config = (_EACH_APPEND_SYNCED if synced else {}) | (_OFTEN_CHECKED if scenario.damage else {})
        self.cluster = Cluster(world, as_version="3.9" if old else None, config=config)
        self.watcher = Watcher(self.cluster, self.history)
        self.late = LateRequests(self.cluster, repeats=not old)
        power = scenario.power_of_all or scenario.power_in_turn or self.rng.random() < 0.4
        self.nemesis = Nemesis(self.cluster, self.history, self.late, power=power, synced=synced)
        self.clients: list[Client] = []
        self.copied = ReadingCommitted(self.cluster, self.history, "reader-of-copies", COPIES, ends=False)
        self.violations: list[str] = []

    def run(self) -> Outcome:
        try:
            self._live()
        except Unfinished as error:
            self.violations.append(f"liveness: {error}")
        found = check(self.history, LIMITS)
        self.violations += [f"{name}: {each}" for name, texts in found.items() for each in texts[:5]]
        self.violations += self.watcher.violations
        self.violations += [f"error: {each}" for each in dict.fromkeys(self.world.failures)]
        outcome = Outcome(
            self.seed,
            self.world.now,
            self.world.digest,
            self.world.steps,
            self.nemesis.struck,
            self.history,
            self.violations,
            self.world.trace,
            f"python -m tests.simulation --seeds 1 --first {self.seed} {self.scenario.arguments}",
            self.nemesis.killed_in_rebalances,
            self.nemesis.powerless,
            self.nemesis.restored,
            [each.node_id for each in self.nemesis.damage.flipped],
        )
        self.cluster.close()
        return outcome

    def _live(self) -> None:
        world, cluster = self.world, self.cluster
        cluster.start()
        creator = Creator(cluster, self.history, "creator", TOPIC, COPIES)
        creator.start()
        world.run_until(lambda: creator.over, 30.0, "the topic's creation")
        self._start_clients()
        self.watcher.start()
        world.run(self.rng.uniform(0.2, 0.6))
        began = world.now
        for number in range(self.scenario.faults):
            self._strike(is_last=number == self.scenario.faults - 1)
        self.nemesis.heal()
        self.nemesis.mark(began)
        world.run(self.rng.uniform(0.3, 0.8))
        for client in self.clients:
            client.stopping = True
        for client in self.clients:
            world.run_until(lambda client=client: client.over, DELIVERY_SECONDS * 2, f"the end of {client.name}")  # type: ignore[misc]
        self._heals()
        self._end_copying()
        self._takes_late_requests()
        self.watcher.at_end()
        drain = Draining(cluster, self.history, "drain")
        drain.start()
        world.run_until(lambda: drain.over, _HEALING_SECONDS, "reading everything")

    def _strike(self, *, is_last: bool) -> None:
        scenario, nemesis = self.scenario, self.nemesis
        if scenario.older_copies:
            nemesis.keep_copy()
        if scenario.damage:
            nemesis.flip_bit()
            self.world.run(self.rng.choice((0.0, 0.1, 0.3)))
        nemesis.strike()
        self._pause()
        if scenario.older_copies:
            nemesis.restore_copy()
            self._pause()
        if scenario.power_in_turn:
            nemesis.lose_power()
            self._pause()
        if scenario.long_isolation and is_last:
            nemesis.isolate_for(_LONG_SECONDS)
            self._pause()
        if scenario.power_of_all and is_last:
            nemesis.lose_power_of_all()

    def _pause(self) -> None:
        self.world.run(self.rng.choice((0.1, 0.3, 0.6, 1.2)))

    def _end_copying(self) -> None:
        """Wait until everything is copied, stop the copiers, and compare the copy with the original."""
        if not self.nemesis.copiers:
            return
        world, copied = self.world, self.copied
        original = self._read_all(TOPIC)
        try:
            world.run_until(lambda: copied.has_all_of(original), _HEALING_SECONDS, "the copy of everything")
        finally:
            copied.stopping = True
            for each in self.nemesis.copiers:
                each.stop()
        clients: list[Client] = [copied, *self.nemesis.copiers]
        world.run_until(lambda: all(each.over for each in clients), DELIVERY_SECONDS, "the end of the copiers")
        self._takes_late_requests()  # they may have added originals since these were read: read them again
        copy = self._read_all(COPIES)
        self.violations += copy_violations(original.seen, self._read_all(TOPIC).seen, copy.seen, copied.seen)

    def _read_all(self, topic: str) -> ReadingCommitted:
        """Read a topic to its present ends."""
        reader = ReadingCommitted(self.cluster, self.history, f"reader-of-all-{topic}", topic, ends=True)
        reader.start()
        self.world.run_until(lambda: reader.over, _HEALING_SECONDS, f"reading {topic}")
        return reader

    def _start_clients(self) -> None:
        cluster, history, rng = self.cluster, self.history, self.rng
        clients: list[Client] = [Producing(cluster, history, "idempotent"), Reading(cluster, history, "reader")]
        if rng.random() < 0.7:
            clients += [Transacting(cluster, history, "transacting")]
        if rng.random() < 0.3:
            clients += [ProducingPlainly(cluster, history, "plain")]
        if rng.random() < 0.3:
            clients += [ReadingUncommitted(cluster, history, "dirty-reader")]
        if rng.random() < 0.5:
            protocol = rng.choice(self.protocols)
            clients += [Member(cluster, history, f"member-{number}", protocol) for number in (1, 2)]
        for client in clients:
            client.start()
        self.clients = clients
        if rng.random() < 0.2 or self.scenario.kill_in_rebalances:
            protocol = rng.choice(self.protocols)
            self.nemesis.copiers = [Copying(cluster, history, f"copier-{number}", protocol) for number in (1, 2)]
            if rng.random() < 0.3 or self.scenario.kill_in_rebalances:
                self.nemesis.kill_in_rebalance(self.nemesis.copiers[0])
            for each in (self.copied, *self.nemesis.copiers):
                each.start()

    def _takes_late_requests(self) -> None:
        """Wait until all requests that were held back have arrived, and all replicas have what they wrote."""
        self.world.run_until(lambda: not self.late.held, _HEALING_SECONDS, "the arrival of late requests")
        self.world.run(_PROCESSING_SECONDS)
        self._heals()

    def _heals(self) -> None:
        """Wait until all replicas are in sync and equal, and no transaction is open."""
        last: list[str | None] = [None]

        def healed() -> bool:
            last[0] = self.watcher.unhealed()
            if last[0] is None and not self.nemesis.damage.is_repaired:
                last[0] = "a log is still damaged"
            return last[0] is None

        end = self.world.now + _HEALING_SECONDS
        while not healed():
            if self.world.now > end:
                raise Unfinished(f"after {_HEALING_SECONDS:g} s without faults {last[0]}")
            self.world.run(0.1)


class _ErrorsOfTheLog(logging.Handler):
    """Takes exceptions that code has logged because it did not expect them for failures of the world.

    A world has one thread. What others log, such as those of clusters of other tests, is not about it.
    """

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread and record.exc_info and record.exc_info[1] is not None:
            self._world.failures.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


@contextmanager
def errors_of_the_log(world: World) -> Iterator[None]:
    """Add exceptions in pyclient's log to the failures of a world, and show none of its log."""
    logger = logging.getLogger("pyclient")
    level, propagate, handler = logger.level, logger.propagate, _ErrorsOfTheLog(world)
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


def sends_of(history: History, kind: str) -> list[Send]:
    """Return the sends of producers of one kind."""
    return [send for send in history.sends if send.kind == kind]
