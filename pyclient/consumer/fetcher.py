"""Keeps the fetch buffer filled: one parked fetch per node, and one beside it for what that does not cover."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import isinf

from pyclient.backoff import Backoff
from pyclient.clock import Clock, Rng
from pyclient.cluster.client import ClusterClient
from pyclient.consumer.config import ConsumerConfig
from pyclient.consumer.fetch_buffer import FetchBuffer, Frame
from pyclient.consumer.fetch_plan import AnswerReader, FetchOutcome, FetchPlan, FetchPlanner, memory_of
from pyclient.consumer.fetch_session import FetchSession, SessionRequest
from pyclient.consumer.metrics import ConsumerMetrics
from pyclient.consumer.subscription import SubscriptionState, split_by_topic
from pyclient.errors import (
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    KafkaError,
    MalformedMessage,
    from_code,
)
from pyclient.net.connection import Connection
from pyclient.net.receive_buffers import receive_buffers
from pyclient.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from pyclient.records import release_spare_memory
from pyclient.types import TopicPartition

log = logging.getLogger(__name__)

_BY_NAME = 12  # the last version that names topics
_BY_ID = 17  # the newest version; it knows topics by their ids only
_RUN_SECONDS = 1.0  # until it is asked again which connection leads to the node
_BESIDE_WAIT_MS = 20  # until the first lane, which is parked for longer, comes back and takes everything over
_PURPOSES = ("fetch", "fetch beside")  # a fetch parks its connection until there is data
_IDLE_SECONDS = 5.0  # without records, until memory that waits for more of them is given back
_SESSION_ERRORS = (FetchSessionIdNotFound.code, InvalidFetchSessionEpoch.code, FetchSessionTopicIdError.code)


class Idleness:
    """What is kept to be quick while records come is not kept when none do; a parked fetch comes back to say so."""

    def __init__(self) -> None:
        self._records_at: float | None = None

    def begins(self, size: int, now: float) -> bool:
        """Whether an answer of `size` bytes of records at `now` ends a time with records: True once."""
        if size:
            self._records_at = now
        elif self._records_at is not None and now - self._records_at > _IDLE_SECONDS:
            self._records_at = None
            return True
        return False


class _Lane:
    """One connection's worth of fetching from one node: a request at a time, in a session of its own."""

    def __init__(self, node: int, number: int) -> None:
        self.node = node
        self.number = number
        self.event = asyncio.Event()
        self.session = FetchSession()
        self.reserved = 0  # the bytes that the request in flight may bring

    @property
    def busy(self) -> bool:
        """Whether a request is in flight."""
        return self.reserved > 0


@dataclass(slots=True)
class _Run:
    """Requests on one connection, each sent when the one before was answered. `plan` is what is in flight."""

    lane: _Lane
    connection: Connection
    ended: asyncio.Future[None]
    begun: float
    plan: FetchPlan = field(default_factory=FetchPlan)
    by_id: bool = False
    asked_at: float = 0.0


