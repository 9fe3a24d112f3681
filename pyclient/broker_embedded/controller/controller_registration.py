"""A controller's registration with the active one (KIP-919): where it listens, and the features that it supports."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from pyclient.backoff import Backoff
from pyclient.broker_embedded.controller.cluster_control import CONTROLLERS_SINCE
from pyclient.broker_embedded.controller.features import METADATA_VERSION, supported_ranges
from pyclient.errors.codes import from_code
from pyclient.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
    Listener,
)

if TYPE_CHECKING:
    from asyncio import Future
    from uuid import UUID

    from pyclient.broker_embedded.environment import NodeEnvironment
    from pyclient.broker_embedded.replication.alter_partition import ControllerChannel
    from pyclient.broker_embedded.scheduling.timers import Timer

log = logging.getLogger("pyclient.broker_embedded")

_TIMEOUT: Final = 10.0
_BACKOFF: Final = Backoff(0.1, 60.0)


class ControllerRegistrationManager:
    """Registers this controller until the metadata have it as this process; `incarnation` is the id of the process."""

    def __init__(self, env: NodeEnvironment, to_controller: ControllerChannel, incarnation: UUID) -> None:
        self._env = env
        self._to_controller = to_controller
        self._incarnation = incarnation
        self._sent: Future[ControllerRegistrationResponse] | None = None
        self._timer: Timer | None = None
        self._failures = 0
        self._was_registered = False
        self._stopped = False

    def __repr__(self) -> str:
        return f"<ControllerRegistrationManager node {self._env.node_id} registered={self.registered}>"

    @property
    def registered(self) -> bool:
        """True if the metadata of this node have the registration of this process."""
        own = self._env.image.controllers.get(self._env.node_id)
        return own is not None and own.incarnation == self._incarnation

    def metadata_changed(self) -> None:
        """Register unless that is done or under way; with an older metadata.version wait for another one."""
        if self.registered:
            self._was_registered = True
            return
        if self._stopped or self._sent is not None or self._timer is not None:
            return
        if self._was_registered:
            node = self._env.node_id
            log.error("controller %d was registered by another process: give one of the two another node.id", node)
            self._was_registered = False
            self._retry_later()  # with backoff: else the two would replace each other forever
        elif self._env.image.features.get(METADATA_VERSION, 0) >= CONTROLLERS_SINCE:
            self._sent = self._to_controller.send(registration_of(self._env, self._incarnation), _TIMEOUT)
            self._sent.add_done_callback(self._answered)

    def stop(self) -> None:
        """Register no more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _answered(self, done: Future[ControllerRegistrationResponse]) -> None:
        self._sent = None
        if self._stopped or done.cancelled():
            return
        error = done.exception()
        if error is None and (code := done.result().error_code):
            error = from_code(code, done.result().error_message or "the active controller refused it")
        if error is not None:  # else the record itself comes with the log
            log.warning("controller %d cannot register yet: %s", self._env.node_id, error)
            self._retry_later()

    def _retry_later(self) -> None:
        self._timer = self._env.schedule(_BACKOFF.delay(self._failures, self._env.rng), self._retry)
        self._failures += 1

    def _retry(self) -> None:
        self._timer = None
        self.metadata_changed()


def registration_of(env: NodeEnvironment, incarnation: UUID) -> ControllerRegistrationRequest:
    """Return the request with which a controller registers."""
    config = env.config
    listener = config.listeners.controller
    host, port = config.quorum.voters[env.node_id]
    return ControllerRegistrationRequest(
        controller_id=env.node_id,
        incarnation_id=incarnation,
        zk_migration_ready=False,
        listeners=[Listener(name=listener.name, host=host, port=port, security_protocol=listener.protocol_number)],
        features=[
            Feature(name=name, min_supported_version=first, max_supported_version=last)
            for name, first, last in supported_ranges(env.image.features)
        ],
    )
