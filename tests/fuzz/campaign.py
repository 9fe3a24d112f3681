"""A run of the fuzzer: rounds of traffic, and after each the checks of its oracle."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.fuzz import housekeeping
from tests.fuzz.broker_process import BrokerProcess
from tests.fuzz.findings import Finding, Findings
from tests.fuzz.good_client import GoodClientProcess
from tests.fuzz.reading import unreadable
from tests.fuzz.replay import Reproducer, key_of
from tests.fuzz.state import State
from tests.fuzz.traffic import Mixture, Sent, Traffic

_SLICE: Final = 0.5
_WARM_UP: Final = 6.0
"""Seconds of traffic before the base of memory is taken: functions are compiled and modules loaded on first use."""
_JUMP: Final = 15.0
"""Seconds that the broker's clock is set forward now and then, so that sessions and rebalances expire."""
_JUMP_EVERY: Final = 4.0
"""Seconds of traffic between two of those, on average."""
_SETTLE: Final = 30.0
"""Seconds at most for the broker to end what it is at: requests of closed connections, work on the disk."""
_FALL: Final = 30.0
"""Seconds after which what is still more than at the base is a leak."""
_OTHERS: Final = 12
"""Connections that the good client may have."""
_OBJECTS: Final = 5_000
"""Instances of one type that may be more than at the base: the broker caches 4,096 decoded ids."""
_PER_PARTITION: Final = 8
"""Instances of one type that a partition may have."""
_RESIDENT: Final = 96 << 20
"""Bytes of resident memory that may be more than at the base: the allocator keeps some."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Duration, seed and limits of a run."""

    seed: int
    seconds: float
    directory: Path
    findings: Path
    round_seconds: float = 40.0
    peak_limit: int = 768 << 20
    shrink_seconds: float = 60.0
    inputs: int | None = None
    """No further round begins after so many."""
    defect: str = "none"
    stop_at: str | None = None
    """A kind of finding after which no more is looked for."""


@dataclass(slots=True)
class Outcome:
    """The result of a run."""

    seed: int
    inputs: int
    seconds: float
    peak_bytes: int
    cpu_seconds: float
    rounds: int
    good: dict[str, Any]
    table: list[str]
    findings: list[Finding]

    def lines(self) -> list[str]:
        """Return the report."""
        rate = self.inputs / self.seconds if self.seconds else 0.0
        each_us = 1e6 * self.cpu_seconds / max(1, self.inputs)
        lines = [
            f"seed {self.seed}",
            f"inputs {self.inputs} in {self.seconds:.0f} s of traffic: {rate:.0f} a second",
            f"CPU time of the broker {self.cpu_seconds:.0f} s, {each_us:.0f} us an input",
            f"rounds {self.rounds}, each ended by kill -9",
            f"peak memory of the broker {self.peak_bytes / 2**20:.0f} MiB",
            f"good client: {self.good['acknowledged']} records acknowledged, {len(self.good['missing'])} missing; "
            f"{self.good['probes']} probes, p99 {self.good['p99'] * 1000:.1f} ms, {self.good['late']} over 100 ms, "
            f"longest {self.good['longest'] * 1000:.0f} ms",
            "answers by error code:",
            *self.table,
            f"findings: {len(self.findings)}",
        ]
        for each in self.findings:
            how = f"{len(each.frames)} inputs show it" if each.reproduced else "not seen again on a fresh broker"
            lines.append(f"  {each.kind}: {each.key} ({each.count} times; {how})")
            lines += [f"      {line}" for line in each.text.splitlines()[:30]]
        return lines


