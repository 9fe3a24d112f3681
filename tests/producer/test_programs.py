"""Programs run by tests leave no processes."""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path

import pytest

from tests.producer import programs
from tests.waiting import until


def is_free(path: Path) -> bool:
    """Return True if all processes that shared the lock of that file have ended."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_hanging_child_is_killed_and_its_parent_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "CHILD_TIMEOUT", 1)
    said = programs.run(
        """
        import os, signal
        child = os.fork()
        if not child:
            signal.pause()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGALRM)
        """
    )
    assert said == "True\n"


def test_a_program_that_hangs_is_killed_with_its_children(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lock, begun = tmp_path / "lock", tmp_path / "begun"

    def time_out(program: subprocess.Popen[str], timeout: float) -> tuple[str, str]:
        until(begun.exists)
        raise subprocess.TimeoutExpired(program.args, timeout)

    monkeypatch.setattr(programs, "CHILD_TIMEOUT", 60)  # longer than the test has patience
    monkeypatch.setattr(subprocess.Popen, "communicate", time_out)
    with pytest.raises(subprocess.TimeoutExpired):
        programs.run(
            """
            import fcntl, os, signal, sys
            from pathlib import Path
            lock = open(sys.argv[1], "w")
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.fork():
                Path(sys.argv[2]).touch()
            signal.pause()
            """,
            str(lock),
            str(begun),
        )
    until(lambda: is_free(lock))
