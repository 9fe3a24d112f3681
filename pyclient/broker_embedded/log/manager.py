"""All logs of a node: found at the start, opened on first use, deleted with their topics; and the periodic work."""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from pyclient import errors
from pyclient.broker_embedded.log import checkpoints
from pyclient.broker_embedded.log.checkpoints import write_topic_id
from pyclient.broker_embedded.log.config import LogConfig
from pyclient.broker_embedded.log.data_directories import DataDirectories, LogDeletion
from pyclient.broker_embedded.log.data_directory import DataDirectory
from pyclient.broker_embedded.log.disk_thread import DiskThread
from pyclient.broker_embedded.log.incremental_task import IncrementalTask, run_here
from pyclient.broker_embedded.log.log_loader import LogCheckpoint, load, open_log
from pyclient.broker_embedded.log.reconciliation import Reconciliation, StartupReconciler
from pyclient.broker_embedded.log.recovery_queue import LogRecoveryQueue
from pyclient.broker_embedded.log.unified_log import UnifiedLog
from pyclient.clock import Clock, Rng
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.compaction.log_cleaner import LogCleaner

log = logging.getLogger("pyclient.broker_embedded")

_AT_ONCE: Final = 250  # logs that are checkpointed before a pause
_SYNCED_ONE_BY_ONE: Final = 100  # above it one syncfs: docs/measurements.md, "Background work of a broker"
_CHECKS_A_STEP: Final = 64  # logs that are checked before a pause
_FLUSH_CHECKS_A_STEP: Final = 512  # logs that are only checked for a due flush before a pause
_COMPACTION: Final = "pyclient.broker_embedded.log.compaction"
_MODULES: Final = ("offset_map", "rewriting", "batch_filter", "log_to_clean", "cleaner", "log_cleaner")
_PARTS: Final = ("_hashlib", "hashlib", *(f"{_COMPACTION}.{name}" for name in _MODULES))
"""Imported in steps of one, as together they take long (docs/measurements.md, "Start of a broker").

`_hashlib` is the larger half of hashlib, where Python has OpenSSL.
"""


