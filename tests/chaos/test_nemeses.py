"""The faults of a run: their names, their order by a seed, and their documentation."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.chaos.nemeses import ALL_FAULTS, FAULTS, WIDE_FAULTS, WITHOUT_MAJORITY, _is_stopped, plan

DOCS = Path(__file__).parents[2] / "docs" / "chaos.md"


def test_plan_has_each_fault_once_before_any_twice() -> None:
    names = sorted(ALL_FAULTS)
    made = plan(72, 2 * len(names), names)
    assert sorted(made[: len(names)]) == sorted(made[len(names) :]) == names
    assert made == plan(72, 2 * len(names), names)
    assert made != plan(73, 2 * len(names), names)


def test_faults_without_a_majority_exist_and_no_fault_is_in_both_breadths() -> None:
    assert ALL_FAULTS.keys() >= WITHOUT_MAJORITY
    assert FAULTS.keys().isdisjoint(WIDE_FAULTS)


def test_documentation_lists_each_fault_in_its_breadth() -> None:
    parts = DOCS.read_text().split("### Further faults of wide runs")
    listed = [set(re.findall(r"^\| `([^-`][^`]*)` \|", part, re.MULTILINE)) for part in parts]
    assert listed == [FAULTS.keys(), WIDE_FAULTS.keys()]


def test_stopped_process_is_told_from_one_that_runs() -> None:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as process:
        assert not _is_stopped(process.pid)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        assert _is_stopped(process.pid)
        process.send_signal(signal.SIGCONT)
