"""Faults of one node's disk: damaged logs, indexes and checkpoints, of the busy topic and of the internal ones.

A node is damaged only while all others have everything in sync, and until it is repaired no other one is: a record
below the high watermark is on two sound disks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from pyclient import NewTopic
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.cluster.broker import Broker
from pyclient.broker_embedded.log.checkpoints import LOG_STARTS
from tests.chaos import damage
from tests.chaos.damage import Damage, closed_segments, harm, kept_aside, logs_of
from tests.chaos.probe import Probe
from tests.chaos.slow_disks import SlowDisks
from tests.chaos.targets import HEALING_SECONDS, INTERNAL_TOPICS, Harmless, Targets

CRASHES: Final[Sequence[Damage]] = (
    damage.cut_tail,
    damage.tear_tail,
    damage.flip_tail,
    damage.flip_last_segment,
    damage.flip_snapshot,
)
"""Damage to the active segment of a log and to what belongs to it."""
INDEXES: Final[Sequence[Damage]] = (damage.flip_closed_index, damage.halve_closed_index)
LEFT_BY_A_CRASH: Final[Sequence[Damage]] = (
    damage.leave_temporary_files,
    damage.empty_leader_epochs,
    damage.remove_small_file,
    damage.halve_index,
)
LEADER_EPOCHS: Final[Sequence[Damage]] = (damage.flip_leader_epochs, damage.empty_leader_epochs)
CHECKPOINTS: Final[Sequence[Damage]] = (
    damage.flip_high_watermarks,
    damage.flip_recovery_points,
    damage.lower_offsets,
    damage.halve_checkpoint,
    damage.remove_checkpoint,
)
STARTS: Final = (damage.lower_offsets, damage.halve_checkpoint, damage.remove_checkpoint)
_ROLL_SECONDS: Final = 45.0  # more than twice the time after which a segment is closed
_LOOK_SECONDS: Final = 0.25
_ATTEMPTS: Final = 20  # of a kind of damage that may leave everything as it was
_SLOW_SECONDS: Final = (0.005, 0.03, 0.15)


class DiskFaults:
    """Damages the files of one node at a time, and delays its writes."""

    def __init__(self, cluster: EmbeddedCluster, targets: Targets, disks: SlowDisks, probe: Probe) -> None:
        self.cluster, self.targets, self.disks, self.probe = cluster, targets, disks, probe
        self.random = targets.random
        self._made = 0

    # A node that is down

    def damage_busy(self, do: Damage) -> None:
        """Damage the logs of the busy topic on a node while it is down."""
        self._while_down([self.targets.topic], lambda node: self._harm_logs(node, [self.targets.topic], [do]))

    def damage_internal(self, _seconds: float) -> None:
        """Damage the active segments of the internal topics on a node while it is down."""
        self._while_down(self._topics(), lambda node: self._harm_logs(node, INTERNAL_TOPICS, CRASHES))

    def damage_closed(self, _seconds: float) -> None:
        """Flip bits of closed segments while their node is down: its start does not read them."""
        topics, node = self._topics(), self._node_with_closed_segments()
        self._while_down(topics, lambda down: self._harm_logs(down, topics, [damage.flip_closed_segment]), node)

    def damage_closed_indexes(self, _seconds: float) -> None:
        """Damage indexes of closed segments while their node is down; then it leads a partition, and they are used."""
        topics, node = self._topics(), self._node_with_closed_segments()
        self._while_down(topics, lambda down: self._harm_logs(down, topics, INDEXES), node)
        partition = self.random.randrange(self.targets.partitions)
        self.cluster.move_leader(self.targets.topic, partition, node.id, timeout=HEALING_SECONDS)

    def damage_checkpoints(self, _seconds: float) -> None:
        """Damage checkpoints of offsets and of leader epochs on a node while it is down."""
        topics = self._topics()

        def do(node: Broker) -> int:
            found = self._harm_logs(node, topics, LEADER_EPOCHS)
            chosen = self.random.sample(CHECKPOINTS, 2)
            return found + sum(self._surely(Path(node.data_dir), each) for each in chosen)

        self._while_down(topics, do)

    def damage_log_starts(self, _seconds: float) -> None:
        """Damage the starts of a topic whose first records were deleted. What follows them is there after that.

        A start that is too high looks like a right one: it is only lowered, halved or removed.
        """
        self._made += 1
        name, node = f"trimmed-{self._made}", self.cluster.node(self.targets.node())
        self.probe.create(NewTopic(name, 1, len(self.targets.ids)))
        self.targets.wait_in_sync([name])
        sent = self.probe.send(name, [0])
        start = sorted(sent)[len(sent) // 2][1]
        self.probe.delete_before(name, 0, start)
        path = Path(node.data_dir) / LOG_STARTS
        self.probe.until(lambda: f"{name} 0 {start}\n" in path.read_text(), f"{path} has the start of {name}")
        do = partial(self.random.choice(STARTS), names=[LOG_STARTS])
        self._while_down([name], lambda down: self._surely(Path(down.data_dir), do), node)
        self.cluster.move_leader(name, 0, node.id, timeout=HEALING_SECONDS)
        self.probe.check_has(name, {at: value for at, value in sent.items() if at[1] >= start})

    def leave_crash(self, _seconds: float) -> None:
        """Leave what interrupted operations leave: temporary files, empty, missing or halved small files."""
        topics = self._topics()

        def do(node: Broker) -> int:
            made = self._surely(Path(node.data_dir), damage.leave_temporary_checkpoints)
            return made + self._harm_logs(node, topics, LEFT_BY_A_CRASH)

        self._while_down(topics, do)

    def _while_down(self, topics: Sequence[str], do: Callable[[Broker], int], node: Broker | None = None) -> None:
        """Kill a node, damage its files, start it and wait until it is repaired. Raise `Harmless`."""
        self.targets.wait_in_sync(topics)
        node = self.cluster.node(self.targets.node()) if node is None else node
        self.cluster.kill(node.id)
        if not do(node):
            raise Harmless(f"no file of node {node.id} was damaged")
        self.cluster.start(node.id)
        self._wait_repaired(node, topics)

    def _harm_logs(self, node: Broker, topics: Iterable[str], kinds: Sequence[Damage]) -> int:
        """Do one of some kinds of damage to each log. Return how many files differ."""
        directories = logs_of(Path(node.data_dir), topics)
        return sum(len(harm(each, self.random.choice(kinds), self.random)) for each in directories)

    def _surely(self, directory: Path, do: Damage) -> int:
        """Repeat damage, which may be by chance the same content, until a file differs. Return how many do."""
        found = (len(harm(directory, do, self.random)) for _ in range(_ATTEMPTS))
        return next((count for count in found if count), 0)

    # A node that runs

    def flip_running(self, _seconds: float) -> None:
        """Flip bits of the busy topic's last segments while their node runs."""
        self._flip_while_running([self.targets.topic], damage.flip_last_segment)

    def flip_running_internal(self, _seconds: float) -> None:
        """Flip bits of the internal topics' last segments while their node runs."""
        self._flip_while_running(INTERNAL_TOPICS, damage.flip_last_segment)

    def flip_running_closed(self, _seconds: float) -> None:
        """Flip bits of closed segments while their node runs."""
        self._flip_while_running(self._topics(), damage.flip_closed_segment, self._node_with_closed_segments())

    def _flip_while_running(self, topics: Sequence[str], do: Damage, node: Broker | None = None) -> None:
        """Flip one to three bits of each log, and wait until the node has found and repaired them. Raise `Harmless`.

        A read finds them, at the latest a check.
        """
        self.targets.wait_in_sync(topics)
        node = node or self.cluster.node(self.targets.leader() if self.random.random() < 0.7 else self.targets.node())
        directories = logs_of(Path(node.data_dir), topics)
        before = {path: kept_aside(path) for path in directories}
        for path in directories:
            for _ in range(self.random.randint(1, 3)):
                do(path, self.random)
        damaged = self._wait_repaired(node, topics)
        if not damaged and before == {path: kept_aside(path) for path in directories}:
            raise Harmless(f"node {node.id} has found no damage in {len(directories)} logs")

    def _wait_repaired(self, node: Broker, topics: Sequence[str]) -> int:
        """Have a node check its logs until it finds no damage, and wait until all replicas are in sync.

        Return how much damage it has found.
        """
        deadline, count = time.monotonic() + HEALING_SECONDS, 0
        for topic in topics:
            while found := node.call("POST", "/verify", {"topic": topic}, timeout=HEALING_SECONDS)["damaged"]:
                count += len(found)
                if time.monotonic() > deadline:
                    raise TimeoutError(f"node {node.id} is still damaged after {HEALING_SECONDS:g} s: {found}")
                time.sleep(_LOOK_SECONDS)  # the repair goes on meanwhile
        self.targets.wait_in_sync(topics)
        return count

    # Slow

    def slow_disk(self, seconds: float) -> None:
        """Delay each write and each sync of a node, mostly of a leader. Raise `Harmless`."""
        node = self.cluster.node(self.targets.leader() if self.random.random() < 0.7 else self.targets.node())
        assert node.pid is not None
        self.disks.slow(node.pid, self.random.choice(_SLOW_SECONDS))
        time.sleep(seconds)  # how long the fault lasts
        self.disks.slow(node.pid, 0)
        if not self.disks.delayed(node.pid):
            raise Harmless(f"node {node.id} has written nothing in {seconds:g} s")

    def _topics(self) -> list[str]:
        return [self.targets.topic, *INTERNAL_TOPICS]

    def _node_with_closed_segments(self) -> Broker:
        """Return a node that has closed segments of the busy and of an internal topic. Raise `Harmless`."""
        node = self.cluster.node(self.targets.node())
        deadline = time.monotonic() + _ROLL_SECONDS
        while not all(self._has_closed_segments(node, topics) for topics in ([self.targets.topic], INTERNAL_TOPICS)):
            if time.monotonic() > deadline:
                raise Harmless(f"node {node.id} has closed no segments within {_ROLL_SECONDS:g} s")
            time.sleep(_LOOK_SECONDS)  # between two looks
        return node

    def _has_closed_segments(self, node: Broker, topics: Iterable[str]) -> bool:
        return any(closed_segments(path) for path in logs_of(Path(node.data_dir), topics))