class LogManager:
    """The logs in the data directories at `paths` (log.dirs), with retention, compaction, flushes and checkpoints.

    The start only lists the directories of partitions; their files are read, and after a crash recovered, by the first
    `get`, or in steps by `recovery_queue`.
    `config_for` gives the configs of a topic whose log is opened, `topic_id_for` the id of a partition's topic, and
    `is_replicated` whether other nodes have copies; until they are set, the defaults, None (unknown) and False.
    `compaction_memory` (bytes) bounds the key map of compaction (Kafka: `log.cleaner.dedupe.buffer.size`).
    """

    producer_expiration_ms = UnifiedLog.producer_expiration_ms  # for the logs that are opened from now on
    compaction_memory = 128 << 20

    def __init__(
        self,
        directories: DataDirectories,
        *,
        clock: Clock,
        defaults: LogConfig,
        rng: Rng | None = None,
        disk_thread: DiskThread | None = None,
    ) -> None:
        rng = rng if rng is not None else random.Random()
        self.directories = directories
        self.defaults = defaults
        self.config_for: Callable[[str], LogConfig] = lambda _topic: self.defaults
        self.topic_id_for: Callable[[TopicPartition], uuid.UUID | None] = lambda _partition: None
        self.is_replicated: Callable[[TopicPartition], bool] = lambda _partition: False
        self.interrupted_moves: list[tuple[TopicPartition, DataDirectory]] = []
        """Moves that a crash interrupted: logs and their target directories."""
        self.awaiting_flush: set[UnifiedLog] = set()
        """Logs with appended batches that are committed when they are synced (`flush.messages`)."""
        self.disk_thread = disk_thread if disk_thread is not None else DiskThread()
        self._fs = directories.fs
        self._clock = clock
        self._logs: dict[TopicPartition, UnifiedLog] = {}
        self._unopened = self.directories.found.logs
        self._offline: dict[TopicPartition, str] = {}  # reasons; their directories are not changed
        self.recovery_queue = LogRecoveryQueue(self._unopened, self._open_steps)
        self._deletion = LogDeletion(
            self.directories, self.disk_thread, clock, rng, lambda: self.defaults.file_delete_delay_ms
        )
        self._reconciler = StartupReconciler(
            self.directories, self._deletion, rng, unopened=self._unopened, offline=self._offline
        )
        self._cleaner: LogCleaner | None = None

    def __repr__(self) -> str:
        path = self.directories.paths[0]
        return f"<LogManager {path} open={len(self._logs)} unopened={len(self._unopened)}>"

    @property
    def was_clean(self) -> bool:
        """Return True if every data directory was closed cleanly, or is new."""
        return self.directories.was_clean

    @property
    def logs(self) -> list[UnifiedLog]:
        """Return every log. Opens those that are not open; one that cannot be opened is logged and left out."""
        for partition in list(self._unopened):
            try:
                self.get(*partition)
            except errors.BrokerError as error:
                log.error("a log cannot be opened: %s", error)
        return list(self._logs.values())

    @property
    def opened(self) -> list[UnifiedLog]:
        """Return the open logs."""
        return list(self._logs.values())

    @property
    def unopened(self) -> Mapping[TopicPartition, str]:
        """Return the directories of the logs that are not open yet."""
        return self._unopened

    @property
    def offline(self) -> Mapping[TopicPartition, str]:
        """Return the reasons of offline partitions: their directories contradict the metadata or are unreadable."""
        return self._offline

    def time_ms(self) -> int:
        """Return the current time in epoch milliseconds."""
        return self._clock.time_ms()

    def size_on_disk(self, partition: TopicPartition) -> int:
        """Return the bytes of the segments of a log that is not open."""
        files = self._fs.list_files(self.directories.path(partition))
        return sum(size for name, size in files.items() if name.endswith(".log"))

    def checkpointed_high_watermark(self, topic: str, partition: int) -> int:
        """Return the checkpointed high watermark, 0 if there is none: a replicated log starts with it."""
        topic_partition = TopicPartition(topic, partition)
        home = self.directories.homes.get(topic_partition)
        return 0 if home is None else home.checkpoint(checkpoints.HIGH_WATERMARKS).get(topic_partition, 0)

    # Start

    def open(self) -> None:
        """Lock the directories and list their logs: see `DataDirectories.open`."""
        self.directories.open()

    def take_into_use(self) -> None:
        """Remove the clean-shutdown files: see `DataDirectories.take_into_use`."""
        self.directories.take_into_use()

    def reconcile(
        self, topics: Mapping[uuid.UUID, str], removed: Collection[uuid.UUID], *, has_others: bool = False
    ) -> None:
        """Compare the directories with the metadata: `topics` by id, and the ids of those that were `removed`.

        Directories of removed ones are deleted after `file.delete.delay.ms`. Logs of partitions that have no replica on
        this node are renamed to `<topic>-<partition>.<32 hex>-stray` and kept, as in Kafka; directories that are no
        logs are not changed. A partition whose directory has another topic's id is offline; that is found out now after
        a crash, and else when the log is opened.

        On a node that `has_others` it is found out now, and the directory renamed, too, if the metadata do not know the
        id: the others may have deleted that topic and created one of its name while this node was down. The ids of
        `removed` topics are not enough: a snapshot of the metadata has nothing of them.
        """
        self._close_unassigned()
        self._reconciler.keep_named_duplicates()
        self.interrupted_moves += self._reconciler.interrupted_moves(topics)
        decisions = Reconciliation(self._fs, self.topic_id_for, topics, removed, has_others)
        self._reconciler.apply(decisions, check_known=has_others or not self.was_clean)

    def _close_unassigned(self) -> None:
        """Close logs that were opened, or are being opened, before the metadata were known, and are another topic's."""
        for partition in list(self._unopened):
            self.recovery_queue.forget(partition)
        for partition, opened in list(self._logs.items()):
            expected = self.topic_id_for(partition)
            if expected is None or opened.topic_id != expected:
                opened.close(clean=False)
                del self._logs[partition]
                self._unopened[partition] = opened.directory

    # Logs

    def create(self, topic: str, topic_id: uuid.UUID, partition: int, config: LogConfig) -> UnifiedLog:
        """Return the log of a partition that is new on this node; its files are created by the first append."""
        topic_partition = TopicPartition(topic, partition)
        self._check_online(topic_partition)
        if topic_partition not in self._unopened:
            self.directories.place_new(topic_partition)
        return self._open(topic_partition, topic_id, config)

    def find(self, topic: str, partition: int) -> UnifiedLog | None:
        """Return the log; None if there is none. Raise `NotLeaderOrFollower`, or its error, while it is not open."""
        topic_partition = TopicPartition(topic, partition)
        found = self._logs.get(topic_partition)
        if found is None:
            self._check_online(topic_partition)
            if topic_partition in self._unopened:
                self.recovery_queue.check(topic_partition)
        return found

    def get(self, topic: str, partition: int) -> UnifiedLog | None:
        """Return the log, opened and recovered if necessary; None if there is none. Raise `KafkaStorageError`."""
        topic_partition = TopicPartition(topic, partition)
        found = self._logs.get(topic_partition)
        if found is None:
            self._check_online(topic_partition)
            if topic_partition in self._unopened:
                return self._open(topic_partition, self.topic_id_for(topic_partition), self.config_for(topic))
        return found

    def get_steps(self, partition: TopicPartition) -> IncrementalTask[UnifiedLog | None]:
        """Return the log, opened in steps if it is not open; None if there is none."""
        self._check_online(partition)
        if partition in self._unopened:
            self.recovery_queue.forget(partition)
            yield from self._open_steps(partition)
        return self._logs.get(partition)

    def _check_online(self, partition: TopicPartition) -> None:
        reason = self._offline.get(partition)
        if reason is not None:
            raise errors.KafkaStorageError(f"{partition} is offline: {reason}")
        if self.directories.offline and partition not in self.directories.homes:
            self.directories.place(partition)

    def _open(self, partition: TopicPartition, topic_id: uuid.UUID | None, config: LogConfig) -> UnifiedLog:
        self.recovery_queue.forget(partition)
        return run_here(self._load(partition, topic_id, config))

    def _open_steps(self, partition: TopicPartition) -> IncrementalTask[None]:
        topic = partition.topic
        opened = yield from self._load(partition, self.topic_id_for(partition), self.config_for(topic))
        opened.config = self.config_for(topic)  # it may have changed meanwhile
        if opened.replicated and not self.is_replicated(partition):
            opened.set_replicated(False)  # which was not known when it began

    def _load(
        self, partition: TopicPartition, topic_id: uuid.UUID | None, config: LogConfig
    ) -> IncrementalTask[UnifiedLog]:
        directories = self.directories
        home = directories.homes[partition]
        checkpoint = LogCheckpoint(
            clean=self.was_clean or partition not in self._unopened,
            recovery_point=home.checkpoint(checkpoints.RECOVERY_POINTS).get(partition, 0),
            start_offset=directories.start_offset(partition),
            high_watermark=(self.checkpointed_high_watermark(*partition) if self.is_replicated(partition) else None),
        )
        path = directories.path(partition)
        opened = yield from open_log(path, partition, topic_id, config, checkpoint, fs=self._fs, clock=self._clock)
        opened.cleaned_to = directories.homes[partition].checkpoint(checkpoints.CLEANER_OFFSETS).get(partition, 0)
        opened.producer_expiration_ms = self.producer_expiration_ms
        opened.producers.expire(self._clock.time_ms(), self.producer_expiration_ms)
        self.flush_in_background(opened)
        opened.remove_later = self._deletion.remove
        self._unopened.pop(partition, None)
        self._logs[partition] = opened
        return opened

    def fail_directory(self, home: DataDirectory, reason: str) -> None:
        """Take a data directory offline, which is not the first one, with all logs in it."""
        self.directories.fail(home, reason)
        for partition, place in self.directories.homes.items():
            opened = self._logs.get(partition)
            if place is home and opened is not None and opened.failure is None:
                opened.fail(f"{home.path} has failed")
            elif place is home and opened is None:
                self._unopened.pop(partition, None)
                self._offline[partition] = f"{home.path} has failed"

    def flush_in_background(self, opened: UnifiedLog) -> None:
        """Flush the log on the disk thread, and commit batches when they are synced, if the file system is durable."""
        if self._fs.durable:
            opened.flush_later = self.disk_thread.flush
            opened.awaiting_flush = self.awaiting_flush

    # Deletion

    def delete_topic(self, topic: str, topic_id: uuid.UUID) -> None:
        """Delete the topic's logs; their files are removed after `file.delete.delay.ms`.

        A directory of that name with another topic's id, or an unreadable one, is not removed.
        """
        for partition in [each for each in (*self._logs, *self._unopened, *self._offline) if each.topic == topic]:
            self.delete_partition(partition, topic_id)
        self.remove_deleted(self._clock.time_ms())

    def delete_partition(self, partition: TopicPartition, topic_id: uuid.UUID) -> None:
        """Delete one log, as `delete_topic` does: this node has no replica of the partition any more."""
        directories = self.directories
        opened = self._logs.pop(partition, None)
        if opened is not None:
            opened.deleted = True
            opened.close(clean=False)
        self.recovery_queue.forget(partition)
        path = self._unopened.pop(partition, None)
        self._offline.pop(partition, None)
        home = directories.homes.get(partition)
        directories.forget(partition)
        if home is None:
            return
        try:
            if opened is not None or self._is_of(topic_id, partition, path):
                self._deletion.mark(partition, home.file(str(partition)))
        except OSError as error:
            directories.failed = True
            log.error("%s stays until the next start, which deletes it: %s", home.file(str(partition)), error)

    def _is_of(self, topic_id: uuid.UUID, partition: TopicPartition, path: str | None) -> bool:
        """Return True if a directory that is not open belongs to a deleted topic; log why another one stays."""
        if path is None:
            return False
        known = {topic_id: partition.topic}
        comparison = Reconciliation(self._fs, lambda _partition: topic_id, known, removed=())
        for found in comparison.logs([(partition, path)], check_known=True):
            log.warning("%s stays as it is, although %s is deleted: %s", found.path, partition, found.reason)
            return False
        return True

    def remove_deleted(self, now_ms: int) -> None:
        """Remove the directories of deleted partitions whose delay is over."""
        self._deletion.remove_due(now_ms)

    # Moves to another data directory (KIP-113)

    def open_future_log(self, source: UnifiedLog, path: str) -> IncrementalTask[UnifiedLog]:
        """Open an empty log at `path`, for the batches of `source`."""
        partition = TopicPartition(source.topic, source.partition)
        checkpoint = LogCheckpoint(clean=True)
        return open_log(path, partition, source.topic_id, source.config, checkpoint, fs=self._fs, clock=self._clock)

    def replace_current_with_future_log(
        self, partition: TopicPartition, source: UnifiedLog, path: str, target: DataDirectory
    ) -> None:
        """Replace a log by its closed copy at `path`. The old files are deleted after the usual delay.

        After a crash in between, the next start keeps the directory that the metadata name and renames the other.
        """
        home = self.directories.homes[partition]
        place = target.file(str(partition))
        target.reset(partition)
        if not self._fs.exists(path):  # nothing was ever written
            self._fs.make_directory(path)
            if source.topic_id is not None:
                write_topic_id(self._fs, path, source.topic_id)
        self._fs.rename(path, place)
        self._fs.sync_directory(target.path)
        old = source.directory
        checkpoint = LogCheckpoint(clean=True, recovery_point=source.end_offset, start_offset=source.start_offset)
        source.relocate(run_here(load(self._fs, place, str(partition), source.config, checkpoint)), place)
        self.directories.homes[partition] = target
        home.forget(partition)
        target.checkpoint(checkpoints.RECOVERY_POINTS)[partition] = source.recovery_point
        try:
            self._deletion.mark(partition, old)
        except OSError as error:
            self.directories.failed = True
            log.error("%s stays although %s is in %s now: %s", old, partition, target.path, error)

    def remove_future_log(self, path: str) -> None:
        """Remove a copy that is no longer needed."""
        self._deletion.remove([path])

    # Checkpoints

    def flush_checkpoints(self) -> None:
        """Write the checkpoints: recovery point, start, high watermark and compacted end of each log."""
        run_here(self.checkpoint_steps())

    def checkpoint_steps(self) -> IncrementalTask[None]:
        """Write the checkpoints in steps."""
        self.disk_thread.collect()
        for count, partition in enumerate(list(self._logs)):
            if count % _AT_ONCE == _AT_ONCE - 1:
                yield None
            opened = self._logs.get(partition)
            if opened is None:  # its topic was deleted meanwhile
                continue
            home = self.directories.homes[partition]
            home.checkpoint(checkpoints.RECOVERY_POINTS)[partition] = opened.recovery_point
            home.checkpoint(checkpoints.HIGH_WATERMARKS)[partition] = opened.high_watermark
            starts = home.checkpoint(checkpoints.LOG_STARTS)
            starts.pop(partition, None)
            if opened.start_offset > opened.segments.first_offset:
                starts[partition] = opened.start_offset
        for home in list(self.directories.online):
            for name in (checkpoints.RECOVERY_POINTS, checkpoints.LOG_STARTS, checkpoints.HIGH_WATERMARKS):
                yield from home.write_checkpoint(name)
        yield from self._save_cleaned()

    def _save_cleaned(self) -> IncrementalTask[None]:
        """Write the compacted end of each log, if one has changed."""
        name = checkpoints.CLEANER_OFFSETS
        before = {home.path: dict(home.checkpoint(name)) for home in self.directories.online}
        for partition, opened in self._logs.items():
            cleaned = self.directories.homes[partition].checkpoint(name)
            if opened.cleaned_to:
                cleaned[partition] = opened.cleaned_to
            else:
                cleaned.pop(partition, None)
        for home in list(self.directories.online):
            if home.checkpoint(name) != before[home.path] or home.has_forgotten(name):
                yield from home.write_checkpoint(name)

    # Periodic work

    def run_retention(self, now_ms: int) -> int:
        """Apply retention to every log. Return how many segments were deleted. Failures of a log are only logged."""
        self.remove_deleted(now_ms)
        return sum(self.retention_steps(now_ms))

    def retention_now(self) -> int:
        """Apply retention to every log as of now. Return how many segments were deleted."""
        if not self.was_clean:
            _ = self.logs  # opens those that are not recovered yet
        return self.run_retention(self._clock.time_ms())

    def retention_steps(self, now_ms: int) -> Iterator[int]:
        """Apply retention in steps of one segment, or one log without expired segments; yield the deleted ones."""
        for partition in [*self._logs, *self._unopened]:
            opened = self._opened(partition, partial(self._may_expire, partition, now_ms))
            if opened is None:
                yield 0
                continue
            try:
                yield from opened.retention_steps(now_ms)
                yield 0
            except (OSError, errors.KafkaError) as error:
                log.error("%r: retention failed: %s", opened, error)

    def _may_expire(self, partition: TopicPartition, now_ms: int, files: dict[str, int]) -> bool:
        """Return True if retention could delete segments of a log that is not open yet."""
        config = self.config_for(partition.topic)
        logs = [name for name in files if name.endswith(".log")]
        if len(logs) > 1:
            return True
        if not logs or not config.deletes:
            return False
        too_large = 0 <= config.retention_bytes < files[logs[0]]
        written = self._fs.modified_ms(f"{self._unopened[partition]}/{logs[0]}")
        return too_large or 0 <= config.retention_ms < now_ms - written

    def compaction_steps(self, now_ms: int) -> IncrementalTask[int]:
        """Compact the logs that are dirty enough (`cleanup.policy=compact`). Return the number of rounds."""
        compacted: dict[str, bool] = {}
        for count, partition in enumerate(list(self._unopened)):
            topic = partition.topic
            if topic not in compacted:
                compacted[topic] = self.config_for(topic).compacts
            if compacted[topic]:
                self._opened(partition, _has_closed_segments)
            if compacted[topic] or count % _CHECKS_A_STEP == 0:
                yield None
        logs = [opened for opened in self._logs.values() if opened.config.compacts]
        if not logs:
            return 0
        for name in _PARTS if self._cleaner is None else ():
            if find_spec(name) is not None:
                import_module(name)
            yield None
        return (yield from self._log_cleaner().due(logs, now_ms))

    def compact_now(self, topic: str | None = None) -> int:
        """Compact every compacted log (of one topic), however little is dirty. Return the number of rounds.

        Active segments are rolled first, so that every record takes part. Raise the error of a log that fails.
        """
        now_ms = self._clock.time_ms()
        self.disk_thread.wait_until_idle()
        logs = [opened for opened in self.logs if opened.config.compacts and topic in (None, opened.topic)]
        return sum(self._log_cleaner().everything(opened, now_ms) for opened in logs)

    def _log_cleaner(self) -> LogCleaner:
        if self._cleaner is None:
            from pyclient.broker_embedded.log.compaction.log_cleaner import LogCleaner  # not needed to start

            self._cleaner = LogCleaner(self._fs, memory=self.compaction_memory, save=self._save_cleaned)
        self._cleaner.memory = self.compaction_memory
        return self._cleaner

    def flush_due(self, now_ms: int) -> None:
        """Flush the logs whose `flush.ms` is over."""
        for _ in self.flush_steps(now_ms):
            pass

    def flush_steps(self, now_ms: int) -> Iterator[None]:
        """Flush the logs whose `flush.ms` is over, in steps of one flush."""
        for count, opened in enumerate(list(self._logs.values())):
            if (not opened.closed and opened.flush_if_due(now_ms)) or count % _FLUSH_CHECKS_A_STEP == 0:
                yield None

    def _opened(self, partition: TopicPartition, is_wanted: Callable[[dict[str, int]], bool]) -> UnifiedLog | None:
        """Return the log if it is open, or if its files (names and sizes) make it worth opening. Errors are logged.

        After a crash None for a log that is not open: all are being opened in steps.
        """
        found = self._logs.get(partition)
        if found is None and partition in self._unopened and self.was_clean:
            try:
                if is_wanted(self._fs.list_files(self._unopened[partition])):
                    return self.get(*partition)
            except (OSError, errors.BrokerError) as error:
                log.error("%s: %s", partition, error)
        return found

    # End

    def close(self, clean: bool = True) -> None:
        """Close every log. A clean close saves the next start all checks; otherwise files are only closed.

        Failures are logged. After one, or if a log is offline, no clean-shutdown file and no newer recovery points are
        written: the next start checks the data that was not synced before.
        """
        self.recovery_queue.close()
        self.disk_thread.close(wait=clean)
        self.disk_thread.wake = None
        directories = self.directories
        clean = self._close_logs(clean) and directories.may_be_marked_clean
        if clean:
            try:
                self.flush_checkpoints()
                if self.was_clean or not self._unopened:  # otherwise a log is not recovered yet
                    for directory in directories.online:
                        directory.mark_clean(directories.broker_epoch)
                self._deletion.remove_all()
            except OSError as error:
                path = directories.paths[0]
                log.error("%s: the shutdown is not clean, the next start checks all logs: %s", path, error)
        self._logs.clear()
        directories.release()

    def _close_logs(self, clean: bool) -> bool:
        """Close every log, also after one that fails. Return True if `clean` and none has failed."""
        directories = self.directories
        together = clean and len(self._logs) > _SYNCED_ONE_BY_ONE
        for opened in self._logs.values():
            try:
                opened.close(clean, sync=not together)
            except (errors.KafkaStorageError, OSError) as error:
                log.error("closing a log failed: %s", error)
                directories.failed = True
        if together:
            try:
                for directory in directories.online:
                    self._fs.sync_all(directory.path)
            except OSError as error:
                path = directories.paths[0]
                log.error("%s: not everything is on the disk, the next start checks it: %s", path, error)
                directories.failed = True
        return clean and not directories.failed


def _has_closed_segments(files: dict[str, int]) -> bool:
    return sum(name.endswith(".log") for name in files) > 1
