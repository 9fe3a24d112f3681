"""The faults of a chaos run: each does its harm to a cluster, waits, and undoes it."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from pyclient import Admin
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.groups.partitioning import partition_for_id
from pyclient.errors import KafkaTimeout
from tests.chaos.client_proxy import ANSWERS, APART, CLIENTS, REQUESTS, ClientProxies
from tests.chaos.copy_faults import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.chaos.history import Fault, Isolation
from tests.chaos.workload import Notes

_LOG: Final = re.compile(r"\d{20}\.log")
_HEALING_SECONDS: Final = 60.0
_LONG_SECONDS: Final = 13.0  # more than the sessions of members, and than the time limit of a transaction
_BEHIND_MS: Final = 100  # less than replica.lag.time.max.ms: the followers stay in sync
_LATE_MS: Final = 900  # both ways too long to stay in sync; connections are made, as their setup may take 2 s


class Nemesis:
    """Does one fault after the other, by a seed. `topic` is the busy one, whose leaders are the targets.

    `proxies` are those of a wide run, by the names of their listeners.
    """

    def __init__(
        self,
        cluster: EmbeddedCluster,
        notes: Notes,
        topic: str,
        partitions: int,
        seed: int,
        proxies: Mapping[str, ClientProxies],
    ) -> None:
        self.cluster, self.notes, self.topic, self.partitions = cluster, notes, topic, partitions
        self.random = random.Random(seed)
        self.ids = [node.id for node in cluster.nodes]
        self.groups: Sequence[str] = ()
        self.transactional_ids: Sequence[str] = ()
        self._proxies = proxies

    def strike(self, name: str, seconds: float) -> None:
        """Do the fault with a name, which lasts about that long, and wait until the replicas are in sync again."""
        began = time.monotonic()
        ALL_FAULTS[name](self, seconds)
        self.cluster.heal()
        for proxies in self._proxies.values():
            proxies.heal()
        for node in self.cluster.nodes:
            node.resume()
        self.cluster.start()
        self.notes.add(Fault(name, began, time.monotonic(), majority=name not in WITHOUT_MAJORITY))

    def wait_in_sync(self) -> None:
        """Wait until all replicas of the busy topic are in sync."""
        deadline = time.monotonic() + _HEALING_SECONDS
        for partition in range(self.partitions):
            self.cluster.wait_isr(self.topic, partition, 3, timeout=max(0.0, deadline - time.monotonic()))

    # N1

    def kill_leader(self, seconds: float) -> None:
        self._down([self._leader()], seconds)

    def kill_leader_of_slow_followers(self, seconds: float) -> None:
        """Kill a leader that has records which its followers have not got yet."""
        leader = self._leader()
        for other in self.ids:
            if other != leader:
                self.cluster.slow(leader, other, latency_ms=_BEHIND_MS)
        time.sleep(5 * _BEHIND_MS / 1000)  # records are written meanwhile
        self._down([leader], seconds)

    def kill_leader_of_late_follower(self, seconds: float) -> None:
        """Kill a leader while a follower is seconds behind: it has left the in-sync replicas, and may not lead."""
        self.wait_in_sync()
        partition, leader, follower = self._next_leader()
        self.cluster.slow(leader, follower, latency_ms=_LATE_MS)
        self.cluster.wait_isr(self.topic, partition, 2)
        with suppress(KafkaTimeout):  # it fetches once more meanwhile, and may not join by that
            self.cluster.wait_isr(self.topic, partition, 3, timeout=3 * _LATE_MS / 1000)
        self._down([leader], seconds)

    def kill_follower(self, seconds: float) -> None:
        leader = self._leader()
        self._down([self.random.choice([each for each in self.ids if each != leader])], seconds)

    def kill_controller(self, seconds: float) -> None:
        self._down([self._controller()], seconds)

    def kill_majority(self, seconds: float) -> None:
        self._down(self.random.sample(self.ids, 2), seconds)

    def kill_all(self, seconds: float) -> None:
        self._down(self.ids, seconds / 4)

    def _down(self, ids: list[int], seconds: float) -> None:
        for node_id in ids:
            self.cluster.kill(node_id)
        time.sleep(seconds * self.random.random())  # how long the fault lasts

    # N2

    def pause_leader(self, seconds: float) -> None:
        self._frozen([self._leader()], seconds)

    def pause_controller(self, seconds: float) -> None:
        self._frozen([self._controller()], seconds)

    def pause_majority(self, seconds: float) -> None:
        self._frozen(self.random.sample(self.ids, 2), seconds)

    def _frozen(self, ids: list[int], seconds: float) -> None:
        for node_id in ids:
            self.cluster.pause(node_id)
        time.sleep(seconds)  # how long the fault lasts

    # N3

    def isolate_leader(self, seconds: float) -> None:
        self._isolated(self._leader(), seconds)

    def isolate_controller(self, seconds: float) -> None:
        self._isolated(self._controller(), seconds)

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
        """Two nodes do not see each other, and the third sees both."""
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
        self.proxies.of[self._leader()].cut()
        time.sleep(seconds)  # how long the fault lasts

    def long_cut_of_clients(self, _seconds: float) -> None:
        """Cut clients off from a coordinator for longer than the session timeout of a member."""
        self.proxies.of[self._coordinator()].cut()
        time.sleep(_LONG_SECONDS)  # how long the fault lasts

    def long_cut_of_members(self, _seconds: float) -> None:
        """Cut a member of each group off from all brokers. Another one takes over; what it has sent comes later."""
        for proxy in self._proxies[APART].of.values():
            proxy.cut()
        time.sleep(_LONG_SECONDS)  # more than the session timeout of a member

    def cut_requests(self, seconds: float) -> None:
        """Requests arrive late, also those that clients have given up and sent again."""
        self.proxies.of[self._leader()].cut(REQUESTS)
        time.sleep(seconds + 3)  # more than the request timeout of a client

    def cut_answers(self, seconds: float) -> None:
        """Requests are served, and their answers do not arrive."""
        self.proxies.of[self._leader()].cut(ANSWERS)
        time.sleep(seconds + 3)  # more than the request timeout of a client

    def cut_all_clients(self, seconds: float) -> None:
        for proxy in self.proxies.of.values():
            proxy.cut()
        time.sleep(seconds)  # how long the fault lasts

    def reset_clients(self, seconds: float) -> None:
        self.proxies.reset_for(seconds, self.random)

    # coordinators, and pauses that are longer than sessions

    def kill_group_coordinator(self, seconds: float) -> None:
        self._down([self._coordinator()], seconds)

    def pause_group_coordinator(self, seconds: float) -> None:
        self._frozen([self._coordinator()], seconds)

    def long_pause_of_group_coordinator(self, _seconds: float) -> None:
        self._frozen([self._coordinator()], _LONG_SECONDS)

    def isolate_group_coordinator(self, _seconds: float) -> None:
        """Cut a coordinator off from the other nodes for longer than sessions: another one expels all members."""
        self._isolated(self._coordinator(), _LONG_SECONDS)

    def kill_transaction_coordinator(self, seconds: float) -> None:
        self._down([self._transaction_coordinator()], seconds)

    def pause_transaction_coordinator(self, seconds: float) -> None:
        self._frozen([self._transaction_coordinator()], seconds)

    def isolate_transaction_coordinator(self, seconds: float) -> None:
        self._isolated(self._transaction_coordinator(), seconds)

    def long_pause_of_leader(self, _seconds: float) -> None:
        self._frozen([self._leader()], _LONG_SECONDS)

    def long_pause_of_majority(self, _seconds: float) -> None:
        self._frozen(self.random.sample(self.ids, 2), _LONG_SECONDS)

    # N5

    def slow_follower(self, seconds: float) -> None:
        leader = self._leader()
        follower = self.random.choice([each for each in self.ids if each != leader])
        self.cluster.slow(leader, follower, latency_ms=self.random.choice([20, 200, 1500]), bandwidth=None)
        time.sleep(seconds)  # how long the fault lasts

    def frozen_follower(self, seconds: float) -> None:
        self.cluster.freeze_follower(self.topic, self.random.randrange(self.partitions))
        time.sleep(seconds)  # how long the fault lasts

    def frozen_followers(self, seconds: float) -> None:
        """No follower replicates: a leader is alone in sync, and may acknowledge nothing."""
        self.wait_in_sync()
        partition = self.random.randrange(self.partitions)
        for node in self.cluster.nodes:
            node.call("POST", "/replication/freeze")
        self.cluster.wait_isr(self.topic, partition, 1)
        time.sleep(seconds)  # how long the fault lasts

    def frozen_follower_dead_leader(self, seconds: float) -> None:
        """A follower falls behind, and then the leader is killed: the follower may not lead."""
        self.wait_in_sync()
        partition = self.random.randrange(self.partitions)
        self.cluster.freeze_follower(self.topic, partition)
        self.cluster.wait_isr(self.topic, partition, 2)
        leader = self.cluster.leader_of(self.topic, partition)
        self._down([self._leader() if leader is None else leader], seconds)

    # N7, N8, N9: one node loses what no other node has lost

    def lose_unsynced(self, _seconds: float) -> None:
        """Crash a node together with its operating system: some of its last bytes are not on the disk."""
        self._damaged(_cut_tail)

    def torn_tail(self, _seconds: float) -> None:
        """The end of a log is zeros or half a batch."""
        self._damaged(_tear_tail)

    def flipped_bit(self, _seconds: float) -> None:
        """One bit of a log's last segment, or of an index, is another one."""
        self._damaged(_flip)

    def flipped_bits_of_a_running_node(self, _seconds: float) -> None:
        """Bits of a running node's logs are other ones: it finds out when it reads them, at the latest by a check."""
        self.wait_in_sync()
        leader = self._leader()
        node = self.cluster.node(leader if self.random.random() < 0.7 else self.random.choice(self.ids))
        for directory in sorted(Path(node.data_dir).glob(f"{self.topic}-*")):
            for _ in range(self.random.randint(1, 3)):
                _flip_one_bit(directory, self.random)
        node.call("POST", "/verify", {"topic": self.topic})
        self.wait_in_sync()

    def _damaged(self, damage: Callable[[Path, random.Random], None]) -> None:
        self.wait_in_sync()
        node = self.cluster.node(self.random.choice(self.ids))
        node.kill()
        for directory in sorted(Path(node.data_dir).glob(f"{self.topic}-*")):
            damage(directory, self.random)
        node.start()
        self.cluster.start()
        self.wait_in_sync()

    # N11

    def rolling_restart(self, _seconds: float) -> None:
        for node_id in self.ids:
            self.cluster.restart(node_id)
            self.wait_in_sync()

    def _leader(self) -> int:
        leader = self.cluster.leader_of(self.topic, self.random.randrange(self.partitions))
        return self.random.choice(self.ids) if leader is None else leader

    def _next_leader(self) -> tuple[int, int, int]:
        """Return a partition, its leader, and the node that leads when that one fails; if possible no controller.

        Then the link between the two can be slow, and both keep their sessions with the controller.
        """
        controller = self._controller()
        with Admin(self.cluster.bootstrap_servers) as admin:
            partitions = list(admin.describe_topics([self.topic])[self.topic].partitions)
        self.random.shuffle(partitions)
        found = []
        for each in partitions:
            follower = next(node for node in each.replicas if node != each.leader)
            found.append((each.partition, each.leader, follower))
        return min(found, key=lambda chosen: controller in chosen[1:])

    def _coordinator(self) -> int:
        """Return the coordinator of one of the groups."""
        return self._leader_for(OFFSETS_TOPIC, self.random.choice(self.groups))

    def _transaction_coordinator(self) -> int:
        return self._leader_for(TRANSACTIONS_TOPIC, self.random.choice(self.transactional_ids))

    def _leader_for(self, topic: str, key: str) -> int:
        """Return the leader of the partition of an internal topic that has a key; any node if there is none now."""
        with Admin(self.cluster.bootstrap_servers) as admin:
            partition = partition_for_id(key, len(admin.describe_topics([topic])[topic].partitions))
        leader = self.cluster.leader_of(topic, partition)
        return self.random.choice(self.ids) if leader is None else leader

    def _controller(self) -> int:
        controller = self.cluster.controller_id
        return self.random.choice(self.ids) if controller is None else controller


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
    "flipped bits of a running node": Nemesis.flipped_bits_of_a_running_node,
    "rolling restart": Nemesis.rolling_restart,
}
WIDE_FAULTS: Final[dict[str, Callable[[Nemesis, float], None]]] = {
    "kill leader of slow followers": Nemesis.kill_leader_of_slow_followers,
    "kill leader of a late follower": Nemesis.kill_leader_of_late_follower,
    "cut clients": Nemesis.cut_clients,
    "long cut of clients": Nemesis.long_cut_of_clients,
    "long cut of members": Nemesis.long_cut_of_members,
    "cut requests": Nemesis.cut_requests,
    "cut answers": Nemesis.cut_answers,
    "cut all clients": Nemesis.cut_all_clients,
    "reset clients": Nemesis.reset_clients,
    "kill group coordinator": Nemesis.kill_group_coordinator,
    "pause group coordinator": Nemesis.pause_group_coordinator,
    "long pause of group coordinator": Nemesis.long_pause_of_group_coordinator,
    "isolate group coordinator": Nemesis.isolate_group_coordinator,
    "kill transaction coordinator": Nemesis.kill_transaction_coordinator,
    "pause transaction coordinator": Nemesis.pause_transaction_coordinator,
    "isolate transaction coordinator": Nemesis.isolate_transaction_coordinator,
    "long pause of leader": Nemesis.long_pause_of_leader,
    "long pause of majority": Nemesis.long_pause_of_majority,
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
        "cut all clients",
    }
)


