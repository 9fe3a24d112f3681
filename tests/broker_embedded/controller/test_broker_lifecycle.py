"""The lifecycle of a broker, from registration to shutdown, alone and with a real `ClusterControl`."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclient import errors
from pyclient.broker_embedded.controller.broker_lifecycle import NEVER, AnswerGap, BrokerLifecycle, BrokerState, Times
from pyclient.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from pyclient.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from tests.broker_embedded.controller.cluster_model import ClusterModel

TIMES = Times(heartbeat=2.0, session=9.0, registration=60.0)


def lifecycle(now: float = 0.0) -> BrokerLifecycle:
    return BrokerLifecycle(ClusterModel().registration(1), TIMES, Random(1), now)


def registered(broker: BrokerLifecycle, now: float = 0.0, epoch: int = 5) -> None:
    assert isinstance(broker.request(now, -1), BrokerRegistrationRequest)
    broker.answered(BrokerRegistrationResponse(throttle_time_ms=0, error_code=0, broker_epoch=epoch), now)


def beat(broker: BrokerLifecycle, now: float, **answer: Any) -> BrokerHeartbeatRequest:
    request = broker.request(now, 7)
    assert isinstance(request, BrokerHeartbeatRequest)
    values = {"error_code": 0, "is_caught_up": True, "is_fenced": False, "should_shut_down": False}
    broker.answered(BrokerHeartbeatResponse(throttle_time_ms=0, **(values | answer)), now)
    return request


def running() -> BrokerLifecycle:
    broker = lifecycle()
    registered(broker)
    broker.ready_to_unfence(0.0)
    beat(broker, 0.0)
    assert broker.state is BrokerState.RUNNING
    return broker


def test_broker_passes_from_registration_to_running() -> None:
    broker = lifecycle()
    registered(broker, epoch=5)
    assert (broker.state, broker.epoch, broker.due) == (BrokerState.STARTING, 5, 0.0)
    first = beat(broker, 0.0, is_caught_up=False, is_fenced=True)
    assert (first.want_fence, first.want_shut_down, first.broker_epoch) == (True, False, 5)
    assert (broker.state, broker.due) == (BrokerState.STARTING, 0.01)
    beat(broker, 0.01, is_fenced=True)
    assert (broker.state, broker.due) == (BrokerState.RECOVERY, 2.01)
    broker.ready_to_unfence(1.0)
    assert broker.due == 1.0
    assert not beat(broker, 1.0).want_fence
    assert (broker.state, broker.due) == (BrokerState.RUNNING, 3.0)


def test_one_request_at_a_time() -> None:
    broker = running()
    assert broker.request(1.0, 7) is None
    assert broker.request(2.0, 7) is not None
    assert broker.request(9.0, 7) is None
    assert broker.due == NEVER


def test_change_during_a_heartbeat_is_sent_right_after_it() -> None:
    broker = lifecycle()
    registered(broker)
    assert broker.request(0.0, 7) is not None
    broker.ready_to_unfence(0.1)
    broker.answered(
        BrokerHeartbeatResponse(
            throttle_time_ms=0, error_code=0, is_caught_up=True, is_fenced=True, should_shut_down=False
        ),
        0.2,
    )
    assert broker.due == 0.2
    broker.metadata_applied(0.2)
    beat(broker, 0.2)
    broker.metadata_applied(0.3)
    assert broker.due == 2.2, "a broker that runs keeps its interval"
    broker.connection_lost(0.5)
    assert broker.due == 0.5


def test_failures_are_repeated_with_growing_pauses_up_to_an_interval() -> None:
    broker = running()
    now, pauses = 2.0, []
    for _ in range(12):
        assert broker.request(now, 7) is not None
        broker.failed(errors.ConnectionFailed("refused"), now)
        pauses.append(broker.due - now)
        now = broker.due
    assert 0 < pauses[0] <= 0.012 < pauses[-1] <= TIMES.heartbeat
    assert broker.state is BrokerState.RUNNING
    beat(broker, now)
    assert broker.due == now + TIMES.heartbeat


def test_heartbeat_that_timed_out_is_repeated_soon() -> None:
    """Its connection has ended, and the controller gives the broker little time for another one."""
    broker, now = running(), 2.0
    for _ in range(12):
        assert broker.request(now, 7) is not None
        now += TIMES.session
        broker.failed(errors.KafkaTimeout("no answer"), now)
        assert now < broker.due <= now + 0.012
        now = broker.due


def test_broker_that_the_controller_forgot_registers_again() -> None:
    broker = running()
    assert broker.request(2.0, 7) is not None
    broker.failed(errors.StaleBrokerEpoch("not registered"), 2.0)
    assert (broker.state, broker.epoch) == (BrokerState.STARTING, -1)
    registered(broker, broker.due, epoch=50)
    assert not beat(broker, broker.due).want_fence
    assert (broker.state, broker.epoch) == (BrokerState.RUNNING, 50)


def test_broker_that_cannot_register_gives_up() -> None:
    broker = lifecycle()
    now = 0.0
    while broker.state is BrokerState.STARTING:
        assert broker.request(now, -1) is not None
        code = errors.DuplicateBrokerRegistration.code
        broker.answered(BrokerRegistrationResponse(throttle_time_ms=0, error_code=code), now)
        last, now = now, broker.due
    assert TIMES.registration <= last < TIMES.registration + TIMES.heartbeat + 1
    assert isinstance(broker.refusal, errors.DuplicateBrokerRegistration)
    assert broker.request(now, -1) is None


def test_controlled_shutdown() -> None:
    broker = running()
    broker.begin_shutdown(0.5)
    assert broker.due == 0.5
    assert beat(broker, 0.5).want_shut_down
    assert (broker.state, broker.due) == (BrokerState.PENDING_CONTROLLED_SHUTDOWN, 0.51)
    assert beat(broker, 0.51, is_fenced=True, should_shut_down=True).want_shut_down
    assert (broker.state, broker.due) == (BrokerState.SHUTTING_DOWN, NEVER)
    broker.connection_lost(1.0)
    assert broker.request(100.0, 7) is None


def test_broker_without_registration_stops_at_once() -> None:
    broker = lifecycle()
    assert broker.request(0.0, -1) is not None
    broker.begin_shutdown(0.1)
    assert broker.state is BrokerState.SHUTTING_DOWN
    broker.failed(errors.KafkaTimeout("no answer"), 0.2)
    assert broker.due == NEVER


def test_removed_broker_has_nothing_to_hand_over() -> None:
    broker = running()
    broker.begin_shutdown(0.5)
    assert broker.request(0.5, 7) is not None
    broker.failed(errors.StaleBrokerEpoch("removed"), 0.6)
    assert broker.state is BrokerState.SHUTTING_DOWN


@settings(max_examples=50)
@given(lost=st.lists(st.booleans(), max_size=30), stop_at=st.integers(0, 20))
def test_any_lost_answers_end_in_the_wanted_state(lost: list[bool], stop_at: int) -> None:
    """Lose answers between a broker and its controller: the broker runs in the end, and stops when it should."""
    model = ClusterModel()
    model.start(2)
    model.create([1, 2])
    broker = BrokerLifecycle(model.registration(1), TIMES, Random(1), model.now)
    broker.ready_to_unfence(model.now)
    losses = iter(lost)
    for step in range(200):
        if step == stop_at + 100:
            broker.begin_shutdown(model.now)
        if broker.state is BrokerState.SHUTTING_DOWN:
            break
        model.now = max(model.now, broker.due)
        request = broker.request(model.now, model.end_offset - 1)
        assert request is not None
        try:
            response: Any
            if isinstance(request, BrokerRegistrationRequest):
                done = model.cluster.register(request, model.now, model.end_offset)
                model.append(done.records)
                response = BrokerRegistrationResponse(throttle_time_ms=0, error_code=0, broker_epoch=done.epoch)
            else:
                answer = model.cluster.heartbeat(request, model.now, model.end_offset)
                model.append(answer.records)
                response = BrokerHeartbeatResponse(
                    throttle_time_ms=0,
                    error_code=0,
                    is_caught_up=answer.is_caught_up,
                    is_fenced=answer.is_fenced,
                    should_shut_down=answer.should_shut_down,
                )
        except errors.BrokerError as error:
            broker.failed(error, model.now)
            continue
        if next(losses, False):
            broker.failed(errors.KafkaTimeout("lost"), model.now)
        else:
            broker.answered(response, model.now)
        model.beat(2)
        if step == 99:
            assert (broker.state, model.image.brokers[1].active) == (BrokerState.RUNNING, True)
    assert broker.state is BrokerState.SHUTTING_DOWN
    assert model.image.brokers[1].fenced


def test_answer_gap_counts_checks_until_the_next_answer() -> None:
    gap = AnswerGap(0.04, 7.0)
    assert [round(gap.check(7.0), 2) for _ in range(3)] == [0.04, 0.08, 0.12]
    assert gap.check(9.0) == 0.0, "an answer came, however late the check is"
    assert gap.check(9.0) == 0.04


@pytest.mark.parametrize("ready", [True, False])
def test_repr_shows_the_state(ready: bool) -> None:
    broker = running() if ready else lifecycle()
    assert broker.state.name in repr(broker)
