"""Moving logs between the data directories of a node while they are used (AlterReplicaLogDirs, KIP-113)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyclient import errors
from pyclient.broker_embedded.log.data_directory import DataDirectory
from pyclient.broker_embedded.log.incremental_task import BlockingCall, IncrementalTask
from pyclient.broker_embedded.log.partition_directories import FUTURE, marked_name
from pyclient.broker_embedded.log.unified_log import UnifiedLog
from pyclient.clock import Rng
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.manager import LogManager

log = logging.getLogger("pyclient.broker_embedded")

_CHUNK: Final = 256 << 10
"""Bytes that are copied per step."""
_AT_ONCE: Final = 1 << 20
"""Remaining bytes that are copied without a pause before the copy replaces the log."""
_ROUNDS: Final = 100
"""Flushes of the copy after which it replaces the log, however much was appended meanwhile."""


@dataclass(slots=True)
class Move:
    """A log that is being moved to another directory; `copy` is its new log, once it is open."""

    target: DataDirectory
    path: str
    copy: UnifiedLog | None = None
    cancelled: bool = False


class ReplicaAlterLogDirs:
    """The queue of moves, run one after the other. `on_moved` is called when a log is in its new directory."""

    def __init__(self, logs: LogManager, rng: Rng) -> None:
        self.moves: dict[TopicPartition, Move] = {}
        self.wake: Callable[[], object] = lambda: None
        """Called to run `steps`."""
        self.on_moved: Callable[[TopicPartition, DataDirectory], object] = lambda _partition, _target: None
        self._logs = logs
        self._rng = rng

    def __repr__(self) -> str:
        return f"<ReplicaAlterLogDirs {len(self.moves)} moves>"

    def begin(self, partition: TopicPartition, target: DataDirectory) -> None:
        """Move a log to `target`. An earlier move to another directory is cancelled, also if the log is at `target`."""
        move = self.moves.get(partition)
        if move is not None and move.target is target:
            return
        if move is not None:
            move.cancelled = True
            del self.moves[partition]
        home = self._logs.directories.homes.get(partition)
        if home is None:  # nothing was written yet: the log will be created there
            self.on_moved(partition, target)
        elif home is not target:
            path = target.file(marked_name(partition, self._rng.getrandbits(128), FUTURE))
            self.moves[partition] = Move(target, path)
            self.wake()

    def steps(self) -> IncrementalTask[None]:
        """Run the queued moves. A failure is logged, and the log stays where it is."""
        while self.moves:
            partition, move = next(iter(self.moves.items()))
            try:
                moved = yield from self._steps_of(partition, move)
            except (OSError, errors.KafkaError) as error:
                log.error(
                    "%s stays in its directory, it could not be copied to %s: %s", partition, move.target.path, error
                )
                moved = False
            if not moved and move.copy is not None:
                move.copy.close(clean=False)
                self._logs.remove_future_log(move.path)
            if self.moves.get(partition) is move:
                del self.moves[partition]
            if moved:
                log.info("%s is in %s now", partition, move.target.path)
                self.on_moved(partition, move.target)

    def _steps_of(self, partition: TopicPartition, move: Move) -> IncrementalTask[bool]:
        source = yield from self._logs.get_steps(partition)
        if source is None:
            return False
        copy = move.copy = yield from self._logs.open_future_log(source, move.path)
        for _ in range(_ROUNDS):
            while not _is_over(move, source) and copy.end_offset != source.end_offset:
                self._copy_chunk(source, copy)
                yield None
            yield BlockingCall(copy.flush)
            if _is_over(move, source):
                return False
            if source.size - copy.size < _AT_ONCE:
                break
        while copy.end_offset != source.end_offset:  # without a pause: nothing is appended meanwhile
            self._copy_chunk(source, copy)
        copy.close()
        self._logs.replace_current_with_future_log(partition, source, move.path, move.target)
        return True

    def _copy_chunk(self, source: UnifiedLog, copy: UnifiedLog) -> None:
        if copy.end_offset > source.end_offset:
            copy.truncate_to(source.end_offset)
        offset = max(copy.end_offset, source.start_offset)
        data = source.read_bytes(offset, _CHUNK)
        if data:
            copy.append(data, leader_epoch=-1, now_ms=self._logs.time_ms(), origin="replica")
        elif offset == source.start_offset:  # all records were deleted
            copy.truncate_fully_and_start_at(source.end_offset)
        else:
            raise errors.KafkaStorageError(f"{source!r} has no batches from {offset} on")


def _is_over(move: Move, source: UnifiedLog) -> bool:
    """Return True if the move was cancelled or the log was closed."""
    return move.cancelled or source.closed
