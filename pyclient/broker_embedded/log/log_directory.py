"""The logs of a data directory: found at the start, opened when first asked for, made and deleted with their topics."""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from pyclient import errors
from pyclient.broker_embedded.log import checkpoints
from pyclient.broker_embedded.log.checkpoints import CorruptCheckpoint, stored_topic_id
from pyclient.broker_embedded.log.config import LogConfig
from pyclient.broker_embedded.log.filesystem import FileSystem, Lock
from pyclient.broker_embedded.log.flusher import Flusher
from pyclient.broker_embedded.log.identity import identify
from pyclient.broker_embedded.log.openings import Openings
from pyclient.broker_embedded.log.partition_log import PartitionLog
from pyclient.broker_embedded.log.side_thread import Dropped, SideThread
from pyclient.broker_embedded.log.steps import Blocking, Steps, run_here
from pyclient.broker_embedded.log.stored_log import StoredLog
from pyclient.clock import Clock, Rng
from pyclient.types import TopicPartition

log = logging.getLogger("pyclient.broker_embedded")

_METADATA: Final = TopicPartition("__cluster_metadata", 0)  # the controller's: it opens that log itself
_DELETED: Final = "-delete"
_LONGEST_NAME: Final = 255
_AT_ONCE: Final = 250  # logs that are noted before a pause
_SYNCED_ONE_BY_ONE: Final = 100  # of more logs the whole filesystem is synced at once: 2 ms a log were spent on it


