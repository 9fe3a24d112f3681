"""The planted bugs apply to the package as it is, and what has to find them exists."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.chaos.checkers import Limits, checkers
from tests.chaos.nemeses import ALL_FAULTS
from tests.plants.__main__ import FAILED, HERE, ROOT, Plant

PATCHES = sorted(HERE.glob("*.patch"))
RAFT = (ROOT / "tests/broker_embedded/raft", ROOT / "pyclient/broker_embedded/controller/raft")
PROPERTIES = "".join(path.read_text() for directory in RAFT for path in sorted(directory.glob("*.py")))
CHECKERS = {*checkers(Limits(delivery_timeout=1.0, recovery=1.0)), FAILED}


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_patch_applies_and_leaves_valid_code(patch: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed.py"
    applied = subprocess.run(
        ["patch", "-p1", "--forward", "--batch", "--fuzz=0", "-r", "-", "-o", changed, "-i", patch],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert applied.returncode == 0, applied.stdout.decode() + applied.stderr.decode()
    compile(changed.read_text(), patch.name, "exec")


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_patch_names_what_has_to_find_it(patch: Path) -> None:
    plant = Plant.read(patch)
    assert plant.faults or plant.seeds or plant.tests
    assert {*plant.faults} <= {*ALL_FAULTS}
    if plant.faults:
        assert plant.seconds > 0
        assert plant.breadth in ("plain", "wide")
        assert plant.finds
        assert {*plant.finds} <= CHECKERS
    if plant.seeds:
        assert plant.finds
        assert not [name for name in plant.finds if name not in PROPERTIES]
    for test in plant.tests:
        path, _, name = test.partition("::")
        content = (ROOT / path).read_text()
        assert not name or re.search(rf"^(async )?def {name}\b", content, re.MULTILINE), f"{path} has no test {name}"
