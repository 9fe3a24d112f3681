"""A broker's lifecycle in its cluster: registration, heartbeats, controlled shutdown.

`BrokerLifecycle` is pure: it says what to send to the controller and when, and takes the answer or the failure.
`LifecycleLoop` sends.
"""

from __future__ import annotations

import asyncio
import logging
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyclient import errors
from pyclient.backoff import Backoff
from pyclient.errors.codes import from_code
from pyclient.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from pyclient.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable
    from random import Random
    from uuid import UUID

    from pyclient.broker_embedded.environment import NodeEnvironment
    from pyclient.broker_embedded.replication.alter_partition import ControllerChannel
    from pyclient.broker_embedded.scheduling.timers import Timer
    from pyclient.broker_embedded.services import BrokerServices

log = logging.getLogger("pyclient.broker_embedded")

NO_EPOCH: Final = -1
NEVER: Final = float("inf")
_SOON: Final = 0.01
"""The pause between heartbeats of a broker that waits to be unfenced or to stop: neither takes a whole interval."""

_REFUSALS: Final = {
    errors.DuplicateBrokerRegistration.code: "a broker with this node.id is registered, and its session has not ended: "
    "if another one runs, give one of the two another node.id",
    errors.InconsistentClusterId.code: "the controllers are of another cluster",
}
"""Errors of a registration, whose answer has no text."""


class BrokerState(Enum):
    """The state of a broker; Kafka's words."""

    STARTING = "it registers, and reads the metadata up to its registration"
    RECOVERY = "it has read them, and waits to be unfenced"
    RUNNING = "it is unfenced"
    PENDING_CONTROLLED_SHUTDOWN = "it hands its leaderships over"
    SHUTTING_DOWN = "it stops: it sends nothing any more"


class Times(NamedTuple):
    """`broker.heartbeat.interval.ms`, `broker.session.timeout.ms` and `initial.broker.registration.timeout.ms`."""

    heartbeat: float
    session: float
    registration: float


