"""The flag that wakes a polling thread."""

from __future__ import annotations

import threading

from pyclient.consumer.waiting import Flag


def test_a_flag_is_taken_down_by_who_waits_for_it_however_often_it_was_set() -> None:
    flag = Flag()
    assert flag.wait(0) is False
    flag.set()
    flag.set()
    assert flag.wait(0) is True
    assert flag.wait(0) is False


def test_a_flag_that_is_cleared_is_down() -> None:
    flag = Flag()
    flag.clear()
    flag.set()
    flag.clear()
    assert flag.wait(0) is False


def test_a_flag_wakes_the_thread_that_waits() -> None:
    flag, seen = Flag(), []
    waiting = threading.Thread(target=lambda: seen.append(flag.wait(20)))
    waiting.start()
    flag.set()
    waiting.join(20)
    assert seen == [True]
