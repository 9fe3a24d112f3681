"""Periodic tasks of the active controller: fence silent brokers, balance leaders, elect unclean leaders.

A thin loop: `ClusterControl` and `ReplicationControl` decide.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from pyclient import errors

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable

    from pyclient.broker_embedded.config.broker_config import BrokerConfig
    from pyclient.broker_embedded.controller.controller import Controller
    from pyclient.broker_embedded.controller.image import BrokerImage
    from pyclient.broker_embedded.scheduling.timers import Timer

log = logging.getLogger("pyclient.broker_embedded")

_RETRY: Final = 0.1
_STALL_CHECKS: Final = 10  # in the timeout of a session

MOST_ELECTIONS: Final = 1000
"""Elections that one check appends at most, as in Kafka; if there are more the next check comes at once."""


class SessionWatch:
    """Timers of the active controller. `schedule` calls a function after some seconds.

    `loop_time` is the time of the event loop, which no test advances. `reach` sends a request to a broker, and returns
    a future of the response.

    All sessions are extended by the time in which this process did not run, as on a machine with too few cores: it
    received no heartbeats then, and brokers in the same process sent none. They are also extended by the time in which
    the metadata log committed nothing (`ClusterControl.note_commits`).
    """

    def __init__(
        self,
        config: BrokerConfig,
        schedule: Callable[[float, Callable[[], None]], Timer],
        monotonic: Callable[[], float],
        loop_time: Callable[[], float],
        reach: Callable[[BrokerImage], Future[Any]] | None = None,
    ) -> None:
        self._controller: Controller | None = None
        self._config = config
        self._schedule = schedule
        self._monotonic = monotonic
        self._loop_time = loop_time
        self._reach = reach
        self._sessions: Timer | None = None
        self._due = float("inf")
        self._elections: Timer | None = None
        self._stall_timer: Timer | None = None
        self._stall_check_due = float("inf")

    def start(self, controller: Controller) -> None:
        """Begin for the active controller."""
        self.stop()
        self._controller = controller
        controller.cluster.activate(self._monotonic())
        self.sessions_changed()
        self._elections = self._schedule(self._interval, self._elect)
        self._schedule_stall_check(controller)
        for broker in list(controller.image.brokers.values()) if self._reach is not None else ():
            if not broker.fenced and broker.node_id != controller.node_id and broker.endpoints:
                self._probe(controller, broker)

    def _probe(self, controller: Controller, broker: BrokerImage) -> None:
        """Check whether a broker has failed; as a rule it is the former controller that has.

        A probe that timed out is repeated: the node that stalled may have been this one.
        """
        assert self._reach is not None

        def answered(done: Future[Any]) -> None:
            if done.cancelled() or self._controller is not controller:
                return
            error = done.exception()
            if isinstance(error, errors.ConnectionFailed):
                controller.cluster.not_reached(broker.node_id, self._monotonic(), self._grace / 3)
                self.sessions_changed()
            elif isinstance(error, errors.KafkaTimeout) and controller.cluster.awaits_first_request(broker.node_id):
                self._probe(controller, broker)

        self._reach(broker).add_done_callback(answered)

    def stop(self) -> None:
        """End: another node is the active controller, or this node closes."""
        for timer in (self._sessions, self._elections, self._stall_timer):
            if timer is not None:
                timer.cancel()
        self._sessions = self._elections = self._stall_timer = self._controller = None
        self._due = self._stall_check_due = float("inf")

    def sessions_changed(self) -> None:
        """Schedule a check for when the next session ends; one that was renewed meanwhile is checked once too often."""
        due = None if self._controller is None else self._controller.cluster.next_check()
        if due is None or due >= self._due:
            return
        if self._sessions is not None:
            self._sessions.cancel()
        self._due = due
        self._sessions = self._schedule(max(due - self._monotonic(), 0) + 0.001, self._check)

    def connection_ended(self, connection: object) -> None:
        """Note that a broker's connection ended: the session of one that was killed ends long before its timeout."""
        if self._controller is not None:
            self._controller.cluster.connection_ended(connection, self._monotonic(), self._grace)
            self.sessions_changed()

    @property
    def _grace(self) -> float:
        return self._config.seconds("internal.broker.closed.connection.grace.ms")

    def _check(self) -> None:
        self._sessions, self._due = None, float("inf")
        controller = self._controller
        if controller is None:
            return
        cluster = controller.cluster
        self._extend_sessions(controller)
        controller.note_commits(self._monotonic())
        try:
            while (broker := cluster.stale_broker(self._monotonic())) is not None:
                log.warning("broker %d is fenced: it sent no heartbeat for its session timeout", broker)
                controller.append(cluster.fence(broker))
        except (errors.KafkaError, OSError) as error:
            log.error("the controller cannot fence a broker: %s", error)
            if self._controller is controller:
                self._due = float("-inf")  # until the next attempt
                self._sessions = self._schedule(_RETRY, self._check)
        self.sessions_changed()

    def _check_stall(self) -> None:
        if self._controller is not None:
            self._extend_sessions(self._controller)
            if self._controller.note_commits(self._monotonic()):
                self.sessions_changed()
            self._schedule_stall_check(self._controller)

    def _schedule_stall_check(self, controller: Controller) -> None:
        wait = controller.cluster.timeout / _STALL_CHECKS
        self._stall_check_due = self._loop_time() + wait
        self._stall_timer = self._schedule(wait, self._check_stall)

    def _extend_sessions(self, controller: Controller) -> None:
        """Extend all sessions by the time that the check for stalls is late: this process did not run meanwhile."""
        now = self._loop_time()
        late = now - self._stall_check_due
        if late > 0:
            self._stall_check_due = now
            controller.cluster.extend_sessions(late, self._monotonic())

    @property
    def _interval(self) -> float:
        return float(self._config.integer("leader.imbalance.check.interval.seconds"))

    def _elect(self) -> None:
        controller = self._controller
        if controller is None:
            return
        try:
            records = controller.replication.elect_unclean(MOST_ELECTIONS)
            controller.append(records)
            if self._config.boolean("auto.leader.rebalance.enable"):
                balanced = controller.replication.balance_leaders(MOST_ELECTIONS)
                controller.append(balanced)
                records = [*records, *balanced]
        except (errors.KafkaError, OSError) as error:
            log.error("the controller cannot elect leaders: %s", error)
            records = []
        if self._controller is controller:  # it may have ended with the last append
            self._elections = self._schedule(0.0 if len(records) >= MOST_ELECTIONS else self._interval, self._elect)
