"""CallbackThread: it starts with the first callback, keeps their order, ends, and copes without a thread."""

from __future__ import annotations

import threading

import pytest

from pyclient.clock import SYSTEM_CLOCK
from pyclient.producer.callbacks import CallbackThread
from pyclient.producer.delivery import Delivery, DeliveryContext, State


def test_the_callback_thread_starts_late_keeps_order_and_ends():
    callbacks, seen = CallbackThread("callbacks"), []

    def threads():
        return [thread.name for thread in threading.enumerate() if thread.name == "callbacks"]

    assert threads() == [] and callbacks.wait(0)
    callbacks.submit([(seen.append, number) for number in range(100)])
    assert callbacks.wait(20) and seen == list(range(100)) and threads() == ["callbacks"]
    callbacks.submit([(seen.append, "last")])
    assert callbacks.stop(20) and seen[-1] == "last" and threads() == []
    callbacks.submit([(seen.append, "after the end")])
    assert seen[-1] == "after the end"


def test_waiters_are_woken_without_a_callback_thread(monkeypatch):
    context = DeliveryContext(CallbackThread("test"), None, SYSTEM_CLOCK)

    def none_left(*_):
        raise RuntimeError("can't start new thread")

    first, second = Delivery(context, "t", 0), Delivery(context, "t", 0)
    notified, ran = [], []
    first.add_callback(0, ran.append, "first")
    first.when_done(0, lambda: notified.append(first.state))
    with monkeypatch.context() as patch:
        patch.setattr("pyclient.producer.callbacks._thread.start_new_thread", none_left)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            first.deliver(1, 0)
    assert notified == [State.DELIVERED] and ran == []
    second.add_callback(0, ran.append, "second")
    second.deliver(1, 1)
    assert context.callbacks.wait(30) and ran == ["first", "second"] and context.callbacks.stop(30)


def test_callbacks_without_a_thread_run_at_close(monkeypatch):
    callbacks, ran = CallbackThread("test"), []

    def none_left(*_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr("pyclient.producer.callbacks._thread.start_new_thread", none_left)
        with pytest.raises(RuntimeError, match="can't start"):
            callbacks.submit([(ran.append, 1)])
    assert callbacks.stop(0) and ran == [1]


def test_callbacks_run_in_the_only_thread_that_can_be_started(monkeypatch):
    callbacks, ran = CallbackThread("test"), []

    def none_left(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none_left)
    callbacks.submit([(lambda _: ran.append(callbacks.runs_here), None)])
    assert callbacks.wait(30) and ran == [True] and callbacks.stop(30)


def test_a_callback_may_wait_for_callbacks_without_waiting_for_itself():
    callbacks, seen = CallbackThread("callbacks"), []
    callbacks.submit([(lambda _: seen.append(callbacks.wait(0.01)), None)])
    assert callbacks.wait(20) and seen == [True]
    callbacks.stop(20)
