"""Snapshots between the nodes of the metadata quorum: parts of them are sent, and received ones replace the log."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from pyclient import errors
from pyclient.broker_embedded.controller.delta import MetadataDelta
from pyclient.broker_embedded.controller.image import MetadataImage
from pyclient.broker_embedded.controller.metadata_log import MetadataReplay
from pyclient.broker_embedded.controller.snapshots import check_snapshot, path_of, remove_before
from pyclient.records import iter_batches

if TYPE_CHECKING:
    from pyclient.broker_embedded.controller.raft.messages import FetchSnapshotResponse, StoreSnapshotPiece
    from pyclient.broker_embedded.controller.raft.replica_log import OffsetAndEpoch
    from pyclient.broker_embedded.log.filesystem import FileSystem
    from pyclient.broker_embedded.log.unified_log import UnifiedLog


class QuorumSnapshots:
    """The snapshots in the directory of the metadata log, and the one that is being fetched."""

    def __init__(self, fs: FileSystem, opened: UnifiedLog, max_bytes: int) -> None:
        self._fs = fs
        self._log = opened
        self._max_bytes = max_bytes
        self._pieces = bytearray()

    def piece(
        self, snapshot: OffsetAndEpoch, response: FetchSnapshotResponse
    ) -> tuple[FetchSnapshotResponse, bytes, int]:
        """Return the answer with the bytes from its position on, and the snapshot's size."""
        path = path_of(self._log.directory, snapshot)
        size = self._fs.list_files(self._log.directory).get(os.path.basename(path))
        if size is None:
            return replace(response, error=errors.SnapshotNotFound.code), b"", 0
        if not 0 <= response.position < size:
            return replace(response, error=errors.PositionOutOfRange.code), b"", size
        file = self._fs.file(path)
        try:
            data = file.pread(min(self._max_bytes, size - response.position), response.position)
        finally:
            file.close()
        return response, data, size

    def store(self, piece: StoreSnapshotPiece) -> None:
        """Keep a piece of the snapshot that is being fetched."""
        del self._pieces[piece.position :]
        self._pieces += piece.data

    def install(self, snapshot: OffsetAndEpoch, image: MetadataImage) -> tuple[MetadataReplay, MetadataDelta]:
        """Let the fetched snapshot replace the log and the contents of the image. Return what changed in that.

        Raise `ProtocolError` if it is damaged; nothing was changed then.
        """
        content = bytes(self._pieces)
        self._pieces.clear()
        check_snapshot(content)
        fetched = MetadataImage()
        replay = MetadataReplay(fetched)
        for position, header in iter_batches(content):
            replay.apply_snapshot(content, position, header)
        self._fs.replace(path_of(self._log.directory, snapshot), content)
        self._log.truncate_fully_and_start_at(snapshot.offset)
        self._log.advance_high_watermark(snapshot.offset)
        remove_before(self._fs, self._log.directory, snapshot)
        before = image.copy()
        image.become(fetched)
        return replay, MetadataDelta.between(before, image)
