"""BufferPool: the memory of batches."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyclient import Producer
from pyclient.producer.buffer_pool import AHEAD, PACE, BufferPool, Waiter
from tests.producer.parts import client_of, runner_of


def taken(pool, size):
    """Acquire a buffer for a queued batch; return None if there is none."""
    buffer = pool.try_acquire(size)
    pool.unowned = None
    return buffer


def waiting(pool, size, woken):
    waiter = Waiter(lambda: woken.append(waiter))
    pool.wait(waiter, size)
    return waiter


def test_buffers_of_the_pooled_size_are_reused():
    pool = BufferPool(1000, 100)
    first = taken(pool, 60)
    assert len(first) == 100 and pool.available == 900
    pool.release(first)
    assert taken(pool, 100) is first and pool.available == 900


def test_large_record_gets_its_own_buffer_in_place_of_pooled_ones():
    pool = BufferPool(1000, 100)
    pooled = [taken(pool, 100) for _ in range(10)]
    for buffer in pooled:
        pool.release(buffer)
    large = taken(pool, 750)
    assert len(large) == 750 and pool.available == 250
    assert taken(pool, 300) is None
    pool.release(large)
    assert pool.available == 1000
    reused = [any(buffer is old for old in pooled) for buffer in [taken(pool, 100) for _ in range(10)]]
    assert reused == [True] * 2 + [False] * 8


def test_first_waiter_is_served_first_even_if_a_later_one_would_fit():
    pool, woken = BufferPool(1000, 100), []
    held = [taken(pool, 500), taken(pool, 500)]
    large, small = waiting(pool, 800, woken), waiting(pool, 100, woken)
    pool.release(held.pop())
    assert woken == [] and taken(pool, 100) is None
    pool.release(held.pop())
    assert woken == [large, small] and len(large.buffer) == 800 and len(small.buffer) == 100


def test_abandoned_waiter_makes_way_and_returns_its_buffer():
    pool, woken = BufferPool(1000, 100), []
    held = taken(pool, 600)
    large, small = waiting(pool, 800, woken), waiting(pool, 400, woken)
    pool.abandon(large)
    assert woken == [small]
    pool.abandon(small)
    pool.release(held)
    assert pool.available == 1000 and small.buffer is None and pool.waiting == 0
    pool.abandon(Waiter(print))


def test_buffer_of_a_vanished_waiter_is_recovered_by_the_next_release():
    pool, woken = BufferPool(1000, 100), []
    held = [taken(pool, 500), taken(pool, 500)]
    vanished = waiting(pool, 500, woken)
    pool.release(held.pop())
    assert woken == [vanished] and pool.available == 0
    vanished.gone = True  # and it does not call `abandon`
    pool.release(held.pop())
    assert pool.available == 1000 and vanished.buffer is None
    pool.abandon(vanished)
    assert pool.available == 1000


def test_buffer_of_a_vanished_waiter_goes_to_the_next_waiter():
    pool, woken = BufferPool(100, 100), []
    held = taken(pool, 100)
    vanished = waiting(pool, 100, woken)
    pool.release(held)
    vanished.gone = True
    later = waiting(pool, 100, woken)
    assert woken == [vanished, later] and len(later.buffer) == 100 and pool.available == 0


def test_buffer_leaked_by_an_interrupted_cleanup_is_reused():
    pool, woken = BufferPool(100, 100), []
    assert pool.try_acquire(100) is pool.unowned is not None
    later = waiting(pool, 100, woken)
    assert woken == [later] and pool.available == 0 and pool.unowned is None


def test_closing_wakes_every_waiter_without_a_buffer():
    pool, woken = BufferPool(100, 100), []
    taken(pool, 100)
    waiters = [waiting(pool, 100, woken) for _ in range(3)]
    pool.wake_all()
    assert woken == waiters and all(waiter.buffer is None for waiter in waiters)


def test_force_acquire_may_exceed_the_total():
    pool = BufferPool(100, 100)
    held, forced = taken(pool, 100), pool.force_acquire(50)
    pool.unowned = None
    assert pool.available == -100
    pool.release(forced)
    assert taken(pool, 10) is None
    pool.release(held)
    assert pool.available == 100


class PoolMachine(RuleBasedStateMachine):
    """Random acquires, waits and releases: the balance is right and every waiter is served."""

    def __init__(self):
        super().__init__()
        self.pool = BufferPool(1000, 64)
        self.held = []
        self.waiters = []
        self.vanished = 0

    @rule(size=st.integers(1, 1000))
    def take(self, size):
        buffer = taken(self.pool, size)
        if buffer is not None:
            assert len(buffer) >= size and all(buffer is not other for other in self.held)
            self.held.append(buffer)
            return
        waiter = Waiter(lambda: self.granted(waiter))
        self.waiters.append(waiter)
        self.pool.wait(waiter, size)

    def granted(self, waiter):
        assert waiter is self.waiters.pop(0), "first come, first served"
        self.held.append(waiter.buffer)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data):
        self.pool.release(self.held.pop(data.draw(st.integers(0, len(self.held) - 1))))

    @precondition(lambda self: self.waiters)
    @rule(data=st.data())
    def give_up(self, data):
        self.pool.abandon(self.waiters.pop(data.draw(st.integers(0, len(self.waiters) - 1))))

    @precondition(lambda self: self.waiters)
    @rule(data=st.data())
    def vanish(self, data):
        """Remove a waiter that did not call `abandon`, as after a double interrupt."""
        self.waiters.pop(data.draw(st.integers(0, len(self.waiters) - 1))).gone = True
        self.vanished += 1
        self.pool.grant()

    @invariant()
    def balance_is_right(self):
        assert self.pool.available == 1000 - sum(map(len, self.held)) >= 0
        vanished = self.pool.waiting - len(self.waiters)  # they are queued until it is their turn
        assert 0 <= vanished <= self.vanished
        assert not self.waiters or max(self.waiters[0].size, 64) > self.pool.available


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def test_patient_release_wakes_no_waiter_until_plenty_is_free_or_grant():
    pool, woken = BufferPool(4000, 100), []
    held = [taken(pool, 100) for _ in range(40)]
    first, second = waiting(pool, 100, woken), waiting(pool, 100, woken)
    pool.release(held.pop(), patient=True)
    assert woken == [] and pool.withheld and pool.available == 100
    pool.grant()
    assert woken == [first] and not pool.withheld and pool.available == 0
    for _ in range(7):
        pool.release(held.pop(), patient=True)
    assert woken == [first] and pool.withheld
    pool.release(held.pop(), patient=True)
    assert woken == [first, second] and not pool.withheld and pool.available == 700


def test_caller_far_ahead_is_woken_when_little_is_in_use_again():
    pool, woken = BufferPool(16 * PACE, PACE // 8), []
    held = [taken(pool, PACE // 8) for _ in range(32)]
    assert not pool.must_pace(lambda: woken.append("not much in use"))
    held.append(taken(pool, PACE // 8))
    assert pool.must_pace(lambda: woken.append("first"))
    assert not pool.must_pace(lambda: woken.append("too soon after it"))
    held += [taken(pool, PACE // 8) for _ in range(8)]

    def impatient():
        woken.append("impatient")

    assert pool.must_pace(impatient)
    pool.forget(impatient)
    while pool.total - pool.available > AHEAD - PACE:
        assert woken == []
        pool.release(held.pop(), patient=True)
    assert woken == ["first"]
    pool.release(held.pop())
    assert woken == ["first"]


def test_single_sends_wait_for_the_sender_above_16_mib(cluster, topic):
    """A large buffer_memory is for what a broker does not take; running ahead of one that does costs page faults."""
    mib = 1 << 20
    with Producer(
        cluster.bootstrap_servers, buffer_memory=64 * mib, max_request_size=2 * mib, batch_size=mib, linger_ms=60_000
    ) as producer:
        producer.send(topic, b"first", partition=0)
        producer.flush()
        in_use: list[int] = []
        pool = client_of(producer).accumulator.pool
        runner_of(producer).keep_pace = lambda: in_use.append(pool.total - pool.available)  # type: ignore[method-assign]
        held = cluster.faults.hold("Produce", topic=topic, times=None)
        for _ in range(40):
            producer.send(topic, bytes(mib - 200), partition=0)
        held.release()
        assert len(in_use) >= 22 and min(in_use) > 16 * mib
