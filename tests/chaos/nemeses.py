"""The faults of a chaos run: each does its harm to a cluster, waits, and undoes it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.errors import KafkaTimeout
from tests.chaos.client_proxy import ANSWERS, APART, CLIENTS, REQUESTS, ClientProxies
from tests.chaos.damage import bases, cut_tail, flip_index, flip_tail, logs_of, tear_tail
from tests.chaos.disk_faults import DiskFaults
from tests.chaos.history import Fault, Freeze, Isolation
from tests.chaos.metadata_changes import MetadataChanges
from tests.chaos.probe import Probe
from tests.chaos.slow_disks import SlowDisks
from tests.chaos.targets import INTERNAL_TOPICS, Harmless, Targets
from tests.chaos.workload import Notes

_LONG_SECONDS: Final = 13.0  # more than the sessions of members, and than the time limit of a transaction
_BEHIND_MS: Final = 100  # less than replica.lag.time.max.ms: the followers stay in sync
_FAR_SEGMENTS: Final = 3  # that the others begin while a node is down
_FAR_SECONDS: Final = 150.0
_SHORT_SECONDS: Final = 1.0  # at most between two pauses
_LOOK_SECONDS: Final = 0.25
_LATE_MS: Final = 900  # both ways too long to stay in sync; connections are made, as their setup may take 2 s


class Nemesis:
    """Does one fault after the other, by a seed. `topic` is the busy one, whose leaders are the targets.

    `proxies` are those of a wide run, by the names of their listeners, `disks` the disks of the nodes.
    """

    def __init__(
        self,
        cluster: EmbeddedCluster,
        notes: Notes,
        topic: str,
        partitions: int,
        seed: int,
        proxies: Mapping[str, ClientProxies],
        disks: SlowDisks,
    ) -> None:
        self.cluster, self.notes, self.topic, self.partitions = cluster, notes, topic, partitions
        self.random = random.Random(seed)
        self.targets = Targets(cluster, topic, partitions, self.random)
        probe = Probe(cluster, self.targets, notes)
        self.disk = DiskFaults(cluster, self.targets, disks, probe)
        self.metadata = MetadataChanges(cluster, self.targets, probe)
        self.ids = self.targets.ids
        self._proxies, self._disks = proxies, disks

    def strike(self, name: str, seconds: float) -> None:
        """Do the fault with a name, which lasts about that long, and wait until the replicas are in sync again."""
        began = time.monotonic()
        ALL_FAULTS[name](self, seconds)
        self.cluster.heal()
        for proxies in self._proxies.values():
            proxies.heal()
        for node in self.cluster.nodes:
            node.resume()
        self._disks.heal(self.cluster)
        self.cluster.start()
        self.notes.add(Fault(name, began, time.monotonic(), majority=name not in WITHOUT_MAJORITY))

    def wait_in_sync(self) -> None:
        """Wait until all replicas of the busy topic are in sync."""
        self.targets.wait_in_sync()

    # N1

    def kill_leader(self, seconds: float) -> None:
        self._down([self.targets.leader()], seconds)

    def kill_leader_of_slow_followers(self, seconds: float) -> None:
        """Kill a leader that has records which its followers have not got yet."""
        leader = self.targets.leader()
        self._slow_followers(leader)
        self._down([leader], seconds)

    def _slow_followers(self, leader: int) -> None:
        for other in self.ids:
            if other != leader:
                self.cluster.slow(leader, other, latency_ms=_BEHIND_MS)
        time.sleep(5 * _BEHIND_MS / 1000)  # records are written meanwhile

    def kill_leader_of_late_follower(self, seconds: float) -> None:
        """Kill a leader while a follower is seconds behind: it has left the in-sync replicas, and may not lead."""
        self.wait_in_sync()
        partition, leader, follower = self.targets.next_leader()
        self.cluster.slow(leader, follower, latency_ms=_LATE_MS)
        self.cluster.wait_isr(self.topic, partition, 2)
        with suppress(KafkaTimeout):  # it fetches once more meanwhile, and may not join by that
            self.cluster.wait_isr(self.topic, partition, 3, timeout=3 * _LATE_MS / 1000)
        self._down([leader], seconds)

    def kill_follower(self, seconds: float) -> None:
        leader = self.targets.leader()
        self._down([self.targets.other_than(leader)], seconds)

    def kill_controller(self, seconds: float) -> None:
        self._down([self.targets.controller()], seconds)

    def kill_majority(self, seconds: float) -> None:
        self._down(self.targets.majority(), seconds)

    def kill_all(self, seconds: float) -> None:
        self._down(self.ids, seconds / 4)

    def kill_leader_of_internal_topic(self, _seconds: float) -> None:
        """Kill the leader of a partition of the offsets or of the transactions, until another node leads it."""
        self._lose_leader(self.random.choice(INTERNAL_TOPICS))

    def kill_leader_of_slow_internal_followers(self, _seconds: float) -> None:
        """Kill the leader of a partition of an internal topic that has records which its followers have not got yet."""
        self.targets.wait_in_sync(INTERNAL_TOPICS)
        topic = self.random.choice(INTERNAL_TOPICS)
        partition, leader = self.targets.partition_with_leader(topic)
        self._slow_followers(leader)
        self._replace_leader(topic, partition, leader)

    def kill_leaders_of_internal_topics(self, seconds: float) -> None:
        """Kill the leaders of a partition of the offsets and of one of the transactions, often a majority."""
        leaders = {self.targets.partition_with_leader(topic)[1] for topic in INTERNAL_TOPICS}
        self._down(sorted(leaders), seconds)

    def _lose_leader(self, topic: str) -> None:
        self.targets.wait_in_sync([topic])  # else no other replica may lead
        partition, leader = self.targets.partition_with_leader(topic)
        self._replace_leader(topic, partition, leader)

    def _replace_leader(self, topic: str, partition: int, leader: int) -> None:
        self.cluster.kill(leader)
        self.targets.wait_leader(topic, partition, other_than=leader)
        time.sleep(self.random.random())  # requests go to the next one

    def long_kill(self, _seconds: float) -> None:
        """Kill a node, often a leader, until the others are several segments ahead in each partition."""
        self.wait_in_sync()
        node_id = self.targets.leader() if self.random.random() < 0.5 else self.targets.node()
        self.cluster.kill(node_id)
        ends = self._newest_segments(node_id)
        other, deadline = self.targets.other_than(node_id), time.monotonic() + _FAR_SECONDS
        while not all(sum(base > ends[name] for base in found) >= _FAR_SEGMENTS for name, found in self._bases(other)):
            if time.monotonic() > deadline:
                raise Harmless(f"node {other} has begun no {_FAR_SEGMENTS} segments in {_FAR_SECONDS:g} s")
            time.sleep(_LOOK_SECONDS)  # between two looks
        self.cluster.start(node_id)
        self.wait_in_sync()

    def _newest_segments(self, node_id: int) -> dict[str, int]:
        return {name: max(found) for name, found in self._bases(node_id)}

    def _bases(self, node_id: int) -> list[tuple[str, list[int]]]:
        directories = logs_of(Path(self.cluster.node(node_id).data_dir), [self.topic])
        return [(path.name, bases(path)) for path in directories]

    def _down(self, ids: list[int], seconds: float) -> None:
        for node_id in ids:
            self.cluster.kill(node_id)
        time.sleep(seconds * self.random.random())  # how long the fault lasts

    # N2

    def pause_leader(self, seconds: float) -> None:
        self._frozen([self.targets.leader()], seconds)

    def pause_controller(self, seconds: float) -> None:
        self._frozen([self.targets.controller()], seconds)

    def pause_majority(self, seconds: float) -> None:
        self._frozen(self.targets.majority(), seconds)

    def pause_majority_twice(self, seconds: float) -> None:
        """Pause two nodes, and soon after that two again."""
        for _ in range(2):
            self._frozen(self.targets.majority(), seconds)
            for node in self.cluster.nodes:
                node.resume()
            time.sleep(_SHORT_SECONDS * self.random.random())  # the nodes and clients only begin to go on

    def _frozen(self, ids: list[int], seconds: float) -> None:
        for node_id in ids:
            self.cluster.pause(node_id)
        running = [node_id for node_id in ids if not _is_stopped(self.cluster.node(node_id).pid)]
        if running:
            raise Harmless(f"nodes {running} run although they are paused")
        began = time.monotonic()
        time.sleep(seconds)  # how long the fault lasts
        self.notes.add(*(Freeze(node_id, began, time.monotonic()) for node_id in ids))

    # N3

    def isolate_leader(self, seconds: float) -> None:
        self._isolated(self.targets.leader(), seconds)

    def isolate_controller(self, seconds: float) -> None:
        self._isolated(self.targets.controller(), seconds)

    def _isolated(self, node_id: int, seconds: float) -> None:
        """Cut a node off from the others; clients still reach it."""
        for other in self.ids:
            if other != node_id:
                self.cluster.cut(node_id, other)
        began = time.monotonic()
        time.sleep(seconds)  # how long the fault lasts
        self.notes.add(Isolation(node_id, began, time.monotonic()))

    def one_way_cut(self, seconds: float) -> None:
        a, b = self.random.sample(self.ids, 2)
        self.cluster.cut(a, b, one_way=True)
        time.sleep(seconds)  # how long the fault lasts

    def majority_ring(self, seconds: float) -> None:
        """Cut two nodes off from each other; the third one reaches both."""
        a, b = self.random.sample(self.ids, 2)
        self.cluster.cut(a, b)
        time.sleep(seconds)  # how long the fault lasts

    # the same between clients and brokers

    @property
    def proxies(self) -> ClientProxies:
        """Return the proxies of most clients of a wide run."""
        return self._proxies[CLIENTS]

    def cut_clients(self, seconds: float) -> None:
        """Cut a leader off from all clients; the other brokers still reach it."""
        self.proxies.of[self.targets.leader()].cut()
        time.sleep(seconds)  # how long the fault lasts

    def long_cut_of_clients(self, _seconds: float) -> None:
        """Cut clients off from a coordinator for longer than the session timeout of a member."""
        self.proxies.of[self.targets.coordinator()].cut()
        time.sleep(_LONG_SECONDS)  # how long the fault lasts

    def long_cut_of_members(self, _seconds: float) -> None:
        """Cut a member of each group off from all brokers. Another one takes over; what it has sent comes later."""
        for proxy in self._proxies[APART].of.values():
            proxy.cut()
        time.sleep(_LONG_SECONDS)  # more than the session timeout of a member

    def cut_requests(self, seconds: float) -> None:
        """Hold requests, so that they arrive late, also those that clients have given up and sent again."""
        self.proxies.of[self.targets.leader()].cut(REQUESTS)
        time.sleep(seconds + 3)  # more than the request timeout of a client

    def cut_answers(self, seconds: float) -> None:
        """Hold the answers to requests that are served."""
        self.proxies.of[self.targets.leader()].cut(ANSWERS)
        time.sleep(seconds + 3)  # more than the request timeout of a client

    def cut_all_clients(self, seconds: float) -> None:
        for proxy in self.proxies.of.values():
            proxy.cut()
        time.sleep(seconds)  # how long the fault lasts

    def reset_clients(self, seconds: float) -> None:
        self.proxies.reset_for(seconds, self.random)

    # coordinators, and pauses that are longer than sessions

    def kill_group_coordinator(self, seconds: float) -> None:
        self._down([self.targets.coordinator()], seconds)

    def pause_group_coordinator(self, seconds: float) -> None:
        self._frozen([self.targets.coordinator()], seconds)

    def long_pause_of_group_coordinator(self, _seconds: float) -> None:
        self._frozen([self.targets.coordinator()], _LONG_SECONDS)

    def isolate_group_coordinator(self, _seconds: float) -> None:
        """Cut a coordinator off from the other nodes for longer than sessions: another one expels all members."""
        self._isolated(self.targets.coordinator(), _LONG_SECONDS)

    def kill_transaction_coordinator(self, seconds: float) -> None:
        self._down([self.targets.transaction_coordinator()], seconds)

    def pause_transaction_coordinator(self, seconds: float) -> None:
        self._frozen([self.targets.transaction_coordinator()], seconds)

    def isolate_transaction_coordinator(self, seconds: float) -> None:
        self._isolated(self.targets.transaction_coordinator(), seconds)

    def long_pause_of_leader(self, _seconds: float) -> None:
        self._frozen([self.targets.leader()], _LONG_SECONDS)

    def long_pause_of_majority(self, _seconds: float) -> None:
        self._frozen(self.targets.majority(), _LONG_SECONDS)

    # N5

    def slow_follower(self, seconds: float) -> None:
        leader = self.targets.leader()
        follower = self.random.choice([each for each in self.ids if each != leader])
        self.cluster.slow(leader, follower, latency_ms=self.random.choice([20, 200, 1500]), bandwidth=None)
        time.sleep(seconds)  # how long the fault lasts

    def frozen_follower(self, seconds: float) -> None:
        self.cluster.freeze_follower(self.topic, self.random.randrange(self.partitions))
        time.sleep(seconds)  # how long the fault lasts

    def frozen_followers(self, seconds: float) -> None:
        """Freeze all followers: a leader is alone in sync, and may acknowledge nothing."""
        self.wait_in_sync()
        partition = self.random.randrange(self.partitions)
        for node in self.cluster.nodes:
            node.call("POST", "/replication/freeze")
        self.cluster.wait_isr(self.topic, partition, 1)
        time.sleep(seconds)  # how long the fault lasts

    def frozen_follower_dead_leader(self, seconds: float) -> None:
        """Freeze a follower until it is out of sync, then kill the leader: the follower may not lead."""
        self.wait_in_sync()
        partition = self.random.randrange(self.partitions)
        self.cluster.freeze_follower(self.topic, partition)
        self.cluster.wait_isr(self.topic, partition, 2)
        leader = self.cluster.leader_of(self.topic, partition)
        self._down([self.targets.leader() if leader is None else leader], seconds)

    # N7, N8, N9: one node loses what no other node has lost

    def lose_unsynced(self, _seconds: float) -> None:
        """Crash a node together with its operating system: some of its last bytes are not on the disk."""
        self.disk.damage_busy(cut_tail)

    def torn_tail(self, _seconds: float) -> None:
        """Make the end of a log zeros or half a batch."""
        self.disk.damage_busy(tear_tail)

    def flipped_bit(self, _seconds: float) -> None:
        """Flip one bit of a log's last segment, or of an index."""
        self.disk.damage_busy(flip_index if self.random.random() < 0.3 else flip_tail)

    # N11

    def rolling_restart(self, _seconds: float) -> None:
        for node_id in self.ids:
            self.cluster.restart(node_id)
            self.wait_in_sync()


