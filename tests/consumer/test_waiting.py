"""The flag that wakes a polling thread."""

from __future__ import annotations

import threading

from pyclient.consumer.waiting import Flag


def test_flag_is_cleared_by_wait_however_often_it_was_set() -> None:
    flag = Flag()
    assert flag.wait(0) is False
    flag.set()
    flag.set()
    assert flag.wait(0) is True
    assert flag.wait(0) is False


def test_cleared_flag_is_not_set() -> None:
    flag = Flag()
    flag.clear()
    flag.set()
    flag.clear()
    assert flag.wait(0) is False


def test_flag_wakes_the_thread_that_waits() -> None:
    flag, seen = Flag(), []
    waiting = threading.Thread(target=lambda: seen.append(flag.wait(20)))
    waiting.start()
    flag.set()
    waiting.join(20)
    assert seen == [True]