class Fetcher:
    """Two lanes for each node: the second one fetches only while the first is in flight, and only what that left out.

    So a partition that was just assigned, sought or used up never waits for a fetch that is parked at the broker for
    other partitions, up to `fetch_max_wait_ms` (docs/measurements.md, "Fetch slots"). `wake` looks again for what to
    fetch, after anything that may have changed that.

    `on_change(errors)` is called when there is something for the user: records, or errors to raise.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        subscription: SubscriptionState,
        buffer: FetchBuffer,
        lock: threading.Lock,
        config: ConsumerConfig,
        *,
        clock: Clock,
        rng: Rng,
        on_records: Callable[[], None],
        on_trouble: Callable[[list[KafkaError]], None],
        metrics: ConsumerMetrics,
    ) -> None:
        self.last_error: KafkaError | None = None
        self._cluster = cluster
        self._subscription = subscription
        self._buffer = buffer
        self._lock = lock
        self._config = config
        self._clock = clock
        self._rng = rng
        self._on_records = on_records
        self._on_trouble = on_trouble
        self._metrics = metrics
        self._backoff = Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)
        self._reader = AnswerReader(subscription, buffer, config, self._backoff.initial)
        self._planner = FetchPlanner(subscription, buffer, config)
        self._lanes: dict[int, tuple[_Lane, _Lane]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._idleness = Idleness()

    def wake(self) -> None:
        """Looks again at every node that may have something; on the event loop only."""
        for node in self._sources():
            lanes = self._lanes.get(node)
            if lanes is None:
                lanes = self._lanes[node] = (_Lane(node, 0), _Lane(node, 1))
                self._tasks += [asyncio.get_running_loop().create_task(self._serve(lane)) for lane in lanes]
            for lane in lanes:
                lane.event.set()

    def stop(self) -> None:
        """Ends all fetching."""
        for task in self._tasks:
            task.cancel()
        _release_memory()

    def _sources(self) -> set[int]:
        """The nodes to fetch from; metadata is asked for if a partition has none."""
        with self._lock:
            self._update_plans()
            nodes, lacks_leader = self._planner.sources(), self._planner.lacks_leader
        if lacks_leader:
            self._cluster.request_refresh()
        return nodes

    def _update_plans(self) -> None:
        metadata = self._cluster.metadata
        self._planner.update(metadata, lambda partition: metadata.leader(*partition))

    def _plan(self, lane: _Lane) -> FetchPlan:
        other = self._lanes[lane.node][1 - lane.number]
        now = self._clock.monotonic()
        with self._lock:
            self._update_plans()
            return self._planner.plan(lane.node, lane.number, now, other_in_flight=other.busy, reserved=other.reserved)

    async def _serve(self, lane: _Lane) -> None:
        failures = 0
        while True:
            lane.event.clear()
            plan = self._plan(lane)
            if not plan.targets:
                await self._wait(lane.event, plan.wake_at)
                continue
            try:
                connection = await self._cluster.connection(lane.node, purpose=_PURPOSES[lane.number])
                await self._fetch(lane, connection)
                failures = 0
            except KafkaError as error:
                log.info("fetching from node %d: %s", lane.node, error)
                self.last_error = error
                self._metrics.fetch_failed()
                lane.session.failed()
                self._leave(lane.node)
                self._cluster.request_refresh()
                if not error.retriable:  # it will not pass by itself, so the user has to know
                    self._on_trouble([error])
                await asyncio.sleep(self._backoff.delay(failures, self._rng))
                failures += 1
            except Exception:  # a bug must not end the fetching of every partition of the node
                log.exception("fetching from node %d failed in a way it should not", lane.node)
                lane.session.failed()
                await asyncio.sleep(self._backoff.maximum)

    def _leave(self, node: int) -> None:
        """What is read from a follower that failed is read from its leader again (KIP-392)."""
        with self._lock:
            left = [state for state in self._subscription if state.preferred_replica == node]
            for state in left:
                state.touch()
                state.preferred_replica = -1
        if left:
            self.wake()

    async def _wait(self, event: asyncio.Event, wake_at: float | None) -> None:
        if wake_at is None or isinf(wake_at):
            await event.wait()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, wake_at - self._clock.monotonic())):
                await event.wait()

    async def _fetch(self, lane: _Lane, connection: Connection) -> None:
        """Fetches for a while, or until there is nothing more to ask for; raises why an answer is none."""
        run = _Run(lane, connection, asyncio.get_running_loop().create_future(), self._clock.monotonic())
        try:
            self._ask(run)
            await run.ended
        except MalformedMessage:
            await connection.close()
            raise
        finally:
            self._over(run)
            if lane.number:
                with self._lock:
                    self._planner.hand_over(lane.node)
            if lane.number:  # the first lane may have come back meanwhile, and found everything in our hands
                self._lanes[lane.node][0].event.set()

    def _ask(self, run: _Run) -> None:
        """Sends the next request of a run, or ends the run."""
        lane, connection, now = run.lane, run.connection, self._clock.monotonic()
        plan = self._plan(lane)
        if not plan.targets or now - run.begun > _RUN_SECONDS or connection.closed:
            run.ended.set_result(None)
            return
        version = connection.version_for(FetchRequest, _BY_ID if plan.by_id else _BY_NAME)
        by_id = version > _BY_NAME
        asked = lane.session.request(plan.positions, by_id=by_id, changed=plan.changed)
        plan.changed = {}
        run.plan, run.by_id, run.asked_at, lane.reserved = plan, by_id, now, plan.max_bytes
        connection.send(self._request(lane, plan, asked), partial(self._answered, run), version=version)

    def _over(self, run: _Run) -> None:
        """The request in flight has an outcome, or is of no interest any more."""
        run.lane.reserved = 0
        run.plan = FetchPlan()

    def _answered(self, run: _Run, response: FetchResponse | None, error: BaseException | None) -> None:
        """Takes an answer in and sends the next request at once: the broker works on it while the user reads."""
        if run.ended.done():  # stopped meanwhile
            return
        try:
            if response is None:
                raise error or MalformedMessage("neither an answer nor an error came")
            outcome = self._outcome(run, response)
            self._over(run)
            try:
                self._ask(run)
            finally:
                self._tell(outcome)
        except Exception as failure:  # who serves the lane deals with it
            if run.ended.done():
                raise
            run.ended.set_exception(failure)

    def _tell(self, outcome: FetchOutcome) -> None:
        if outcome.moved:
            self.wake()
        if outcome.refresh_metadata:
            self._cluster.request_refresh()
        if outcome.trouble:
            self._on_trouble(outcome.errors)
        elif outcome.records:
            self._on_records()

    def _outcome(self, run: _Run, response: FetchResponse) -> FetchOutcome:
        lane = run.lane
        if response.error_code in _SESSION_ERRORS:
            log.debug("node %d: %s", lane.node, from_code(response.error_code, "the fetch session ended"))
            lane.session.refused(response.error_code)
            outcome = FetchOutcome()
        elif response.error_code:
            raise from_code(response.error_code, f"{run.connection.address} refused a fetch")
        else:
            lane.session.answered(response.session_id)
            outcome = self._take(run, response)
        now = self._clock.monotonic()
        self._metrics.fetched(lane.node, outcome.size, now - run.asked_at, now)
        if self._idleness.begins(outcome.size, now):
            _release_memory()
        return outcome

    def _request(self, lane: _Lane, plan: FetchPlan, asked: SessionRequest) -> FetchRequest:
        config = self._config
        topics: dict[str, FetchTopic] = {}
        for partition, at in asked.send.items():
            topic = topics.get(partition.topic)
            if topic is None:
                topic = topics[partition.topic] = FetchTopic(topic=partition.topic, topic_id=at.topic_id, partitions=[])
            topic.partitions.append(
                FetchPartition(
                    partition=partition.partition,
                    current_leader_epoch=at.leader_epoch,
                    fetch_offset=at.offset,
                    partition_max_bytes=at.max_bytes,
                )
            )
        forget = [
            ForgottenTopic(
                topic=topic,
                topic_id=asked.forget[TopicPartition(topic, numbers[0])],
                partitions=numbers,
            )
            for topic, numbers in split_by_topic(asked.forget).items()
        ]
        return FetchRequest(
            max_wait_ms=min(config.fetch_max_wait_ms, _BESIDE_WAIT_MS) if lane.number else config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=plan.max_bytes,
            isolation_level=int(config.read_committed),
            session_id=asked.session_id,
            session_epoch=asked.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=forget,
            rack_id=config.client_rack,
        )

    def _take(self, run: _Run, response: FetchResponse) -> FetchOutcome:
        """Takes the data in; an answer about what was not asked for makes no sense."""
        node, address, plan = run.lane.node, run.connection.address, run.plan
        outcome, now = FetchOutcome(), self._clock.monotonic()
        names = plan.topic_names() if run.by_id else {}
        outcome.size, memory = memory_of(response)
        frame = Frame(node, memory)
        with self._lock:
            for topic in response.responses:
                name = names.get(topic.topic_id, "") if run.by_id else topic.topic
                for data in topic.partitions:
                    target = plan.targets.get(TopicPartition(name, data.partition_index))
                    if target is None:
                        what = f"{name or topic.topic_id}-{data.partition_index}"
                        raise MalformedMessage(
                            f"node {node} at {address}: Fetch answered with {what}, which it was not asked for"
                        )
                    self._reader.take(target, data, frame, now, outcome)
        return outcome


def _release_memory() -> None:
    receive_buffers().release()
    release_spare_memory()
