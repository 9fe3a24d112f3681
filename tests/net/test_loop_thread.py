import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

from pyclient.errors import ClosedError, ForkError, KafkaTimeout
from pyclient.net.loop_thread import LoopThread, new_event_loop
from tests.forks import fork
from tests.garbage import loop_threads_first


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


def test_run_returns_result_or_raises_error(thread):
    assert thread.run(add, 1, 2) == 3
    with pytest.raises(ValueError, match="from the loop"):
        thread.run(fail)
    assert thread.run(add, 3, 4, timeout=30) == 7


def test_loop_is_uvloop_if_installed(thread):
    assert type(thread.loop).__module__ == "uvloop"


def test_loop_is_asyncios_without_uvloop(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvloop", None)
    loop = new_event_loop()
    assert isinstance(loop, asyncio.BaseEventLoop)
    loop.close()


def test_call_that_times_out_is_cancelled(thread):
    entered, cancelled = threading.Event(), threading.Event()
    while not entered.is_set():  # on a busy machine the timeout may expire before the call has started
        with pytest.raises(KafkaTimeout, match=r"test-loop: no result within 0\.01 s"):
            thread.run(forever, entered, cancelled, timeout=0.01)
    assert cancelled.wait(30)


def test_timeout_inside_coroutine_is_raised_unchanged(thread):
    async def own():
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        thread.run(own, timeout=30)


def test_ctrl_c_ends_wait_and_cancels_coroutine(thread):
    cancelled = threading.Event()
    main = threading.get_ident()

    async def interrupt():
        signal.pthread_kill(main, signal.SIGINT)
        await forever(None, cancelled)

    with pytest.raises(KeyboardInterrupt):
        thread.run(interrupt)
    assert cancelled.wait(30)
    assert thread.run(add, 1, 1) == 2


def test_coroutine_is_created_on_loop_thread(thread):
    made = []

    def make():
        made.append(threading.current_thread().name)
        return add(1, 2)

    assert thread.run(make) == 3
    assert made == ["test-loop"]


def test_interrupt_before_start_prevents_coroutine(thread, monkeypatch):
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
    gc.collect()  # a coroutine that was created and never awaited would cause a warning, which is an error
    assert began == []


def test_error_of_coroutine_function_is_raised(thread):
    def make():
        raise ValueError("not even begun")

    with pytest.raises(ValueError, match="not even begun"):
        thread.run(make)


def test_call_soon_runs_functions_on_loop_thread(thread):
    done = threading.Event()
    seen = []

    def note(value):
        seen.append((value, threading.current_thread().name))
        done.set()

    thread.call_soon(note, 5)
    assert done.wait(30)
    assert seen == [(5, "test-loop")]


def test_run_on_loop_thread_is_refused(thread):
    async def nested():
        thread.run(add, 1, 1)

    with pytest.raises(RuntimeError, match="a blocking call inside test-loop"):
        thread.run(nested)


def test_stop_fails_waiting_calls():
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


def test_late_loop_runs_last_call_before_it_stops():
    thread, go_on, closed = LoopThread("late"), threading.Event(), threading.Event()
    thread.start()
    thread.call_soon(go_on.wait)
    with pytest.raises(KafkaTimeout, match=r"late: no result within 0\.01 s"):
        thread.run_last(lambda: forever(cancelled=closed), 0.01)
    assert not thread.stop(0)
    go_on.set()
    assert thread.stop(30)
    assert closed.is_set()


def test_last_call_that_another_stop_cancels_is_closed_error(thread):
    entered = threading.Event()
    stopping = threading.Thread(target=lambda: entered.wait() and thread.stop())
    stopping.start()
    with pytest.raises(ClosedError, match="was closed during the call"):
        thread.run_last(lambda: forever(entered), 30)
    stopping.join()


def test_task_created_as_loop_stops_closes_what_it_was_given(thread):
    """asyncio's server makes such a task of each socket that it accepts."""
    near, far = socket.socketpair()
    tasks = []

    async def serve():
        with far:
            await asyncio.Event().wait()

    async def stop():
        thread.stop(0)
        thread.loop.call_soon(lambda: tasks.append(thread.loop.create_task(serve())))

    thread.run(stop)
    assert thread.stop(30)
    with near:
        assert near.recv(1) == b""
    assert tasks[0].cancelled()


def test_tasks_begun_while_loop_stops_are_cancelled(thread):
    cancelled = []

    async def last(name):
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(name)
            if name < 3:
                started.append(asyncio.create_task(last(name + 1)))

    started = []
    thread.call_soon(lambda: started.append(thread.loop.create_task(last(1))))
    assert thread.stop(30)
    assert cancelled == [1, 2, 3]


def test_loop_thread_refuses_use_before_start():
    thread = LoopThread("fresh")
    with pytest.raises(ClosedError, match="fresh was not started"):
        thread.run(add, 1, 1)
    with pytest.raises(ClosedError):
        _ = thread.loop
    assert thread.stop()


def test_loop_thread_refuses_second_start(thread):
    with pytest.raises(RuntimeError, match="was started before"):
        thread.start()


def test_garbage_collected_loop_thread_ends():
    thread = LoopThread("forgotten")
    thread.start()
    inner = thread._thread
    del thread
    gc.collect()
    inner.join(30)
    assert not inner.is_alive()


def test_kept_loop_thread_runs_for_its_owners_finalizer():
    results = []

    class Owner:
        def __init__(self):
            self.itself = self
            self.thread = LoopThread("kept")
            self.thread.start()
            self.thread.keep()

        def __del__(self):
            results.append(self.thread.run(add, 1, 2))
            self.thread.stop(30)

    with loop_threads_first(__name__):
        Owner()
        gc.collect()
    assert results == [3]


def test_loop_thread_in_forked_child_raises_fork_error(thread):
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


def test_interpreter_exit_calls_at_exit_and_ends_in_time():
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
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout == "hook ran\n"
    assert done.returncode == 0, done.stderr


def test_interpreter_exit_closes_resources_after_clients_despite_errors():
    program = """
from pyclient.net.loop_thread import LoopThread, close_after_clients

class Resource:
    def close(self):
        print("closed")
        raise OSError("it cannot be closed")

first, second = Resource(), Resource()
for resource in (first, second, first, Resource()):  # nothing else holds the last one
    close_after_clients(resource)
del resource
thread = LoopThread("exiting", at_exit=lambda: print("client"))
thread.start()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout == "client\nclosed\nclosed\n"
    assert done.stderr.count("OSError: it cannot be closed") == 2
    assert done.returncode == 0
