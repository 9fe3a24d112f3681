"""The services of a node for its handlers and coordinators, which never get the node itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Mapping

    from pyclient.broker_embedded.authorizer.standard import StandardAuthorizer
    from pyclient.broker_embedded.controller.configs import Configs
    from pyclient.broker_embedded.controller.controller import Controller
    from pyclient.broker_embedded.controller.image import MetadataImage
    from pyclient.broker_embedded.controller.metadata_log import MetadataLog
    from pyclient.broker_embedded.controller.producer_ids import ProducerIds
    from pyclient.broker_embedded.controller.quorum import Quorum
    from pyclient.broker_embedded.groups.coordinator import GroupCoordinator
    from pyclient.broker_embedded.log.alter_log_dirs import ReplicaAlterLogDirs
    from pyclient.broker_embedded.log.filesystem import FileSystem
    from pyclient.broker_embedded.log.manager import LogManager
    from pyclient.broker_embedded.log.unified_log import UnifiedLog
    from pyclient.broker_embedded.network.quotas import Quotas
    from pyclient.broker_embedded.releases import Release
    from pyclient.broker_embedded.replication.alter_partition import ControllerChannel
    from pyclient.broker_embedded.replication.fetch_sessions import FetchSessions
    from pyclient.broker_embedded.replication.partitions import Partitions
    from pyclient.broker_embedded.replication.purgatory import FetchPurgatory
    from pyclient.broker_embedded.replication.replica_manager import ReplicaManager
    from pyclient.broker_embedded.request_context import (
        AdvertisedListeners,
        ClientConnection,
        RequestAuthorization,
        RequestInterceptor,
    )
    from pyclient.broker_embedded.scheduling.request_slices import RequestSlices
    from pyclient.broker_embedded.scheduling.timers import ShiftedClock, Timers
    from pyclient.broker_embedded.transactions.coordinator import TransactionCoordinator
    from pyclient.broker_embedded.transactions.inter_broker_requests import InterBrokerRequests
    from pyclient.clock import Rng


@dataclass(slots=True, kw_only=True, repr=False)
class BrokerServices:
    """The services of a node. Helpers of a handler take the services that they use, not all of them."""

    node_id: int
    release: Release | None
    """The release that the broker emulates for clients, None for its own."""
    loop: AbstractEventLoop
    clock: ShiftedClock
    timers: Timers
    rng: Rng
    fs: FileSystem
    configs: Configs
    image: MetadataImage
    """The committed metadata."""
    logs: LogManager
    partitions: Partitions
    relocation: ReplicaAlterLogDirs
    purgatory: FetchPurgatory
    fetch_sessions: FetchSessions
    quotas: Quotas
    request_slices: RequestSlices
    authorizer: StandardAuthorizer | None
    """Authorizes requests by ACLs; None if every client may do everything."""
    authorization: RequestAuthorization | None
    interceptor: RequestInterceptor | None = None
    """Applies faults and logs requests; None while neither is on."""
    listeners: AdvertisedListeners
    connections: Mapping[int, ClientConnection]
    controller: Controller = field(init=False)
    """Changes the metadata. With other voters, another object after each change of the quorum's leader."""
    metadata: MetadataLog | None = None
    """The metadata log; None before it is open."""

    # with other nodes; None on a node that is alone
    quorum: Quorum | None = None
    to_controller: ControllerChannel | None = None
    producer_ids: ProducerIds | None = None
    replicas: ReplicaManager | None = None
    """The replicated partitions."""
    inter_broker_requests: InterBrokerRequests | None = None
    """Sends the requests of transactions to other nodes."""

    _groups: GroupCoordinator | None = field(default=None, init=False)
    _transactions: TransactionCoordinator | None = field(default=None, init=False)

    def __repr__(self) -> str:
        return f"<BrokerServices node {self.node_id} {self.image!r}>"

    @property
    def groups(self) -> GroupCoordinator:
        """Return the group coordinator. It is imported and created on first use, which keeps the start short."""
        if self._groups is None:
            from pyclient.broker_embedded.groups.broker_runtime import BrokerRuntime
            from pyclient.broker_embedded.groups.coordinator import GroupCoordinator

            self._groups = GroupCoordinator(BrokerRuntime(self))
        return self._groups

    @property
    def transactions(self) -> TransactionCoordinator:
        """Return the transaction coordinator, which is imported and created on first use."""
        if self._transactions is None:
            from pyclient.broker_embedded.transactions.broker_runtime import BrokerRuntime
            from pyclient.broker_embedded.transactions.coordinator import TransactionCoordinator

            self._transactions = TransactionCoordinator(BrokerRuntime(self))
        return self._transactions

    @property
    def used_groups(self) -> GroupCoordinator | None:
        """Return the group coordinator; None if it was not used yet."""
        return self._groups

    @property
    def used_transactions(self) -> TransactionCoordinator | None:
        """Return the transaction coordinator; None if it was not used yet."""
        return self._transactions

    @property
    def controller_id(self) -> int:
        """Return the id that clients get as the controller: the active one, or any broker if that is not a broker."""
        if self.quorum is None:
            return self.node_id
        active = self.quorum.leader_id
        brokers = [broker.node_id for broker in self.image.brokers.values() if not broker.fenced]
        return active if active is not None and active in brokers else min(brokers, default=-1)

    @property
    def metadata_epoch(self) -> int:
        """Return the Raft epoch in which this node leads the metadata log; -1 before it has started."""
        if self.quorum is not None:
            return self.quorum.epoch
        return -1 if self.metadata is None else self.metadata.epoch

    @property
    def metadata_offset(self) -> int:
        """Return the offset of the last metadata record in the image; -1 before the node has started."""
        if self.quorum is not None:
            return self.quorum.applied - 1
        return -1 if self.metadata is None else self.metadata.end_offset - 1

    def unsynced_partitions(self, topic: str) -> tuple[UnifiedLog, int] | None:
        """Return the metadata log and the offset up to which it must be synced to keep the topic's partitions.

        None if that is on the disk.
        """
        return None if self.metadata is None else self.metadata.unsynced_partitions(topic)
