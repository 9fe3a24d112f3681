"""Keep the fetch buffer filled: one long-polling fetch per node, and a second for partitions not in the first."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import isinf

from pyclient.consumer.completed_fetch import Frame
from pyclient.consumer.context import ConsumerContext
from pyclient.consumer.fetch_buffer import FetchBuffer, FetchCollector, FetchOutcome, memory_of
from pyclient.consumer.fetch_plan import FetchPlan, FetchPlanner
from pyclient.consumer.fetch_session_handler import FetchSessionHandler, SessionRequest
from pyclient.consumer.metrics import ConsumerMetrics
from pyclient.consumer.subscription import split_by_topic
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
_RUN_SECONDS = 1.0  # until the node's connection is looked up again
_SECOND_WAIT_MS = 20  # the first slot, which waits longer, then takes all partitions over
_PURPOSES = ("fetch", "second fetch")  # a fetch occupies its connection until there is data
_IDLE_SECONDS = 5.0  # without records, until spare memory is released
_SESSION_ERRORS = (FetchSessionIdNotFound.code, InvalidFetchSessionEpoch.code, FetchSessionTopicIdError.code)


class Idleness:
    """Detects the end of a time with records, when spare memory is released."""

    def __init__(self) -> None:
        self._records_at: float | None = None

    def begins(self, size: int, now: float) -> bool:
        """Return True, once, if a response with `size` bytes of records at `now` begins an idle time."""
        if size:
            self._records_at = now
        elif self._records_at is not None and now - self._records_at > _IDLE_SECONDS:
            self._records_at = None
            return True
        return False


class _FetchSlot:
    """One of a node's two fetch slots: one request at a time, in its own fetch session."""

    def __init__(self, node: int, number: int) -> None:
        self.node = node
        self.number = number
        self.event = asyncio.Event()
        self.session = FetchSessionHandler()
        self.reserved = 0  # the bytes that the request in flight may bring

    @property
    def busy(self) -> bool:
        """Return True if a request is in flight."""
        return self.reserved > 0


@dataclass(slots=True)
class _RequestChain:
    """A chain of requests on one connection, each sent when the previous one completes; `plan` is in flight."""

    slot: _FetchSlot
    connection: Connection
    ended: asyncio.Future[None]
    started: float
    plan: FetchPlan = field(default_factory=FetchPlan)
    by_id: bool = False
    requested_at: float = 0.0


