"""Copies partitions from their leaders: one fetcher for each leading node, which fetches all of its partitions."""

from __future__ import annotations

import logging
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from pyclient import errors
from pyclient.broker_embedded.failures import traceback_of
from pyclient.broker_embedded.replication.fetch_session_handler import FetchSessionHandler
from pyclient.broker_embedded.replication.following import (
    Append,
    Fenced,
    FindOffsets,
    Following,
    Ignore,
    Truncate,
    Wait,
    decide,
    restart_offset,
)
from pyclient.broker_embedded.replication.replication_quota import ReplicationQuota, is_listed
from pyclient.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from pyclient.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable
    from uuid import UUID

    from pyclient.broker_embedded.environment import NodeEnvironment
    from pyclient.broker_embedded.log.manager import LogManager
    from pyclient.broker_embedded.log.unified_log import UnifiedLog
    from pyclient.broker_embedded.network.node_channels import NodeChannels
    from pyclient.broker_embedded.replication.fetch_session_handler import Key
    from pyclient.broker_embedded.scheduling.timers import Timer
    from pyclient.protocol.messages.fetch import FetchResponse, PartitionData
    from pyclient.protocol.messages.list_offsets import ListOffsetsResponse
    from pyclient.types import TopicPartition

log = logging.getLogger("pyclient.broker_embedded")

_FIRST_BACKOFF: Final = 0.02
_PATIENCE: Final = 0.01
"""Seconds after which a new partition no longer waits for a fetch that the leader holds: that one is abandoned."""
_LATEST, _EARLIEST = -1, -2


