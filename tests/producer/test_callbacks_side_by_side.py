"""Futures used by several threads while their batch completes: each callback is called once, each state is right."""

from __future__ import annotations

import threading

from pyclient.clock import SYSTEM_CLOCK
from pyclient.producer.callbacks import CallbackThread
from pyclient.producer.delivery import Delivery, DeliveryContext
from pyclient.producer.futures import DeliveryFuture

BATCHES = 300
THREADS = 4


def test_callbacks_added_while_batches_are_completed_are_each_called_once(switching):
    runner = CallbackThread("test-callbacks")
    context = DeliveryContext(runner, None, SYSTEM_CLOCK)
    deliveries = [Delivery(context, "t", 0) for _ in range(BATCHES)]
    ready, called, wrong = threading.Barrier(THREADS + 1), [], []

    def add(thread):
        ready.wait(60)
        for number, delivery in enumerate(deliveries):
            for index in range(3):
                future = DeliveryFuture(delivery, index, 0)
                future.add_done_callback(
                    lambda future, key=(thread, number, index): called.append((key, future.result(0).offset))
                )

    def look():
        ready.wait(60)
        for number, delivery in enumerate(deliveries):
            future = DeliveryFuture(delivery, 2, 0)
            while not future.done():
                pass
            if (found := future.result(0)) != ("t", 0, number * 3 + 2, 0):
                wrong.append(found)

    threads = [threading.Thread(target=add, args=(thread,)) for thread in range(THREADS - 1)]
    threads.append(threading.Thread(target=look))
    for thread in threads:
        thread.start()
    ready.wait(60)
    for number, delivery in enumerate(deliveries):
        assert delivery.deliver(3, number * 3)
    for thread in threads:
        thread.join()
    assert runner.stop(60) and wrong == []
    keys = [(thread, number, index) for thread in range(THREADS - 1) for number in range(BATCHES) for index in range(3)]
    assert sorted(called) == [(key, key[1] * 3 + key[2]) for key in keys]
