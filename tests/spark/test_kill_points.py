"""The check of `make chaos-spark` sees rows that are not right, and a seed chooses its kills."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.spark.beside import ROOT
from tests.spark.conftest import needs_java
from tests.spark.dying_daemon import POINTS, point_of
from tests.spark.kill_points import check, check_kills


def test_the_check_sees_lost_and_repeated_rows() -> None:
    assert check("exactly-once", 3, [2, 0, 1]) == []
    assert check("at-least-once", 3, [0, 1, 2, 1]) == []
    assert "1 rows are lost, the first ones [1]" in check("at-least-once", 3, [0, 2])[0]
    assert "more than once, the first ones [2]" in check("exactly-once", 3, [0, 1, 2, 2])[0]
    assert "never sent" in check("at-least-once", 1, [0, 7])[0]


def test_the_check_sees_that_too_few_workers_were_killed() -> None:
    assert check_kills(100, 100) == check_kills(100, 117) == []
    assert check_kills(100, 99) == ["only 99 of 100 workers were killed, then the queries had ended"]


def test_a_seed_chooses_the_same_points_again_and_all_of_them() -> None:
    def chosen(exactly_once: bool) -> list[str]:
        return [
            point_of("7", f"0-{task}", attempt, exactly_once=exactly_once)
            for task in range(30)
            for attempt in (0, 1, 2)
        ]

    assert chosen(True) == chosen(True)
    assert set(chosen(True)) == set(POINTS)
    assert not any("ransaction" in point for point in chosen(False))


class TestInSpark:
    pytestmark = [*needs_java, pytest.mark.slow, pytest.mark.timeout(1800)]

    def test_a_hundred_kills_lose_and_repeat_no_rows(self) -> None:
        command = [sys.executable, "-m", "tests.spark.kill_points", "--kills", "100", "--seed", "1"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1700)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
        killed = re.search(r"^(\d+) workers were killed, all rows are right$", done.stdout, re.MULTILINE)
        assert killed is not None, done.stdout
        assert int(killed[1]) >= 100
