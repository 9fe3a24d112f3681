"""Faults of a copy chain: killed and frozen copiers, coordinators and leaders, and requests that come late or twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

from pyclient import Admin
from pyclient.admin import TransactionDescription
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.cluster.kafka_call import call
from pyclient.broker_embedded.groups.partitioning import partition_for_id
from pyclient.errors import ClientError
from pyclient.protocol.messages.end_txn import EndTxnRequest
from pyclient.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
ZOMBIE_SECONDS: Final = 7.0  # more than the session timeout of a copier
_LATE_SECONDS: Final = 10.0
_REBALANCE_SECONDS: Final = 30.0  # more than the session timeout of a copier


class Copiers:
    """The processes that copy, each with a transactional id of its own; one that has ended is replaced."""

    def __init__(self, servers: str, count: int, source: str, target: str, group: str, size: int, pause: float) -> None:
        self.names = [f"copier-{number}" for number in range(count)]
        self.group = group
        self.notes: list[str] = []
        self._arguments = (source, target, group, str(size), f"{pause:.3f}")
        self._servers = servers
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._frozen: list[subprocess.Popen[str]] = []

    def start(self) -> None:
        """Start those that do not run; how the others ended is noted."""
        for name in self.names:
            process = self._running.get(name)
            if process is not None and process.poll() is not None:
                self._collect(self._running.pop(name))
            if name not in self._running:
                self.replace(name)

    def replace(self, name: str) -> None:
        """Start a copier, also where a frozen one with the same transactional id goes on later."""
        command = [sys.executable, "-m", "tests.chaos.copier", self._servers, name, *self._arguments]
        self._running[name] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def kill(self, name: str) -> None:
        """End a copier by SIGKILL."""
        self._running[name].kill()
        self._collect(self._running.pop(name))

    def freeze(self, name: str) -> None:
        """Stop a copier by SIGSTOP; it is no longer counted as running."""
        process = self._running.pop(name)
        os.kill(process.pid, signal.SIGSTOP)
        self._frozen.append(process)

    def thaw(self) -> None:
        """Let frozen copiers go on: those that get partitions end by themselves, as they are fenced."""
        for process in self._frozen:
            os.kill(process.pid, signal.SIGCONT)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()  # it got no partitions
            self._collect(process)
        self._frozen.clear()

    def end(self) -> None:
        """Stop all copiers by SIGTERM, after their present transactions."""
        for process in self._running.values():
            process.terminate()
        for name, process in self._running.items():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                self.notes.append(f"{name} did not end within 60 s of SIGTERM")
                process.kill()
            self._collect(process)
        self._running.clear()

    def _collect(self, process: subprocess.Popen[str]) -> None:
        output = process.communicate()[0]
        code = process.returncode
        if code not in (0, 3, -signal.SIGKILL, -signal.SIGTERM):  # SIGTERM ends one that only just begins
            self.notes.append(f"a copier ended with {code}: {output[-800:]}")

    def close(self) -> None:
        """End everything at once."""
        for process in [*self._running.values(), *self._frozen]:
            process.kill()
            process.communicate()


class CopyFaults:
    """Does one fault after the other, by a seed."""

    def __init__(self, cluster: EmbeddedCluster, copiers: Copiers, target: str, partitions: int, seed: int) -> None:
        self.cluster, self.copiers = cluster, copiers
        self.random = random.Random(seed)
        self._target, self._partitions = target, partitions
        self.late_requests = 0

    def strike(self, name: str, seconds: float) -> None:
        """Do the fault with a name for about that long, and undo it."""
        FAULTS[name](self, seconds)
        self.mend()

    def mend(self) -> None:
        """Undo all faults, and start what does not run."""
        self.cluster.faults.clear()
        self.cluster.heal()
        for node in self.cluster.nodes:
            node.resume()
        self.cluster.start()
        self.copiers.start()

    def kill_copier(self, _seconds: float) -> None:
        self.copiers.kill(self._copier())

    def kill_copier_in_a_rebalance(self, seconds: float) -> None:
        """Kill a copier as soon as a rebalance begins that another one causes, which joins again after its own end."""
        joining, other = self.random.sample(self.copiers.names, 2)
        self._wait_for_group(lambda state: state == "Stable")
        time.sleep(seconds)  # copiers work between two rebalances
        self.copiers.kill(joining)
        self.copiers.replace(joining)
        self._wait_for_group(lambda state: state != "Stable")
        self.copiers.kill(other)

    def _wait_for_group(self, reached: Callable[[str], bool]) -> None:
        deadline = time.monotonic() + _REBALANCE_SECONDS
        with Admin(self.cluster.bootstrap_servers) as admin:
            while not reached(state := admin.describe_groups([self.copiers.group])[self.copiers.group].state):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"group {self.copiers.group} is still {state} after {_REBALANCE_SECONDS:g} s")
                time.sleep(0.01)  # between two looks

    def zombie_copier(self, _seconds: float) -> None:
        """Freeze a copier, start another with its transactional id, and let the first go on."""
        name = self._copier()
        self.copiers.freeze(name)
        time.sleep(self.random.random() * 2)  # its transaction stays open for a while
        self.copiers.replace(name)
        time.sleep(ZOMBIE_SECONDS)  # the others take over its partitions meanwhile
        self.copiers.thaw()

    def kill_leader(self, seconds: float) -> None:
        self._down(self.cluster.leader_of(self._target, self.random.randrange(self._partitions)), seconds)

    def kill_transaction_coordinator(self, seconds: float) -> None:
        self._down(self._coordinator(), seconds)

    def kill_group_coordinator(self, seconds: float) -> None:
        self._down(self.cluster.leader_of(OFFSETS_TOPIC, self._part(OFFSETS_TOPIC, self.copiers.group)), seconds)

    def pause_transaction_coordinator(self, seconds: float) -> None:
        self.cluster.pause(self._some(self._coordinator()))
        time.sleep(seconds)  # how long the fault lasts

    def isolate_transaction_coordinator(self, seconds: float) -> None:
        """Cut the coordinator off from the other nodes: it can neither write its state nor send markers."""
        coordinator = self._some(self._coordinator())
        for node in self.cluster.nodes:
            if node.id != coordinator:
                self.cluster.cut(coordinator, node.id)
        time.sleep(seconds)  # how long the fault lasts

    def slow_markers(self, seconds: float) -> None:
        """Delay everything between the coordinator and another node, and with it markers and what verifies writes."""
        coordinator = self._some(self._coordinator())
        other = self.random.choice([node.id for node in self.cluster.nodes if node.id != coordinator])
        self.cluster.slow(coordinator, other, latency_ms=self.random.choice([50, 300, 1500]))
        time.sleep(seconds)  # how long the fault lasts

    def lost_end_answers(self, seconds: float) -> None:
        """Lose the answers to EndTxn, so that clients repeat what was done."""
        with self.cluster.faults.disconnect("EndTxn", times=3, when="after"):
            time.sleep(seconds)  # how long the fault lasts

    def held_ends(self, seconds: float) -> None:
        """Hold an EndTxn at the broker for longer than its client waits, and serve it then."""
        with self.cluster.faults.hold("EndTxn", times=1):
            time.sleep(max(seconds, 6.0))  # the request timeout of a copier is 5 s

    def late_end(self, _seconds: float) -> None:
        """Repeat the EndTxn of an earlier transaction, with the other outcome, too."""
        name, then = self._earlier_epoch()
        for commit in (True, False):
            request = EndTxnRequest(
                transactional_id=name,
                producer_id=then.producer_id,
                producer_epoch=then.producer_epoch,
                committed=commit,
            )
            self._send(self._some(self._coordinator(name)), request)

    def late_markers(self, _seconds: float) -> None:
        """Repeat the markers of an earlier transaction at all leaders, with both outcomes."""
        _name, then = self._earlier_epoch()
        for partition in range(self._partitions):
            leader = self.cluster.leader_of(self._target, partition)
            topic = WritableTxnMarkerTopic(name=self._target, partition_indexes=[partition])
            for commit in (True, False):
                marker = WritableTxnMarker(
                    producer_id=then.producer_id,
                    producer_epoch=then.producer_epoch,
                    transaction_result=commit,
                    topics=[topic],
                    coordinator_epoch=0,
                    transaction_version=2,
                )
                self._send(self._some(leader), WriteTxnMarkersRequest(markers=[marker]))

    def _earlier_epoch(self) -> tuple[str, TransactionDescription]:
        """Return a transactional id with a producer epoch that is certainly over."""
        deadline = time.monotonic() + _LATE_SECONDS
        name = self._copier()
        with Admin(self.cluster.bootstrap_servers) as admin:
            then = admin.describe_transactions([name])[name]
            while True:
                now = admin.describe_transactions([name])[name]
                if (now.producer_id, now.producer_epoch) > (then.producer_id, then.producer_epoch + 1):
                    return name, then
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{name} has not gone on within {_LATE_SECONDS:g} s: {now}")
                time.sleep(0.05)  # between two looks

    def _send(self, node_id: int, request: EndTxnRequest | WriteTxnMarkersRequest) -> None:
        try:
            call(self.cluster.node(node_id).config, request, timeout=5.0)
            self.late_requests += 1
        except ClientError:
            return  # the broker is away just now

    def _down(self, node_id: int | None, seconds: float) -> None:
        self.cluster.kill(self._some(node_id))
        time.sleep(seconds * self.random.random())  # how long the fault lasts

    def _copier(self) -> str:
        return self.random.choice(self.copiers.names)

    def _coordinator(self, name: str | None = None) -> int | None:
        return self.cluster.leader_of(TRANSACTIONS_TOPIC, self._part(TRANSACTIONS_TOPIC, name or self._copier()))

    def _part(self, topic: str, key: str) -> int:
        with Admin(self.cluster.bootstrap_servers) as admin:
            return partition_for_id(key, len(admin.describe_topics([topic])[topic].partitions))

    def _some(self, node_id: int | None) -> int:
        """Return the node, or any if there is none now."""
        return self.random.choice([node.id for node in self.cluster.nodes]) if node_id is None else node_id


FAULTS: Final[dict[str, Callable[[CopyFaults, float], None]]] = {
    "kill copier": CopyFaults.kill_copier,
    "kill copier in a rebalance": CopyFaults.kill_copier_in_a_rebalance,
    "zombie copier": CopyFaults.zombie_copier,
    "kill leader": CopyFaults.kill_leader,
    "kill transaction coordinator": CopyFaults.kill_transaction_coordinator,
    "kill group coordinator": CopyFaults.kill_group_coordinator,
    "pause transaction coordinator": CopyFaults.pause_transaction_coordinator,
    "isolate transaction coordinator": CopyFaults.isolate_transaction_coordinator,
    "slow markers": CopyFaults.slow_markers,
    "lost EndTxn answers": CopyFaults.lost_end_answers,
    "held EndTxn": CopyFaults.held_ends,
    "late EndTxn": CopyFaults.late_end,
    "late markers": CopyFaults.late_markers,
}


def plan(seed: int, names: list[str] | None = None) -> Iterator[str]:
    """Yield names of faults without end in a random order, each once before any twice."""
    chosen = random.Random(seed)
    while True:
        several = sorted(names or FAULTS)
        chosen.shuffle(several)
        yield from several