class ReplicaFetcher:
    """Fetches the partitions that one node leads, one request after the other, and appends what it gets."""

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
        self._quota = quota
        self._channels = connect()
        self._session = FetchSessionHandler()
        self._followed: dict[Key, tuple[Following, UnifiedLog]] = {}
        self._in_flight: Future[FetchResponse] | None = None
        self._backoff = 0.0
        self._not_before = float("-inf")
        self._timer: Timer | None = None
        self._abandon_timer: Timer | None = None
        self.closed = False
        self.is_frozen = False

    def __repr__(self) -> str:
        return f"<ReplicaFetcher from={self.leader} partitions={len(self._followed)} {self._session}>"

    def __len__(self) -> int:
        return len(self._followed)

    def follow(self, topic_partition: TopicPartition, topic_id: UUID, leader_epoch: int, opened: UnifiedLog) -> None:
        """Fetch a partition in a leader epoch."""
        self._followed[topic_id, topic_partition.partition] = Following(topic_partition, topic_id, leader_epoch), opened
        if self._in_flight is None:
            self._send_soon()
        elif self._abandon_timer is None:
            in_flight = self._in_flight
            self._abandon_timer = self._env.schedule(_PATIENCE, lambda: self._abandon(in_flight))

    def forget(self, topic_id: UUID, index: int) -> None:
        """Fetch a partition no more."""
        self._followed.pop((topic_id, index), None)

    def is_in_sync(self, topic_id: UUID, index: int) -> bool:
        """Return True if everything is here that was committed at the leader's last answer."""
        followed = self._followed.get((topic_id, index))
        return followed is not None and followed[0].is_in_sync

    def freeze(self) -> None:
        """Fetch nothing until `thaw`; what is on its way still counts."""
        self.is_frozen = True

    def thaw(self) -> None:
        """Fetch again."""
        self.is_frozen = False
        self._send_soon()

    def pause(self) -> None:
        """Suspend writes and reads until `resume`."""
        self._channels.pause()

    def resume(self) -> None:
        """End the pause."""
        self._channels.resume()

    def throttle_changed(self) -> None:
        """Try again at once: a limit or a list of throttled replicas has changed."""
        self._send_soon()

    def leader_changed(self) -> None:
        """Try again at once: the metadata of the leading node have changed."""
        self._not_before = float("-inf")
        self._send_soon()

    def close(self) -> None:
        """End the connection, and fetch nothing any more."""
        self.closed = True
        for timer in (self._timer, self._abandon_timer):
            if timer is not None:
                timer.cancel()
        self._followed.clear()
        self._channels.close()

    def _abandon(self, in_flight: Future[FetchResponse]) -> None:
        """Close the connection if the leader still holds this fetch, so that the new partitions are fetched now."""
        self._abandon_timer = None
        if self._in_flight is in_flight and not self.closed:
            self._in_flight = None
            self._session.failed()
            self._channels.close()
            self._channels = self._connect()
            self._send_soon()

    # Send

    def _send_soon(self) -> None:
        """Send at the end of this iteration of the loop, with all changes that are made in it."""
        self._wake_at(self._env.clock.monotonic())

    def _wake_at(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._env.schedule(max(due - self._env.clock.monotonic(), 0.0), self._send)

    def _send(self) -> None:
        if self.closed or self.is_frozen or self._in_flight is not None or not self._followed:
            return
        now = self._env.clock.monotonic()
        throttled_until = now + self._quota.wait(now)
        due = {key: self._due(*followed, throttled_until) for key, followed in self._followed.items()}
        wanted = {key: self._asked(*followed) for key, followed in self._followed.items() if due[key] <= now}
        broker = self._env.image.brokers.get(self.leader)
        if broker is None or not broker.endpoints:
            return  # `leader_changed` follows
        if now < self._not_before or not wanted:
            due_at = max(self._not_before, min(due.values()))
            if due_at < inf:
                self._wake_at(due_at)
            return
        config = self._env.config
        wait = config.integer("replica.fetch.wait.max.ms")
        timeout = config.seconds("replica.socket.timeout.ms") + wait / 1000
        self._in_flight = self._channels.to(self.leader, *self._env.place_of(broker)).send(
            self._request(wanted, wait), timeout
        )
        self._in_flight.add_done_callback(self._answered)

    def _due(self, following: Following, opened: UnifiedLog, throttled_until: float) -> float:
        """Return when a partition may be fetched. `throttled_until` is when the quota has room for throttled ones."""
        if opened.failure is not None or opened.closed:
            return inf
        if following.is_in_sync or not self._is_throttled(following.topic_partition, opened):
            return following.not_before
        return max(following.not_before, throttled_until)

    def _is_throttled(self, topic_partition: TopicPartition, opened: UnifiedLog) -> bool:
        listed = opened.config.follower_replication_throttled_replicas
        return is_listed(listed, topic_partition.partition, self._env.node_id)

    def _asked(self, following: Following, opened: UnifiedLog) -> FetchPartition:
        return FetchPartition(
            partition=following.topic_partition.partition,
            current_leader_epoch=following.leader_epoch,
            fetch_offset=opened.end_offset,
            last_fetched_epoch=opened.leader_epoch,
            log_start_offset=opened.start_offset,
            partition_max_bytes=self._env.config.integer("replica.fetch.max.bytes"),
            high_watermark=opened.high_watermark,
        )

    def _request(self, wanted: dict[Key, FetchPartition], wait: int) -> FetchRequest:
        config = self._env.config
        fetch = self._session.next(wanted)
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

    def _answered(self, done: Future[FetchResponse]) -> None:
        if done is not self._in_flight:
            if not done.cancelled():
                done.exception()  # it was abandoned on purpose: its failure is not logged
            return
        self._in_flight = None
        if self.closed:
            if not done.cancelled():
                done.exception()
            return
        error = errors.ConnectionFailed("cancelled") if done.cancelled() else done.exception()
        if error is not None:
            self._failed(error)
            return
        self._backoff = 0.0
        response = done.result()
        if self._session.answered(response.session_id, response.error_code):
            self._take(response)
        elif not errors.for_code(response.error_code).retriable:
            self._failed(errors.from_code(response.error_code, f"Fetch from broker {self.leader}"))
            return
        self._send()

    def _failed(self, error: BaseException) -> None:
        if not self._backoff:
            log.warning("fetching from broker %d failed, it is tried again: %s", self.leader, error)
        self._session.failed()
        longest = self._env.config.seconds("replica.fetch.backoff.ms")
        self._backoff = min(max(self._backoff * 2, _FIRST_BACKOFF), longest)
        self._not_before = self._env.clock.monotonic() + self._backoff
        self._wake_at(self._not_before)

    def _take(self, response: FetchResponse) -> None:
        has_truncated = False
        for topic in response.responses:
            for answer in topic.partitions:
                key = topic.topic_id, answer.partition_index
                asked, followed = self._session.partitions.get(key), self._followed.get(key)
                if asked is not None and followed is not None:
                    has_truncated = self._act(*followed, asked, answer) or has_truncated
        if has_truncated:  # before the next append: a recovery point may be beyond the new end
            self._logs.flush_checkpoints()

    def _act(self, following: Following, opened: UnifiedLog, asked: FetchPartition, answer: PartitionData) -> bool:
        """Act on the answer for one partition. Return True if its log was truncated."""
        now, longest = self._env.clock.monotonic(), self._env.config.seconds("replica.fetch.backoff.ms")
        try:
            match decide(following, asked, answer, opened):
                case Append(answer):
                    self._append(following.topic_partition, opened, answer, asked.current_leader_epoch)
                    following.lag = answer.high_watermark - opened.end_offset
                    following.succeeded()
                case Truncate(offset, reason):
                    text = "%s: truncating to %d: %s; the log ended at %d"
                    log.warning(text, following.topic_partition, offset, reason, opened.end_offset)
                    opened.truncate_to(offset)
                    return True
                case FindOffsets():
                    following.failed(now, longest)
                    self._find_offsets(following, opened)
                case Wait(code):
                    kind = errors.for_code(code).__name__
                    log.info("%s: fetching from broker %d waits: %s", following.topic_partition, self.leader, kind)
                    following.failed(now, longest)
                case Fenced():
                    following.fenced()
                case Ignore():
                    pass
        except Exception as error:  # the other partitions are fetched
            text = "%s: a fetch from broker %d failed: %s"
            log.error(text, following.topic_partition, self.leader, error, exc_info=traceback_of(error))
            following.failed(now, longest)
        return False

    def _append(self, topic_partition: TopicPartition, opened: UnifiedLog, answer: PartitionData, epoch: int) -> None:
        if answer.records:
            if self._is_throttled(topic_partition, opened):
                self._quota.record(len(answer.records), self._env.clock.monotonic())
            now_ms = self._env.clock.time_ms()
            opened.append(answer.records, leader_epoch=epoch, now_ms=now_ms, origin="replica")
        opened.advance_high_watermark(answer.high_watermark)
        if answer.log_start_offset > opened.start_offset:
            opened.advance_start(min(answer.log_start_offset, opened.end_offset))

    # A log outside of its leader's

    def _find_offsets(self, following: Following, opened: UnifiedLog) -> None:
        """Ask the leader where its log starts and ends, then truncate or restart this one."""
        broker = self._env.image.brokers.get(self.leader)
        if broker is None:
            return
        channel = self._channels.to(self.leader, *self._env.place_of(broker))
        end = opened.end_offset
        found: dict[int, int] = {}

        def answered(timestamp: int, done: Future[ListOffsetsResponse]) -> None:
            if done.cancelled() or done.exception() is not None:
                return  # the next fetch is out of range, too
            answer = done.result().topics[0].partitions[0]
            if not answer.error_code:
                found[timestamp] = answer.offset
            if len(found) == 2:
                self._restart(following, opened, end, leader_start=found[_EARLIEST], leader_end=found[_LATEST])

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

    def _restart(
        self, following: Following, opened: UnifiedLog, end: int, *, leader_start: int, leader_end: int
    ) -> None:
        current = self._followed.get((following.topic_id, following.topic_partition.partition))
        if self.closed or current is None or current[0] is not following or opened.end_offset != end:
            return
        offset, is_emptied = restart_offset(leader_start=leader_start, leader_end=leader_end, end=end)
        if offset == end and leader_start <= opened.start_offset:
            return  # nothing is out of range now: the next fetch follows after a pause
        log.warning(
            "%s: the log ends at %d, the leader's is %d..%d: %s at %d",
            following.topic_partition,
            end,
            leader_start,
            leader_end,
            "it restarts empty" if is_emptied else "it goes on",
            offset,
        )
        try:
            if is_emptied:
                opened.truncate_fully_and_start_at(offset)
            else:
                opened.truncate_to(offset)
            opened.advance_start(min(leader_start, opened.end_offset))
            self._logs.flush_checkpoints()
        except (OSError, errors.KafkaError) as error:
            log.error("%s: the log cannot be truncated: %s", following.topic_partition, error)
            return
        following.succeeded()
        self._send_soon()


class ReplicaFetcherManager:
    """The fetchers of a node by leading node. One without partitions is closed."""

    def __init__(self, env: NodeEnvironment, logs: LogManager, connect: Callable[[], NodeChannels]) -> None:
        self._env = env
        self._logs = logs
        self._connect = connect
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._leaders: dict[tuple[UUID, int], int] = {}
        self._is_frozen = False
        self.quota = ReplicationQuota(
            lambda: env.config.integer("follower.replication.throttled.rate"),
            windows=env.config.integer("replication.quota.window.num"),
            seconds=env.config.integer("replication.quota.window.size.seconds"),
        )
        """Counts the bytes from all leaders together."""

    def __repr__(self) -> str:
        return f"<ReplicaFetcherManager {list(self._fetchers.values())}>"

    def follow(
        self, topic_partition: TopicPartition, topic_id: UUID, leader: int, leader_epoch: int, opened: UnifiedLog
    ) -> None:
        """Fetch a partition from its leader, and no longer from an earlier one."""
        key = topic_id, topic_partition.partition
        if self._leaders.get(key, leader) != leader:
            self.forget(topic_id, topic_partition.partition)
        self._leaders[key] = leader
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = ReplicaFetcher(self._env, self._logs, leader, self._connect, self.quota)
            fetcher.is_frozen = self._is_frozen
        fetcher.follow(topic_partition, topic_id, leader_epoch, opened)

    def forget(self, topic_id: UUID, index: int) -> None:
        """Fetch a partition no more."""
        leader = self._leaders.pop((topic_id, index), None)
        fetcher = None if leader is None else self._fetchers[leader]
        if fetcher is not None:
            fetcher.forget(topic_id, index)
            if not len(fetcher):
                fetcher.close()
                del self._fetchers[fetcher.leader]

    def is_in_sync(self, topic_id: UUID, index: int) -> bool:
        """Return True for a partition that is fetched, and has everything that was committed at the last answer."""
        leader = self._leaders.get((topic_id, index))
        return leader is not None and self._fetchers[leader].is_in_sync(topic_id, index)

    def freeze(self) -> None:
        """Fetch nothing until `thaw`: the node's replicas fall behind, while it serves as before."""
        self._is_frozen = True
        for fetcher in self._fetchers.values():
            fetcher.freeze()

    def thaw(self) -> None:
        """Fetch again."""
        self._is_frozen = False
        for fetcher in self._fetchers.values():
            fetcher.thaw()

    def pause(self) -> None:
        """Suspend writes and reads until `resume`, as a process that is stopped."""
        for fetcher in self._fetchers.values():
            fetcher.pause()

    def resume(self) -> None:
        """End the pause."""
        for fetcher in self._fetchers.values():
            fetcher.resume()

    def throttle_changed(self) -> None:
        """Retry throttled fetches: a limit or a list of throttled replicas may have changed."""
        for fetcher in self._fetchers.values():
            fetcher.throttle_changed()

    def broker_changed(self, node_id: int) -> None:
        """Connect to a leader again whose registration has changed."""
        fetcher = self._fetchers.get(node_id)
        if fetcher is not None:
            fetcher.leader_changed()

    def close(self) -> None:
        """Close all fetchers."""
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._leaders.clear()
