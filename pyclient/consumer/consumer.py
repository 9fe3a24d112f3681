# Generated from pyclient/consumer/async_consumer.py by `make sync-clients`; edit that file instead.
"""`Consumer`: the synchronous API."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, TypeVarTuple, Unpack, cast

from pyclient.config.reference import document
from pyclient.consumer.arguments import (
    Offsets,
    Partition,
    Partitions,
    Topics,
    as_deserializers,
    as_partition,
    as_partitions,
    as_seconds,
    as_times,
    check_topic,
)
from pyclient.consumer.base_consumer import SECONDS_AFTER_ERROR, BaseConsumer, GuardedCall
from pyclient.consumer.completed_fetch import BatchSlice
from pyclient.consumer.config import EARLIEST, LATEST, ConsumerConfig, ConsumerOptions
from pyclient.consumer.deserialization import Chunk, OnError, PolledSlices
from pyclient.consumer.rebalance_listener import CommitNow, Step, calling
from pyclient.consumer.records import K, Records, V
from pyclient.consumer.runners import ThreadRunner
from pyclient.consumer.subscription import Mode
from pyclient.errors import DeserializationError, KafkaError
from pyclient.records import Record
from pyclient.serialization import Deserializer
from pyclient.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
log = logging.getLogger("pyclient.consumer")


class Consumer(BaseConsumer[K, V]):
    """Reads records from Kafka; used by one thread at a time.

        with Consumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
            for record in consumer:
                print(record.offset, record.value)

    or `records = consumer.poll(timeout=1.0)` in a loop of your own. Options are Kafka's, with `_` for `.`
    (`ConsumerConfig` lists them), as keywords or as a Kafka-style `config` dictionary; a wrong one raises
    `ConfigError`. The constructor does not wait for the cluster. Deserializers are functions of bytes; a missing key
    or value stays None. With a `group_id` offsets are committed in the background (`enable_auto_commit`): only what
    earlier polls returned, so nothing is skipped when this process dies.

    The position, and so a commit, never passes a record that was neither returned nor explicitly skipped. A poll ends
    a partition in front of a record that cannot be deserialized, returns what is before it, and goes on with other
    partitions; when that record is the next one, `poll` and a `for` loop apply `on_deserialization_error`:

    - "raise" (default): `DeserializationError` is raised by every poll until the user has skipped the record, by
      `consumer.seek((error.topic, error.partition), error.next_offset)`. It has the record's bytes (`key`, `value`,
      `headers`) for a dead-letter topic.
    - "skip": the record is skipped. Each poll logs how many at WARNING; `metrics()["records_skipped"]` counts them.
    - a function of the error: when it returns, the record is skipped and counted; what it raises is raised by the poll,
      and the next poll calls it again. It may not use the consumer.

    A corrupt batch, which is not the deserializer's failure, always raises `CorruptBatch`.
    A call interrupted by Ctrl-C, or by a cancellation, leaves the consumer usable and loses nothing: the next poll
    returns what the interrupted one did not.
    """

    def __init__(
        self,
        *topics: Topics,
        bootstrap_servers: str | Sequence[str] | None = None,
        group_id: str | None = None,
        config: Mapping[str, Any] | None = None,
        key_deserializer: Callable[[bytes], K] | Deserializer[K] | None = None,
        value_deserializer: Callable[[bytes], V] | Deserializer[V] | None = None,
        on_deserialization_error: OnError = "raise",
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self._runner = ThreadRunner(self._close_after_error)
        given = {"bootstrap_servers": bootstrap_servers, "group_id": group_id, **options}
        deserializers = as_deserializers(key_deserializer, value_deserializer, on_deserialization_error)
        super().__init__(topics, given, config, deserializers, self._runner)
        if topics:
            self._runner.begin()

    # ---- polling

    def poll(self, timeout: float | None = 1.0, max_records: int | None = None) -> Records[K | None, V | None]:
        """Return records as soon as there are any, at most `max_records` (`max_poll_records` by default), or none after
        `timeout` seconds (None: no limit).

        Take part in rebalances and run their callbacks. Raise the errors that only the user can resolve: `PoisonRecord`
        for a record or batch that cannot be read, `NoOffsetForPartition`, `PollIntervalExceeded`,
        `TopicAuthorizationFailed`, ..., and `KafkaTimeout` if no broker was ever reached. Positions move only past
        returned records.
        """
        client = self._client
        call = self._use().enter()
        try:
            limit = self._limit(max_records)
            seconds = None if timeout is None else as_seconds(timeout)
            deserialize = bool(self._deserializers)
            if seconds is None:
                slices = self._poll_for_ever(limit, deserialize)
            else:
                slices = self._poll(seconds, limit, deserialize)
            records: Records[K | None, V | None] = Records(slices)
        except BaseException:
            call.leave()
            raise
        # No call may follow: from here on Python runs no signal handler before the return. So `call`, which keeps out
        # other threads until the records count as returned, ends with this frame.
        client.undelivered = False
        return records

    def __iter__(self) -> Iterator[Record[K | None, V | None]]:
        """Yield every record, waiting for more. The loop may end at any record: the position is after that one."""
        deserialize = self._deserializers.apply if self._deserializers else None
        while True:
            chunk = self._next_chunk()
            if deserialize is None:
                yield from cast("Iterator[Record[Any, Any]]", chunk.iterator)
                continue
            for raw in chunk.iterator:
                chunk.making = True
                try:
                    record = deserialize(raw)
                except DeserializationError as error:
                    if not self._skips(error):
                        raise
                    chunk.making = False
                    self._note_skipped(TopicPartition(error.topic, error.partition), [error])
                    continue
                chunk.making = False
                yield record

    def _next_chunk(self) -> Chunk:
        with self._use():
            slices = self._poll_for_ever(self._config.max_poll_records, deserialized=False)
            self._chunk = Chunk(self._client.give_back, slices)
            self._client.undelivered = False
            return self._chunk

    def _poll_for_ever(self, limit: int, deserialized: bool) -> list[BatchSlice]:
        while True:
            slices = self._poll(self._client.api_timeout, limit, deserialized)
            if slices:
                return slices

    def _poll(self, timeout: float, limit: int, deserialized: bool) -> list[BatchSlice]:
        self._runner.start()
        client, ready = self._client, self._runner.ready
        self._check_callback()
        self._settle()
        client.begin_poll()
        deadline: float | None = None
        while True:
            ready.clear()
            now = client.clock.monotonic()
            client.keep_up(now)
            self._rebalance(lambda: client.api_timeout)
            client.waiting.check_wakeup()
            slices = client.take(limit)
            if deserialized:
                slices = self._deserialize(slices)
            if slices:
                return client.end_poll(slices)
            if deadline is None:
                deadline = now + timeout
            remaining = deadline - client.clock.monotonic()
            if remaining <= 0:
                self._check_reached(timeout)
                return client.end_poll([])
            self._runner.wait(min(remaining, self._longest_wait))

    def _deserialize(self, slices: list[BatchSlice]) -> list[BatchSlice]:
        """Deserialize the records of a poll; return the slices to hand out."""
        work = PolledSlices(slices, self._deserializers)
        self._deserializing = True
        try:
            while (error := work.run()) is not None:
                partition = TopicPartition(error.topic, error.partition)
                try:
                    if self._skips(error):
                        work.skip(error)
                        continue
                except Exception:
                    if self._stopped(work, partition):
                        raise
                    continue
                if self._stopped(work, partition):
                    raise error
        finally:
            self._deserializing = False
        return self._returnable(work)

    def _skips(self, error: DeserializationError) -> bool:
        decide = self._deserializers.on_error
        if callable(decide):
            self._runner.finish(decide(error), "on_deserialization_error")
            return True
        return decide == "skip"

    def _rebalance(self, seconds: Callable[[], float]) -> None:
        """Carry out all pending steps of rebalances, then raise the first error of a callback.

        `seconds()` is the timeout of a commit.
        """
        first: Exception | None = None
        while (step := self._client.coordinator.rebalances.next_step()) is not None:
            try:
                self._do(step, seconds())
            except Exception as error:  # the user's own code may raise anything
                if first is not None:
                    log.exception("a rebalance callback failed, after an earlier one had failed")
                first = first or error
        if first is not None:
            try:
                raise first
            finally:
                del first  # else the error and this frame would form a cycle that keeps the consumer alive

    def _do(self, step: Step, seconds: float) -> None:
        if isinstance(step, CommitNow):
            try:
                self._runner.run_within(seconds, self._client.coordinator.commits.commit_now, step.offsets, seconds)
            except KafkaError as error:
                log.warning("auto-commit: %s", error)
            except Exception:
                step.done = True
                raise
            step.done = True
        elif self._listener is not None:
            self._in_callback = True
            try:
                with calling(self._listener, step.method, step.partitions):
                    method = getattr(self._listener, step.method)
                    step.done = True
                    self._runner.finish(method(step.partitions), step.method)
            finally:
                self._in_callback = False
        else:
            step.done = True

    # ---- offsets

    def commit(self, offsets: Offsets | None = None, *, timeout: float | None = None) -> None:
        """Commit and wait until the group's coordinator has stored the offsets.

        Without `offsets`, commit the positions: everything that polls have returned, or the `for` loop has reached.
        Otherwise `offsets` has the offset of the next record to read, by partition. Raise `CommitFailed` if this
        consumer no longer owns the partitions, `RebalanceInProgress` if it has to poll first, `KafkaTimeout` after
        `timeout` seconds (`default_api_timeout_ms`).
        """
        with self._use():
            self._runner.start()
            self._settle()
            to_commit, seconds = self._to_commit(offsets), self._patience(timeout)
            try:
                self._wait(self._client.coordinator.commits.commit_now, to_commit, seconds)
            finally:
                self._client.coordinator.commits.run_callbacks()

    def committed(
        self, partitions: Partitions | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets, None where there is none; by default of the assigned partitions."""
        with self._use():
            wanted = self._wanted(partitions)
            return self._wait(self._client.coordinator.committer.committed, wanted, self._patience(timeout))

    def position(self, partition: Partition, *, timeout: float | None = None) -> int:
        """Return the offset of the next record to poll; wait until it is known.

        Raise `NotAssigned`, or `KafkaTimeout` after `timeout` seconds.
        """
        with self._use():
            self._runner.start()
            self._settle()
            wanted, client, seconds = as_partition(partition), self._client, self._patience(timeout)
            known = client.known_position(wanted)
            if known is not None:
                return known
            return self._wait(
                client.waiting.until,
                lambda: client.known_position(wanted),
                seconds,
                f"finding the position of {wanted}",
            )

    def beginning_offsets(self, partitions: Partitions, *, timeout: float | None = None) -> dict[TopicPartition, int]:
        """Return the first offset in each partition, assigned or not."""
        return self._ends(partitions, EARLIEST, timeout)

    def end_offsets(self, partitions: Partitions, *, timeout: float | None = None) -> dict[TopicPartition, int]:
        """Return the offset after the last readable record (`isolation_level`) of each partition, assigned or not."""
        return self._ends(partitions, LATEST, timeout)

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offset at or after each timestamp (epoch milliseconds); None if there is none."""
        with self._use():
            wanted = as_times(times)
            found = self._wait(self._client.finder.all, wanted, self._patience(timeout))
            return {partition: offset if offset.offset >= 0 else None for partition, offset in found.items()}

    def partitions_for(self, topic: str, *, timeout: float | None = None) -> list[int]:
        """Return a topic's partition numbers; raise `KafkaTimeout` if the topic does not appear in time."""
        check_topic(topic)
        with self._use():
            info = self._wait(self._client.cluster.topic_partitions, topic, self._patience(timeout))
            return [partition.partition for partition in info.partitions]

    def _ends(self, partitions: Partitions, which: int, timeout: float | None) -> dict[TopicPartition, int]:
        with self._use():
            wanted = dict.fromkeys(as_partitions(partitions), which)
            found = self._wait(self._client.finder.all, wanted, self._patience(timeout))
            return {partition: offset.offset for partition, offset in found.items()}

    # ---- the end

    def unsubscribe(self) -> None:
        """Leave the group, after a last auto-commit and `on_revoked`; clear the subscription and the assignment."""
        with self._use():
            self._runner.start()
            self._settle()
            try:
                self._leave("the consumer unsubscribed", self._client.api_timeout)
            finally:
                self._client.unsubscribe()

    def close(self, timeout: float | None = 30.0) -> None:
        """Commit what polls have returned if auto-commit is on, leave the group, close every connection.

        Takes at most `timeout` seconds (None: `default_api_timeout_ms`). A `commit_async` without an outcome by then is
        abandoned: its callback gets a `KafkaTimeout`. Idempotent; a no-op in a forked child.
        """
        self._close(self._patience(timeout), after_error=False)

    def _close(self, timeout: float, *, after_error: bool) -> None:
        if self._closed or self._closing or not self._is_mine():
            return
        with GuardedCall(self._guard):
            try:
                self._closing = True  # callbacks may still commit; their close() does nothing
                self._settle()
                self._close_settled(timeout, after_error=after_error)
            finally:
                self._closing = False

    def _close_after_error(self, timeout: float) -> None:
        """Close; auto-commit leaves out what the last poll returned, because it may not be processed."""
        self._close(timeout, after_error=True)

    def _close_settled(self, timeout: float, *, after_error: bool) -> None:
        try:
            if self._client.coordinator.commits.waiting and not self._runner.in_use:
                self._runner.start()  # nothing was waited for since commit_async
            if self._runner.in_use:
                try:
                    self._leave("the consumer was closed", timeout, after_error=after_error)
                finally:
                    self._client.coordinator.commits.run_callbacks()
        finally:
            self._closed = True
            try:
                self._runner.close()
            finally:
                self._client.coordinator.commits.run_last_callbacks()

    def _leave(self, reason: str, timeout: float, *, after_error: bool = False) -> None:
        client, runner = self._client, self._runner
        deadline = client.clock.monotonic() + timeout

        def left() -> float:
            return max(0.0, deadline - client.clock.monotonic())

        try:
            if client.subscription.mode is not Mode.NONE:
                client.coordinator.rebalances.leave(client.positions(before_last_poll=after_error))
                self._rebalance(left)
            try:
                runner.run_within(left(), client.coordinator.commits.settle, left())
            except KafkaError as error:
                log.info("commits in progress are not waited for: %s", error)
        except runner.interrupt:
            deadline = client.clock.monotonic()  # an interrupted close does not wait for the LeaveGroup response
            raise
        finally:
            self._leave_group(reason, left())

    def _leave_group(self, reason: str, seconds: float) -> None:
        try:
            self._runner.run_within(seconds, self._client.leave, reason, seconds)
        except KafkaError as error:
            log.info("%s, but the group's coordinator may not know: %s", reason, error)

    def __enter__(self) -> Self:
        with self._use():
            self._runner.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close; after an exception within 5 s, and auto-commit leaves out what the last poll returned."""
        if error is None:
            self.close()
        else:
            self._close_after_error(SECONDS_AFTER_ERROR)

    def __del__(self) -> None:
        runner: ThreadRunner | None = getattr(self, "_runner", None)
        if runner is None or not runner.in_use or self._closed or not self._is_mine():
            return
        text = f"{self!r} was not closed: use it in `with`, or call close()"
        warnings.warn(text, ResourceWarning, stacklevel=2, source=self)
        runner.abandon()

    # ---- inside

    def _wait(self, function: Callable[[*Ts], Coroutine[Any, Any, T]], *args: *Ts) -> T:
        """Run `function(*args)` until it completes, the call is interrupted, or `wakeup()` is called."""
        return self._runner.run(self._client.waiting.interruptible, function, *args)


document(Consumer, ConsumerConfig)
