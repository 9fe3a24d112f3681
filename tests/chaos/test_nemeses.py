"""The faults of a run: their names, their order by a seed, and their documentation."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.__main__ import _share
from tests.chaos.history import History
from tests.chaos.nemeses import ALL_FAULTS, FAULTS, WIDE_FAULTS, WITHOUT_MAJORITY, _is_stopped, of_share, plan
from tests.chaos.run import Result, _planned

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


def test_documentation_sorts_all_faults_by_kind() -> None:
    part = DOCS.read_text().split("### Kinds of faults")[1]
    rows = re.findall(r"^\| ([a-z][^|]*[a-z]) \| (`.*`) \|$", part, re.MULTILINE)
    kinds = {kind: re.findall("`([^`]+)`", names) for kind, names in rows}
    assert [*kinds] == [
        "a process is killed",
        "a process is frozen, and goes on",
        "the network is cut",
        "a replica or a disk is slow",
        "what was not synced is lost",
        "a file is torn, left over or outdated",
        "a bit is flipped",
        "nodes are restarted, and the controller fails in a change",
    ]
    assert {name for names in kinds.values() for name in names} == ALL_FAULTS.keys()


def test_shares_have_all_faults_and_no_fault_twice() -> None:
    for shares in (1, 2, 3, 5):
        dealt = [of_share(ALL_FAULTS, share, shares) for share in range(1, shares + 1)]
        assert sorted(name for names in dealt for name in names) == sorted(ALL_FAULTS)
        assert max(map(len, dealt)) - min(map(len, dealt)) <= 1
        for prefix in ("damaged", "flipped", "kill", "long", "pause"):
            counts = [sum(name.startswith(prefix) for name in names) for names in dealt]
            assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("text", ["0/2", "3/2", "-1/2", "1", "a/b", "1/0"])
def test_share_outside_of_the_shares_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        _share(text)
    assert _share("2/3") == (2, 3)


@pytest.mark.parametrize(("each_once", "count"), [(False, 0), (True, 3)])
def test_plan_goes_on_after_its_end_until_each_fault_came(each_once: bool, count: int) -> None:
    names = ["kill all", "kill leader", "slow disk"]
    assert sorted(_planned(7, names, -math.inf, each_once)) == names[:count]


def test_report_names_the_faults_that_did_not_come() -> None:
    result = Result(7, History(), {}, [], ["kill all"], 60.0, names=["kill leader", "kill all", "slow disk"])
    assert result.missing == ["kill leader", "slow disk"]
    assert "2 of 3 kinds of faults did not come: kill leader, slow disk" in result.report()


def test_stopped_process_is_distinguished_from_one_that_runs() -> None:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as process:
        assert not _is_stopped(process.pid)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        assert _is_stopped(process.pid)
        process.send_signal(signal.SIGCONT)
