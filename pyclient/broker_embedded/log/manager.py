"""All logs of a data directory: found at start, made and deleted with their topics, and the checkpoints over them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable

from pyclient import errors
from pyclient.broker_embedded.log import checkpoints
from pyclient.broker_embedded.log.config import LogConfig
from pyclient.broker_embedded.log.filesystem import FileSystem, Lock
from pyclient.broker_embedded.log.partition_log import PartitionLog
from pyclient.clock import Clock
from pyclient.types import TopicPartition

log = logging.getLogger("pyclient.broker_embedded.log")

_NO_ID = uuid.UUID(int=0)
_METADATA_DIRECTORY = "__cluster_metadata-0"


class LogManager:
    """The partitions' logs under `data_dir`, which belongs to one process at a time.

    `cluster_id` None takes the one in the directory, or makes one. `was_clean` tells whether the last owner closed it.
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
    ) -> None:
        self.data_dir = str(data_dir)
        self.node_id = node_id
        self.was_clean = True
        self._cluster_id = cluster_id
        self._directory_id = _NO_ID
        self._fs = fs
        self._clock = clock
        self._defaults = defaults
        self._lock: Lock | None = None
        self._logs: dict[TopicPartition, PartitionLog] = {}

    @property
    def cluster_id(self) -> str:
        """The cluster's id, 22 characters."""
        if self._cluster_id is None:
            raise RuntimeError("the data directory is not open")
        return self._cluster_id

    @property
    def directory_id(self) -> uuid.UUID:
        """The data directory's own id."""
        return self._directory_id

    @property
    def logs(self) -> Iterable[PartitionLog]:
        """Every open log."""
        return list(self._logs.values())

    def open(self, config_of: Callable[[str], LogConfig] | None = None) -> None:
        """Take the directory and load what is in it; after a crash every log is checked behind its recovery point.

        Raises `ConfigError` when another process has it, or when it is another node's or cluster's.
        """
        self._fs.make_directory(self.data_dir)
        try:
            self._lock = self._fs.lock(self._path(".lock"))
        except OSError as error:
            raise errors.ConfigError(f"{self.data_dir}: another broker uses this data directory ({error})") from error
        try:
            self._identify()
            self.was_clean = self._fs.exists(self._path(checkpoints.CLEAN_SHUTDOWN)) or not self._partitions_on_disk()
            self._fs.remove(self._path(checkpoints.CLEAN_SHUTDOWN))
            self._load(config_of or (lambda _topic: self._defaults))
        except BaseException:
            self._lock.release()
            raise

    def create(self, topic: str, topic_id: uuid.UUID, partition: int, config: LogConfig) -> PartitionLog:
        """Make a partition's directory and its empty log."""
        directory = self._path(f"{topic}-{partition}")
        self._fs.make_directory(directory)
        self._fs.replace(
            f"{directory}/{checkpoints.PARTITION_METADATA}", checkpoints.render_topic_id(topic_id), sync=False
        )
        created = PartitionLog.open(
            directory, topic, partition, topic_id, config, fs=self._fs, clock=self._clock, clean=True
        )
        self._logs[TopicPartition(topic, partition)] = created
        return created

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """The log, if there is one."""
        return self._logs.get(TopicPartition(topic, partition))

    def delete_topic(self, topic: str) -> None:
        """Close and delete every log of the topic; reads that are being sent keep their files until they end."""
        for at in [at for at in self._logs if at.topic == topic]:
            gone = self._logs.pop(at)
            gone.close(clean=False)
            doomed = self._path(f"{at.topic}-{at.partition}.{uuid.uuid4().hex}-delete")
            self._fs.rename(gone.directory, doomed)
            self._fs.remove_tree(doomed)

    def flush_checkpoints(self) -> None:
        """Note how far each log is on the disk, where it starts, and its high watermark."""
        logs = self._logs.items()
        self._write(checkpoints.RECOVERY_POINTS, {at: found.recovery_point for at, found in logs})
        self._write(checkpoints.HIGH_WATERMARKS, {at: found.high_watermark for at, found in logs})
        starts = {at: found.start_offset for at, found in logs if found.start_offset > 0}
        self._write(checkpoints.LOG_STARTS, starts)

    def run_retention(self, now_ms: int) -> int:
        """Let old segments go in every log; how many went. A log that fails is reported, the others go on."""
        count = 0
        for found in self.logs:
            try:
                count += found.apply_retention(now_ms)
            except (OSError, errors.KafkaError):
                log.exception("%r: retention failed; it is tried again", found)
        return count

    def close(self, clean: bool = True) -> None:
        """Close every log; a clean close leaves the mark that spares the next start its checks."""
        for found in self._logs.values():
            found.close(clean=clean)
        if clean:
            self.flush_checkpoints()
            self._fs.replace(self._path(checkpoints.CLEAN_SHUTDOWN), checkpoints.render_clean_shutdown())
        self._logs.clear()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _path(self, name: str) -> str:
        return f"{self.data_dir}/{name}"

    def _write(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        self._fs.replace(self._path(name), checkpoints.render_offsets(offsets))

    def _identify(self) -> None:
        path = self._path(checkpoints.META_PROPERTIES)
        content = self._fs.read(path)
        known = checkpoints.parse_identity(content, path) if content is not None else {}
        for name, ours in (("node.id", str(self.node_id)), ("cluster.id", self._cluster_id)):
            theirs = known.get(name)
            if theirs is not None and ours is not None and theirs != ours:
                raise errors.ConfigError(f"{path}: the directory belongs to {name} {theirs}, not {ours}")
        self._cluster_id = known.get("cluster.id") or self._cluster_id or _new_id()
        text = known.get("directory.id")
        self._directory_id = checkpoints.uuid_from_text(text if text else _new_id())
        if not text:
            identity = checkpoints.render_identity(
                cluster_id=self._cluster_id, node_id=self.node_id, directory_id=self._directory_id
            )
            self._fs.replace(path, identity)

    def _partitions_on_disk(self) -> bool:
        return any(_partition_of(name) is not None for name in self._fs.list_directories(self.data_dir))

    def _load(self, config_of: Callable[[str], LogConfig]) -> None:
        recovery_points = self._read(checkpoints.RECOVERY_POINTS)
        starts = self._read(checkpoints.LOG_STARTS)
        for name in self._fs.list_directories(self.data_dir):
            if name.endswith("-delete"):
                self._fs.remove_tree(self._path(name))
                continue
            at = _partition_of(name)
            if at is None or name == _METADATA_DIRECTORY:
                continue
            self._logs[at] = PartitionLog.open(
                self._path(name),
                at.topic,
                at.partition,
                self._topic_id(name),
                config_of(at.topic),
                fs=self._fs,
                clock=self._clock,
                clean=self.was_clean,
                recovery_point=recovery_points.get(at, 0),
                start_offset=starts.get(at, 0),
            )

    def _read(self, name: str) -> dict[TopicPartition, int]:
        path = self._path(name)
        try:
            return checkpoints.read_offsets(self._fs, path)
        except checkpoints.CorruptCheckpoint as error:
            log.warning("%s; it is made again, logs are checked from their beginning", error)
            return {}

    def _topic_id(self, directory: str) -> uuid.UUID:
        path = f"{self._path(directory)}/{checkpoints.PARTITION_METADATA}"
        content = self._fs.read(path)
        if content is None:
            return _NO_ID
        try:
            return checkpoints.parse_topic_id(content, path)
        except checkpoints.CorruptCheckpoint as error:
            log.warning("%s", error)
            return _NO_ID


def _partition_of(directory: str) -> TopicPartition | None:
    topic, separator, number = directory.rpartition("-")
    if not separator or not topic or not number.isdigit():
        return None
    return TopicPartition(topic, int(number))


def _new_id() -> str:
    """An id in Kafka's text form; none starts with a dash, which command lines would take for an option."""
    while (text := checkpoints.uuid_text(uuid.uuid4())).startswith("-"):
        pass
    return text
