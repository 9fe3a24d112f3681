"""Soak test of a group: members join, leave, are killed and paused at random, and records are checked."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from pyclient import Consumer, Producer, TopicPartition

MEMBERS = 6
SCRIPT = Path(__file__).with_name("soak_member.py")
Place = tuple[int, int]  # partition, offset


@dataclass
class Member:
    """A process, its event log, and whether it was ever killed or paused (its records may then be processed twice)."""

    process: subprocess.Popen[bytes]
    event_log: Path
    clean: bool = True
    paused_until: float = 0.0

    @property
    def log(self) -> Path:
        """Return its output."""
        return self.event_log.with_suffix(".log")

    def processed(self) -> list[Place]:
        """Return the records in its event log; a truncated last line was not committed either."""
        text = self.event_log.read_text() if self.event_log.exists() else ""
        lines = text[: text.rfind("\n") + 1].split("\n")
        return [(int(line.split()[0]), int(line.split()[1])) for line in lines if line and line != "left"]


class GroupSoak:
    """Applies random faults to one group. `step` does one; `check_committed` may be called at any time."""

    def __init__(
        self, servers: str, topic: str, partitions: int, group: str, directory: Path, rng: Random, **options: Any
    ) -> None:
        self.members: list[Member] = []
        self.actions: Counter[str] = Counter()
        self._actions: list[str] = []
        self._topic = topic
        self._partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self._directory = directory
        self._rng = rng
        self._options = {
            "bootstrap_servers": servers, "group_id": group, "auto_offset_reset": "earliest",
            "auto_commit_interval_ms": 300, **options,
        }  # fmt: skip
        self._watcher: Consumer[Any, Any] = Consumer(bootstrap_servers=servers, group_id=group)

    # -- trouble

    @property
    def running(self) -> list[Member]:
        """Return the members whose process is running."""
        return [member for member in self.members if member.process.poll() is None]

    def join(self) -> None:
        """Start one more member; every second one commits explicitly."""
        number = len(self.members)
        event_log = self._directory / f"member-{number}.events"
        options = {**self._options, "client_id": f"soak-{number}", "enable_auto_commit": number % 2 == 0}
        arguments = [sys.executable, str(SCRIPT), str(event_log), json.dumps(options), self._topic]
        with event_log.with_suffix(".log").open("wb") as log:
            process = subprocess.Popen(arguments, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.members.append(Member(process, event_log))

    def leave(self, member: Member) -> None:
        """Let a member leave the group, once it handles the signal."""
        while not member.event_log.exists():
            assert member.process.poll() is None, member.log.read_text()
            time.sleep(0.02)  # between two looks
        member.process.send_signal(signal.SIGTERM)
        member.process.wait(60)
        assert member.process.returncode == 0, member.log.read_text()

    def kill(self, member: Member) -> None:
        """Kill a member."""
        member.clean = False
        member.process.kill()
        member.process.wait(60)

    def pause(self, member: Member, seconds: float) -> None:
        """Pause a member, perhaps for longer than its session timeout."""
        member.clean = False
        member.process.send_signal(signal.SIGSTOP)
        member.paused_until = time.monotonic() + seconds

    def wake(self, *, all_paused: bool = False) -> None:
        """Resume members whose pause is over, or all paused members."""
        for member in self.running:
            if member.paused_until and (all_paused or member.paused_until <= time.monotonic()):
                member.paused_until = 0.0
                member.process.send_signal(signal.SIGCONT)

    def step(self, session_seconds: float) -> None:
        """Make one random change to the group, which keeps one to six running members."""
        self.wake()
        working = [member for member in self.running if not member.paused_until]
        action = self._next_action()
        if len(self.running) < 2:
            action = "join"
        if (action == "join" and len(self.running) == MEMBERS) or (action != "join" and len(working) < 2):
            return
        self.actions[action] += 1
        if action == "join":
            self.join()
        else:
            member = self._rng.choice(working)
            if action == "pause":
                self.pause(member, self._rng.uniform(0.2, 1.8) * session_seconds)
            else:
                getattr(self, action)(member)

    def _next_action(self) -> str:
        """Return a random action, each equally often in every eight."""
        if not self._actions:
            self._actions = ["join", "join", "join", "leave", "kill", "kill", "pause", "pause"]
            self._rng.shuffle(self._actions)
        return self._actions.pop()

    # -- what must hold

    def check_committed(self) -> None:
        """Check that nothing is committed before it is processed. Commits are read first, event logs second."""
        committed = self.committed()
        processed = {place for member in self.members for place in member.processed()}
        for partition, end in committed.items():
            missing = [offset for offset in range(end) if (partition, offset) not in processed]
            assert not missing, f"partition {partition}: {end} is committed, and {missing[:5]} were never processed"

    def committed(self) -> Mapping[int, int]:
        """Return the group's offset of each partition, 0 where it has none."""
        found = self._watcher.committed(self._partitions, timeout=30)
        return {
            partition.partition: 0 if (offset := found.get(partition)) is None else offset.offset
            for partition in self._partitions
        }

    def finish(self, seconds: float) -> None:
        """Wait until everything is processed and committed, then stop all members."""
        self.wake(all_paused=True)
        if not self.running:
            self.join()
        ends = {key.partition: end for key, end in self._watcher.end_offsets(self._partitions).items()}
        deadline = time.monotonic() + seconds
        while (committed := self.committed()) != ends:
            assert time.monotonic() < deadline, (committed, ends, [member.log.read_text() for member in self.running])
            ended = [member for member in self.members if member.process.poll() is not None and member.clean]
            assert all(member.process.returncode == 0 for member in ended), [member.log.read_text() for member in ended]
            time.sleep(0.1)  # between two looks
        for member in self.running:
            self.leave(member)

    def check_processed(self, produced: int) -> None:
        """Check that everything was processed, and nothing twice by members that were neither killed nor paused."""
        ends = {key.partition: end for key, end in self._watcher.end_offsets(self._partitions).items()}
        assert sum(ends.values()) == produced
        everything = {(partition, offset) for partition, end in ends.items() for offset in range(end)}
        processed = {place for member in self.members for place in member.processed()}
        assert processed == everything, f"{len(everything - processed)} records were never processed"
        by_clean = Counter(place for member in self.members if member.clean for place in member.processed())
        twice = [place for place, count in by_clean.items() if count > 1]
        assert not twice, f"{len(twice)} records were processed twice by members neither killed nor paused: {twice[:5]}"

    def close(self) -> None:
        """End all remaining processes."""
        for member in self.running:
            member.process.kill()
            member.process.wait(60)
        self._watcher.close()


def soak(
    servers: str, topic: str, partitions: int, directory: Path, *, seed: int, seconds: float, records: int,
    session_seconds: float, **options: Any,
) -> GroupSoak:  # fmt: skip
    """Produce `records` over `seconds` seconds under faults, and check all invariants."""
    run = GroupSoak(servers, topic, partitions, f"group-of-{topic}", directory, Random(seed), **options)
    try:
        with Producer(servers, linger_ms=5) as producer:
            started, sent, pace = time.monotonic(), 0, Random(seed)
            next_step, next_check = 0.0, 5.0
            while sent < records:
                elapsed = time.monotonic() - started
                due = min(records, int(records * elapsed / seconds) + 1)
                for number in range(sent, due):
                    producer.send(topic, b"%d" % number, partition=number % partitions)
                sent = due
                if elapsed >= next_step:
                    run.step(session_seconds)
                    next_step = elapsed + pace.uniform(0.3, 2.5)
                if elapsed >= next_check:
                    run.check_committed()
                    next_check = elapsed + 5.0
                time.sleep(0.02)  # the pace of the input
        run.finish(120)
        run.check_committed()
        run.check_processed(records)
    finally:
        run.close()
    return run