def _of_disk(fault: Callable[[DiskFaults, float], None]) -> Callable[[Nemesis, float], None]:
    return lambda nemesis, seconds: fault(nemesis.disk, seconds)


def _of_metadata(fault: Callable[[MetadataChanges, float], None]) -> Callable[[Nemesis, float], None]:
    return lambda nemesis, seconds: fault(nemesis.metadata, seconds)


FAULTS: Final[dict[str, Callable[[Nemesis, float], None]]] = {
    "kill leader": Nemesis.kill_leader,
    "kill follower": Nemesis.kill_follower,
    "kill controller": Nemesis.kill_controller,
    "kill majority": Nemesis.kill_majority,
    "kill all": Nemesis.kill_all,
    "pause leader": Nemesis.pause_leader,
    "pause controller": Nemesis.pause_controller,
    "pause majority": Nemesis.pause_majority,
    "isolate leader": Nemesis.isolate_leader,
    "isolate controller": Nemesis.isolate_controller,
    "one-way cut": Nemesis.one_way_cut,
    "majority ring": Nemesis.majority_ring,
    "slow follower": Nemesis.slow_follower,
    "frozen follower": Nemesis.frozen_follower,
    "frozen followers": Nemesis.frozen_followers,
    "dead leader with a frozen follower": Nemesis.frozen_follower_dead_leader,
    "lose unsynced": Nemesis.lose_unsynced,
    "torn tail": Nemesis.torn_tail,
    "flipped bit": Nemesis.flipped_bit,
    "flipped bits of a running node": _of_disk(DiskFaults.flip_running),
    "rolling restart": Nemesis.rolling_restart,
    "cut clients": Nemesis.cut_clients,
    "cut answers": Nemesis.cut_answers,
    "kill group coordinator": Nemesis.kill_group_coordinator,
    "kill transaction coordinator": Nemesis.kill_transaction_coordinator,
    "slow disk": _of_disk(DiskFaults.slow_disk),
    "kill controller in a topic's creation": _of_metadata(MetadataChanges.create_topic),
    "kill controller in a reassignment": _of_metadata(MetadataChanges.reassign),
}
WIDE_FAULTS: Final[dict[str, Callable[[Nemesis, float], None]]] = {
    "kill leader of slow followers": Nemesis.kill_leader_of_slow_followers,
    "kill leader of a late follower": Nemesis.kill_leader_of_late_follower,
    "long cut of clients": Nemesis.long_cut_of_clients,
    "long cut of members": Nemesis.long_cut_of_members,
    "cut requests": Nemesis.cut_requests,
    "cut all clients": Nemesis.cut_all_clients,
    "reset clients": Nemesis.reset_clients,
    "pause group coordinator": Nemesis.pause_group_coordinator,
    "long pause of group coordinator": Nemesis.long_pause_of_group_coordinator,
    "isolate group coordinator": Nemesis.isolate_group_coordinator,
    "pause transaction coordinator": Nemesis.pause_transaction_coordinator,
    "isolate transaction coordinator": Nemesis.isolate_transaction_coordinator,
    "long pause of leader": Nemesis.long_pause_of_leader,
    "long pause of majority": Nemesis.long_pause_of_majority,
    "pause majority twice": Nemesis.pause_majority_twice,
    "kill leader of an internal topic": Nemesis.kill_leader_of_internal_topic,
    "kill leader of slow internal followers": Nemesis.kill_leader_of_slow_internal_followers,
    "kill leaders of internal topics": Nemesis.kill_leaders_of_internal_topics,
    "long kill": Nemesis.long_kill,
    "damaged internal topics": _of_disk(DiskFaults.damage_internal),
    "damaged closed segments": _of_disk(DiskFaults.damage_closed),
    "damaged closed indexes": _of_disk(DiskFaults.damage_closed_indexes),
    "damaged checkpoints": _of_disk(DiskFaults.damage_checkpoints),
    "damaged log starts": _of_disk(DiskFaults.damage_log_starts),
    "leftovers of a crash": _of_disk(DiskFaults.leave_crash),
    "flipped bits of running internal topics": _of_disk(DiskFaults.flip_running_internal),
    "flipped bits of running closed segments": _of_disk(DiskFaults.flip_running_closed),
    "kill controller in an election": _of_metadata(MetadataChanges.elect),
}
"""Further faults, of wide runs."""
ALL_FAULTS: Final = FAULTS | WIDE_FAULTS
WITHOUT_MAJORITY: Final = frozenset(
    {
        "kill majority",
        "kill all",
        "pause majority",
        "frozen followers",
        "dead leader with a frozen follower",
        "long pause of majority",
        "pause majority twice",
        "kill leaders of internal topics",
        "kill controller in a reassignment",
        "cut all clients",
    }
)


def of_share(names: Iterable[str], share: int, shares: int) -> list[str]:
    """Return every `shares`-th of some faults by name, from the `share`-th on (1 for the first).

    Faults with similar names last about as long: in the order of the names each share gets its part of the long ones.
    """
    return sorted(names)[share - 1 :: shares]


def plan(seed: int, count: int, names: list[str] | None = None) -> list[str]:
    """Return the names of faults in a random order, each once before any twice."""
    chosen = random.Random(seed)
    made: list[str] = []
    while len(made) < count:
        several = sorted(names or FAULTS)
        chosen.shuffle(several)
        made += several
    return made[:count]


def _is_stopped(pid: int | None) -> bool:
    """Return True if a process is stopped by a signal."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T")