class Campaign:
    """One broker under attack for some time, across kills and restarts."""

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._say = say
        self._findings = Findings(settings.findings)
        rng = self._rng = Random(settings.seed)
        self._broker = BrokerProcess(settings.directory / "broker", settings.defect)
        self._state = State(rng)
        self._broker.start()
        self._traffic = Traffic(self._broker.port, rng, self._state, self._complain)
        self._good = GoodClientProcess(self._broker.port)
        self._base: dict[str, Any] = {}
        self._seconds = 0.0
        self._rounds = 0

    def run(self) -> Outcome:
        """Run all rounds, then shrink what was found."""
        settings = self._settings
        good: dict[str, Any] = {}
        try:
            left = settings.seconds
            while left > 0 and not self._has_enough():
                seconds = min(left, settings.round_seconds)
                left -= seconds
                try:
                    self._round(seconds)
                except TimeoutError as error:
                    self._add("controls", "no answer", f"the broker left a question about itself open: {error!r}", None)
                    self._start_again()
            good = self._lost(self._good.ask("read"), "reading all")
        finally:
            self._good.close()
            self._traffic.close()
            self._broker.kill()
        found = list(self._findings.found.values())
        for finding in found:
            self._shrink(finding)
        return Outcome(
            settings.seed,
            self._traffic.tally.inputs,
            self._seconds,
            self._broker.peak_bytes,
            self._broker.cpu_seconds,
            self._rounds,
            good,
            list(self._traffic.tally.lines()),
            found,
        )

    # -- rounds

    def _has_enough(self) -> bool:
        settings = self._settings
        found = any(finding.kind == settings.stop_at for finding in self._findings.found.values())
        return found or (settings.inputs is not None and self._traffic.tally.inputs >= settings.inputs)

    def _round(self, seconds: float) -> None:
        self._rounds += 1
        self._base = {}
        self._send_for(min(_WARM_UP, seconds / 2))
        self._rest()
        self._base = self._broker.memory()
        self._base["partitions"] = sum(housekeeping.partitions(self._broker.port).values())
        self._good.ask("record")
        self._send_for(seconds - min(_WARM_UP, seconds / 2))
        self._good.ask("pause")
        self._settle()
        self._lost(self._good.ask("check"), "with the broker running")
        for task in ("/compact", "/retention"):
            self._broker.call("POST", task)
        for kind, text in unreadable(self._broker.port):
            self._add("unreadable", kind, text, None)
        self._rest()
        self._compare_memory()
        self._verify("running")
        self._broker.kill()
        self._start_again()
        self._verify("killed")
        result = self._lost(self._good.ask("check"), "after kill -9")
        tally = self._traffic.tally
        self._say(
            f"round {self._rounds}: {tally.inputs} inputs, {tally.inputs / self._seconds:.0f} a second, peak "
            f"{self._broker.peak_bytes >> 20} MiB, p99 of a probe {result['p99'] * 1000:.1f} ms, "
            f"{len(self._findings.found)} findings"
        )

    def _send_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until and not self._has_enough():
            self._restart_if_ended()
            try:
                self._traffic.run(min(until, now + _SLICE), Mixture())
            except OSError:
                if not self._broker.ends():
                    raise
            self._seconds += time.monotonic() - now
            if self._broker.alive and self._rng.random() < _SLICE / _JUMP_EVERY:
                self._broker.call("POST", "/time/advance", seconds=_JUMP)
            self._take_events()
            if self._broker.watch_memory() > self._settings.peak_limit and self._broker.alive:
                size = self._broker.peak_bytes >> 20
                self._add("memory", "peak", f"the broker's resident memory came to {size} MiB", None)

    def _rest(self) -> None:
        """Close the connections and remove what the inputs made."""
        self._settle()
        housekeeping.clear(self._broker)
        self._state.topics.clear()
        self._state.members.clear()
        self._state.sessions.clear()
        self._take_events()

    def _settle(self) -> None:
        """Close the connections, and wait until the broker has served what it had received on them."""
        self._traffic.close()
        until = time.monotonic() + _SETTLE
        while time.monotonic() < until:
            try:
                state = self._broker.call("GET", "/broker")
                if state["connections"] <= _OTHERS and not state["requests_in_slices"]:
                    break
            except OSError:
                self._restart_if_ended()
            time.sleep(0.05)  # between two looks
        self._restart_if_ended()

    def _restart_if_ended(self) -> None:
        if not self._broker.alive:
            self._add("ended", "the process", f"the broker ended: {self._broker.stderr_tail()}", None)
            self._start_again()

    def _start_again(self) -> None:
        self._traffic.close()
        self._broker.kill()  # closes its pipes also if it has ended by itself
        try:
            self._broker.start()
        except RuntimeError as error:
            self._add("restart", "no start", str(error), None)
            raise
        self._take_events()

    # -- checks

    def _take_events(self) -> None:
        for event in self._broker.events():
            suspect = self._suspect(event)
            self._add(event["kind"], key_of(event), event["text"], suspect)

    def _suspect(self, event: dict[str, Any]) -> Sent | None:
        frame = bytes.fromhex(event.get("frame", ""))
        if not frame:
            return None
        whole = len(frame).to_bytes(4, "big") + frame
        for each in reversed(self._traffic.history.all()):
            if each.frame == whole:
                return each
        return Sent(whole, 0)

    def _compare_memory(self) -> None:
        """Compare with the base, until nothing is more than it may be: the broker's disk thread may lag."""
        until = time.monotonic() + _FALL
        now = first = self._broker.memory()
        left = housekeeping.partitions(self._broker.port)
        more = sum(left.values()) - self._base["partitions"]  # of internal topics: requests may add some to these
        while (grown := self._grown(now, _PER_PARTITION * more)) and time.monotonic() < until:
            time.sleep(0.5)  # between two looks
            now = self._broker.memory()
        for name, text in grown.items():
            holders = "\n".join(first["holders"].get(name, ()))
            self._add("leak", name, f"{text}; partitions of topics that are left: {left}\n{holders}", None)

    def _grown(self, now: dict[str, Any], allowed: int) -> dict[str, str]:
        before = self._base["types"]
        grown = {
            name: f"{count} objects of type {name} after a round, {before.get(name, 0)} at its base"
            for name, count in now["types"].items()
            if count > before.get(name, 0) + _OBJECTS + allowed and count > 1.25 * before.get(name, 0)
        }
        resident = now["resident"] - self._base["resident"]
        if resident > _RESIDENT:
            grown["resident memory"] = f"{resident >> 20} MiB more after a round than at its base"
        return grown

    def _verify(self, when: str) -> None:
        for damage in self._broker.call("POST", "/verify")["damaged"]:
            self._add("damage", f"{when} {damage['topic']}", str(damage), None)
        self._take_events()

    def _lost(self, result: dict[str, Any], when: str) -> dict[str, Any]:
        if result["missing"]:
            self._add("lost records", when, f"acknowledged and not consumed: {result['missing']}", None)
        for each in result["failures"]:
            self._add("good client", each.split(":")[1], f"{when}: {each}", None)
        return result

    def _complain(self, kind: str, text: str, suspect: Sent | None) -> None:
        self._add(kind, text.split(":")[0].partition(" version")[0], text, suspect)

    def _add(self, kind: str, key: str, text: str, suspect: Sent | None) -> None:
        known = f"{kind}: {key}" in self._findings.found
        history = [] if known else self._traffic.history.all()
        self._findings.add(kind, key, text, suspect, history)
        if not known:
            self._say(f"finding: {kind}: {key}\n{text}")

    def _shrink(self, finding: Finding) -> None:
        settings = self._settings
        if finding.kind in _NOT_REPLAYED:
            finding.frames = finding.history[-5_000:]
        else:
            trials = settings.directory / "trials"
            reproducer = Reproducer(trials, Random(settings.seed), settings.shrink_seconds, settings.defect)
            reproducer.shrink(finding)
        path = self._findings.save(finding)
        self._say(f"{finding.kind}: {finding.key}: {len(finding.frames)} inputs in {os.fspath(path)}")


_NOT_REPLAYED: Final = frozenset({"unreadable", "leak", "memory", "lost records", "good client", "damage", "controls"})
"""Kinds of findings that no single broker process reports; the inputs before them are saved as they are."""