class BrokerLifecycle:
    """The requests of a broker to the controller, from its start to its stop.

    `registration` is the request that it registers with. `due` is when `request` has something to send, `epoch` the
    broker's epoch. `refusal` is the last error with which the registration was refused.
    """

    def __init__(self, registration: BrokerRegistrationRequest, times: Times, rng: Random, now: float) -> None:
        self.state = BrokerState.STARTING
        self.epoch = NO_EPOCH
        self.due = now
        self.refusal: errors.KafkaError | None = None
        self._registration = registration
        self._times = times
        self._rng = rng
        self._give_up_at = now + times.registration
        self._backoff = Backoff(_SOON, max(times.heartbeat, _SOON))
        self._failures = 0
        self._in_flight = False
        self._again = False  # something happened while a request was under way: the next one follows at once
        self._ready = False
        self._offline: list[UUID] = []

    def __repr__(self) -> str:
        node = self._registration.broker_id
        return f"<BrokerLifecycle broker {node} {self.state.name} epoch {self.epoch} failures={self._failures}>"

    # ---- events

    def ready_to_unfence(self, now: float) -> None:
        """Note that the broker can serve clients as soon as the controller unfences it."""
        if not self._ready:
            self._ready = True
            self._send_soon(now)

    def metadata_applied(self, now: float) -> None:
        """Note that more of the metadata is applied: a broker that waits to be unfenced sends a heartbeat at once."""
        if self.state in (BrokerState.STARTING, BrokerState.RECOVERY) and self.epoch != NO_EPOCH:
            self._send_soon(now)

    def connection_lost(self, now: float) -> None:
        """Note that the connection to the controller ended: the next heartbeat must not wait for its interval."""
        if self.state is not BrokerState.SHUTTING_DOWN:
            self._send_soon(now)

    def directory_failed(self, directory: UUID, now: float) -> None:
        """Note that a log directory failed: the controller moves its leaderships once a heartbeat reports it."""
        self._offline.append(directory)
        self._send_soon(now)

    def begin_shutdown(self, now: float) -> None:
        """Hand the leaderships over; a broker that is not registered stops at once."""
        if self.state in (BrokerState.RUNNING, BrokerState.RECOVERY) and self.epoch != NO_EPOCH:
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            self._send_soon(now)
        elif self.state is BrokerState.STARTING:
            self.stop()

    def stop(self) -> None:
        """Send nothing any more."""
        self.state = BrokerState.SHUTTING_DOWN
        self.due = NEVER

    # ---- requests and answers

    def request(self, now: float, metadata_offset: int) -> BrokerRegistrationRequest | BrokerHeartbeatRequest | None:
        """Return what to send now, None if there is nothing; `metadata_offset` is the last one that is applied."""
        if self._in_flight or now < self.due or self.state is BrokerState.SHUTTING_DOWN:
            return None
        self._in_flight = True
        self.due = NEVER
        if self.epoch == NO_EPOCH:
            return self._registration
        return BrokerHeartbeatRequest(
            broker_id=self._registration.broker_id,
            broker_epoch=self.epoch,
            current_metadata_offset=metadata_offset,
            want_fence=not self._ready,
            want_shut_down=self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=list(self._offline),
        )

    def answered(self, response: BrokerRegistrationResponse | BrokerHeartbeatResponse, now: float) -> None:
        """Take the controller's answer."""
        if response.error_code:
            text = _REFUSALS.get(response.error_code, "the controller refused it")
            self.failed(from_code(response.error_code, text), now)
            return
        self._failures = 0
        if isinstance(response, BrokerRegistrationResponse):
            self.epoch = response.broker_epoch
            self.refusal = None
            self._next(now, 0.0)
            return
        if self.state is BrokerState.STARTING and response.is_caught_up:
            self.state = BrokerState.RECOVERY
        if self.state is BrokerState.RECOVERY and not response.is_fenced:
            self.state = BrokerState.RUNNING
            log.info("broker %d is unfenced", self._registration.broker_id)
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN and response.should_shut_down:
            self.stop()
        waits = self.state in (BrokerState.STARTING, BrokerState.PENDING_CONTROLLED_SHUTDOWN)
        self._next(now, _SOON if waits or (self._ready and response.is_fenced) else self._times.heartbeat)

    def failed(self, error: Exception, now: float) -> None:
        """Take a failure: there was no answer, or the controller refused the request."""
        node = self._registration.broker_id
        if isinstance(error, errors.StaleBrokerEpoch) and self.epoch != NO_EPOCH:
            log.warning("broker %d registers again: the controller does not know its epoch %d", node, self.epoch)
            self.epoch = NO_EPOCH
            if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:  # fenced and removed: nothing to hand over
                self.stop()
            elif self.state is not BrokerState.SHUTTING_DOWN:
                self.state = BrokerState.STARTING
                self._give_up_at = now + self._times.registration
        elif self.epoch == NO_EPOCH and isinstance(error, errors.KafkaError):
            if type(error) is not type(self.refusal):
                log.warning("broker %d cannot register yet: %s", node, error)
            self.refusal = error
            if now >= self._give_up_at:
                log.error("broker %d gives up: it could not register in time: %s", node, error)
                self.stop()
        self._again = False  # never at once after a failure
        # a timeout closes the connection, and the controller soon fences a broker that does not reconnect
        delay = _SOON if isinstance(error, errors.KafkaTimeout) else self._backoff.delay(self._failures, self._rng)
        self._failures += 1
        self._next(now, delay)

    def _send_soon(self, now: float) -> None:
        if self._in_flight:
            self._again = True
        else:
            self.due = min(self.due, now)

    def _next(self, now: float, delay: float) -> None:
        self._in_flight = False
        if self.state is not BrokerState.SHUTTING_DOWN:
            self.due = now if self._again else now + delay
        self._again = False


class AnswerGap:
    """Time without an answer of the controller, counted in checks that are `interval` seconds apart.

    It is not read from a clock: a node that stalls receives no answers meanwhile, and that is one check.
    """

    def __init__(self, interval: float, last_answer: float) -> None:
        """`last_answer` is the time of the last answer so far."""
        self.seconds = 0.0
        self._interval = interval
        self._last_answer = last_answer

    def check(self, last_answer: float) -> float:
        """Note a check. Return the seconds without an answer so far."""
        self.seconds = self.seconds + self._interval if last_answer == self._last_answer else 0.0
        self._last_answer = last_answer
        return self.seconds


