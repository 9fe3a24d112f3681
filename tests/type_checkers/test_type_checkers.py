"""mypy and pyright find the mistakes of a user's program, and none in a right one."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("checker", ["mypy", "pyright"])]


def findings(checker: str, program: Path) -> dict[int, str]:
    """Return the type checker's messages on a program, by line number."""
    environment = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    if checker == "mypy":
        command = ["mypy", "--strict", "--config-file=", "--no-error-summary", "--no-pretty", "--hide-error-context"]
        # Only the program's own mistakes, as when pyclient is an installed package
        command += ["--disable-error-code=unused-ignore", "--follow-imports=silent"]
    else:
        command = ["pyright", "--outputjson", "--pythonpath", sys.executable]
    ran = subprocess.run(
        [sys.executable, "-m", *command, str(program)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    if checker == "pyright":
        found = json.loads(ran.stdout)["generalDiagnostics"]
        assert all(Path(each["file"]) == program for each in found), ran.stdout
        return {each["range"]["start"]["line"] + 1: each["message"] for each in found if each["severity"] == "error"}
    lines = re.findall(r"^(.+?):(\d+): error: (.*)$", ran.stdout, re.MULTILINE)
    assert ran.returncode == 0 or lines, ran.stdout + ran.stderr
    assert {Path(ROOT, name) for name, _, _ in lines} <= {program}, ran.stdout
    return {int(number): text for _, number, text in lines}


def test_type_checker_finds_nothing_in_right_program(checker: str) -> None:
    assert findings(checker, HERE / "right_program.py") == {}


def test_type_checker_finds_every_planted_mistake(checker: str) -> None:
    program = HERE / "wrong_program.py"
    lines = program.read_text().splitlines()
    planted = {number for number, line in enumerate(lines, 1) if line.endswith("  # wrong")}
    found = findings(checker, program)
    missed = [lines[number - 1].strip() for number in sorted(planted - found.keys())]
    invented = {lines[number - 1].strip(): found[number] for number in sorted(found.keys() - planted)}
    assert (missed, invented) == ([], {})
