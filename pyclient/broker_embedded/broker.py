"""One node: metadata log and image, partition logs, coordinators and listening socket, on one event loop."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from typing import TYPE_CHECKING

from pyclient import errors
from pyclient.broker_embedded.controller.configs import CLUSTER, Configs
from pyclient.broker_embedded.controller.controller import Controller, MetadataCallbacks
from pyclient.broker_embedded.controller.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage, TopicImage
from pyclient.broker_embedded.controller.metadata_log import MetadataLog
from pyclient.broker_embedded.controller.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from pyclient.broker_embedded.environment import NodeEnvironment
from pyclient.broker_embedded.log.alter_log_dirs import ReplicaAlterLogDirs
from pyclient.broker_embedded.log.data_directories import DataDirectories
from pyclient.broker_embedded.log.data_directory import cluster_of
from pyclient.broker_embedded.log.filesystem import RealFileSystem
from pyclient.broker_embedded.log.manager import LogManager
from pyclient.broker_embedded.network.connection_quotas import ConnectionQuotas
from pyclient.broker_embedded.network.descriptors import FileDescriptors
from pyclient.broker_embedded.network.listeners import NO_SOCKETS, NodeListeners, NodeSockets
from pyclient.broker_embedded.network.quotas import Quotas
from pyclient.broker_embedded.network.server import BrokerConnection
from pyclient.broker_embedded.replication.fetch_sessions import FetchSessions
from pyclient.broker_embedded.replication.partitions import Partitions
from pyclient.broker_embedded.replication.purgatory import FetchPurgatory
from pyclient.broker_embedded.scheduling.periodic_tasks import PeriodicTasks
from pyclient.broker_embedded.scheduling.request_slices import RequestSlices
from pyclient.broker_embedded.scheduling.timers import ShiftedClock, Timers
from pyclient.broker_embedded.services import BrokerServices
from pyclient.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Collection
    from uuid import UUID

    from pyclient.broker_embedded.authorizer.standard import StandardAuthorizer
    from pyclient.broker_embedded.config.broker_config import BrokerConfig
    from pyclient.broker_embedded.controller.quorum import Quorum
    from pyclient.broker_embedded.groups.coordinator import GroupCoordinator
    from pyclient.broker_embedded.log.data_directory import DataDirectory
    from pyclient.broker_embedded.log.disk_thread import DiskThread
    from pyclient.broker_embedded.log.filesystem import FileSystem
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.membership import ClusterMembership
    from pyclient.broker_embedded.network.authorization import Authorization
    from pyclient.broker_embedded.network.listeners import BoundListener
    from pyclient.broker_embedded.network.node_channels import NodeChannels
    from pyclient.broker_embedded.releases import Release
    from pyclient.broker_embedded.replication.alter_partition import ControllerChannel
    from pyclient.broker_embedded.replication.replica_manager import ReplicaManager
    from pyclient.broker_embedded.request_context import RequestInterceptor
    from pyclient.broker_embedded.scheduling.timers import Timer
    from pyclient.broker_embedded.transactions.coordinator import TransactionCoordinator
    from pyclient.clock import Clock, Rng
    from pyclient.types import TopicPartition

log = logging.getLogger("pyclient.broker_embedded")


class BrokerNode:
    """A broker and controller on one event loop; clock, random generator, file system and socket can be injected."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock = SYSTEM_CLOCK,
        rng: Rng | None = None,
        fs: FileSystem | None = None,
        sockets: NodeSockets = NO_SOCKETS,
        disk_thread: DiskThread | None = None,
    ) -> None:
        self.loop = loop
        self.clock = ShiftedClock(clock)
        self.timers = Timers(loop)
        self.rng = rng if rng is not None else random.Random()
        self.fs = fs if fs is not None else RealFileSystem(durable=config.profile != "test")
        self.node_id = config.integer("node.id")
        self.host = config.host
        self.port = config.port
        self.release = None if config.as_version is None else _release_of(config.as_version)
        self.image = MetadataImage()
        self.configs = Configs(config, self.image)
        self.env = NodeEnvironment(
            node_id=self.node_id,
            loop=loop,
            clock=self.clock,
            timers=self.timers,
            rng=self.rng,
            fs=self.fs,
            configs=self.configs,
            image=self.image,
        )
        self.request_slices = RequestSlices(loop)
        self.descriptors = FileDescriptors(self.fs, self.request_slices)
        self.purgatory = FetchPurgatory(loop, self.clock, self.schedule, self.request_slices)
        self.fetch_sessions = FetchSessions(config.integer("max.incremental.fetch.session.cache.slots"), self.rng)
        self.quotas = Quotas(config, self.image.client_quotas)
        self._logs: LogManager | None = None
        self._services: BrokerServices | None = None
        self.connection_quotas = ConnectionQuotas(self.env, self.descriptors, self._connection_of)
        self.listeners = NodeListeners(self.env, self.connection_quotas, self.descriptors, sockets)
        self.authorizer = _authorizer_of(config, self.image, self._is_loaded) if config.has_authorizer else None
        """Decides about requests by ACLs; None: all users may do everything."""
        self.authorization = _authorization() if config.has_authorizer else None
        self._link = sockets.link
        self._disk_thread = disk_thread
        self.membership: ClusterMembership | None = None
        """This node's part in a cluster of several nodes; None on a node that is alone."""
        self._started = False
        self._periodic_tasks: PeriodicTasks | None = None
        self.paused = False

    def __repr__(self) -> str:
        state = "serving" if self.listeners.serving else "not serving"
        return f"<BrokerNode {self.node_id} {self.host}:{self.port} {state} connections={len(self.connections)}>"

    @property
    def cluster_id(self) -> str:
        """Return the cluster id (22 characters), which is stored in the data directory."""
        return self.logs.directories.cluster_id

    @property
    def logs(self) -> LogManager:
        """Return the log manager. The node must have been started."""
        assert self._logs is not None, "the node was not started"
        return self._logs

    @property
    def config(self) -> BrokerConfig:
        """Return the options in force: another object after each change at run time."""
        return self.configs.current

    @property
    def connections(self) -> dict[int, BrokerConnection]:
        """Return the connections by number."""
        return self.connection_quotas.connections

    @property
    def addresses(self) -> Counter[str]:
        """Return the number of connections per address."""
        return self.connection_quotas.addresses

    @property
    def interceptor(self) -> RequestInterceptor | None:
        """Return what applies faults and logs requests; None while neither is on."""
        return None if self._services is None else self._services.interceptor

    @property
    def services(self) -> BrokerServices:
        """Return the services for handlers and coordinators. The node must have been started."""
        assert self._services is not None, "the node was not started"
        return self._services

    @property
    def partitions(self) -> Partitions:
        """Return the partitions that this node leads."""
        return self.services.partitions

    @property
    def controller(self) -> Controller:
        """Return the controller, which decides if this node is active."""
        return self.services.controller

    @property
    def groups(self) -> GroupCoordinator:
        """Return the group coordinator."""
        return self.services.groups

    @property
    def transactions(self) -> TransactionCoordinator:
        """Return the transaction coordinator."""
        return self.services.transactions

    @property
    def replicas(self) -> ReplicaManager | None:
        """Return the manager of the replicated partitions; None on a node without others."""
        return None if self._services is None else self._services.replicas

    @property
    def quorum(self) -> Quorum | None:
        """Return the metadata quorum with other nodes; None on a node that is alone."""
        return None if self.membership is None else self.membership.quorum

    @property
    def metadata_epoch(self) -> int:
        """Return the Raft epoch in which this node leads the metadata log; -1 before it has started."""
        return -1 if self._services is None else self._services.metadata_epoch

    @property
    def metadata_offset(self) -> int:
        """Return the offset of the last metadata record in the image; -1 before the node has started."""
        return -1 if self._services is None else self._services.metadata_offset

    async def start(self) -> None:
        """Listen, replay the logs and serve.

        Raise `ConfigError` for an address that cannot be listened on or a data directory that is not this node's,
        `DamagedMetadataLog` (a `CorruptRecord`) and `KafkaStorageError`.
        """
        try:
            self.listeners.bind()
            if self.listeners.clients:
                self.port = self.listeners.clients[0].config.port
            self._open_logs()
        except BaseException as error:
            self.listeners.close()
            if self._logs is not None and isinstance(error, OSError | errors.KafkaStorageError):
                self._logs.directories.failed = True  # no clean shutdown file: the metadata log may not be on the disk
            self._close_logs(clean=self._logs is not None and self._logs.was_clean)
            if isinstance(error, OSError):
                raise errors.KafkaStorageError(f"the broker cannot start on {self.config.data_dir}: {error}") from error
            raise
        self._started = True
        self.listeners.serve_controllers()
        if self.membership is None:
            self.listeners.serve_clients()
        else:
            self.membership.start()
        self._periodic_tasks = PeriodicTasks(self.services, lambda: self.paused)
        self.descriptors.refill()

    async def stop(self, clean: bool = True) -> None:
        """Answer waiting requests, close connections and logs. With `clean=False` as if the process had been killed."""
        if not self._started:
            return
        self._started = False
        if self.membership is not None:
            await self.membership.leave(clean=clean)
        self.listeners.close()
        self.connection_quotas.close()
        self.descriptors.close()
        if self._periodic_tasks is not None:
            self._periodic_tasks.close()
        if self.interceptor is not None:
            await self.interceptor.close()
        if clean:
            self.purgatory.answer_all()
        services = self.services
        for part in (
            services.replicas,
            services.used_groups,
            services.used_transactions,
            services.inter_broker_requests,
        ):
            if part is not None:
                part.close()
        await asyncio.sleep(0)  # lets the responses be sent
        for connection in list(self.connections.values()):
            connection.close()
        await asyncio.sleep(0)
        self._close_logs(clean=clean)

    def pause(self) -> None:
        """Read, answer and accept nothing until `resume`. Clients' connections stay open."""
        if not self._started or self.paused:
            return
        self.paused = True
        if self.replicas is not None:
            self.replicas.fetchers.pause()
        if self.membership is not None:
            self.membership.pause()
        self.listeners.pause()
        for connection in self.connections.values():
            connection.stream.freeze()

    def resume(self) -> None:
        """End the pause. Connections do not count as idle for its duration."""
        if not self._started or not self.paused:
            return
        self.paused = False
        if self.replicas is not None:
            self.replicas.fetchers.resume()
        self.listeners.resume()
        for connection in self.connections.values():
            connection.last_active = self.loop.time()
            connection.stream.thaw()
        if self.membership is not None:
            self.membership.resume()

    def _is_loaded(self) -> bool:
        """Return True once the image has all metadata that was committed before this node found the controller."""
        return self.quorum is None or self.quorum.loaded

    def schedule(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` on the loop in `delay` seconds of the node's time."""
        return self.timers.schedule(delay, callback)

    def _run_in_background(self, name: str, steps: IncrementalTask[object]) -> None:
        """Run long work in steps between requests, unless work of that name is running."""
        if self._periodic_tasks is not None:
            self._periodic_tasks.run(name, steps)

    def _connection_of(self, sock: socket.socket, number: int, bound: BoundListener) -> BrokerConnection:
        return BrokerConnection(self.services, sock, number, bound, self._forget_connection)

    def _forget_connection(self, connection: BrokerConnection) -> None:
        """Release what the node holds for a closed connection."""
        if self.connection_quotas.forget(connection):
            self.fetch_sessions.connection_ended(connection.number)
        if self.membership is not None:
            self.controller.connection_ended(connection)
        if self.interceptor is not None:
            self.interceptor.forget(connection)

    def _open_logs(self) -> None:
        config = self.config
        directories = DataDirectories(
            config.log_dirs,
            fs=self.fs,
            node_id=self.node_id,
            cluster_id=cluster_of(self.fs, config.data_dir, config.cluster_id, given=config.cluster_id_given),
            rng=self.rng,
        )
        self._logs = LogManager(
            directories,
            clock=self.clock,
            defaults=config.log_defaults(),
            rng=self.rng,
            disk_thread=self._disk_thread,
        )
        self._logs.open()
        partitions = Partitions(self.node_id, self.image, self.logs, config.log_defaults())
        partitions.alone = not config.quorum.voters
        self._services = self._make_services(partitions, ReplicaAlterLogDirs(self.logs, self.rng))
        if config.quorum.voters:
            from pyclient.broker_embedded.membership import ClusterMembership  # not needed by a node without a cluster

            self.membership = ClusterMembership(self, self._link)
        else:
            self._open_alone()

    def _make_services(self, partitions: Partitions, relocation: ReplicaAlterLogDirs) -> BrokerServices:
        relocation.on_moved = lambda topic_partition, target: self.controller.assign_directory(
            *topic_partition, target.directory_id
        )
        return BrokerServices(
            node_id=self.node_id,
            release=self.release,
            loop=self.loop,
            clock=self.clock,
            timers=self.timers,
            rng=self.rng,
            fs=self.fs,
            configs=self.configs,
            image=self.image,
            logs=self.logs,
            partitions=partitions,
            relocation=relocation,
            purgatory=self.purgatory,
            fetch_sessions=self.fetch_sessions,
            quotas=self.quotas,
            request_slices=self.request_slices,
            authorizer=self.authorizer,
            authorization=self.authorization,
            listeners=self.listeners,
            connections=self.connections,
        )

    def _open_alone(self) -> None:
        """Replay the metadata log, register, and lead every partition: there are no other nodes."""
        config, services = self.config, self.services
        metadata = services.metadata = MetadataLog.open(
            config.data_dir,
            self.image,
            fs=self.fs,
            clock=self.clock,
            node_id=self.node_id,
            clean=self.logs.was_clean,
            before_changes=self.logs.take_into_use,
        )
        callbacks = MetadataCallbacks(self.topic_created, self.remove_topic, self.configs_changed)
        controller = services.controller = self.make_controller(self.image, metadata, callbacks)
        controller.register(self.listeners.endpoints())
        if config.users:
            controller.set_passwords(self.listeners.inter_broker_users())
        if config.acls:
            controller.add_acls(config.acls)
        self.configs_changed(BROKER_RESOURCE, CLUSTER)
        self.partitions.reconcile_directories(metadata.removed_topics)
        metadata.removed_topics.clear()
        controller.elect(after_crash=not self.logs.was_clean)
        metadata.flush_in_background(self.logs.flush_in_background)
        metadata.snapshot_in_background(self.env)
        self._load_groups()
        self._load_transactions()

    def start_replication(self, connect: Callable[[], NodeChannels], to_controller: ControllerChannel) -> None:
        """Prepare for partitions that have replicas on other nodes; `connect` makes the channels to these.

        `ReplicaManager.start` lets the node lead and follow them.
        """
        from pyclient.broker_embedded.replication.replica_manager import (  # not needed by a node without a cluster
            LocalLogs,
            ReplicaCallbacks,
            ReplicaManager,
        )
        from pyclient.broker_embedded.transactions.inter_broker_requests import InterBrokerRequests

        services = self.services
        services.partitions.alone = False
        local = LocalLogs(self.logs, services.partitions, self.purgatory)
        callbacks = ReplicaCallbacks(self.leadership_changed, self._fail_directory, self._run_in_background)
        services.inter_broker_requests = InterBrokerRequests(self.env, connect())
        services.replicas = services.partitions.replicas = ReplicaManager(
            self.env, local, connect, to_controller, callbacks
        )

    def leadership_changed(self, topic_partition: TopicPartition, leader_epoch: int | None) -> None:
        """Load or unload a coordinator's state: this node leads a partition in a new epoch, or (None) does not lead it.

        Called for every partition with a replica on this node, on a node that is not alone.
        """
        if topic_partition.topic == OFFSETS_TOPIC:
            if leader_epoch is not None:
                self._load_group_partition(topic_partition.partition)
            elif self.services.used_groups is not None:
                self.services.used_groups.unload(topic_partition.partition)
        elif topic_partition.topic == TRANSACTIONS_TOPIC:
            if leader_epoch is not None:
                self._load_transaction_partition(topic_partition.partition, leader_epoch)
            elif self.services.used_transactions is not None:
                self.services.used_transactions.unload(topic_partition.partition)

    def _fail_directory(self, directory: DataDirectory, reason: str) -> bool:
        return self.membership is not None and self.membership.fail_directory(directory, reason)

    def make_controller(
        self, image: MetadataImage, metadata: MetadataLog, callbacks: MetadataCallbacks | None = None
    ) -> Controller:
        """Return a controller that works on an image, and appends to a log."""
        calls = callbacks if callbacks is not None else MetadataCallbacks()
        return Controller(self.config, image, metadata, self.rng, self._directories, calls, self.cluster_id)

    def metadata_loaded(self, removed_topics: Collection[UUID]) -> None:
        """Apply the options in the metadata, and compare the directories of logs with them, on a node with others."""
        self.configs_changed(BROKER_RESOURCE, CLUSTER)
        self.partitions.reconcile_directories(removed_topics)

    def _directories(self) -> list[tuple[UUID, bool]]:
        """Return the ids of the online log directories, and whether each is cordoned."""
        logs = self.logs.directories
        return [(directory.directory_id, directory.path in logs.cordoned) for directory in logs.online]

    def configs_changed(self, resource_type: int, name: str) -> None:
        """Apply options that were set at run time."""
        if resource_type == TOPIC_RESOURCE:
            self.partitions.update_config(name)
        elif resource_type == BROKER_RESOURCE and self.configs.is_of_this_broker(name):
            self.configs.apply_changes()
            self.partitions.defaults = self.config.log_defaults()
            self.logs.producer_expiration_ms = self.config.integer("producer.id.expiration.ms")
            self.partitions.update_config()
            self.connection_quotas.limits_changed()
            self.logs.directories.cordoned = self.config.cordoned_dirs()

    def _close_logs(self, *, clean: bool) -> None:
        metadata = None if self._services is None else self._services.metadata
        if metadata is not None:
            try:
                metadata.close(clean=clean)
            except errors.KafkaStorageError as error:
                log.error("closing the metadata log failed: %s", error)
                self.logs.directories.failed = True  # no clean shutdown file
        if self._logs is not None:
            self._logs.close(clean=clean)

    def _load_groups(self) -> None:
        topic = self.image.topics.get(OFFSETS_TOPIC)
        for partition in topic.partitions.values() if topic is not None else ():
            if partition.leader == self.node_id:
                self._load_group_partition(partition.partition)

    def _load_group_partition(self, index: int) -> None:
        try:
            self.groups.load(index)
        except (errors.KafkaError, OSError) as error:
            where = f"{OFFSETS_TOPIC}-{index}"
            log.error("%s cannot be read; its groups have no coordinator: %s", where, error)
            self._cannot_read(OFFSETS_TOPIC, index, error)

    def _load_transactions(self) -> None:
        topic = self.image.topics.get(TRANSACTIONS_TOPIC)
        for partition in topic.partitions.values() if topic is not None else ():
            if partition.leader == self.node_id:
                self._load_transaction_partition(partition.partition, partition.leader_epoch)

    def _load_transaction_partition(self, index: int, leader_epoch: int) -> None:
        try:
            self.transactions.load(index, leader_epoch)
        except (errors.KafkaError, OSError) as error:
            where = f"{TRANSACTIONS_TOPIC}-{index}"
            log.error("%s cannot be read; its transactional ids have no coordinator: %s", where, error)
            self._cannot_read(TRANSACTIONS_TOPIC, index, error)

    def _cannot_read(self, topic: str, index: int, error: Exception) -> None:
        if self.replicas is not None and isinstance(error, errors.CorruptRecord | errors.CorruptMessage):
            self.replicas.report_damage(topic, index, error)

    def topic_created(self, topic: TopicImage) -> None:
        """Begin to coordinate what an internal topic is for."""
        if topic.name == OFFSETS_TOPIC and self.replicas is None:
            self._load_groups()
        elif topic.name == TRANSACTIONS_TOPIC and self.replicas is None:
            self._load_transactions()

    def remove_topic(self, topic: TopicImage) -> None:
        """Forget a topic that is no longer in the metadata, and delete its logs."""
        self.purgatory.forget_topic(topic.name)
        if topic.name == OFFSETS_TOPIC:
            for index in topic.partitions:
                self.groups.unload(index)
        elif topic.name == TRANSACTIONS_TOPIC:
            for index in topic.partitions:
                self.transactions.unload(index)
        self.logs.delete_topic(topic.name, topic.topic_id)
        if self.services.used_groups is not None:
            self.services.used_groups.offsets.topics_deleted([topic.name])
        if self._periodic_tasks is not None:
            self._periodic_tasks.topic_deleted()


def _authorizer_of(config: BrokerConfig, image: MetadataImage, is_loaded: Callable[[], bool]) -> StandardAuthorizer:
    from pyclient.broker_embedded.authorizer.standard import StandardAuthorizer  # few brokers need it

    return StandardAuthorizer(
        image.acls.values,
        lambda: image.acls_version,
        super_users=config.super_users,
        allow_everyone=config.allows_everyone,
        is_loaded=is_loaded,
    )


def _authorization() -> Authorization:
    from pyclient.broker_embedded.network.authorization import Authorization

    return Authorization()


def _release_of(text: str) -> Release:
    from pyclient.broker_embedded.releases import release_of

    return release_of(text)
