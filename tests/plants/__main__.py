"""`python -m tests.plants`: apply each planted bug to a copy of the package, and show that it is found.

A plant is a patch in this directory. Lines in front of it, `# faults: kill leader, isolate leader` and `# seconds: 40`,
say which chaos run has to find it; `# finds: lost` names the checkers that may do so. `# seeds: 400` instead asks the
simulation of the metadata quorum to find it within that many seeds, by one of the properties in `# finds`. And
`# tests: tests/a.py, tests/b.py` names tests of which one has to fail.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
_SPARE_SECONDS: Final = 400.0


@dataclass(frozen=True)
class Plant:
    """A planted bug, and the run or the tests that have to find it."""

    path: Path
    faults: tuple[str, ...]
    seconds: float
    seeds: int
    finds: tuple[str, ...]
    tests: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> Plant:
        lines = [line.removeprefix("# ") for line in path.read_text().splitlines() if line.startswith("# ")]
        head = {name: value for name, separator, value in (line.partition(": ") for line in lines) if separator}
        faults, finds, tests = (_names(head.get(name, "")) for name in ("faults", "finds", "tests"))
        return cls(path, faults, float(head.get("seconds", 0)), int(head.get("seeds", 0)), finds, tests)

    def command(self, seed: int) -> list[str]:
        """Return the run that has to find it."""
        if self.tests:
            options = ("-q", "-x", "-p", "no:cacheprovider", "-m", "not slow and not kafka")
            return [sys.executable, "-m", "pytest", *options, *self.tests]
        if self.seeds:
            return [sys.executable, "-m", "tests.broker_embedded.raft", "--seeds", str(self.seeds)]
        command = [sys.executable, "-m", "tests.chaos", "--seed", str(seed), "--seconds", str(self.seconds)]
        for fault in self.faults:
            command += ["--only", fault]
        return command

    def found_by(self, output: str) -> list[str]:
        """Return what was found, of what has to find it."""
        lines = output.splitlines()
        if self.tests:
            return [line for line in lines if line.startswith("FAILED ")]
        if self.seeds:
            return [line for line in lines if any(name in line for name in self.finds)]
        violated = [line.removeprefix("VIOLATED ") for line in lines if line.startswith("VIOLATED ")]
        found = [line for line in violated if line.split(":")[0] in self.finds]
        if "failed" in self.finds:  # clients that could not go on, or a cluster that did not heal
            found += [line for line in lines if line.startswith("FAILED ")]
        return found


def _names(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())


def found(plant: Plant, seed: int) -> tuple[bool, str]:
    """Run with the bug. Return whether a checker that has to find it did, and the end of the report."""
    with tempfile.TemporaryDirectory(prefix="pyclient-plant-") as copy:
        for name in ("pyclient", "tests"):
            shutil.copytree(ROOT / name, Path(copy, name), ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        applied = subprocess.run(
            ["patch", "-p1", "--forward", "--batch", "-i", plant.path], cwd=copy, capture_output=True, check=False
        )
        if applied.returncode:
            raise SystemExit(f"{plant.path.name} does not apply: {applied.stdout.decode()}")
        environment = os.environ | {"PYTHONPATH": copy, "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            ran = subprocess.run(
                plant.command(seed),
                cwd=copy,
                env=environment,
                capture_output=True,
                text=True,
                timeout=plant.seconds + _SPARE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False, "the run did not end"
    lines = plant.found_by(ran.stdout + ran.stderr)
    if ran.returncode and lines:
        return True, "; ".join(lines)
    return False, f"{ran.stdout[-1500:]}{ran.stderr[-1500:]}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.plants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", help="only these plants, by the names of their files")
    options = parser.parse_args()
    plants = [Plant.read(path) for path in sorted(HERE.glob("*.patch")) if path.stem in (options.only or [path.stem])]
    caught = 0
    for plant in plants:
        seen, text = found(plant, options.seed)
        caught += seen
        sys.stdout.write(f"{'found' if seen else 'NOT FOUND'}  {plant.path.stem}: {text}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{caught} of {len(plants)} planted bugs were found\n")
    return 0 if caught == len(plants) else 1


if __name__ == "__main__":
    sys.exit(main())
