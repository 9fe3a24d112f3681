"""Copies partitions from one leading node: carries out what `FetcherState` decides."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from pyclient import errors
from pyclient.broker_embedded.failures import traceback_of
from pyclient.broker_embedded.replication.fetcher_state import (
    AbandonDue,
    Act,
    Appended,
    FetcherState,
    FetchFailed,
    Followed,
    Forgotten,
    LogFailure,
    OffsetsFound,
    PartitionAnswered,
    Responded,
    Restart,
    Restarted,
    Send,
    Signal,
    StartAbandonTimer,
    StepFailed,
    Take,
    TakeAnswers,
    WakeAt,
)
from pyclient.broker_embedded.replication.following import Append, FindOffsets, Following, Truncate, Wait
from pyclient.broker_embedded.replication.replication_quota import is_listed
from pyclient.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from pyclient.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable
    from uuid import UUID

    from pyclient.broker_embedded.environment import NodeEnvironment
    from pyclient.broker_embedded.log.manager import LogManager
    from pyclient.broker_embedded.log.unified_log import UnifiedLog
    from pyclient.broker_embedded.network.node_channels import NodeChannels
    from pyclient.broker_embedded.replication.fetch_session_handler import Key, SessionFetch
    from pyclient.broker_embedded.replication.fetcher_state import Effect, Event
    from pyclient.broker_embedded.replication.replication_quota import ReplicationQuota
    from pyclient.broker_embedded.scheduling.timers import Timer
    from pyclient.protocol.messages.fetch import FetchResponse, PartitionData
    from pyclient.protocol.messages.list_offsets import ListOffsetsResponse

log = logging.getLogger("pyclient.broker_embedded")

_LATEST, _EARLIEST = -1, -2


class _Facts:
    """The metadata and the options of the node, as `FetcherState` reads them."""

    def __init__(self, env: NodeEnvironment, leader: int, logs: dict[Key, UnifiedLog]) -> None:
        self._env = env
        self._leader = leader
        self._logs = logs

    @property
    def is_leader_known(self) -> bool:
        broker = self._env.image.brokers.get(self._leader)
        return broker is not None and bool(broker.endpoints)

    @property
    def longest_backoff(self) -> float:
        return self._env.config.seconds("replica.fetch.backoff.ms")

    @property
    def partition_max_bytes(self) -> int:
        return self._env.config.integer("replica.fetch.max.bytes")

    def is_throttled(self, key: Key) -> bool:
        listed = self._logs[key].config.follower_replication_throttled_replicas
        return is_listed(listed, key[1], self._env.node_id)


class ReplicaFetcher:
    """Fetches the partitions that one node leads, and appends what it gets."""

    def __init__(
        self,
        env: NodeEnvironment,
        logs: LogManager,
        leader: int,
        connect: Callable[[], NodeChannels],
        quota: ReplicationQuota,
    ) -> None:
        self.leader = leader
        self._env = env
        self._logs = logs
        self._connect = connect
        self._channels = connect()
        self._opened: dict[Key, UnifiedLog] = {}
        self._state = FetcherState(_Facts(env, leader, self._opened), quota)
        self._timer: Timer | None = None
        self._patience: Timer | None = None

    def __repr__(self) -> str:
        return f"<ReplicaFetcher from={self.leader} {self._state}>"

    def __len__(self) -> int:
        return len(self._state)

    def follow(self, topic_partition: TopicPartition, topic_id: UUID, leader_epoch: int, opened: UnifiedLog) -> None:
        """Fetch a partition in a leader epoch."""
        following = Following(topic_partition, topic_id, leader_epoch)
        self._opened[following.key] = opened
        self._receive(Followed(following, opened))

    def forget(self, topic_id: UUID, index: int) -> None:
        """Fetch a partition no more."""
        self._receive(Forgotten((topic_id, index)))
        self._opened.pop((topic_id, index), None)

    def is_in_sync(self, topic_id: UUID, index: int) -> bool:
        """Return True if everything is here that was committed at the leader's last answer."""
        following = self._state.following((topic_id, index))
        return following is not None and following.is_in_sync

    def freeze(self) -> None:
        """Fetch nothing until `thaw`; what is on its way still counts."""
        self._receive(Signal.FROZEN)

    def thaw(self) -> None:
        """Fetch again."""
        self._receive(Signal.THAWED)

    def pause(self) -> None:
        """Suspend writes and reads until `resume`."""
        self._channels.pause()

    def resume(self) -> None:
        """End the pause."""
        self._channels.resume()

    def throttle_changed(self) -> None:
        """Try again at once: a limit or a list of throttled replicas has changed."""
        self._receive(Signal.THROTTLE_CHANGED)

    def leader_changed(self) -> None:
        """Try again at once: the metadata of the leading node have changed."""
        self._receive(Signal.LEADER_CHANGED)

    def close(self) -> None:
        """End the connection, and fetch nothing any more."""
        self._receive(Signal.CLOSED)
        for timer in (self._timer, self._patience):
            if timer is not None:
                timer.cancel()
        self._opened.clear()
        self._channels.close()

    # Decisions

    def _receive(self, event: Event) -> None:
        for effect in self._state.receive(event, self._env.clock.monotonic()):
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send(fetch, content):
                self._send(fetch, content)
            case TakeAnswers(response):
                self._take_answers(response)
            case Take(key, Append(answer), epoch):
                self._append(self._opened[key], answer, epoch)
                self._receive(Appended(key, answer.high_watermark))
            case WakeAt(due):
                if self._timer is not None:
                    self._timer.cancel()
                delay = max(due - self._env.clock.monotonic(), 0.0)
                self._timer = self._env.schedule(delay, partial(self._receive, Signal.DUE))
            case Take(key, Truncate(offset, reason)):
                self._truncate(key, offset, reason)
            case Take(key, FindOffsets()):
                self._find_offsets(key)
            case Take(key, Wait(code)):
                kind = errors.for_code(code).__name__
                log.info("%s: fetching from broker %d waits: %s", self._name(key), self.leader, kind)
            case Restart():
                self._restart(effect)
            case StartAbandonTimer(fetch, seconds):
                if self._patience is not None:
                    self._patience.cancel()
                self._patience = self._env.schedule(seconds, partial(self._receive, AbandonDue(fetch)))
            case LogFailure(error):
                log.warning("fetching from broker %d failed, it is tried again: %s", self.leader, error)
            case Act.FLUSH_CHECKPOINTS:
                self._flush_checkpoints()
            case Act.RECONNECT:
                self._channels.close()
                self._channels = self._connect()

    def _name(self, key: Key) -> TopicPartition:
        return TopicPartition(self._opened[key].topic, self._opened[key].partition)

    # Send

    def _send(self, fetch: int, content: SessionFetch) -> None:
        try:
            self._request_of(content).add_done_callback(partial(self._answered, fetch))
        except Exception as error:  # a bug: without an event, nothing would be fetched any more
            log.error("the fetch from broker %d cannot be sent: %s", self.leader, error, exc_info=traceback_of(error))
            self._receive(FetchFailed(fetch, error))

    def _request_of(self, content: SessionFetch) -> Future[FetchResponse]:
        """Send a fetch; return the future of its response."""
        wait = self._env.config.integer("replica.fetch.wait.max.ms")
        timeout = self._env.config.seconds("replica.socket.timeout.ms") + wait / 1000
        channel = self._channels.to(self.leader, *self._env.place_of(self._env.image.brokers[self.leader]))
        return channel.send(self._request(content, wait), timeout)

    def _request(self, fetch: SessionFetch, wait: int) -> FetchRequest:
        config = self._env.config
        topics: dict[UUID, list[FetchPartition]] = {}
        for (topic_id, _index), partition in fetch.partitions.items():
            topics.setdefault(topic_id, []).append(partition)
        forgotten: dict[UUID, list[int]] = {}
        for topic_id, index in fetch.forgotten:
            forgotten.setdefault(topic_id, []).append(index)
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self._env.node_id, replica_epoch=self._env.broker_epoch),
            max_wait_ms=wait,
            min_bytes=config.integer("replica.fetch.min.bytes"),
            max_bytes=config.integer("replica.fetch.response.max.bytes"),
            session_id=fetch.session_id,
            session_epoch=fetch.epoch,
            topics=[FetchTopic(topic_id=each, partitions=partitions) for each, partitions in topics.items()],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=each, partitions=indexes) for each, indexes in forgotten.items()
            ],
        )

    # Answers

    def _answered(self, fetch: int, done: Future[FetchResponse]) -> None:
        # of a fetch that was abandoned on purpose, or after the end, the failure is not logged
        error = errors.ConnectionFailed("cancelled") if done.cancelled() else done.exception()
        self._receive(Responded(fetch, done.result()) if error is None else FetchFailed(fetch, error))

    def _take_answers(self, response: FetchResponse) -> None:
        for topic in response.responses:
            for answer in topic.partitions:
                self._take((topic.topic_id, answer.partition_index), answer)
        self._receive(Signal.ANSWERS_TAKEN)

    def _take(self, key: Key, answer: PartitionData) -> None:
        opened = self._opened.get(key)
        if opened is None:
            return
        try:
            self._receive(PartitionAnswered(key, answer))
        except Exception as error:  # the other partitions are fetched
            text = "%s-%d: a fetch from broker %d failed: %s"
            given = opened.topic, opened.partition, self.leader, error
            log.error(text, *given, exc_info=traceback_of(error))
            self._receive(StepFailed(key))

    def _append(self, opened: UnifiedLog, answer: PartitionData, epoch: int) -> None:
        if answer.records:
            now_ms = self._env.clock.time_ms()
            opened.append(answer.records, leader_epoch=epoch, now_ms=now_ms, origin="replica")
        opened.advance_high_watermark(answer.high_watermark)
        if answer.log_start_offset > opened.start_offset:
            opened.advance_start(min(answer.log_start_offset, opened.end_offset))

    def _truncate(self, key: Key, offset: int, reason: str) -> None:
        opened = self._opened[key]
        text = "%s: truncating to %d: %s; the log ended at %d"
        log.warning(text, self._name(key), offset, reason, opened.end_offset)
        opened.truncate_to(offset)
        self._receive(Signal.TRUNCATED)

    def _flush_checkpoints(self) -> None:
        try:
            self._logs.flush_checkpoints()
        except (OSError, errors.KafkaError) as error:  # the fetches go on; a start after a kill checks more of the logs
            log.error("the recovery points cannot be written: %s", error)

    # A log outside of its leader's

    def _find_offsets(self, key: Key) -> None:
        """Ask the leader where its log starts and ends."""
        following, broker = self._state.following(key), self._env.image.brokers.get(self.leader)
        if following is None or broker is None:
            return
        channel = self._channels.to(self.leader, *self._env.place_of(broker))
        end = self._opened[key].end_offset
        found: dict[int, int] = {}

        def answered(timestamp: int, done: Future[ListOffsetsResponse]) -> None:
            if done.cancelled() or done.exception() is not None:
                return  # the next fetch is out of range, too
            answer = done.result().topics[0].partitions[0]
            if not answer.error_code:
                found[timestamp] = answer.offset
            if len(found) == 2:
                self._receive(OffsetsFound(following, end, found[_EARLIEST], found[_LATEST]))

        timeout = self._env.config.seconds("replica.socket.timeout.ms")
        for timestamp in (_EARLIEST, _LATEST):
            sent = channel.send(self._list_offsets(following, timestamp), timeout)
            sent.add_done_callback(partial(answered, timestamp))

    def _list_offsets(self, following: Following, timestamp: int) -> ListOffsetsRequest:
        partition = ListOffsetsPartition(
            partition_index=following.topic_partition.partition,
            current_leader_epoch=following.leader_epoch,
            timestamp=timestamp,
        )
        topic = ListOffsetsTopic(name=following.topic_partition.topic, partitions=[partition])
        return ListOffsetsRequest(replica_id=self._env.node_id, topics=[topic])

    def _restart(self, restart: Restart) -> None:
        opened, topic_partition = self._opened[restart.key], self._name(restart.key)
        log.warning(
            "%s: the log ends at %d, the leader's is %d..%d: %s at %d",
            topic_partition,
            opened.end_offset,
            restart.leader_start,
            restart.leader_end,
            "it restarts empty" if restart.is_emptied else "it goes on",
            restart.offset,
        )
        try:
            if restart.is_emptied:
                opened.truncate_fully_and_start_at(restart.offset)
            else:
                opened.truncate_to(restart.offset)
            opened.advance_start(min(restart.leader_start, opened.end_offset))
            self._logs.flush_checkpoints()
        except (OSError, errors.KafkaError) as error:
            log.error("%s: the log cannot be truncated: %s", topic_partition, error)
            return
        self._receive(Restarted(restart.key))
