"""The logs of the data directories: found at the start, opened on first use, deleted with their topics."""

from __future__ import annotations

import logging
import os
import random
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from pyclient import errors
from pyclient.broker_embedded.log import checkpoints
from pyclient.broker_embedded.log.checkpoints import stored_topic_id, write_topic_id
from pyclient.broker_embedded.log.config import LogConfig
from pyclient.broker_embedded.log.data_directory import DataDirectory
from pyclient.broker_embedded.log.disk_thread import DiskThread, Dropped
from pyclient.broker_embedded.log.filesystem import FileSystem
from pyclient.broker_embedded.log.flusher import Flusher
from pyclient.broker_embedded.log.incremental_task import IncrementalTask, run_here
from pyclient.broker_embedded.log.log_loader import load, open_log
from pyclient.broker_embedded.log.partition_directories import (
    DELETED,
    FUTURE,
    STRAY,
    Fate,
    Found,
    Reconciliation,
    copy_of,
    deleted_index_of,
    marked_name,
    partition_of,
)
from pyclient.broker_embedded.log.recovery_queue import LogRecoveryQueue
from pyclient.broker_embedded.log.unified_log import UnifiedLog
from pyclient.clock import Clock, Rng
from pyclient.types import TopicPartition

log = logging.getLogger("pyclient.broker_embedded")

_METADATA: Final = TopicPartition("__cluster_metadata", 0)  # the controller's: it opens that log itself
_AT_ONCE: Final = 250  # logs that are checkpointed before a pause
_SYNCED_ONE_BY_ONE: Final = 100  # above it one syncfs: docs/measurements.md, "Background work of a broker"


