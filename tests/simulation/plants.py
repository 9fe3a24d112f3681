"""`python -m tests.simulation.plants`: apply each planted bug of `tests/plants` to a copy, and find it by a seed.

`# simulation: --damage` in a plant has the arguments of the simulation that finds it. What only damage before a start
finds is left out.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
PLANTS: Final = _ROOT / "tests" / "plants"
_NOT_SIMULATED: Final = "# faults: flipped bit"
_SCENARIO: Final = re.compile("^# simulation: (.*)$", re.MULTILINE)


def found(plant: Path, first: int, seeds: int) -> str | None:
    """Return what the first seed that finds a planted bug says of it; None if no seed does."""
    with tempfile.TemporaryDirectory(prefix="pyclient-plant-") as copy:
        for name in ("pyclient", "tests"):
            shutil.copytree(_ROOT / name, Path(copy, name), ignore=shutil.ignore_patterns("__pycache__"))
        applied = subprocess.run(
            ["patch", "-p1", "--forward", "--batch", "-i", plant], cwd=copy, capture_output=True, check=False
        )
        if applied.returncode:
            raise SystemExit(f"{plant.name} does not apply: {applied.stdout.decode()}")
        command = [sys.executable, "-m", "tests.simulation", "--first", str(first), "--seeds", str(seeds)]
        scenario = _SCENARIO.search(plant.read_text())
        command += [] if scenario is None else scenario[1].split()
        environment = os.environ | {"PYTHONPATH": copy, "PYTHONDONTWRITEBYTECODE": "1"}
        ran = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    seed = re.search(r"^seed \d+: .*\n.*", ran.stdout, re.MULTILINE)
    if ran.returncode and seed is None:
        raise SystemExit(f"{plant.name}: the simulation ended with {ran.returncode}: {ran.stderr[-1000:]}")
    return None if seed is None else seed[0].replace("\n", ": ")


def main(arguments: list[str] | None = None) -> int:
    """Read the command line, and look for all plants; exit status 1 if one is not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.plants", description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds may look for each plant")
    parser.add_argument("--only", action="append", help="only these plants, by the names of their files")
    options = parser.parse_args(arguments)
    plants = [path for path in sorted(PLANTS.glob("*.patch")) if path.stem in (options.only or [path.stem])]
    plants = [path for path in plants if _NOT_SIMULATED not in path.read_text().splitlines()]
    caught = 0
    for plant in plants:
        text = found(plant, options.first, options.seeds)
        caught += text is not None
        sys.stdout.write(f"{plant.stem}: {'NOT FOUND' if text is None else text}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{caught} of {len(plants)} planted bugs were found\n")
    return 0 if caught == len(plants) else 1


if __name__ == "__main__":
    sys.exit(main())
