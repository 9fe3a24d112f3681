"""Drives the Raft core over the metadata log: carries out its effects, and applies what is committed to the image."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from pyclient import errors
from pyclient.broker_embedded.controller.quorum_applying import MetadataApplier
from pyclient.broker_embedded.controller.quorum_files import save_election
from pyclient.broker_embedded.controller.quorum_log import QuorumLog
from pyclient.broker_embedded.controller.quorum_messages import Answered, Converter
from pyclient.broker_embedded.controller.quorum_network import QuorumAddresses, QuorumNetwork
from pyclient.broker_embedded.controller.quorum_snapshots import QuorumSnapshots
from pyclient.broker_embedded.controller.raft import messages as raft
from pyclient.broker_embedded.controller.raft.quorum_state import LocalReplica, RaftTimeouts
from pyclient.broker_embedded.controller.raft.raft import RaftReplica
from pyclient.broker_embedded.controller.raft.roles import Leader
from pyclient.broker_embedded.controller.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from pyclient.broker_embedded.controller.snapshots import SnapshotGenerator
from pyclient.protocol.fields import ZERO_UUID

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Collection, Mapping
    from uuid import UUID

    from pyclient.broker_embedded.controller.delta import MetadataDelta
    from pyclient.broker_embedded.controller.quorum_files import OpenedLog
    from pyclient.broker_embedded.controller.raft.replica_log import OffsetAndEpoch
    from pyclient.broker_embedded.controller.raft.roles import Progress
    from pyclient.broker_embedded.environment import NodeEnvironment
    from pyclient.broker_embedded.log.manager import LogManager
    from pyclient.broker_embedded.log.unified_log import UnifiedLog
    from pyclient.broker_embedded.network.node_channels import NodeChannels
    from pyclient.broker_embedded.scheduling.timers import Timer

log = logging.getLogger("pyclient.broker_embedded")


class QuorumListener(Protocol):
    """The node's callbacks for decisions of the quorum."""

    def controller_changed(self) -> None:
        """Note that this node has become the active controller, or is no longer."""

    def metadata_loaded(self, removed_topics: Collection[UUID]) -> None:
        """Note that the image is up to date for the first time; these topics were removed in what was read for it."""

    def metadata_changed(self, delta: MetadataDelta) -> None:
        """Act on changes of the image, after it is loaded."""


