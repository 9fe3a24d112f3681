from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

from pyclient.net.latch import Flag, Latch, acquire

PATIENCE = 30.0


def in_threads(number: int, work: Any) -> tuple[list[threading.Thread], list[Any]]:
    returned: list[Any] = []
    threads = [threading.Thread(target=lambda: returned.append(work()), daemon=True) for _ in range(number)]
    for thread in threads:
        thread.start()
    return threads, returned


def test_latch_is_closed_until_it_is_opened() -> None:
    latch = Latch()
    assert not latch.opened and [latch.wait(seconds) for seconds in (0, -1, 0.001)] == [False] * 3
    latch.open()
    assert latch.opened and [latch.wait(seconds) for seconds in (0, -1, None)] == [True] * 3


def test_open_latch_releases_all_waiters() -> None:
    latch = Latch()
    threads, returned = in_threads(5, lambda: latch.wait(None))
    assert returned == []
    latch.open()
    for thread in threads:
        thread.join(PATIENCE)
    assert returned == [True] * 5


def test_interrupted_waiter_releases_latch() -> None:
    latch = Latch()
    threads, returned = in_threads(2, lambda: latch.wait(None))
    latch._lock = threading.Lock()
    latch._lock.acquire()
    latch.opened = True
    for thread in threads:
        thread.join(PATIENCE)
    assert returned == [True] * 2


@pytest.mark.parametrize("wait", [lambda: Latch().wait(None), lambda: acquire(taken(), None)])
def test_ctrl_c_ends_unbounded_wait(wait: Any) -> None:
    main = threading.main_thread().ident or 0
    timer = threading.Timer(0.01, lambda: signal.pthread_kill(main, signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        timer.start()  # in the block: on a busy machine the signal may arrive before the wait begins
        wait()
    timer.join(PATIENCE)


def test_acquire_gets_free_lock_or_times_out() -> None:
    lock = taken()
    assert [acquire(lock, seconds) for seconds in (0, -1e30, 0.001)] == [False] * 3
    threads, returned = in_threads(1, lambda: acquire(lock, float("inf")))
    lock.release()
    threads[0].join(PATIENCE)
    assert returned == [True] and lock.locked()


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


def taken() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock
