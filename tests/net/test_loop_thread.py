import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading

import pytest

from pyclient.errors import ClosedError, ForkError, KafkaTimeout
from pyclient.net.loop_thread import LoopThread, new_event_loop
from tests.forks import fork


@pytest.fixture
def thread():
    thread = LoopThread("test-loop")
    thread.start()
    yield thread
    assert thread.stop(30)


async def add(a, b):
    await asyncio.sleep(0)
    return a + b


async def fail():
    raise ValueError("from the loop")


async def forever(entered=None, cancelled=None):
    try:
        if entered is not None:
            entered.set()
        await asyncio.get_running_loop().create_future()
    finally:
        if cancelled is not None:
            cancelled.set()


def test_results_and_errors_come_back(thread):
    assert thread.run(add, 1, 2) == 3
    with pytest.raises(ValueError, match="from the loop"):
        thread.run(fail)
    assert thread.run(add, 3, 4, timeout=30) == 7


def test_the_loop_is_uvloop_where_it_is_installed(thread):
    assert type(thread.loop).__module__ == "uvloop"


def test_without_uvloop_the_loop_is_asyncios_own(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvloop", None)
    loop = new_event_loop()
    assert isinstance(loop, asyncio.BaseEventLoop)
    loop.close()


def test_a_call_that_takes_too_long_is_cancelled(thread):
    entered, cancelled = threading.Event(), threading.Event()
    while not entered.is_set():  # on a busy machine the time may be over before the call has begun
        with pytest.raises(KafkaTimeout, match=r"test-loop: no result within 0\.01 s"):
            thread.run(forever, entered, cancelled, timeout=0.01)
    assert cancelled.wait(30)


def test_a_timeout_inside_the_coroutine_is_its_own(thread):
    async def own():
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        thread.run(own, timeout=30)


def test_ctrl_c_ends_a_wait_and_cancels_what_was_waited_for(thread):
    cancelled = threading.Event()
    main = threading.get_ident()

    async def interrupt():
        signal.pthread_kill(main, signal.SIGINT)
        await forever(None, cancelled)

    with pytest.raises(KeyboardInterrupt):
        thread.run(interrupt)
    assert cancelled.wait(30)
    assert thread.run(add, 1, 1) == 2


def test_a_coroutine_is_made_on_the_loops_thread_so_that_an_interrupt_leaves_none_behind(thread):
    made = []

    def make():
        made.append(threading.current_thread().name)
        return add(1, 2)

    assert thread.run(make) == 3
    assert made == ["test-loop"]


def test_an_interrupt_before_the_loop_has_begun_the_work_keeps_it_from_beginning(thread, monkeypatch):
    began = []
    held = []

    async def work():
        began.append(True)

    def interrupted(function, *args):
        held.append((function, args))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(thread, "call_soon", interrupted)
        with pytest.raises(KeyboardInterrupt):
            thread.run(work)
    [(begin, args)] = held
    thread.call_soon(begin, *args)
    assert thread.run(add, 1, 2) == 3
    gc.collect()  # a coroutine that was made and never awaited would warn, which is an error
    assert began == []


def test_an_error_in_making_the_coroutine_comes_back(thread):
    def make():
        raise ValueError("not even begun")

    with pytest.raises(ValueError, match="not even begun"):
        thread.run(make)


def test_calls_from_other_threads_run_on_the_loop(thread):
    done = threading.Event()
    seen = []

    def note(value):
        seen.append((value, threading.current_thread().name))
        done.set()

    thread.call_soon(note, 5)
    assert done.wait(30)
    assert seen == [(5, "test-loop")]


def test_a_blocking_call_from_the_loop_itself_is_refused_instead_of_hanging(thread):
    async def nested():
        thread.run(add, 1, 1)

    with pytest.raises(RuntimeError, match="a blocking call inside test-loop"):
        thread.run(nested)


def test_stopping_ends_waiting_calls_with_an_error():
    thread = LoopThread("ending")
    thread.start()
    entered = threading.Event()
    outcome = []

    def wait():
        try:
            thread.run(forever, entered)
        except ClosedError as error:
            outcome.append(str(error))

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert entered.wait(30)
    assert thread.stop(30)
    waiter.join()
    assert outcome == ["ending was closed during the call"]
    assert thread.stop(30)
    assert repr(thread) == "<LoopThread ending stopped>"
    for use in (lambda: thread.run(add, 1, 1), lambda: thread.call_soon(print)):
        with pytest.raises(ClosedError, match="ending is closed"):
            use()


def test_use_before_start_is_refused():
    thread = LoopThread("fresh")
    with pytest.raises(ClosedError, match="fresh was not started"):
        thread.run(add, 1, 1)
    with pytest.raises(ClosedError):
        _ = thread.loop
    assert thread.stop()


def test_starting_twice_is_refused(thread):
    with pytest.raises(RuntimeError, match="was started before"):
        thread.start()


def test_a_forgotten_loop_thread_ends():
    thread = LoopThread("forgotten")
    thread.start()
    inner = thread._thread
    del thread
    gc.collect()
    inner.join(30)
    assert not inner.is_alive()


def test_a_child_process_gets_a_clear_error_and_hurts_nothing(thread):
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        text = b"no error"
        try:
            thread.run(add, 1, 1)
        except ForkError as error:
            text = str(error).encode()
        thread.stop(1)
        os.write(writing, text)
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with open(reading, "rb") as result:
        assert f"belongs to process {os.getpid()}: after fork() create a new client" in result.read().decode()
    assert thread.run(add, 1, 1) == 2


def test_interpreter_exit_calls_the_hook_and_ends_in_time():
    program = """
import asyncio, sys
from pyclient.net.loop_thread import LoopThread

def hook():
    print("hook", thread.run(asyncio.sleep, 0, "ran"))

thread = LoopThread("exiting", at_exit=hook)
thread.start()

async def stubborn():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

thread.call_soon(lambda: setattr(thread, "task", thread.loop.create_task(stubborn())))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert done.stdout == "hook ran\n"
    assert done.returncode == 0, done.stderr