class LogDirectory:
    """The logs under `data_dir` and the `other_dirs` (log.dirs), which belong to one node of one process at a time.

    `data_dir` has the metadata log, and the node does not start without it. Another directory that fails is offline,
    with the partitions in it. `directory_for` gives the id of the directory that a partition is assigned to.

    The start only lists the directories of partitions; their files are read, and after a crash recovered, by the first
    `get`, or in steps by `openings`.
    `config_for` gives the configs of a topic whose log is opened, `topic_id_for` the id of a partition's topic; until
    they are set, the defaults and None (unknown).
    """

    producer_expiration_ms = 86_400_000  # `producer.id.expiration.ms`, for the logs that are opened from now on

    def __init__(
        self,
        data_dir: str,
        *,
        fs: FileSystem,
        clock: Clock,
        node_id: int,
        cluster_id: str | None,
        defaults: LogConfig,
        rng: Rng | None = None,
        other_dirs: Sequence[str] = (),
    ) -> None:
        self.data_dir = data_dir
        self.directories: list[DataDirectory] = []
        """The open directories, in the order of log.dirs."""
        self.offline_directories: dict[str, str] = {}
        """The paths of the offline directories, and their errors."""
        self.cordoned: frozenset[str] = frozenset()
        """Paths of directories that get no new partitions (cordoned.log.dirs)."""
        self.directory_for: Callable[[TopicPartition], uuid.UUID | None] = lambda _partition: None
        self._paths = (data_dir, *other_dirs)
        self._homes: dict[TopicPartition, DataDirectory] = {}
        self._twice: list[tuple[TopicPartition, DataDirectory]] = []  # logs that another directory has, too
        self._copies: list[str] = []  # incomplete copies of interrupted moves
        self.interrupted_moves: list[tuple[TopicPartition, DataDirectory]] = []
        """Moves that a crash interrupted: logs and their target directories."""
        self.node_id = node_id
        self.defaults = defaults
        self.config_for: Callable[[str], LogConfig] = lambda _topic: self.defaults
        self.topic_id_for: Callable[[TopicPartition], uuid.UUID | None] = lambda _partition: None
        self.was_clean = True
        self.failed = False
        """True after a failed write, rename or sync: the next start has to check all logs."""
        self._in_use = False
        self._cluster_id = cluster_id
        self._fs = fs
        self._clock = clock
        self._rng = rng if rng is not None else random.Random()
        self._logs: dict[TopicPartition, UnifiedLog] = {}
        self._unopened: dict[TopicPartition, str] = {}  # paths of their directories
        self.openings = LogRecoveryQueue(self._unopened, self._opening_as_it_is)
        self._offline: dict[TopicPartition, str] = {}  # reasons; their directories are not changed
        self._marked: list[tuple[int, str]] = []  # (partition, path) of directories that are marked for deletion
        self._doomed: list[tuple[int, str]] = []  # (when, path) of directories that are to be removed
        self.awaiting_flush: set[UnifiedLog] = set()
        """Logs with appended batches that are committed when they are synced (`flush.messages`)."""
        self.side = DiskThread()
        self._flusher = Flusher(self.side)

    @property
    def cluster_id(self) -> str:
        """Return the cluster's id, 22 characters: the directory's, or the one given, or a new one."""
        if self._cluster_id is None:
            raise RuntimeError("the data directory is not open")
        return self._cluster_id

    @property
    def directory_id(self) -> uuid.UUID:
        """Return the directory id (KIP-858) of the first data directory."""
        if not self.directories:
            raise RuntimeError("the data directory is not open")
        return self.directories[0].directory_id

    @property
    def logs(self) -> list[UnifiedLog]:
        """Return every log. Opens those that are not open; one that cannot be opened is logged and left out."""
        for at in list(self._unopened):
            try:
                self.get(*at)
            except errors.BrokerError as error:
                log.error("%s", error)
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

    def size_on_disk(self, at: TopicPartition) -> int:
        """Return the bytes of the segments of a log that is not open."""
        files = self._fs.list_files(self._path(at))
        return sum(size for name, size in files.items() if name.endswith(".log"))

    def open(self) -> None:
        """Lock the directories and list their logs. Existing files are not changed before `take_into_use`.

        Raises `ConfigError` if one cannot be created or written, if another broker uses it, if it is another node's or
        cluster's, or if it is not empty and has no `meta.properties`.
        """
        try:
            for path in self._paths:
                self._open_directory(path)
            self.was_clean = all(directory.was_clean for directory in self.directories)
            for name in () if self.was_clean else checkpoints.OF_PARTITIONS:  # they are needed at once
                for directory in self.directories:
                    directory.checkpoint(name)
        except OSError as error:
            self._release_directories()
            raise errors.ConfigError(f"the broker cannot keep its data in {self.data_dir}: {error}") from error
        except BaseException:
            self._release_directories()
            raise

    def _open_directory(self, path: str) -> None:
        directory = DataDirectory(path, self._fs)
        try:
            self._cluster_id = directory.open(node_id=self.node_id, cluster_id=self._cluster_id, rng=self._rng)
            self._find_partitions(directory)
        except OSError as error:
            directory.release()
            if path == self.data_dir:
                raise errors.ConfigError(f"the broker cannot keep its data in {path}: {error.strerror}") from error
            log.error("%s is offline, and so are the partitions in it: %s", path, error)
            self.offline_directories[path] = str(error)
            return
        self.directories.append(directory)

    def take_into_use(self) -> None:
        """Remove the clean-shutdown files: files change from now on, and the next start checks them after a crash."""
        for directory in self.directories:
            directory.take_into_use()
        self._in_use = True

    def reconcile(self, topics: Mapping[uuid.UUID, str], removed: Collection[uuid.UUID]) -> None:
        """Compare the directories with the metadata: `topics` by id, and the ids of those that were `removed`.

        Directories of removed ones are deleted after `file.delete.delay.ms`. Logs that the metadata do not know are
        renamed to `<topic>-<partition>.<32 hex>-stray` and kept, as in Kafka; directories that are no logs are not
        changed. A partition whose directory has another topic's id is offline.
        """
        self._settle_duplicates()
        self._settle_copies(topics)
        comparison = Reconciliation(self._fs, self.topic_id_for, topics, removed)
        found = list(comparison.marked(self._marked))
        self._marked.clear()
        found += comparison.logs(list(self._unopened.items()), check_known=not self.was_clean)
        for each in found:
            try:
                self._deal_with(each)
            except OSError as error:
                self.failed = True
                self._unopened.pop(each.partition, None)
                log.error("%s stays as it is (%s): %s", each.path, each.reason, error)

    def _settle_duplicates(self) -> None:
        """Keep one of the two directories of a log whose move was interrupted: the one that the metadata name."""
        for at, other in self._twice:
            home = self._homes[at]
            if other.directory_id == self.directory_for(at):
                self._homes[at], self._unopened[at] = other, other.file(str(at))
                home, other = other, home
            try:
                self._set_aside(at, other.file(str(at)), f"{home.path} has the log of {at}")
            except OSError as error:
                self.failed = True
                log.error("%s stays although %s has the log, too: %s", other.file(str(at)), home.path, error)
        self._twice.clear()

    def _settle_copies(self, topics: Mapping[uuid.UUID, str]) -> None:
        """Queue interrupted moves again, and remove their incomplete copies."""
        for path in self._copies:
            stored = stored_topic_id(self._fs, path)
            at = copy_of(os.path.basename(path))
            home = None if at is None else self._homes.get(at)
            target = next((each for each in self.directories if each.path == os.path.dirname(path)), None)
            is_ours = stored is not None and at is not None and topics.get(stored) == at.topic
            if at is None or home is None or target is None or target is home or not is_ours:
                log.warning("%s stays as it is: no log is on its way there", path)
                continue
            self._doomed.append((self._clock.time_ms(), path))
            self.interrupted_moves.append((at, target))
        self._copies.clear()

    def _deal_with(self, found: Found) -> None:
        partition, path = found.partition, found.path
        if found.fate is Fate.RESTORE:
            home = self._home_of(path)
            own = home.file(str(partition))
            if self._fs.exists(own) or partition in self._homes:
                log.warning("%s stays as it is: %s, but %s is there", path, found.reason, own)
                return
            self._fs.rename(path, own)
            self._unopened[partition] = own
            self._homes[partition] = home
            log.warning("%s is %s again: %s", path, own, found.reason)
        elif path.endswith(DELETED):
            self._doomed.append((self._clock.time_ms(), path))
        elif found.fate is Fate.OFFLINE:
            del self._unopened[partition]
            self._offline[partition] = f"{path}: {found.reason}"
            log.error("%s is offline, nothing in %s is changed: %s", partition, path, found.reason)
        else:
            del self._unopened[partition]
            if found.fate is Fate.IGNORE:
                self._homes.pop(partition, None)
                log.warning("%s is no log of this broker and stays as it is: %s", path, found.reason)
                return
            self._forget(partition)
            if found.fate is Fate.DELETE:
                log.info("%s is deleted: %s", path, found.reason)
                self._mark_deleted(partition, path)
            else:
                self._set_aside(partition, path, found.reason)

    def _set_aside(self, partition: TopicPartition, path: str, reason: str) -> None:
        stray = self._home_of(path).file(marked_name(partition, self._rng.getrandbits(128), STRAY))
        self._fs.rename(path, stray)
        log.warning("%s is kept as %s, remove it if it is not needed: %s", path, stray, reason)

    def create(self, topic: str, topic_id: uuid.UUID, partition: int, config: LogConfig) -> UnifiedLog:
        """Return the log of a partition that is new on this node; its files are created by the first append."""
        at = TopicPartition(topic, partition)
        self._check_online(at)
        if at not in self._unopened:
            self._recreate(at)
        return self._open_log(at, topic_id, config)

    def find(self, topic: str, partition: int) -> UnifiedLog | None:
        """Return the log; None if there is none. Raise `NotLeaderOrFollower`, or its error, while it is not open."""
        at = TopicPartition(topic, partition)
        found = self._logs.get(at)
        if found is None:
            self._check_online(at)
            if at in self._unopened:
                self.openings.check(at)
        return found

    def opened_in_steps(self, at: TopicPartition) -> IncrementalTask[UnifiedLog | None]:
        """Return the log, opened in steps if it is not open; None if there is none."""
        self._check_online(at)
        if at in self._unopened:
            self.openings.forget(at)
            yield from self._opening_as_it_is(at)
        return self._logs.get(at)

    def open_copy(self, source: UnifiedLog, path: str) -> IncrementalTask[UnifiedLog]:
        """Open an empty log at `path`, for the batches of `source`."""
        at = TopicPartition(source.topic, source.partition)
        return open_log(path, at, source.topic_id, source.config, fs=self._fs, clock=self._clock, clean=True)

    def take_copy(self, at: TopicPartition, source: UnifiedLog, path: str, target: DataDirectory) -> None:
        """Replace a log by its closed copy at `path`. The old files are deleted after the usual delay.

        After a crash in between, the next start keeps the directory that the metadata name and sets the other aside.
        """
        home = self._homes[at]
        place = target.file(str(at))
        target.begin_anew(at)
        if not self._fs.exists(path):  # nothing was ever written
            self._fs.make_directory(path)
            if source.topic_id is not None:
                write_topic_id(self._fs, path, source.topic_id)
        self._fs.rename(path, place)
        self._fs.sync_directory(target.path)
        old = source.directory
        loading = load(
            self._fs,
            place,
            str(at),
            source.config,
            clean=True,
            recovery_point=source.end_offset,
            start_offset=source.start_offset,
        )
        source.relocate(run_here(loading), place)
        self._homes[at] = target
        home.forget(at)
        target.checkpoint(checkpoints.RECOVERY_POINTS)[at] = source.recovery_point
        try:
            if self._fs.exists(old):
                doomed = home.file(marked_name(at, self._rng.getrandbits(128), DELETED))
                self._fs.rename(old, doomed)
                self._doomed.append((self._clock.time_ms() + self.defaults.file_delete_delay_ms, doomed))
        except OSError as error:
            self.failed = True
            log.error("%s stays although %s is in %s now: %s", old, at, target.path, error)

    def remove_copy(self, path: str) -> None:
        """Remove a copy that is no longer needed."""
        self._remove([path])

    def time_ms(self) -> int:
        """Return the current time in epoch milliseconds."""
        return self._clock.time_ms()

    def _check_online(self, at: TopicPartition) -> None:
        reason = self._offline.get(at)
        if reason is not None:
            raise errors.KafkaStorageError(f"{at} is offline: {reason}")
        if self.offline_directories and at not in self._homes:
            self._place(at)

    def _recreate(self, at: TopicPartition) -> None:
        home = self._homes[at] = self._place(at)
        home.begin_anew(at)

    def _place(self, at: TopicPartition) -> DataDirectory:
        """Return the directory for a new log: the one that the metadata name, or else the one with the fewest logs."""
        wanted = self.directory_for(at)
        found = next((each for each in self.directories if each.directory_id == wanted), None)
        if found is not None:
            return found
        if self.offline_directories:
            paths = ", ".join(self.offline_directories)
            raise errors.KafkaStorageError(f"{at} is in none of the directories that are online; offline: {paths}")
        counts = Counter(home.path for home in self._homes.values())
        return min(self.directories, key=lambda each: (each.path in self.cordoned, counts[each.path]))

    def _forget(self, at: TopicPartition) -> None:
        home = self._homes.pop(at, None)
        if home is not None:
            home.forget(at)

    def home(self, at: TopicPartition) -> DataDirectory | None:
        """Return the directory that has a partition's log; None if there is no log."""
        return self._homes.get(at)

    def get(self, topic: str, partition: int) -> UnifiedLog | None:
        """Return the log, opened and recovered if necessary; None if there is none. Raises `KafkaStorageError`."""
        at = TopicPartition(topic, partition)
        found = self._logs.get(at)
        if found is None:
            self._check_online(at)
            if at in self._unopened:
                return self._open_log(at, self.topic_id_for(at), self.config_for(topic))
        return found

    def _open_log(self, at: TopicPartition, topic_id: uuid.UUID | None, config: LogConfig) -> UnifiedLog:
        self.openings.forget(at)
        return run_here(self._opening(at, topic_id, config))

    def _opening_as_it_is(self, at: TopicPartition) -> IncrementalTask[None]:
        opened = yield from self._opening(at, self.topic_id_for(at), self.config_for(at.topic))
        opened.update_config(self.config_for(at.topic))  # it may have changed meanwhile

    def _opening(
        self, at: TopicPartition, topic_id: uuid.UUID | None, config: LogConfig
    ) -> IncrementalTask[UnifiedLog]:
        opened = yield from open_log(
            self._path(at),
            at,
            topic_id,
            config,
            fs=self._fs,
            clock=self._clock,
            clean=self.was_clean or at not in self._unopened,
            recovery_point=self._homes[at].checkpoint(checkpoints.RECOVERY_POINTS).get(at, 0),
            start_offset=self._start_offset(at),
        )
        opened.cleaned_to = self._homes[at].checkpoint(checkpoints.CLEANER_OFFSETS).get(at, 0)
        opened.producer_expiration_ms = self.producer_expiration_ms
        opened.producers.expire(self._clock.time_ms(), self.producer_expiration_ms)
        self.sync_beside(opened)
        opened.remove_later = self._remove
        self._unopened.pop(at, None)
        self._logs[at] = opened
        return opened

    def _start_offset(self, at: TopicPartition) -> int:
        """Return the checkpointed start of a log; 0 if that is above its high watermark.

        A start beyond the end would drop the whole log, and a checkpoint has no checksum.
        """
        home = self._homes[at]
        start = home.checkpoint(checkpoints.LOG_STARTS).get(at, 0)
        committed = home.checkpoint(checkpoints.HIGH_WATERMARKS).get(at, 0) if start else 0
        if start <= committed:
            return start
        log.error("%s: ignoring the checkpointed start %d: it is above the high watermark %d", at, start, committed)
        return 0

    def sync_beside(self, opened: UnifiedLog) -> None:
        """Sync the log on the side thread, and commit batches when they are synced, if the file system is durable."""
        if self._fs.durable:
            opened.flush_later = self._flusher.submit
            opened.awaiting_flush = self.awaiting_flush

    def checkpointed_high_watermark(self, topic: str, partition: int) -> int:
        """Return the checkpointed high watermark, 0 if there is none: a replicated log starts with it."""
        at = TopicPartition(topic, partition)
        home = self._homes.get(at)
        return 0 if home is None else home.checkpoint(checkpoints.HIGH_WATERMARKS).get(at, 0)

    def delete_topic(self, topic: str, topic_id: uuid.UUID) -> None:
        """Delete the topic's logs; their files are removed after `file.delete.delay.ms`.

        A directory of that name with another topic's id, or an unreadable one, is not removed.
        """
        for at in [at for at in (*self._logs, *self._unopened, *self._offline) if at.topic == topic]:
            opened = self._logs.pop(at, None)
            if opened is not None:
                opened.deleted = True
                opened.close(clean=False)
            self.openings.forget(at)
            directory = self._unopened.pop(at, None)
            self._offline.pop(at, None)
            home = self._homes.get(at)
            self._forget(at)
            if home is None:
                continue
            try:
                if opened is not None or self._is_of(topic_id, at, directory):
                    self._mark_deleted(at, home.file(str(at)))
            except OSError as error:
                self.failed = True
                log.error("%s stays until the next start, which deletes it: %s", home.file(str(at)), error)
        self.remove_doomed(self._clock.time_ms())

    def _is_of(self, topic_id: uuid.UUID, at: TopicPartition, directory: str | None) -> bool:
        """Return True if a directory that is not open belongs to a deleted topic; log why another one stays."""
        if directory is None:
            return False
        known = {topic_id: at.topic}
        comparison = Reconciliation(self._fs, lambda _partition: topic_id, known, removed=())
        for found in comparison.logs([(at, directory)], check_known=True):
            log.warning("%s stays as it is, although %s is deleted: %s", found.path, at, found.reason)
            return False
        return True

    def _mark_deleted(self, at: TopicPartition, directory: str) -> None:
        if self._fs.exists(directory):
            doomed = self._home_of(directory).file(marked_name(at, self._rng.getrandbits(128), DELETED))
            self._fs.rename(directory, doomed)
            self._doomed.append((self._clock.time_ms() + self.defaults.file_delete_delay_ms, doomed))

    def remove_doomed(self, now_ms: int) -> None:
        """Remove the directories of deleted partitions whose delay is over."""
        due = [path for when, path in self._doomed if when <= now_ms]
        self._doomed = [(when, path) for when, path in self._doomed if when > now_ms]
        if due:
            self._remove(due)

    def _remove(self, paths: list[str]) -> None:
        """Remove deleted files and directories. On the side thread if it is in use, since large ones take long."""

        def remove() -> None:
            for path in paths:
                if path.endswith((DELETED, FUTURE)):
                    self._fs.remove_tree(path)
                else:
                    self._fs.remove(path)

        def done(_answer: None, failure: Exception | None) -> None:
            if failure is not None and not isinstance(failure, Dropped):
                log.error("deleted files stay until the next start: %s", failure)

        if self.side.wake is None:
            remove()
        else:
            self.side.submit(remove, done)

    # Checkpoints

    def flush_checkpoints(self) -> None:
        """Write the checkpoints: recovery point, start, high watermark and compacted end of each log."""
        run_here(self.checkpoint_steps())

    def checkpoint_steps(self) -> IncrementalTask[None]:
        """Write the checkpoints in steps."""
        self.side.collect()
        for count, at in enumerate(list(self._logs)):
            if count % _AT_ONCE == _AT_ONCE - 1:
                yield None
            opened = self._logs.get(at)
            if opened is None:  # its topic was deleted meanwhile
                continue
            home = self._homes[at]
            home.checkpoint(checkpoints.RECOVERY_POINTS)[at] = opened.recovery_point
            home.checkpoint(checkpoints.HIGH_WATERMARKS)[at] = opened.high_watermark
            starts = home.checkpoint(checkpoints.LOG_STARTS)
            starts.pop(at, None)
            if opened.start_offset > opened.segments.first_offset:
                starts[at] = opened.start_offset
        for home in list(self.directories):
            for name in (checkpoints.RECOVERY_POINTS, checkpoints.LOG_STARTS, checkpoints.HIGH_WATERMARKS):
                yield from home.write_checkpoint(name)
        yield from self.save_cleaned()

    def save_cleaned(self) -> IncrementalTask[None]:
        """Write the compacted end of each log, if one has changed."""
        name = checkpoints.CLEANER_OFFSETS
        before = {home.path: dict(home.checkpoint(name)) for home in self.directories}
        for at, opened in self._logs.items():
            cleaned = self._homes[at].checkpoint(name)
            if opened.cleaned_to:
                cleaned[at] = opened.cleaned_to
            else:
                cleaned.pop(at, None)
        for home in list(self.directories):
            if home.checkpoint(name) != before[home.path]:
                yield from home.write_checkpoint(name)

    def close(self, clean: bool = True) -> None:
        """Close every log. A clean close saves the next start all checks; otherwise files are only closed.

        Failures are logged. After one, or if a log is offline, no clean-shutdown file and no newer recovery points are
        written: the next start checks the data that was not synced before.
        """
        self.openings.close()
        self.side.close(wait=clean)
        self.side.wake = None
        clean = self._close_logs(clean) and self._in_use and not self.failed
        if clean:
            try:
                self.flush_checkpoints()
                if self.was_clean or not self._unopened:  # otherwise a log is not recovered yet
                    for directory in self.directories:
                        directory.mark_clean()
                for _when, path in self._doomed:
                    self._fs.remove_tree(path)
            except OSError as error:
                log.error("%s: the shutdown is not clean, the next start checks all logs: %s", self.data_dir, error)
        self._logs.clear()
        self._release_directories()

    def _close_logs(self, clean: bool) -> bool:
        """Close every log, also after one that fails. Return True if `clean` and none has failed."""
        together = clean and len(self._logs) > _SYNCED_ONE_BY_ONE
        for opened in self._logs.values():
            try:
                opened.close(clean, sync=not together)
            except (errors.KafkaStorageError, OSError) as error:
                log.error("%s", error)
                self.failed = True
        if together:
            try:
                for directory in self.directories:
                    self._fs.sync_all(directory.path)
            except OSError as error:
                log.error("%s: not everything is on the disk, the next start checks it: %s", self.data_dir, error)
                self.failed = True
        return clean and not self.failed

    def _release_directories(self) -> None:
        for directory in self.directories:
            directory.release()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.data_dir} open={len(self._logs)} unopened={len(self._unopened)}>"

    def _path(self, at: TopicPartition) -> str:
        """Return the path of a log, or the one of a new log."""
        return self._homes.get(at, self.directories[0]).file(str(at))

    def _home_of(self, path: str) -> DataDirectory:
        """Return the directory that an entry is in."""
        parent = os.path.dirname(path)
        return next((each for each in self.directories if each.path == parent), self.directories[0])

    def _find_partitions(self, directory: DataDirectory) -> None:
        for name in self._fs.list_directories(directory.path):
            partition = partition_of(name)
            deleted = deleted_index_of(name)
            if deleted is not None:
                self._marked.append((deleted, directory.file(name)))
            elif copy_of(name) is not None:
                self._copies.append(directory.file(name))
            elif partition is None or partition == _METADATA:
                continue
            elif partition in self._homes:
                self._twice.append((partition, directory))
            else:
                self._homes[partition] = directory
                self._unopened[partition] = directory.file(name)
