"""A sender without a network: its batches have names, and the test answers its requests."""

from __future__ import annotations

import random
import uuid

from pyclient import errors
from pyclient.backoff import Backoff
from pyclient.clock import SYSTEM_CLOCK
from pyclient.producer.delivery import DeliveryContext
from pyclient.producer.produce_response import PartitionAnswer
from pyclient.producer.record_accumulator import RecordAccumulator
from pyclient.producer.sender import Sender, SenderConfig

NOT_LEADER = errors.NotLeaderOrFollower.code
OUT_OF_ORDER = errors.OutOfOrderSequenceNumber.code


class SenderFixture:
    """A sender with one topic; `b0` is a batch of partition 0 and so on. Requests go out as lists of batch names."""

    def __init__(self, leaders=(1,), **options):
        self.now = 100.0
        context = DeliveryContext(None, None, SYSTEM_CLOCK)
        self.accumulator = RecordAccumulator(
            context, random.Random(1), batch_size=1000, buffer_memory=100_000, linger=0.0, delivery_timeout=60.0
        )
        given = {
            "idempotent": True, "max_in_flight": 5, "max_request_size": 10_000, "retries": 1000,
            "backoff": Backoff(1.0, 1.0, jitter=0.0), "delivery_timeout_ms": 60_000,
        } | options  # fmt: skip
        self.sender = Sender(self.accumulator, random.Random(1), SenderConfig(**given))
        self.sender.producer_ids.obtained(7, 0)
        self.lead(*leaders)
        self.works = {}
        self.names = {}

    def lead(self, *leaders):
        self.topic = self.accumulator.update_topic("t", uuid.UUID(int=1), leaders, self.now)

    def batch(self, name, *values, partition=0):
        """Append and close a batch of these values; return its futures."""
        queue = self.topic.queues[partition]
        batch = self.accumulator.open_batch(queue, self.accumulator.pool.try_acquire(1000), self.now)
        futures = [queue.append(5, None, value, None) for value in values or (b"v",)]
        self.accumulator.close_open(queue)
        self.names[batch] = name
        return futures

    def drain(self, node=1, seconds=0.0, index=0):
        """Return the requests that are sent now, on one connection."""
        self.now += seconds
        for result in self.sender.begin(self.now):
            result.notify()
        sent = []
        while (work := self.sender.drain(node, self.now, index)) is not None:
            assert work.connection_index == index
            names = [self.names.get(batch, "part") for batch in work.batches]
            self.works[names[0]] = work
            sent.append(names)
        return sent

    def drain_all(self, connections, node=1):
        """Return the requests for each of so many connections, drained as by the loop."""
        state = self.sender.node(node)
        state.set_connections(connections)
        sent = [self.drain(node, index=index) for index in range(connections)]
        state.drained(self.accumulator.ready_at(node))
        return sent

    def answer(self, name, code=0, base_offset=0, throttle_ms=0, **more):
        work = self.works.pop(name)
        answers = {
            ("t", batch.queue.partition): PartitionAnswer(code, base_offset if not code else -1, **more)
            for batch in work.batches
        }
        for result in self.sender.answered(work, answers, throttle_ms, self.now):
            result.notify()

    def lose(self, name, written=True):
        error = errors.ConnectionFailed("the connection broke")
        for result in self.sender.lost(self.works.pop(name), error, written=written, now=self.now):
            result.notify()

    def numbers(self, name):
        batch = next(batch for batch in self.names if self.names[batch] == name)
        return batch.producer_epoch, batch.base_sequence

    def warm(self):
        """Confirm one batch, so that more than one may be in flight."""
        self.batch("warm")
        assert self.drain() == [["warm"]]
        self.answer("warm")
