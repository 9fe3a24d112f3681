"""The fetchers of a node: one for each node that leads partitions of which this one has replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.replication.replica_fetcher import ReplicaFetcher
from pyclient.broker_embedded.replication.replication_quota import ReplicationQuota

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from pyclient.broker_embedded.environment import NodeEnvironment
    from pyclient.broker_embedded.log.manager import LogManager
    from pyclient.broker_embedded.log.unified_log import UnifiedLog
    from pyclient.broker_embedded.network.node_channels import NodeChannels
    from pyclient.types import TopicPartition


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
            if self._is_frozen:
                fetcher.freeze()
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
