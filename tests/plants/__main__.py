"""`python -m tests.plants`: apply each planted bug to a copy of the package, and show that it is found.

A plant is a patch in this directory. Lines in front of it, `# faults: kill leader, isolate leader` and `# seconds: 40`,
say which chaos run has to find it; `# finds: lost` names the checkers that may do so. With `# breadth: wide` that is a
wide run, as it is with the name of a fault of wide runs. `# seeds: 400` instead asks the simulation of the metadata
quorum to find it within that many seeds, by one of the properties in `# finds`. And `# tests: tests/a.py, tests/b.py`
names tests of which one has to fail. A plant that has tests and faults has to be found by both.

When its faults strike is a matter of chance: chaos runs with the next seeds follow one that did not find the plant.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
FAILED: Final = "failed"
"""Among the names of checkers: clients that could not go on, or a cluster that did not heal."""
_SPARE_SECONDS: Final = 400.0


@dataclass(frozen=True)
class Plant:
    """A planted bug, and the runs and tests that have to find it."""

    path: Path
    faults: tuple[str, ...]
    seconds: float
    breadth: str
    seeds: int
    finds: tuple[str, ...]
    tests: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> Plant:
        lines = [line.removeprefix("# ") for line in path.read_text().splitlines() if line.startswith("# ")]
        head = {name: value for name, separator, value in (line.partition(": ") for line in lines) if separator}
        faults, finds, tests = (_names(head.get(name, "")) for name in ("faults", "finds", "tests"))
        seconds, seeds = float(head.get("seconds", 0)), int(head.get("seeds", 0))
        return cls(path, faults, seconds, head.get("breadth", "plain"), seeds, finds, tests)

    def searches(self, seeds: Iterable[int]) -> Iterator[Search]:
        """Yield what has to find it; `seeds` are those of chaos runs."""
        if self.tests:
            options = ("-q", "-x", "-p", "no:cacheprovider", "-m", "not slow and not kafka")
            yield Search([("-m", "pytest", *options, *self.tests)], _failed)
        if self.seeds:
            yield Search([("-m", "tests.broker_embedded.raft", "--seeds", str(self.seeds))], self._broken)
        if self.faults:
            common = ("--breadth", self.breadth, "--seconds", str(self.seconds))
            only = [option for fault in self.faults for option in ("--only", fault)]
            runs = [("-m", "tests.chaos", "--seed", str(seed), *common, *only) for seed in seeds]
            yield Search(runs, self._violated)

    def _broken(self, lines: list[str]) -> list[str]:
        return [line for line in lines if any(name in line for name in self.finds)]

    def _violated(self, lines: list[str]) -> list[str]:
        violated = [line.removeprefix("VIOLATED ") for line in lines if line.startswith("VIOLATED ")]
        found = [line for line in violated if line.split(":")[0] in self.finds]
        return found + (_failed(lines) if FAILED in self.finds else [])


@dataclass(frozen=True)
class Search:
    """Runs of which one has to find a planted bug; `found` returns what one found out of the lines that it printed."""

    runs: Sequence[tuple[str, ...]]
    found: Callable[[list[str]], list[str]]

    def run(self, directory: str, seconds: float) -> tuple[bool, str]:
        """Run in a copy that has the bug until it is found. Return whether it was, and the ends of the reports."""
        missed = []
        for number, arguments in enumerate(self.runs, 1):
            seen, text = self._run(arguments, directory, seconds)
            if seen:
                return True, text if number == 1 else f"{text} (by run {number})"
            missed.append(text)
        return False, "\n".join(missed)

    def _run(self, arguments: tuple[str, ...], directory: str, seconds: float) -> tuple[bool, str]:
        environment = os.environ | {"PYTHONPATH": directory, "PYTHONDONTWRITEBYTECODE": ""}
        try:
            ran = subprocess.run(
                (sys.executable, *arguments),
                cwd=directory,
                env=environment,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False, f"the run did not end within {seconds:g} s"
        lines = self.found((ran.stdout + ran.stderr).splitlines())
        if ran.returncode and lines:
            return True, "; ".join(lines)
        return False, f"{ran.stdout[-1500:]}{ran.stderr[-1500:]}"


def _failed(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("FAILED ")]


def _names(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())


def found(plant: Plant, seeds: Iterable[int]) -> tuple[bool, str]:
    """Run with the bug. Return whether all that have to find it did, and what they found, or the end of a report."""
    texts = []
    with tempfile.TemporaryDirectory(prefix="pyclient-plant-") as copy:
        for name in ("pyclient", "tests"):
            shutil.copytree(ROOT / name, Path(copy, name), ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        applied = subprocess.run(
            ["patch", "-p1", "--forward", "--batch", "-i", plant.path], cwd=copy, capture_output=True, check=False
        )
        if applied.returncode:
            raise SystemExit(f"{plant.path.name} does not apply: {applied.stdout.decode()}")
        for search in plant.searches(seeds):
            seen, text = search.run(copy, plant.seconds + _SPARE_SECONDS)
            if not seen:
                return False, text
            texts.append(text)
    return bool(texts), "; ".join(texts)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.plants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the first chaos run")
    parser.add_argument("--runs", type=int, default=3, help="so many chaos runs may look for a plant")
    parser.add_argument("--only", action="append", help="only these plants, by the names of their files")
    options = parser.parse_args()
    plants = [Plant.read(path) for path in sorted(HERE.glob("*.patch")) if path.stem in (options.only or [path.stem])]
    caught = 0
    for plant in plants:
        began = time.monotonic()
        seen, text = found(plant, range(options.seed, options.seed + options.runs))
        caught += seen
        took = f"{time.monotonic() - began:.0f} s"
        sys.stdout.write(f"{'found' if seen else 'NOT FOUND'}  {plant.path.stem} ({took}): {text}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{caught} of {len(plants)} planted bugs were found\n")
    return 0 if caught == len(plants) else 1


if __name__ == "__main__":
    sys.exit(main())
