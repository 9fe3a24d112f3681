"""A consumer's group: membership, commits and rebalances."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from pyclient.clock import Clock, Rng
from pyclient.cluster.client import ClusterClient
from pyclient.cluster.metadata import ClusterMetadata
from pyclient.consumer.commit_desk import CommitDesk
from pyclient.consumer.commits import Committer
from pyclient.consumer.config import ConsumerConfig
from pyclient.consumer.coordinator import Coordinator, ThreadTask
from pyclient.consumer.group_events import Doubted, Event, Polled, Subscribed
from pyclient.consumer.group_metrics import GroupMetrics
from pyclient.consumer.rebalance import Notice, Rebalances
from pyclient.consumer.subscription import Mode, SubscriptionState
from pyclient.errors import CommitFailed, KafkaError
from pyclient.types import TopicPartition


class GroupSide:
    """A group member, if there is a `group_id`, and the commits and rebalances that go with it.

    `call(function, *arguments)` schedules a function on the loop. `on_task` receives the polling thread's tasks,
    `on_error` the errors that the next poll raises; `on_assignment` is called when the assignment has changed.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        lock: threading.Lock,
        *,
        clock: Clock,
        rng: Rng,
        call: Callable[..., None],
        on_task: Callable[[ThreadTask], None],
        on_error: Callable[[KafkaError], None],
        on_assignment: Callable[[], None],
    ) -> None:
        self._config = config
        self._subscription = subscription
        self._clock = clock
        self._call = call
        self._metrics = GroupMetrics()
        self.coordinator: Coordinator | None = None
        if config.group_id is not None:
            self.coordinator = Coordinator(
                cluster, config, clock=clock, rng=rng, on_task=on_task, on_error=on_error, metrics=self._metrics
            )
        self.committer = Committer(
            cluster,
            config,
            rng=rng,
            identity=self._identity,
            left_behind=self._has_left_behind,
            on_moved=self._on_moved,
            on_doubt=lambda: self.feed(Doubted()),
            clock=clock,
            metrics=self._metrics,
            id_of=self._topic_id,
        )
        self.desk = CommitDesk(self.committer, config, clock, call)
        self.rebalances = Rebalances(
            subscription,
            lock,
            auto_commit=bool(config.enable_auto_commit),
            notify=self._notify,
            on_assignment=on_assignment,
        )

    def feed(self, event: Event) -> None:
        """Feed the group member an event, from any thread."""
        if self.coordinator is not None:
            self._call(self.coordinator.feed, event)

    def _notify(self, notice: Notice) -> None:
        self._call(self._deliver, notice)

    def _deliver(self, notice: Notice) -> None:
        if self.coordinator is not None and not notice.delivered:
            notice.delivered = True
            self.coordinator.feed(notice.event)

    def note_poll(self, now: float) -> None:
        if self.coordinator is not None and self.coordinator.note_poll(now):
            self.feed(Polled())

    def note_metadata(self, metadata: ClusterMetadata, *, matched: bool) -> None:
        """Feed the member new metadata; `matched` is True if a pattern matches other topics now. On the loop."""
        if self.coordinator is not None:
            if matched:
                self.coordinator.feed(Subscribed(self._subscription.topics))
            self.coordinator.note_metadata(metadata)

    async def leave(self, reason: str, timeout: float) -> None:
        """Leave the group, if any; wait at most `timeout` seconds for the broker's confirmation.

        Commits of `commit_async` in progress are abandoned: their callbacks get a `KafkaTimeout`.
        """
        self.desk.give_up(reason)
        if self.coordinator is not None:
            await self.coordinator.depart(reason, timeout)

    def stop(self) -> None:
        if self.coordinator is not None:
            self.coordinator.stop()
        self.desk.stop()

    def _on_moved(self) -> None:
        if self.coordinator is not None:
            self.coordinator.lost_coordinator()

    def _topic_id(self, partition: TopicPartition) -> uuid.UUID | None:
        """Return the topic id that an assigned partition's position belongs to; None if there is none, yet."""
        state = self._subscription.find(partition)
        return state.topic_id if state is not None and state.topic_id.int else None

    def _identity(self, partitions: Iterable[TopicPartition]) -> tuple[int, str]:
        """Return the identity to commit with. A member of a group may commit only what is assigned to it."""
        if self.coordinator is None or self._subscription.mode is Mode.MANUAL:
            return -1, ""
        identity = self.coordinator.member.commit_identity()
        unassigned = [partition for partition in partitions if partition not in self._subscription]
        if unassigned:
            raise CommitFailed(
                f"{self.coordinator.member.describe()}: {', '.join(map(str, unassigned[:5]))} cannot be committed, "
                "because the group may have assigned it to another member; this one has "
                f"{self._subscription.describe()}"
            )
        return identity

    def _has_left_behind(self, generation: int) -> bool:
        return self.coordinator is not None and self.coordinator.member.has_left_behind(generation)

    # ---- state

    def health(self) -> dict[str, Any]:
        """The group's part of `Consumer.health`.

        `generation` is the member epoch in the consumer protocol. `group_waits_for_poll` is True while partitions are
        to be revoked or applied, which only a poll does; `last_poll_age` is in seconds.
        """
        member = self.coordinator.member if self.coordinator is not None else None
        in_group = member is not None and self._subscription.mode not in (Mode.NONE, Mode.MANUAL)
        return {
            "group_id": self._config.group_id,
            "group_protocol": self._config.group_protocol if member is not None else None,
            "group_state": member.state.value if member is not None else None,
            "group_waits_for_poll": self.rebalances.waiting > 0,
            "last_poll_age": self._clock.monotonic() - member.polled_at if member is not None and in_group else None,
            "member_id": member.member_id if member is not None else None,
            "group_instance_id": self._config.group_instance_id,
            "generation": member.generation if member is not None else None,
            "coordinator": member.coordinator if member is not None else None,
        }

    def metrics(self) -> dict[str, float]:
        """Return plain numbers, see `GroupMetrics.snapshot`."""
        return self._metrics.snapshot(self._clock.monotonic(), assigned=len(self._subscription))