class Fetcher:
    """Two fetch slots per node: the second fetches only while the first is in flight, and only other partitions.

    So a partition that was just assigned, sought or used up never waits for a fetch that waits at the broker for other
    partitions, up to `fetch_max_wait_ms` (docs/measurements.md, "Fetch slots"). `wake` checks again what to fetch,
    after anything that may have changed that.

    `on_records` is called when there are records for the user, `on_trouble(errors)` when there are errors to raise.
    """

    def __init__(
        self,
        context: ConsumerContext,
        buffer: FetchBuffer,
        metrics: ConsumerMetrics,
        *,
        on_records: Callable[[], None],
        on_trouble: Callable[[list[KafkaError]], None],
    ) -> None:
        self.last_error: KafkaError | None = None
        self._cluster = context.cluster
        self._subscription = context.subscription
        self._buffer = buffer
        self._lock = context.lock
        self._config = context.config
        self._clock = context.clock
        self._rng = context.rng
        self._on_records = on_records
        self._on_trouble = on_trouble
        self._metrics = metrics
        self._backoff = context.backoff
        self._collector = FetchCollector(context.subscription, buffer, context.config, self._backoff.initial)
        self._planner = FetchPlanner(context.subscription, buffer, context.config)
        self._slots: dict[int, tuple[_FetchSlot, _FetchSlot]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._idleness = Idleness()

    def wake(self) -> None:
        """Check every node again for partitions to fetch; on the event loop only."""
        for node in self._sources():
            slots = self._slots.get(node)
            if slots is None:
                slots = self._slots[node] = (_FetchSlot(node, 0), _FetchSlot(node, 1))
                self._tasks += [asyncio.get_running_loop().create_task(self._serve(slot)) for slot in slots]
            for slot in slots:
                slot.event.set()

    def stop(self) -> None:
        """Cancel all fetching."""
        for task in self._tasks:
            task.cancel()
        _release_memory()

    def _sources(self) -> set[int]:
        """Return the nodes to fetch from; refresh the metadata if a partition has no leader."""
        with self._lock:
            self._update_plans()
            nodes, lacks_leader = self._planner.sources(), self._planner.lacks_leader
        if lacks_leader:
            self._cluster.request_refresh()
        return nodes

    def _update_plans(self) -> None:
        metadata = self._cluster.metadata
        self._planner.update(metadata, lambda partition: metadata.leader(*partition))

    def _plan(self, slot: _FetchSlot) -> FetchPlan:
        other = self._slots[slot.node][1 - slot.number]
        now = self._clock.monotonic()
        with self._lock:
            self._update_plans()
            return self._planner.plan(slot.node, slot.number, now, other_in_flight=other.busy, reserved=other.reserved)

    async def _serve(self, slot: _FetchSlot) -> None:
        failures = 0
        while True:
            slot.event.clear()
            plan = self._plan(slot)
            if not plan.targets:
                await self._wait(slot.event, plan.wake_at)
                continue
            try:
                connection = await self._cluster.connection(slot.node, purpose=_PURPOSES[slot.number])
                await self._fetch(slot, connection)
                failures = 0
            except KafkaError as error:
                log.info("fetching from node %d: %s", slot.node, error)
                self.last_error = error
                self._metrics.fetch_failed()
                slot.session.failed()
                self._leave_follower(slot.node)
                self._cluster.request_refresh()
                if not error.retriable:  # retries cannot help, so the user has to know
                    self._on_trouble([error])
                await asyncio.sleep(self._backoff.delay(failures, self._rng))
                failures += 1
            except Exception:  # a bug must not end the fetching of every partition of the node
                log.exception("fetching from node %d failed unexpectedly", slot.node)
                slot.session.failed()
                await asyncio.sleep(self._backoff.maximum)

    def _leave_follower(self, node: int) -> None:
        """Fetch from the leader again what was fetched from a failed follower (KIP-392)."""
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

    async def _fetch(self, slot: _FetchSlot, connection: Connection) -> None:
        """Fetch for a while, or until there is nothing to fetch; raise why a request failed."""
        run = _RequestChain(slot, connection, asyncio.get_running_loop().create_future(), self._clock.monotonic())
        try:
            self._send_next(run)
            await run.ended
        except MalformedMessage:
            await connection.close()
            raise
        finally:
            self._clear_in_flight(run)
            if slot.number:
                with self._lock:
                    self._planner.hand_over(slot.node)
            if slot.number:  # the first slot may have found its partitions in this one
                self._slots[slot.node][0].event.set()

    def _send_next(self, run: _RequestChain) -> None:
        """Send the next request of a chain, or end the chain."""
        slot, connection, now = run.slot, run.connection, self._clock.monotonic()
        plan = self._plan(slot)
        if not plan.targets or now - run.started > _RUN_SECONDS or connection.closed:
            run.ended.set_result(None)
            return
        version = connection.version_for(FetchRequest, _BY_ID if plan.by_id else _BY_NAME)
        by_id = version > _BY_NAME
        requested = slot.session.request(plan.positions, by_id=by_id, changed=plan.changed)
        plan.changed = {}
        run.plan, run.by_id, run.requested_at, slot.reserved = plan, by_id, now, plan.max_bytes
        connection.send(self._request(slot, plan, requested), partial(self._on_response, run), version=version)

    def _clear_in_flight(self, run: _RequestChain) -> None:
        """Clear the request in flight, which has completed or is abandoned."""
        run.slot.reserved = 0
        run.plan = FetchPlan()

    def _on_response(self, run: _RequestChain, response: FetchResponse | None, error: BaseException | None) -> None:
        """Process a response and send the next request at once: the broker works on it while the user reads."""
        if run.ended.done():  # stopped meanwhile
            return
        try:
            if response is None:
                raise error or MalformedMessage("neither a response nor an error")
            outcome = self._process(run, response)
            self._clear_in_flight(run)
            try:
                self._send_next(run)
            finally:
                self._notify(outcome)
        except Exception as failure:  # handled by the task that serves the slot
            if run.ended.done():
                raise
            run.ended.set_exception(failure)

    def _notify(self, outcome: FetchOutcome) -> None:
        if outcome.moved:
            self.wake()
        if outcome.refresh_metadata:
            self._cluster.request_refresh()
        if outcome.trouble:
            self._on_trouble(outcome.errors)
        elif outcome.records:
            self._on_records()

    def _process(self, run: _RequestChain, response: FetchResponse) -> FetchOutcome:
        slot = run.slot
        if response.error_code in _SESSION_ERRORS:
            log.debug("node %d: %s", slot.node, from_code(response.error_code, "the fetch session ended"))
            slot.session.refused(response.error_code)
            outcome = FetchOutcome()
        elif response.error_code:
            raise from_code(response.error_code, f"{run.connection.address} refused a fetch")
        else:
            slot.session.answered(response.session_id)
            outcome = self._take(run, response)
        now = self._clock.monotonic()
        self._metrics.fetched(slot.node, outcome.size, now - run.requested_at, now)
        if self._idleness.begins(outcome.size, now):
            _release_memory()
        return outcome

    def _request(self, slot: _FetchSlot, plan: FetchPlan, requested: SessionRequest) -> FetchRequest:
        config = self._config
        topics: dict[str, FetchTopic] = {}
        for partition, position in requested.send.items():
            topic = topics.get(partition.topic)
            if topic is None:
                topic = FetchTopic(topic=partition.topic, topic_id=position.topic_id, partitions=[])
                topics[partition.topic] = topic
            topic.partitions.append(
                FetchPartition(
                    partition=partition.partition,
                    current_leader_epoch=position.leader_epoch,
                    fetch_offset=position.offset,
                    partition_max_bytes=position.max_bytes,
                )
            )
        forget = [
            ForgottenTopic(
                topic=topic,
                topic_id=requested.forget[TopicPartition(topic, numbers[0])],
                partitions=numbers,
            )
            for topic, numbers in split_by_topic(requested.forget).items()
        ]
        return FetchRequest(
            max_wait_ms=min(config.fetch_max_wait_ms, _SECOND_WAIT_MS) if slot.number else config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=plan.max_bytes,
            isolation_level=int(config.read_committed),
            session_id=requested.session_id,
            session_epoch=requested.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=forget,
            rack_id=config.client_rack,
        )

    def _take(self, run: _RequestChain, response: FetchResponse) -> FetchOutcome:
        """Add the data to the buffer; raise `MalformedMessage` for a partition that was not requested."""
        node, address, plan = run.slot.node, run.connection.address, run.plan
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
                            f"node {node} at {address}: the Fetch response has {what}, which was not requested"
                        )
                    self._collector.take(target, data, frame, now, outcome)
        return outcome


def _release_memory() -> None:
    receive_buffers().release()
    release_spare_memory()