class LogDirectory:
    """The logs under `data_dir`, which belongs to one node of one process at a time.

    Finding a partition costs a name in a list; its files are read, and after a crash recovered, by the first `get`, or
    in steps by `openings`.
    `config_for` gives the configs of a topic whose log is opened; the defaults until somebody sets it.
    """

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
    ) -> None:
        self.data_dir = data_dir
        self.node_id = node_id
        self.defaults = defaults
        self.config_for: Callable[[str], LogConfig] = lambda _topic: self.defaults
        self.was_clean = True
        self._cluster_id = cluster_id
        self._directory_id: uuid.UUID | None = None
        self._fs = fs
        self._clock = clock
        self._rng = rng if rng is not None else random.Random()
        self._lock: Lock | None = None
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._unopened: dict[TopicPartition, str] = {}  # and their directories
        self.openings = Openings(self._unopened, self._opening_as_it_is)
        self._offsets: dict[str, dict[TopicPartition, int]] = {}  # what the checkpoint files say
        self._forgotten: set[TopicPartition] = set()  # the files may still have offsets of these, which are gone
        self._doomed: list[tuple[int, str]] = []  # (when, path) of directories that are to be removed
        self.held: set[StoredLog] = set()
        """Those that wait for the disk before they commit what was appended (`flush.messages`)."""
        self.side = SideThread()
        self._flusher = Flusher(self.side)

    @property
    def cluster_id(self) -> str:
        """The cluster's id, 22 characters: the directory's, or the one given, or a new one."""
        if self._cluster_id is None:
            raise RuntimeError("the data directory is not open")
        return self._cluster_id

    @property
    def directory_id(self) -> uuid.UUID:
        """The data directory's own id (KIP-858)."""
        if self._directory_id is None:
            raise RuntimeError("the data directory is not open")
        return self._directory_id

    @property
    def logs(self) -> list[PartitionLog]:
        """Every log. Opens those that were not used yet; one that cannot be opened is reported and left out."""
        for at in list(self._unopened):
            try:
                self.get(*at)
            except errors.BrokerError as error:
                log.error("%s", error)
        return list(self._logs.values())

    @property
    def opened(self) -> list[PartitionLog]:
        """The logs that are in use: those that were opened."""
        return list(self._logs.values())

    @property
    def unopened(self) -> Mapping[TopicPartition, str]:
        """The directories of the logs that are not open yet."""
        return self._unopened

    def size_on_disk(self, at: TopicPartition) -> int:
        """Bytes of the segments of a log that is not open."""
        files = self._fs.list_files(self._unopened[at])
        return sum(size for name, size in files.items() if name.endswith(".log"))

    def topic_ids(self) -> Iterator[tuple[TopicPartition, uuid.UUID | None]]:
        """Every partition with files here, and the topic id they were written for, without opening any log."""
        for at, opened in list(self._logs.items()):
            yield at, opened.topic_id
        for at, directory in list(self._unopened.items()):
            yield at, stored_topic_id(self._fs, directory)

    def open(self) -> None:
        """Takes the directory and looks what is in it.

        Raises `ConfigError` if it cannot be made or written, if another broker uses it, or if it is another node's or
        cluster's.
        """
        try:
            self._fs.make_directory(self.data_dir)
            self._lock = self._fs.lock(self._path(".lock"))
        except BlockingIOError as error:
            raise errors.ConfigError(
                f"{self.data_dir} is in use by another broker: stop it or choose another directory"
            ) from error
        except OSError as error:
            raise errors.ConfigError(f"the broker cannot keep its data in {self.data_dir}: {error.strerror}") from error
        try:
            identity = identify(
                self._fs, self.data_dir, node_id=self.node_id, cluster_id=self._cluster_id, rng=self._rng
            )
            self._cluster_id, self._directory_id = identity.cluster_id, identity.directory_id
            self._find_partitions()
            marker = self._path(checkpoints.CLEAN_SHUTDOWN)
            self.was_clean = identity.is_new or self._fs.exists(marker)
            self._fs.remove(marker)
            for name in () if self.was_clean else checkpoints.OF_PARTITIONS:  # they are needed at once
                self._checkpoint(name)
        except BaseException:
            self._lock.release()
            raise

    def create(self, topic: str, topic_id: uuid.UUID, partition: int, config: LogConfig) -> PartitionLog:
        """The log of a partition that this node hosts from now on; its files appear with the first append.

        Files that a deleted topic of the same name left behind are thrown away.
        """
        at = TopicPartition(topic, partition)
        directory = self._unopened.get(at)
        if directory is not None and stored_topic_id(self._fs, directory) not in (topic_id, None):
            self._doom(at, self._unopened.pop(at))
        if at not in self._unopened:
            self._begin_anew(at)
        return self._open_log(at, topic_id, config)

    def find(self, topic: str, partition: int) -> PartitionLog | None:
        """The log; None if there is none. Raises `NotLeaderOrFollower` while it is not open, or why it cannot be."""
        at = TopicPartition(topic, partition)
        found = self._logs.get(at)
        if found is None and at in self._unopened:
            self.openings.check(at)
        return found

    def _begin_anew(self, at: TopicPartition) -> None:
        """A new log has no part in what checkpoints say of an older one of its name, also if this node dies soon."""
        self._forget(at)
        if at in self._forgotten:
            self.side.settle()  # it may be at the same files
            for name in checkpoints.OF_PARTITIONS:
                run_here(self._write_checkpoint(name))
            self._forgotten.clear()

    def _forget(self, at: TopicPartition) -> None:
        for name in checkpoints.OF_PARTITIONS:
            if self._checkpoint(name).pop(at, None) is not None:
                self._forgotten.add(at)

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """The log, opened and recovered if need be; None if there is none. Raises `KafkaStorageError`."""
        at = TopicPartition(topic, partition)
        found = self._logs.get(at)
        if found is None and at in self._unopened:
            return self._open_log(at, None, self.config_for(topic))
        return found

    def _open_log(self, at: TopicPartition, topic_id: uuid.UUID | None, config: LogConfig) -> PartitionLog:
        self.openings.forget(at)
        return run_here(self._opening(at, topic_id, config))

    def _opening_as_it_is(self, at: TopicPartition) -> Steps[None]:
        opened = yield from self._opening(at, None, self.config_for(at.topic))
        opened.update_config(self.config_for(at.topic))  # it may have changed meanwhile

    def _opening(self, at: TopicPartition, topic_id: uuid.UUID | None, config: LogConfig) -> Steps[PartitionLog]:
        opened = yield from PartitionLog.opening(
            self._path(str(at)),
            at.topic,
            at.partition,
            topic_id,
            config,
            fs=self._fs,
            clock=self._clock,
            clean=self.was_clean or at not in self._unopened,
            recovery_point=self._checkpoint(checkpoints.RECOVERY_POINTS).get(at, 0),
            start_offset=self._checkpoint(checkpoints.LOG_STARTS).get(at, 0),
        )
        opened.cleaned_to = self._checkpoint(checkpoints.CLEANER_OFFSETS).get(at, 0)
        self.sync_beside(opened)
        opened.remove_later = self._remove
        self._unopened.pop(at, None)
        self._logs[at] = opened
        return opened

    def sync_beside(self, opened: PartitionLog) -> None:
        """Has the side thread sync a log, and what waits for that held, where syncs cost time at all."""
        if self._fs.durable:
            opened.flush_later = self._flusher.submit
            opened.held = self.held

    def checkpointed_high_watermark(self, topic: str, partition: int) -> int:
        """The high watermark that was noted last, 0 if none was: where a replicated log begins again."""
        return self._checkpoint(checkpoints.HIGH_WATERMARKS).get(TopicPartition(topic, partition), 0)

    def delete_topic(self, topic: str) -> None:
        """Takes the topic's logs away; their files go after `file.delete.delay.ms`."""
        for at in [at for at in (*self._logs, *self._unopened) if at.topic == topic]:
            opened = self._logs.pop(at, None)
            if opened is not None:
                opened.close(clean=False)
            self.openings.forget(at)
            self._unopened.pop(at, None)
            self._forget(at)
            self._doom(at, self._path(str(at)))
        self.remove_doomed(self._clock.time_ms())

    def _doom(self, at: TopicPartition, directory: str) -> None:
        if self._fs.exists(directory):
            suffix = f"-{at.partition}.{self._rng.getrandbits(128):032x}{_DELETED}"
            doomed = self._path(at.topic[: _LONGEST_NAME - len(suffix)] + suffix)
            self._fs.rename(directory, doomed)
            self._doomed.append((self._clock.time_ms() + self.defaults.file_delete_delay_ms, doomed))

    def remove_doomed(self, now_ms: int) -> None:
        """Removes the directories of deleted partitions whose delay is over."""
        due = [path for when, path in self._doomed if when <= now_ms]
        self._doomed = [(when, path) for when, path in self._doomed if when > now_ms]
        if due:
            self._remove(due)

    def _remove(self, paths: list[str]) -> None:
        """Removes files and directories of what was deleted. Large ones take long: beside the loop, if there is one."""

        def remove() -> None:
            for path in paths:
                if path.endswith(_DELETED):
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
        """Notes how far each log is on the disk, where it starts, its high watermark, and how far it is compacted."""
        self.side.settle()  # it may be at the same files
        run_here(self.checkpoint_steps())

    def checkpoint_steps(self) -> Steps[None]:
        """The same, in steps."""
        self.side.collect()
        recovery_points = self._checkpoint(checkpoints.RECOVERY_POINTS)
        starts = self._checkpoint(checkpoints.LOG_STARTS)
        high_watermarks = self._checkpoint(checkpoints.HIGH_WATERMARKS)
        for count, at in enumerate(list(self._logs)):
            if count % _AT_ONCE == _AT_ONCE - 1:
                yield None
            opened = self._logs.get(at)
            if opened is None:  # its topic was deleted meanwhile
                continue
            recovery_points[at] = opened.recovery_point
            high_watermarks[at] = opened.high_watermark
            starts.pop(at, None)
            if opened.start_offset > opened.segments.first_offset:
                starts[at] = opened.start_offset
        for name in (checkpoints.RECOVERY_POINTS, checkpoints.LOG_STARTS, checkpoints.HIGH_WATERMARKS):
            yield from self._write_checkpoint(name)
        yield from self.save_cleaned()

    def save_cleaned(self) -> Steps[None]:
        """Notes how far each log is compacted, if that has changed."""
        cleaned = self._checkpoint(checkpoints.CLEANER_OFFSETS)
        before = dict(cleaned)
        for at, opened in self._logs.items():
            if opened.cleaned_to:
                cleaned[at] = opened.cleaned_to
            else:
                cleaned.pop(at, None)
        if cleaned != before:
            yield from self._write_checkpoint(checkpoints.CLEANER_OFFSETS)

    def _write_checkpoint(self, name: str) -> Steps[None]:
        offsets = self._offsets[name]
        all_of_them = list(offsets)
        count, parts = 0, [b""]
        for first in range(0, len(all_of_them), _AT_ONCE):
            items = [(at, offsets[at]) for at in all_of_them[first : first + _AT_ONCE] if at in offsets]
            parts.append(checkpoints.render_lines(items))
            count += len(items)
            if len(all_of_them) > _AT_ONCE:
                yield None
        parts[0] = checkpoints.render_head(count)
        content = b"".join(parts)
        yield Blocking(lambda: self._fs.replace(self._path(name), content))

    def close(self, clean: bool = True) -> None:
        """Closes every log. A clean close spares the next start all checks; else files are only let go of."""
        self.openings.close()
        self.side.close(wait=clean)
        self.side.wake = None
        together = clean and len(self._logs) > _SYNCED_ONE_BY_ONE
        for opened in self._logs.values():
            try:
                opened.close(clean, sync=not together)
            except errors.KafkaStorageError as error:
                log.error("%s", error)
                clean = False
        if together:
            try:
                self._fs.sync_all(self.data_dir)
            except OSError as error:
                log.error("%s: not everything is on the disk, the next start checks it: %s", self.data_dir, error)
                clean = False
        if clean:
            self.flush_checkpoints()
            if self.was_clean or not self._unopened:  # else there is a log that nobody has recovered yet
                self._fs.replace(self._path(checkpoints.CLEAN_SHUTDOWN), checkpoints.render_clean_shutdown())
            for _when, path in self._doomed:
                self._fs.remove_tree(path)
        self._logs.clear()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.data_dir} open={len(self._logs)} unopened={len(self._unopened)}>"

    def _path(self, name: str) -> str:
        return f"{self.data_dir}/{name}"

    def _find_partitions(self) -> None:
        for name in self._fs.list_directories(self.data_dir):
            topic, _, partition = name.rpartition("-")
            if topic and partition.isascii() and partition.isdigit() and str(int(partition)) == partition:
                self._unopened[TopicPartition(topic, int(partition))] = self._path(name)
            elif name.endswith(_DELETED):
                self._doomed.append((0, self._path(name)))
        self._unopened.pop(_METADATA, None)

    def _checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """What a checkpoint file says, read when first needed. Nothing if it makes no sense: then all is checked."""
        offsets = self._offsets.get(name)
        if offsets is None:
            try:
                offsets = checkpoints.read_offsets(self._fs, self._path(name))
            except CorruptCheckpoint as error:
                log.warning("%s: it is ignored", error)
                offsets = {}
            self._offsets[name] = offsets
        return offsets