class LifecycleLoop:
    """Sends what a `BrokerLifecycle` says, and takes the answers."""

    def __init__(
        self,
        env: NodeEnvironment,
        lifecycle: BrokerLifecycle,
        to_controller: ControllerChannel,
        metadata_offset: Callable[[], int],
    ) -> None:
        """`metadata_offset` returns the offset of the last metadata record that the node has applied."""
        self.lifecycle = lifecycle
        self._env = env
        self._to_controller = to_controller
        self._metadata_offset = metadata_offset
        self._timer: Timer | None = None
        self._timeout = env.config.seconds("broker.session.timeout.ms")
        self._stopped: Future[None] = env.loop.create_future()
        self.on_registered: Callable[[], object] = lambda: None
        """Called when the controller has registered the broker, whose own metadata may or may not have it already."""
        self.heard = env.loop.time()
        """The loop's time of the controller's last answer."""

    def start(self) -> None:
        """Register."""
        self._step()

    async def shut_down(self, timeout: float) -> bool:
        """Hand the leaderships over. Return True if the controller agreed within `timeout` seconds."""
        self._step_after(self.lifecycle.begin_shutdown)
        try:
            await asyncio.wait_for(asyncio.shield(self._stopped), timeout)
        except TimeoutError:
            return False
        return True

    def stop(self) -> None:
        """Send nothing any more."""
        self.lifecycle.stop()
        self._step()

    def ready_to_unfence(self) -> None:
        """Note that the node can serve clients."""
        self._step_after(self.lifecycle.ready_to_unfence)

    def metadata_applied(self) -> None:
        """Note that the node has applied more of the metadata."""
        self._step_after(self.lifecycle.metadata_applied)

    def directory_failed(self, directory: UUID) -> None:
        """Note that a log directory has failed."""
        self._step_after(partial(self.lifecycle.directory_failed, directory))

    def connection_lost(self) -> None:
        """Note that the connection for heartbeats ended."""
        self._step_after(self.lifecycle.connection_lost)

    def _step_after(self, event: Callable[[float], None]) -> None:
        event(self._env.clock.monotonic())
        self._step()

    def _step(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.lifecycle.state is BrokerState.SHUTTING_DOWN:
            if not self._stopped.done():
                self._stopped.set_result(None)
            return
        now = self._env.clock.monotonic()
        request = self.lifecycle.request(now, self._metadata_offset())
        if request is not None:
            sent: Future[Any] = self._to_controller.send(request, self._timeout)
            sent.add_done_callback(self._answered)
        elif self.lifecycle.due != NEVER:
            self._timer = self._env.schedule(max(self.lifecycle.due - now, 0.0), self._step)

    def _answered(self, done: Future[Any]) -> None:
        if done.cancelled():
            return
        now = self._env.clock.monotonic()
        error = done.exception()
        if error is None:
            self.heard = self._env.loop.time()
            self.lifecycle.answered(done.result(), now)
            if isinstance(done.result(), BrokerRegistrationResponse) and self.lifecycle.epoch != NO_EPOCH:
                self.on_registered()
        elif isinstance(error, Exception):
            self.lifecycle.failed(error, now)
        self._step()


def lifecycle_of(env: NodeEnvironment, registration: BrokerRegistrationRequest) -> BrokerLifecycle:
    """Return the lifecycle of a node that starts now."""
    config = env.config
    times = Times(
        config.seconds("broker.heartbeat.interval.ms"),
        config.seconds("broker.session.timeout.ms"),
        config.seconds("initial.broker.registration.timeout.ms"),
    )
    return BrokerLifecycle(registration, times, env.rng, env.clock.monotonic())


def registration_of(services: BrokerServices) -> BrokerRegistrationRequest:
    """Return the request with which a node registers."""
    from pyclient.broker_embedded.controller.features import supported_ranges

    return BrokerRegistrationRequest(
        broker_id=services.node_id,
        cluster_id=services.logs.directories.cluster_id,
        incarnation_id=services.controller.new_id(),
        listeners=[
            Listener(name=name, host=host, port=port, security_protocol=protocol)
            for name, host, port, protocol in services.listeners.endpoints()
        ],
        features=[
            Feature(name=name, min_supported_version=first, max_supported_version=last)
            for name, first, last in supported_ranges(services.image.features)
        ],
        rack=services.configs.current.text("broker.rack"),
        log_dirs=[directory.directory_id for directory in services.logs.directories.online],
        previous_broker_epoch=services.logs.directories.clean_epoch,
    )
