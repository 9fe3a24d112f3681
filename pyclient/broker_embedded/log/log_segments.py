"""The segments of one log, oldest first: search by offset, rolling, deletion and truncation."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from pyclient.broker_embedded.log.filesystem import FileSystem
from pyclient.broker_embedded.log.log_segment import SWAP, LogSegment


class LogSegments:
    """A non-empty list; `active`, the last one, is written to. `take_due` returns files of dropped ones."""

    __slots__ = ("_bases", "_directory", "_dropped", "_fs", "_segments", "_swap", "active")

    def __init__(self, fs: FileSystem, directory: str, segments: list[LogSegment]) -> None:
        self._fs = fs
        self._directory = directory
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._dropped: list[tuple[int, str]] = []
        self._swap: Iterator[None] = iter(())  # pending renames of `replace`
        self.active = segments[-1]

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    def __getitem__(self, index: int) -> LogSegment:
        return self._segments[index]

    def since(self, offset: int) -> list[LogSegment]:
        """Return the segment that holds `offset` (or would), and all after it."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]

    @property
    def first_offset(self) -> int:
        """Return the first offset of the oldest segment."""
        return self._bases[0]

    @property
    def size(self) -> int:
        """Return the bytes of all batches."""
        return sum(segment.size for segment in self._segments)

    def end_of(self, segment: LogSegment, log_end: int) -> int:
        """Return the offset at which `segment` ends: the next one's base, or the end of the log."""
        index = bisect_right(self._bases, segment.base_offset)
        return self._bases[index] if index < len(self._bases) else log_end

    def begin(self, base_offset: int, index_interval: int) -> LogSegment:
        """Add an empty segment as the active one. An empty one before it is dropped."""
        if not self.active.size:
            self._mark_deleted(len(self._segments) - 1, 0)
            del self._segments[-1], self._bases[-1]
        self.active = LogSegment(self._fs, self._directory, base_offset, size=0, index_interval=index_interval)
        self._segments.append(self.active)
        self._bases.append(base_offset)
        return self.active

    def drop_oldest(self, count: int, due_ms: int) -> None:
        """Drop `count` segments (not all), oldest first, so that a crash in between leaves no gap."""
        self.finish_renames()
        for index in range(count):
            self._mark_deleted(index, due_ms)
        del self._segments[:count], self._bases[:count]

    def drop_behind(self, offset: int, due_ms: int) -> None:
        """Drop the segments that begin after `offset`, newest first, so that a crash in between leaves no gap."""
        self.finish_renames()
        keep = max(bisect_right(self._bases, offset), 1)
        for index in range(len(self._segments) - 1, keep - 1, -1):
            self._mark_deleted(index, due_ms)
        del self._segments[keep:], self._bases[keep:]
        self.active = self._segments[-1]

    def drop_all(self, base_offset: int, index_interval: int, due_ms: int) -> None:
        """Drop all segments, and add an empty one at `base_offset`."""
        self.drop_behind(self._bases[0], due_ms)
        self._mark_deleted(0, due_ms)
        self._segments.clear()
        self._bases.clear()
        self.active = LogSegment(self._fs, self._directory, base_offset, size=0, index_interval=index_interval)
        self._segments.append(self.active)
        self._bases.append(base_offset)

    def replace(self, made: LogSegment, old: list[LogSegment], due_ms: int) -> Iterator[None] | None:
        """Replace segments by the one that compaction made of them. Return None if they have changed.

        Readers find the new segment at once. The files are renamed as the returned iterator advances, one segment per
        step, or by `finish_renames`. After a crash in between, the next start completes the renames.
        """
        self.finish_renames()
        first = bisect_right(self._bases, old[0].base_offset) - 1
        here = self._segments[first : first + len(old)]
        if first < 0 or len(here) < len(old) or any(a is not b for a, b in zip(here, old, strict=True)):
            return None
        if old[-1] is self.active:
            return None
        made.rename(SWAP)
        self._segments[first : first + len(old)] = [made]
        self._bases[first : first + len(old)] = [made.base_offset]
        self._swap = self._put_in_place(made, old, due_ms)
        return self._swap

    def _put_in_place(self, made: LogSegment, old: list[LogSegment], due_ms: int) -> Iterator[None]:
        for segment in reversed(old):
            yield None
            paths = segment.mark_deleted(keep_snapshot=segment.base_offset == made.base_offset)
            self._dropped += [(due_ms, path) for path in paths]
        yield None
        made.rename("")

    def finish_renames(self) -> None:
        """Finish pending renames: before that no segments may be dropped, nor may the log be closed cleanly."""
        for _ in self._swap:
            pass

    def _mark_deleted(self, index: int, due_ms: int) -> None:
        self._dropped += [(due_ms, path) for path in self._segments[index].mark_deleted()]

    def take_due(self, now_ms: int) -> list[str]:
        """Return the files of dropped segments that are due (epoch ms); the caller removes them."""
        due = [path for when, path in self._dropped if when <= now_ms]
        if due:
            self._dropped = [(when, path) for when, path in self._dropped if when > now_ms]
        return due

    def sync(self, from_offset: int, log_end: int) -> None:
        """Return when the batches from `from_offset` on, and their indexes, are on the disk."""
        for segment in self.since(from_offset):
            if segment.size and self.end_of(segment, log_end) > from_offset:
                segment.indexes.write()
                for file in segment.files():
                    file.sync()
        self._fs.sync_directory(self._directory)

    def close(self) -> None:
        """Close the files."""
        for segment in self._segments:
            segment.close()

    def __repr__(self) -> str:
        return f"<LogSegments {self._bases} active={self.active.size}>"
