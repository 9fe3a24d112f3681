"""The cluster's nodes as the active controller sees them: registration, heartbeats, fencing, shutdown. Pure.

A broker registers and gets an epoch, the offset of its registration in the metadata log. It starts fenced: clients do
not see it, it leads nothing. Its heartbeats say how far it has read the log; past its registration it is unfenced.
Without heartbeats for the session timeout it is fenced. A broker that wants to shut down first leaves its ISRs and
leaderships, and may stop when the other brokers know of it.

Methods return metadata records, which the caller appends: `end_offset` is the offset that the first of them gets.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyclient import errors
from pyclient.broker_embedded.controller.features import METADATA_VERSION
from pyclient.broker_embedded.controller.placement import UsableBroker
from pyclient.broker_embedded.controller.replication_control import LOST, MIGRATING, UNASSIGNED
from pyclient.protocol.messages.metadata_log import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)

if TYPE_CHECKING:
    from uuid import UUID

    from pyclient.broker_embedded.controller.image import BrokerImage, MetadataImage
    from pyclient.broker_embedded.controller.replication_control import ReplicationControl
    from pyclient.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
    from pyclient.protocol.messages.broker_registration import BrokerRegistrationRequest
    from pyclient.protocol.messages.controller_registration import ControllerRegistrationRequest

log = logging.getLogger("pyclient.broker_embedded")

_RESERVED: Final = frozenset({MIGRATING, UNASSIGNED, LOST})
CONTROLLERS_SINCE: Final = 15
"""metadata.version 3.7-IV0, the first one with registrations of controllers."""

_DIRECTORIES_SINCE: Final = 17  # metadata.version 3.7-IV2
_CORDONED_SINCE: Final = 30  # metadata.version 4.3-IV0
_FENCE, _UNFENCE, _SHUTDOWN = 1, -1, 1


class Registered(NamedTuple):
    """An accepted registration: its records and the broker's epoch."""

    records: list[Any]
    epoch: int


class HeartbeatReply(NamedTuple):
    """The answer to a heartbeat, and the records of what it changed."""

    records: list[Any]
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


@dataclass(slots=True)
class CommitProgress:
    """Progress of the metadata log in committing what is appended.

    `since` is when it had the present high watermark first, infinite while all is committed.
    """

    high_watermark: int = -1
    since: float = float("inf")
    stalled: bool = False

    def note(self, high_watermark: int, end_offset: int, now: float, longest: float) -> float:
        """Note the log's state. Return how long it was stalled if it is no longer, else 0.

        It is stalled when it has committed nothing for `longest` seconds although there was something to commit.
        """
        ended = 0.0
        if high_watermark >= end_offset or high_watermark != self.high_watermark:
            ended = now - self.since if self.stalled else 0.0
            self.since = float("inf") if high_watermark >= end_offset else now
        elif self.since == float("inf"):
            self.since = now
        self.high_watermark = high_watermark
        self.stalled = now - self.since >= longest
        return ended


@dataclass(slots=True)
class Session:
    """A broker's contact with the active controller.

    `registered_at` is the offset of its registration, `metadata_offset` how far it has read the log, `shutdown_offset`
    the offset of the last change that its controlled shutdown made; -1 outside of one.
    """

    last_contact: float
    registered_at: int
    metadata_offset: int = -1
    shutdown_offset: int = -1
    connection: object = None


