"""Applies the committed part of the metadata log to a node's image, in steps of some milliseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.controller.delta import MetadataDelta
from pyclient.broker_embedded.controller.raft.replica_log import OffsetAndEpoch
from pyclient.records import iter_batches

if TYPE_CHECKING:
    from pyclient.broker_embedded.controller.image import MetadataImage
    from pyclient.broker_embedded.controller.metadata_log import MetadataReplay
    from pyclient.broker_embedded.controller.quorum_files import OpenedLog

_APPLIED_AT_ONCE: Final = 1 << 18
"""Bytes of committed batches that are applied in one step, some milliseconds."""


class MetadataApplier:
    """The image has the log's records below `position`; `committed` is the offset up to which it may have them."""

    def __init__(self, opened: OpenedLog, image: MetadataImage) -> None:
        self.position = OffsetAndEpoch(opened.applied, opened.replay.epoch)
        self.committed = opened.applied
        self.leader_end = -1
        """The high watermark in the leader's last response."""
        self.replay: MetadataReplay = opened.replay
        self._log = opened.log
        self._image = image

    def __repr__(self) -> str:
        return f"<MetadataApplier at {self.position} committed={self.committed}>"

    @property
    def is_behind(self) -> bool:
        """Return True if there are committed records that the image does not have."""
        return self.position.offset < self.committed

    def step(self) -> MetadataDelta:
        """Apply committed batches, or the first part of many. Return what changed.

        Raise `ProtocolError` for records that cannot be applied.
        """
        data = self._log.read_bytes(self.position.offset, _APPLIED_AT_ONCE, isolation="log_end")
        delta = MetadataDelta(self._image)
        self.replay.target = delta
        for position, header in iter_batches(data):
            if header.base_offset >= self.committed:
                break
            self.replay.apply_batch(data, position, header)
            self.position = OffsetAndEpoch(header.next_offset, header.leader_epoch)
        return delta

    def installed(self, snapshot: OffsetAndEpoch, replay: MetadataReplay) -> None:
        """Continue after a snapshot, which has replaced the contents of the image."""
        self.position, self.replay = snapshot, replay

    def is_up_to_date(self, epoch: int, *, leads: bool) -> bool:
        """Return True if a record of the leader of `epoch` is applied, and with it all that was committed before."""
        known = self.committed if leads else self.leader_end
        applied, of = self.position.offset, self.position.epoch
        return known > 0 and applied >= max(known, self.committed) and of == epoch > 0