def plan(seed: int, count: int, names: list[str] | None = None) -> list[str]:
    """Return the names of faults in a random order, each once before any twice."""
    chosen = random.Random(seed)
    made: list[str] = []
    while len(made) < count:
        several = sorted(names or FAULTS)
        chosen.shuffle(several)
        made += several
    return made[:count]


def _flip_one_bit(directory: Path, chosen: random.Random) -> None:
    path = _last_segment(directory)
    if path is not None:
        with path.open("r+b") as file:
            position = chosen.randrange(path.stat().st_size)
            file.seek(position)
            byte = file.read(1)[0]
            file.seek(position)
            file.write(bytes([byte ^ 1 << chosen.randrange(8)]))


def _last_segment(directory: Path) -> Path | None:
    found = sorted(path for path in directory.iterdir() if _LOG.fullmatch(path.name))
    return found[-1] if found and found[-1].stat().st_size else None


def _cut_tail(directory: Path, chosen: random.Random) -> None:
    path = _last_segment(directory)
    if path is not None:
        size = path.stat().st_size
        os.truncate(path, max(0, size - chosen.randint(0, min(size, 20_000))))


def _tear_tail(directory: Path, chosen: random.Random) -> None:
    path = _last_segment(directory)
    if path is not None:
        content = path.read_bytes()
        at = max(0, len(content) - chosen.randint(1, min(len(content), 400)))
        path.write_bytes(content[:at] + bytes(len(content) - at if chosen.random() < 0.5 else 0))


def _flip(directory: Path, chosen: random.Random) -> None:
    path = _last_segment(directory)
    index = [*directory.glob("*.index"), *directory.glob("*.timeindex")]
    if index and chosen.random() < 0.3:
        path = chosen.choice(index)
    if path is not None and path.stat().st_size:
        content = bytearray(path.read_bytes())
        content[chosen.randrange(max(0, len(content) - 20_000), len(content))] ^= 1 << chosen.randrange(8)
        path.write_bytes(content)