@dataclass(slots=True)
class ClusterControl:
    """The registrations and sessions of brokers. `timeout` is broker.session.timeout.ms in seconds."""

    image: MetadataImage
    replication: ReplicationControl
    timeout: float
    cluster_id: str
    sessions: dict[int, Session] = field(default_factory=dict)
    commits: CommitProgress = field(default_factory=CommitProgress)

    def activate(self, now: float) -> None:
        """Begin as the active controller: every registered broker has a session that starts now."""
        self.commits = CommitProgress()
        self.sessions = {
            broker.node_id: Session(now, registered_at=broker.epoch) for broker in self.image.brokers.values()
        }

    def usable_brokers(self) -> list[UsableBroker]:
        """Return the brokers that new replicas may be placed on."""
        return [
            UsableBroker(broker.node_id, broker.rack, broker.fenced)
            for broker in self.image.brokers.values()
            if broker.usable
        ]

    def check_epoch(self, broker: int, epoch: int) -> BrokerImage:
        """Return the registration. Raise `StaleBrokerEpoch` if the broker has another epoch, or none."""
        found = self.image.brokers.get(broker)
        if found is None:
            raise errors.StaleBrokerEpoch(f"broker {broker} is not registered: it has to register (again)")
        if found.epoch != epoch:
            raise errors.StaleBrokerEpoch(f"broker {broker} has the epoch {found.epoch}, not {epoch}")
        return found

    # ---- registration

    def register(self, request: BrokerRegistrationRequest, now: float, end_offset: int) -> Registered:
        """Register a broker. Raise `BrokerError` if it is refused.

        The same incarnation keeps its epoch and state. Another one replaces the broker's earlier incarnation: that
        leaves ISRs and leaderships, and is not eligible as a leader unless it was shut down cleanly.
        """
        self._check_registration(request, now)
        broker = request.broker_id
        existing = self.image.brokers.get(broker)
        records: list[Any] = []
        again = existing is not None and existing.incarnation == request.incarnation_id
        if existing is not None and not again:
            clean = request.previous_broker_epoch == existing.epoch
            end_incarnation = self.replication.broker_removed if clean else self.replication.unclean_shutdown
            records += end_incarnation(broker)
        elif existing is None:  # replicas of a broker that was unregistered and comes back
            records += self.replication.unclean_shutdown(broker)
        epoch = existing.epoch if existing is not None and again else end_offset
        level = self.image.features.get(METADATA_VERSION, 0)
        offset = end_offset + len(records)
        records.append(
            RegisterBrokerRecord(
                broker_id=broker,
                incarnation_id=request.incarnation_id,
                broker_epoch=epoch,
                end_points=[
                    BrokerEndpoint(
                        name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
                    )
                    for each in request.listeners
                ],
                features=[
                    BrokerFeature(
                        name=each.name,
                        min_supported_version=each.min_supported_version,
                        max_supported_version=each.max_supported_version,
                    )
                    for each in request.features
                ],
                rack=request.rack,
                fenced=existing.fenced if existing is not None and again else True,
                in_controlled_shutdown=existing.in_controlled_shutdown if existing is not None and again else False,
                log_dirs=list(request.log_dirs) if level >= _DIRECTORIES_SINCE else [],
            )
        )
        log.info("broker %d is registered with epoch %d, incarnation %s", broker, epoch, request.incarnation_id)
        session = self.sessions.get(broker) if again else None
        if session is None:
            self.sessions[broker] = Session(now, registered_at=offset)
        else:
            session.last_contact, session.registered_at = now, offset
        return Registered(records, epoch)

    def _check_registration(self, request: BrokerRegistrationRequest, now: float) -> None:
        broker = request.broker_id
        if request.cluster_id != self.cluster_id:
            raise errors.InconsistentClusterId(
                f"broker {broker} belongs to cluster {request.cluster_id!r}, this is cluster {self.cluster_id!r}"
            )
        if broker < 0:
            raise errors.InvalidRegistration(f"{broker} is no node id")
        existing = self.image.brokers.get(broker)
        if existing is not None and existing.incarnation != request.incarnation_id and self._alive(existing, now):
            raise errors.DuplicateBrokerRegistration(
                f"another broker is registered with the id {broker}, and its session has not ended"
            )
        if request.is_migrating_zk_broker:
            raise errors.BrokerIdNotRegistered("brokers that use ZooKeeper cannot be registered")
        if not request.listeners:
            raise errors.InvalidRegistration(f"the registration of broker {broker} has no listener")
        names = [each.name for each in request.listeners]
        if len(set(names)) != len(names):
            raise errors.InvalidRegistration(f"the registration of broker {broker} has a listener twice: {names}")
        self._check_directories(broker, request.log_dirs)
        self._check_features(request)

    def _alive(self, broker: BrokerImage, now: float) -> bool:
        session = self.sessions.get(broker.node_id)
        return not broker.fenced and session is not None and now <= session.last_contact + self.timeout

    def _check_directories(self, broker: int, directories: list[UUID]) -> None:
        if self.image.features.get(METADATA_VERSION, 0) < _DIRECTORIES_SINCE:
            return
        if not directories:
            raise errors.InvalidRegistration("No directories specified in request")
        if _RESERVED & set(directories):
            raise errors.InvalidRegistration("Reserved directory ID in request")
        if len(set(directories)) != len(directories):
            raise errors.InvalidRegistration("Duplicate directory ID in request")
        for other in self.image.brokers.values():
            for directory in directories:
                if other.node_id != broker and directory in other.log_dirs:
                    raise errors.InvalidRegistration(
                        f"Broker {other.node_id} is already registered with directory {directory}"
                    )

    def _check_features(self, request: BrokerRegistrationRequest) -> None:
        """Raise `UnsupportedVersion` if the broker does not have the level of a feature that is in force."""
        ranges = {each.name: (each.min_supported_version, each.max_supported_version) for each in request.features} or {
            METADATA_VERSION: (1, 1)
        }
        for name, level in self.image.features.items():
            first, last = ranges.get(name, (0, 0))
            if not first <= level <= last:
                raise errors.UnsupportedVersion(
                    f"Unable to register because the broker does not support finalized version {level} of {name}. The "
                    f"broker wants a version between {first} and {last}, inclusive."
                )

    def register_controller(self, request: ControllerRegistrationRequest) -> list[Any]:
        """Return the record that registers a controller (KIP-919), none if it is registered already as this process.

        Raise `UnsupportedVersion` below metadata.version 3.7-IV0, `InvalidRegistration` for an invalid request.
        """
        node = request.controller_id
        if self.image.features.get(METADATA_VERSION, 0) < CONTROLLERS_SINCE:
            raise errors.UnsupportedVersion(
                "The current MetadataVersion is too old to support controller registrations."
            )
        if node < 0:
            raise errors.InvalidRegistration(f"{node} is no node id")
        names = [each.name for each in request.listeners]
        if not names or len(set(names)) != len(names):
            raise errors.InvalidRegistration(
                f"the registration of controller {node} has the listeners {names}: it needs one at least, each once"
            )
        existing = self.image.controllers.get(node)
        if existing is not None and existing.incarnation == request.incarnation_id:
            return []
        log.info("controller %d is registered, incarnation %s", node, request.incarnation_id)
        record = RegisterControllerRecord(
            controller_id=node,
            incarnation_id=request.incarnation_id,
            zk_migration_ready=False,
            end_points=[
                ControllerEndpoint(
                    name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
                )
                for each in request.listeners
            ],
            features=[
                ControllerFeature(
                    name=each.name,
                    min_supported_version=each.min_supported_version,
                    max_supported_version=each.max_supported_version,
                )
                for each in request.features
            ],
        )
        return [record]

    # ---- heartbeats

    def heartbeat(
        self, request: BrokerHeartbeatRequest, now: float, end_offset: int, connection: object = None
    ) -> HeartbeatReply:
        """Return the answer to a heartbeat. Raise `StaleBrokerEpoch`. `connection` is the one that it came on."""
        broker = self.check_epoch(request.broker_id, request.broker_epoch)
        session = self.sessions.setdefault(broker.node_id, Session(now, registered_at=broker.epoch))
        caught_up = request.current_metadata_offset >= session.registered_at
        records, fenced, stop = self._next_state(broker, session, request, caught_up=caught_up)
        session.last_contact, session.metadata_offset = now, request.current_metadata_offset
        session.connection = connection
        if fenced:
            session.shutdown_offset = -1
        elif session.shutdown_offset < 0 and (broker.in_controlled_shutdown or (request.want_shut_down and records)):
            session.shutdown_offset = end_offset + len(records) - 1
        records += self._directories(broker, request, changed={record.api_key for record in records})
        return HeartbeatReply(records, caught_up, fenced, stop)

    def _next_state(
        self, broker: BrokerImage, session: Session, request: BrokerHeartbeatRequest, *, caught_up: bool
    ) -> tuple[list[Any], bool, bool]:
        """Return the records of the broker's next state, whether it is fenced then, and whether it should stop."""
        node = broker.node_id
        if broker.fenced:
            if request.want_shut_down:
                return [], True, True
            if request.want_fence or not caught_up or broker.in_controlled_shutdown:
                return [], True, False  # after a controlled shutdown a broker has to register again
            log.info("broker %d is unfenced: it has read the metadata up to its registration", node)
            return self.unfence(broker), False, False
        if broker.in_controlled_shutdown:
            # a controller that has just become active does not know yet what the others have read
            unknown = session.shutdown_offset < 0
            if unknown or self.replication.leads_any(node) or session.shutdown_offset > self._lowest_offset():
                return self.replication.broker_removed(node), False, False
            log.info("broker %d may shut down: the others know that it leads nothing", node)
            return self.fence(node), True, True
        if request.want_fence:
            log.info("broker %d is fenced at its own request", node)
            return self.fence(node), True, request.want_shut_down
        if request.want_shut_down:
            if not self.replication.leads_any(node):
                log.info("broker %d may shut down: it leads nothing", node)
                return self.fence(node), True, True
            log.info("broker %d shuts down: its leaderships move", node)
            return self._begin_shutdown(broker), False, False
        return [], False, False

    def _lowest_offset(self) -> float:
        """Return how far the slowest active broker has read the metadata log."""
        offsets = [
            session.metadata_offset
            for node, session in self.sessions.items()
            if (broker := self.image.brokers.get(node)) is not None and broker.active
        ]
        return min(offsets, default=float("inf"))

    def _begin_shutdown(self, broker: BrokerImage) -> list[Any]:
        change = BrokerRegistrationChangeRecord(
            broker_id=broker.node_id, broker_epoch=broker.epoch, in_controlled_shutdown=_SHUTDOWN
        )
        return [change, *self.replication.broker_removed(broker.node_id)]

    def fence(self, node: int) -> list[Any]:
        """Return the records that fence a broker: it leaves ISRs and leaderships."""
        broker = self.image.brokers[node]
        change = BrokerRegistrationChangeRecord(broker_id=node, broker_epoch=broker.epoch, fenced=_FENCE)
        return [*self.replication.broker_removed(node), change]

    def unfence(self, broker: BrokerImage) -> list[Any]:
        """Return the records that unfence a broker: partitions without leader may get it."""
        change = BrokerRegistrationChangeRecord(broker_id=broker.node_id, broker_epoch=broker.epoch, fenced=_UNFENCE)
        return [change, *self.replication.broker_unfenced(broker.node_id)]

    def _directories(self, broker: BrokerImage, request: BrokerHeartbeatRequest, changed: set[int]) -> list[Any]:
        """Return the records of log directories that have failed, or are cordoned, since the last heartbeat.

        In a heartbeat that moves partitions already (`changed`) they wait for the next one.
        """
        level = self.image.features.get(METADATA_VERSION, 0)
        if level < _DIRECTORIES_SINCE or _PARTITION_CHANGE in changed:
            return []
        failed = [each for each in broker.log_dirs if each in request.offline_log_dirs]
        records: list[Any] = []
        if failed:
            log.warning("log directories %s of broker %d have failed", failed, broker.node_id)
            records += self.replication.directories_failed(broker.node_id, failed)
            online = [each for each in broker.log_dirs if each not in failed]
            records.append(
                BrokerRegistrationChangeRecord(broker_id=broker.node_id, broker_epoch=broker.epoch, log_dirs=online)
            )
        cordoned = request.cordoned_log_dirs
        if level >= _CORDONED_SINCE and cordoned is not None and set(cordoned) != set(broker.cordoned):
            records.append(
                BrokerRegistrationChangeRecord(
                    broker_id=broker.node_id, broker_epoch=broker.epoch, cordoned_log_dirs=list(cordoned)
                )
            )
        return records

    # ---- sessions that end

    def next_check(self) -> float | None:
        """Return when the next session of an unfenced broker ends unless it is renewed, None if there is none."""
        if self.commits.stalled:
            return None
        contacts = [session.last_contact for _node, session in self._unfenced()]
        return min(contacts) + self.timeout if contacts else None

    def stale_broker(self, now: float) -> int | None:
        """Return the broker whose session ended first, None if there is none.

        Brokers are fenced one at a time: the next election then already knows of the last one. Return None while the
        metadata log commits nothing: answers to heartbeats are held then.
        """
        if self.commits.stalled:
            return None
        ended = [(session.last_contact, node) for node, session in self._unfenced()]
        contact, node = min(ended, default=(now, -1))
        return node if contact + self.timeout < now else None

    def note_commits(self, high_watermark: int, end_offset: int, now: float) -> bool:
        """Note how far the metadata log is committed. Return True if a stall has ended: sessions may end again.

        Called several times per session timeout. The log is stalled after half a timeout without a commit, as without
        a majority of the controllers. No session ends then, since a broker sends its next heartbeat when the last one
        is answered, and answers wait for the commit. The commit that ends the stall extends all sessions by its length.
        """
        stalled = self.commits.note(high_watermark, end_offset, now, self.timeout / 2)
        if stalled:
            self.extend_sessions(stalled, now)
        return stalled > 0

    def extend_sessions(self, seconds: float, now: float) -> None:
        """Move the last contacts of all brokers that much later, to `now` at most: no heartbeat could be answered."""
        for session in self.sessions.values():
            session.last_contact = max(session.last_contact, min(session.last_contact + seconds, now))

    def connection_ended(self, connection: object, now: float, grace: float) -> None:
        """Note that a connection ended: brokers whose last request came over it have `grace` seconds for another one.

        The connection of a process that is killed ends at once, long before its session would.
        """
        for session in self.sessions.values():
            if session.connection is connection and connection is not None:
                session.connection = None
                session.last_contact = min(session.last_contact, now + grace - self.timeout)

    def not_reached(self, node: int, now: float, grace: float) -> None:
        """Note that a broker that has not sent this controller a request yet takes no connection.

        A killed broker that was the active controller had no connection to another one.
        """
        session = self.sessions.get(node)
        if session is not None and session.metadata_offset < 0:
            session.last_contact = min(session.last_contact, now + grace - self.timeout)

    def awaits_first_request(self, node: int) -> bool:
        """Return True for an unfenced broker that has not sent this controller a request yet."""
        return any(each == node and session.metadata_offset < 0 for each, session in self._unfenced())

    def _unfenced(self) -> list[tuple[int, Session]]:
        return [
            (node, session)
            for node, session in self.sessions.items()
            if (broker := self.image.brokers.get(node)) is not None and not broker.fenced
        ]

    # ---- removal

    def unregister(self, node: int) -> list[Any]:
        """Return the records that remove a broker. Raise `BrokerIdNotRegistered`."""
        broker = self.image.brokers.get(node)
        if broker is None:
            raise errors.BrokerIdNotRegistered(f"Broker ID {node} is not currently registered")
        self.sessions.pop(node, None)
        log.info("broker %d is unregistered", node)
        records: list[Any] = list(self.replication.broker_unregistered(node))
        records.append(UnregisterBrokerRecord(broker_id=node, broker_epoch=broker.epoch))
        return records


_PARTITION_CHANGE: Final = 5
