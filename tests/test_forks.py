"""Forked children of tests."""

from __future__ import annotations

import os
import signal

import pytest

from tests import forks


def test_hanging_child_is_killed_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "CHILD_TIMEOUT", 1)
    child = forks.fork()
    if not child:
        try:
            signal.pause()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGALRM
