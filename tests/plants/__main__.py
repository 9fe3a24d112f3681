"""`python -m tests.plants`: apply each planted bug to a copy of the package, and show that a chaos run finds it.

A plant is a patch in this directory. Lines in front of it, `# faults: kill leader, isolate leader` and `# seconds: 40`,
say which chaos run has to find it; `# finds: lost` names the checkers that may do so.
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
    """A planted bug, and the run that has to find it."""

    path: Path
    faults: tuple[str, ...]
    seconds: float
    finds: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> Plant:
        lines = [line.removeprefix("# ") for line in path.read_text().splitlines() if line.startswith("# ")]
        head = {name: value for name, separator, value in (line.partition(": ") for line in lines) if separator}
        return cls(path, _names(head["faults"]), float(head["seconds"]), _names(head["finds"]))


def _names(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(","))


def found(plant: Plant, seed: int) -> tuple[bool, str]:
    """Run with the bug. Return whether a checker that has to find it did, and the end of the report."""
    with tempfile.TemporaryDirectory(prefix="pyclient-plant-") as copy:
        for name in ("pyclient", "tests"):
            shutil.copytree(ROOT / name, Path(copy, name), ignore=shutil.ignore_patterns("__pycache__"))
        applied = subprocess.run(
            ["patch", "-p1", "--forward", "--batch", "-i", plant.path], cwd=copy, capture_output=True, check=False
        )
        if applied.returncode:
            raise SystemExit(f"{plant.path.name} does not apply: {applied.stdout.decode()}")
        command = [sys.executable, "-m", "tests.chaos", "--seed", str(seed), "--seconds", str(plant.seconds)]
        for fault in plant.faults:
            command += ["--only", fault]
        environment = os.environ | {"PYTHONPATH": copy, "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            ran = subprocess.run(
                command,
                cwd=copy,
                env=environment,
                capture_output=True,
                text=True,
                timeout=plant.seconds + _SPARE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False, "the run did not end"
    violated = [line.removeprefix("VIOLATED ") for line in ran.stdout.splitlines() if line.startswith("VIOLATED ")]
    if "failed" in plant.finds:  # clients that could not go on, or a cluster that did not heal
        violated += [line for line in ran.stdout.splitlines() if line.startswith("FAILED ")]
    if any(line.split(":")[0] in plant.finds or line.startswith("FAILED ") for line in violated):
        return True, "; ".join(violated)
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