class Quorum:
    """This node's replica of the metadata log in a quorum with others: a voter, or an observer that only follows.

    Committed records are applied to the node's image; the log's high watermark follows what is applied, so that answers
    which wait for it find their changes in the image. `loaded` is True once everything that was committed when this
    node found its leader is applied. After a failure of the disk, or of committed records that cannot be applied, the
    replica takes no part any more until the node is started again.
    """

    def __init__(
        self,
        env: NodeEnvironment,
        logs: LogManager,
        opened: OpenedLog,
        channels: NodeChannels,
        listener: QuorumListener,
    ) -> None:
        config = env.config
        self.addresses = QuorumAddresses(config.quorum.voters, opened.voters, dynamic=config.quorum.dynamic)
        self.log: UnifiedLog = opened.log
        self.is_active = False
        """True while this node is the active controller: it leads, and has applied all records of earlier leaders."""
        self.loaded = False
        self._env = env
        self._logs = logs
        self._listener = listener
        self._directory = opened.directory
        self._max_bytes = config.integer("controller.quorum.fetch.max.bytes")
        name, own = config.quorum.listener_name, config.quorum.voters.get(env.node_id)
        converter = Converter(logs.directories.cluster_id, name, own, self._max_bytes)
        self.network = QuorumNetwork(env, channels, self.addresses, converter, self)
        self._snapshots = QuorumSnapshots(
            env.fs, opened.log, config.integer("controller.quorum.fetch.snapshot.max.bytes")
        )
        self._generator: SnapshotGenerator | None = None
        self._applier = MetadataApplier(opened, env.image)
        self._writer = QuorumLog(opened.log, env.fs, self._flushed)
        self._timer: Timer | None = None
        self._closed = False
        self._paused = False
        self._busy = False
        self._applying = False
        me = ReplicaKey(env.node_id, logs.directories.directory_id if config.quorum.dynamic else ZERO_UUID)
        self._static = VoterSet.of() if config.quorum.dynamic else VoterSet.of(*config.quorum.voters)
        self.raft = RaftReplica(
            LocalReplica(
                me,
                Voter(me, (Endpoint(name, *own),)) if config.quorum.dynamic and own is not None else None,
                tuple(config.quorum.voters) if config.quorum.dynamic else (),
            ),
            opened.view,
            opened.voters,
            opened.election,
            env.rng,
            RaftTimeouts.of(config),
        )

    def __repr__(self) -> str:
        role = type(self.raft.state.role).__name__
        return f"<Quorum node {self._env.node_id} {role} epoch {self.epoch} leader {self.leader_id} {self.log!r}>"

    @property
    def me(self) -> ReplicaKey:
        """The key of this node's replica."""
        return self.raft.state.me

    @property
    def epoch(self) -> int:
        """The epoch of the quorum as far as this node knows."""
        return self.raft.state.epoch

    @property
    def active_epoch(self) -> int | None:
        """The epoch in which this node is the active controller, None if it is not."""
        return self.epoch if self.is_active else None

    @property
    def leader_id(self) -> int | None:
        """The node that leads the epoch, None if it is not known."""
        return self.raft.state.leader_id

    @property
    def high_watermark(self) -> int:
        """The offset below which everything is known to be committed."""
        return self._applier.committed

    @property
    def applied(self) -> int:
        """The offset up to which the image has the log's records."""
        return self._applier.position.offset

    def progress(self) -> Mapping[ReplicaKey, Progress]:
        """Return what this node knows of the other replicas' logs while it leads."""
        role = self.raft.state.role
        return role.progress if isinstance(role, Leader) else {}

    def start(self) -> None:
        """Enter the role that the remembered election gives."""
        self._generator = SnapshotGenerator(
            self._env,
            self.log,
            position=self._position,
            uninterpreted=lambda: self._applier.replay.uninterpreted,
            written=self._snapshot_written,
            voters=self._voters_below,
        )
        self._drive(self.raft.start)

    def stop(self, *, clean: bool) -> None:
        """Leave the quorum; a leader that stops in order sends EndQuorumEpoch first."""
        if self._closed:
            return
        if clean:
            self._drive(self.raft.resign)
        self._halt()

    def pause(self) -> None:
        """Do nothing until `resume`, as a process that is stopped."""
        self._paused = True
        self.network.channels.pause()

    def resume(self) -> None:
        """End the pause."""
        self._paused = False
        self.network.channels.resume()
        self._drive(self.raft.tick)

    @property
    def voters(self) -> VoterSet:
        """The voters in force on this node."""
        return self.raft.state.voters.newest

    def refusal(self, request: raft.VoterChange) -> raft.VoterChangeResponse | None:
        """Return the answer to a change of the voters that would be refused now, None if it would be taken."""
        return self.raft.refusal(request, self._now())

    def step(self, request: raft.Request | raft.VoterChange) -> Future[Answered]:
        """Take another node's request. Return a future of the answer, which may be held."""
        answer: Future[Answered] = self._env.loop.create_future()
        self._drive(lambda now: self.raft.step(answer, request, now))
        return answer

    def append(self, batch: bytes, count: int) -> int:
        """Write a batch of `count` records, which is committed later. Return its base offset.

        Raise `NotController` if this node is not the active controller.
        """
        if not self.is_active:
            raise self.not_controller()
        base = self.raft.append(batch, count, self._now())
        self._carry_out(flush=False)
        if self._closed:
            raise errors.KafkaStorageError(f"the metadata log cannot be written: {self.log.failure}")
        self._env.loop.call_soon(self._drive, self.raft.tick)  # flushes; records of one moment go together
        return base

    def not_controller(self) -> errors.NotController:
        """Return the error of a change that this node must not make."""
        leader = self.leader_id
        known = "is not known" if leader is None else f"is node {leader}"
        return errors.NotController(f"node {self._env.node_id} is not the active controller, which {known}")

    # The core's effects

    def _now(self) -> float:
        return self._env.clock.monotonic()

    def _drive(self, call: Callable[[float], object]) -> None:
        """Call the core and carry out what follows."""
        if self._closed or self._paused:
            return
        call(self._now())
        self._carry_out()

    def _carry_out(self, *, flush: bool = True) -> None:
        if self._busy:
            return  # the running call of this function carries out these effects, too
        self._busy = True
        try:
            while not self._closed:
                effects = self.raft.ready()
                for effect in effects:
                    self._perform(effect)
                if not effects and not (flush and self._flush()):
                    break
        except (OSError, errors.KafkaStorageError, errors.ProtocolError) as error:
            log.error("node %d leaves the metadata quorum: its log cannot be written: %s", self._env.node_id, error)
            self._halt()
        finally:
            self._busy = False
        if not self._closed:
            self._apply()
            self._follow_role()
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self.raft.deadline
        if deadline != float("inf"):
            self._timer = self._env.schedule(max(deadline - self._now(), 0.0), self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self.log.failure is not None:
            log.error("node %d leaves the metadata quorum: %s", self._env.node_id, self.log.failure)
            self._halt()
        self._drive(self.raft.tick)

    def _perform(self, effect: raft.Effect) -> None:
        match effect:
            case raft.Send(node_id, request):
                self.network.send(node_id, request)
            case raft.Answer():
                self._answer(effect)
            case raft.SaveElection(state):
                save_election(self._env.fs, self._directory, state, self._static)
            case raft.HighWatermark(offset):
                self._applier.committed = offset
            case raft.StoreSnapshotPiece():
                self._snapshots.store(effect)
            case raft.InstallSnapshot(snapshot):
                self._install(snapshot)
            case raft.LeaderChange(epoch, leader_id):
                self._env.image.version += 1  # answers that name the controller are valid no more
                leader = "unknown" if leader_id is None else leader_id
                log.info("node %d: metadata epoch %d, leader %s", self._env.node_id, epoch, leader)
            case _:
                self._writer.write(effect, self._env.clock.time_ms())

    def _answer(self, effect: raft.Answer) -> None:
        if effect.token.done():
            return
        response, data, size = effect.response, b"", 0
        if effect.read_from is not None:
            data = self.log.read_bytes(effect.read_from, self._max_bytes, isolation="log_end")
        elif effect.read_snapshot is not None and isinstance(response, raft.FetchSnapshotResponse):
            response, data, size = self._snapshots.piece(effect.read_snapshot, response)
        effect.token.set_result(Answered(response, data, size))

    def responded(self, node_id: int, request: raft.Request, response: raft.Response) -> None:
        """Take a node's response to a request of this replica."""
        if isinstance(response, raft.FetchResponse) and not response.error:
            self._applier.leader_end = response.high_watermark
        self._drive(lambda now: self.raft.responded(node_id, request, response, now))

    def failed(self, node_id: int, request: raft.Request, *, lost: bool) -> None:
        """Note that a request of this replica got no response; `lost` if its connection was lost."""
        if lost:
            self._drive(lambda now: self.raft.leader_lost(node_id, now))
        else:
            self._drive(lambda now: self.raft.failed(node_id, request, now))

    def _install(self, snapshot: OffsetAndEpoch) -> None:
        """Replace the log and the image by a snapshot that was fetched."""
        self._writer.replaced()
        replay, delta = self._snapshots.install(snapshot, self._env.image)
        self._applier.installed(snapshot, replay)
        self.raft.snapshot_installed(snapshot, replay.voters, self._now())
        if delta and self.loaded:
            self._listener.metadata_changed(delta)

    def _snapshot_written(self, snapshot: OffsetAndEpoch) -> None:
        if not self._closed:
            self.raft.snapshot_created(snapshot)
            self.raft.delete_before_snapshot()
            self._drive(self.raft.tick)

    def _position(self) -> OffsetAndEpoch | None:
        """Return the end of what the image has; None if a snapshot must not be written now."""
        is_whole = self.loaded and not self._closed and not self._paused and not self._applier.replay.in_transaction
        return self._applier.position if is_whole else None

    def _voters_below(self, offset: int) -> VoterSet | None:
        """Return the voters that a snapshot up to `offset` has to keep, None if the configuration has them."""
        return None if self._static else self.raft.state.voters.at(offset)

    # The disk

    def _flush(self) -> bool:
        """Sync the log. Return True if that is done and the Raft core notified, False if it goes on in background."""
        end = self._writer.flush(self.raft.state.log.flushed_end)
        if end is None:
            return False
        self.raft.flushed(end, self._now())
        return True

    def _flushed(self, end: int) -> None:
        self._drive(lambda now: self.raft.flushed(end, now))

    # What is committed

    def _apply(self) -> None:
        """Apply committed batches to the image, a part in one step."""
        if self._applying or not self._applier.is_behind:
            return
        try:
            delta = self._applier.step()
        except errors.ProtocolError as error:
            log.critical("node %d cannot apply the committed metadata: %s", self._env.node_id, error)
            self._halt()
            return
        if delta and self.loaded:
            self._listener.metadata_changed(delta)
        self.log.advance_high_watermark(self.applied)
        if self._applier.is_behind:
            self._applying = True
            self._env.loop.call_soon(self._apply_more)

    def _apply_more(self) -> None:
        self._applying = False
        if not self._closed:
            self._apply()
            self._follow_role()

    def _follow_role(self) -> None:
        """Become or cease to be the active controller, and note when the image is up to date."""
        role = self.raft.state.role
        if not self.loaded and self._applier.is_up_to_date(self.epoch, leads=isinstance(role, Leader)):
            self.loaded = True
            self._listener.metadata_loaded(self._applier.replay.take_removed_topics())
        active = isinstance(role, Leader) and self.applied > role.epoch_start and self.loaded
        if active == self.is_active:
            waits = self.is_active and self.applied < self.log.end_offset
            (self._logs.awaiting_flush.add if waits else self._logs.awaiting_flush.discard)(self.log)
            return
        self.is_active = active
        if not active:
            self._logs.awaiting_flush.discard(self.log)
        self._listener.controller_changed()
        if not active:
            self.log.give_up_commits()

    def _halt(self) -> None:
        self._closed = True
        if self._generator is not None:
            self._generator.close()
        if self._timer is not None:
            self._timer.cancel()
        self.network.close()
        was_active, self.is_active = self.is_active, False
        self._logs.awaiting_flush.discard(self.log)
        if was_active:
            self._listener.controller_changed()
        self.log.give_up_commits()
