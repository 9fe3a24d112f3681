"""A node's part in a cluster of several nodes: the metadata quorum, its broker lifecycle, and replication."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.controller.broker_lifecycle import AnswerGap, LifecycleLoop, lifecycle_of, registration_of
from pyclient.broker_embedded.controller.controller_registration import ControllerRegistrationManager
from pyclient.broker_embedded.controller.image import TopicImage
from pyclient.broker_embedded.controller.metadata_log import MetadataLog
from pyclient.broker_embedded.controller.producer_ids import ProducerIds
from pyclient.broker_embedded.controller.quorum import Quorum
from pyclient.broker_embedded.controller.quorum_files import open_quorum_log
from pyclient.broker_embedded.controller.raft.voters import VoterSet
from pyclient.broker_embedded.controller.session_watch import SessionWatch
from pyclient.broker_embedded.network.active_controller_channel import ActiveControllerChannel
from pyclient.broker_embedded.network.node_channels import NodeChannels
from pyclient.broker_embedded.replication.directory_assignment import assign_directory
from pyclient.protocol.messages.api_versions import ApiVersionsRequest

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Collection
    from uuid import UUID

    from pyclient.broker_embedded.broker import BrokerNode
    from pyclient.broker_embedded.controller.delta import MetadataDelta
    from pyclient.broker_embedded.controller.image import BrokerImage
    from pyclient.broker_embedded.log.data_directory import DataDirectory
    from pyclient.broker_embedded.network.redirects import Link
    from pyclient.types import TopicPartition

log = logging.getLogger("pyclient.broker_embedded")

_PROBE: Final = ApiVersionsRequest(client_software_name="pyclient", client_software_version="0")
_PATIENCE: Final = 0.4
"""Seconds without an answer of the controller after which a node that stops gives up at the earliest."""
_SESSIONS: Final = 5
"""The longest controlled shutdown, in session timeouts, while the controller answers."""

_BETWEEN_BROKERS: Final = frozenset({"fetcher", "probe"})
"""Purposes of connections to the listener of brokers; the others are to that of controllers."""

_PROBE_TIMEOUT: Final = 2.0


class ClusterMembership:
    """The parts of a node that only a cluster of several nodes needs.

    The node's image has what is committed; while this node is the active controller, its controller works on a copy
    that is ahead. Clients are served once the image is up to date; the node registers as a broker then.
    """

    def __init__(self, node: BrokerNode, link: Link | None) -> None:
        """Open the metadata log. For the errors see `open_quorum_log`."""
        config = node.config
        self._node = node
        self._link = link
        opened = open_quorum_log(
            config.data_dir,
            node.image,
            fs=node.fs,
            clock=node.clock,
            voters=VoterSet.of() if config.quorum.dynamic else VoterSet.of(*config.quorum.voters),
            clean=node.logs.was_clean,
            before_changes=node.logs.take_into_use,
        )
        node.logs.flush_in_background(opened.log)
        self.quorum = Quorum(node.env, node.logs, opened, self._connect("raft"), self)
        self.to_controller = ActiveControllerChannel(node.loop, self.quorum, self._connect)
        self.lifecycle: LifecycleLoop | None = None
        """Registers this node as a broker and sends its heartbeats; None on a node that is only a controller."""
        self._registration: ControllerRegistrationManager | None = None
        self.producer_ids = ProducerIds(node.node_id, self._broker_epoch, self.to_controller)
        self._probes = self._connect("probe")
        services = node.services
        services.relocation.on_moved = lambda topic_partition, target: self._moved(topic_partition, target.directory_id)
        services.quorum, services.to_controller = self.quorum, self.to_controller
        services.producer_ids = self.producer_ids
        services.metadata = self._metadata_log()
        services.controller = node.make_controller(node.image, services.metadata)
        node.controller.resign()

    def __repr__(self) -> str:
        return f"<ClusterMembership {self.quorum!r} {self.lifecycle!r}>"

    @property
    def refusal(self) -> Exception | None:
        """The error with which the controllers last refused this node; None when they have not, or take it now."""
        own = None if self.lifecycle is None else self.lifecycle.lifecycle.refusal
        return self.quorum.network.refusal or own

    def start(self) -> None:
        """Take part in the quorum."""
        self.quorum.start()

    async def leave(self, *, clean: bool) -> None:
        """Hand leaderships over, as long as there is an active controller to say so to; then stop taking part."""
        lifecycle = self.lifecycle
        if clean and lifecycle is not None:
            self._node.logs.directories.broker_epoch = lifecycle.lifecycle.epoch
            if self._node.config.boolean("controlled.shutdown.enable"):
                await self._shut_down(lifecycle)
        if lifecycle is not None:
            lifecycle.stop()
        if self._registration is not None:
            self._registration.stop()
        self.quorum.stop(clean=clean)
        self._node.controller.resign()
        self.to_controller.close()
        self._probes.close()

    async def _shut_down(self, lifecycle: LifecycleLoop) -> None:
        config = self._node.config
        longest = _SESSIONS * config.seconds("broker.session.timeout.ms")
        handing_over = asyncio.ensure_future(lifecycle.shut_down(longest))
        patience = max(_PATIENCE, 1.5 * config.seconds("broker.heartbeat.interval.ms"))
        gap = AnswerGap(_PATIENCE / 10, lifecycle.heard)
        while not handing_over.done():
            await asyncio.wait([handing_over], timeout=_PATIENCE / 10)
            silent = gap.check(lifecycle.heard) > patience
            if (silent or self.quorum.leader_id is None) and not handing_over.done():  # most controllers are gone, too
                handing_over.cancel()
                await asyncio.wait([handing_over])
        if handing_over.cancelled() or not handing_over.result():
            log.warning("broker %d stops without handing its leaderships over", self._node.node_id)

    def pause(self) -> None:
        """Do nothing until `resume`, as a process that is stopped."""
        self.quorum.pause()
        self.to_controller.pause()

    def resume(self) -> None:
        """End the pause."""
        self.to_controller.resume()
        self.quorum.resume()

    # Callbacks of the quorum

    def controller_changed(self) -> None:
        """Activate this node's controller if it is the active one, else deactivate it."""
        node = self._node
        node.controller.resign()
        if self.quorum.is_active:
            metadata = self._metadata_log(ahead=True)
            node.services.controller = node.make_controller(metadata.image, metadata)
            watch = SessionWatch(node.config, node.schedule, node.clock.monotonic, node.loop.time, self._probe)
            node.controller.activate(watch)
            node.controller.set_passwords(node.listeners.inter_broker_users())
            node.controller.add_acls(node.config.acls)
        else:
            node.services.controller = node.make_controller(node.image, self._metadata_log())
            node.controller.resign()

    def metadata_loaded(self, removed_topics: Collection[UUID]) -> None:
        """Serve clients: all that was committed before this node found the active controller is in the image."""
        node = self._node
        node.metadata_loaded(removed_topics)
        if node.config.quorum.is_broker:
            node.start_replication(lambda: self._connect("fetcher"), self.to_controller)
            node.listeners.serve_clients()
            self.lifecycle = LifecycleLoop(
                node.env,
                lifecycle_of(node.env, registration_of(node.services)),
                self.to_controller,
                lambda: node.metadata_offset,
            )
            self.lifecycle.on_registered = self._start_replicas
            self.to_controller.when_lost(self.lifecycle.connection_lost)
            self.lifecycle.start()
        if node.config.quorum.is_controller:
            self._registration = ControllerRegistrationManager(
                node.env, self.to_controller, node.services.controller.new_id()
            )
            self._registration.metadata_changed()

    def metadata_changed(self, delta: MetadataDelta) -> None:
        """Act on committed changes of the metadata."""
        node = self._node
        for kind, name in delta.configs:
            node.configs_changed(kind, name)
        if node.replicas is not None and delta.deleted_topics:
            node.replicas.topics_deleted(delta)
        for topic_id, name in delta.deleted_topics.items():
            partitions = {
                topic_partition.partition: before
                for topic_partition, (before, _after) in delta.partitions.items()
                if topic_partition.topic == name and before is not None
            }
            node.remove_topic(TopicImage(name, topic_id, partitions))
        if node.replicas is not None:
            node.replicas.apply(delta)
        for topic_id in delta.created_topics:
            node.topic_created(node.image.topics_by_id[topic_id])
        if self.lifecycle is not None and node.node_id in delta.brokers:
            self._start_replicas()
            self.lifecycle.metadata_applied()
        if self._registration is not None and (delta.features or node.node_id in delta.controllers):
            self._registration.metadata_changed()

    def fail_directory(self, directory: DataDirectory, reason: str) -> bool:
        """Take a log directory offline, and report it to the controller. Return False before the registration."""
        if self.lifecycle is None:
            return False
        self._node.logs.fail_directory(directory, reason)
        self.lifecycle.directory_failed(directory.directory_id)
        return True

    def _start_replicas(self) -> None:
        """Lead and follow partitions, and ask to be unfenced, once the metadata have the current broker epoch."""
        node, lifecycle = self._node, self.lifecycle
        broker = node.image.brokers.get(node.node_id)
        if broker is None or lifecycle is None or node.replicas is None or broker.epoch != lifecycle.lifecycle.epoch:
            return
        node.replicas.start()
        lifecycle.ready_to_unfence()

    def _probe(self, broker: BrokerImage) -> Future[Any]:
        """Return a future that fails with `ConnectionFailed` if a broker is not there."""
        return self._probes.to(broker.node_id, *self._node.env.place_of(broker)).send(_PROBE, _PROBE_TIMEOUT)

    def _moved(self, topic_partition: TopicPartition, directory: UUID) -> None:
        """Report to the controller that this node's replica of a partition is in another directory."""

        def answered(done: Future[None]) -> None:
            error = None if done.cancelled() else done.exception()
            if error is not None:
                text = "the controller does not know that %s is in directory %s: %s"
                log.error(text, topic_partition, directory, error)

        assign_directory(self._node.env, self.to_controller, topic_partition, directory).add_done_callback(answered)

    def _broker_epoch(self) -> int:
        return -1 if self.lifecycle is None else self.lifecycle.lifecycle.epoch

    def _metadata_log(self, *, ahead: bool = False) -> MetadataLog:
        node = self._node
        return MetadataLog(
            self.quorum.log,
            node.image.copy() if ahead else node.image,
            node_id=node.node_id,
            epoch=self.quorum.epoch,
            clock=node.clock,
            write=self.quorum.append,
        )

    def _connect(self, purpose: str) -> NodeChannels:
        client_id = f"broker-{self._node.node_id}-{purpose}"
        config = self._node.config
        listeners = config.listeners
        listener = listeners.between_brokers if purpose in _BETWEEN_BROKERS else listeners.controller
        login = config.login_at(listener)
        if self._link is None:
            return NodeChannels(self._node.loop, client_id, login=login)
        return NodeChannels(self._node.loop, client_id, self._link, login)
