"""Bits that are flipped on the disks of a simulated cluster while its nodes run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyclient.records.batch import iter_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.cluster import Cluster, Node
    from tests.simulation.disk import Inode

_AFTER_THE_CHECKSUM: Final = 21
"""The position in a batch from which on its checksum covers it."""


class FlippedBit(NamedTuple):
    """A bit in a batch of a log: the file's contents, the position of the byte, and the byte since then."""

    node_id: int
    inode: Inode
    position: int
    byte: int

    @property
    def is_there(self) -> bool:
        """Return True until the batch was cut and fetched again."""
        data = self.inode.data
        return self.position < len(data) and data[self.position] == self.byte


class Damage:
    """Damages committed records, one node at a time: all of them are on two sound disks."""

    def __init__(self, cluster: Cluster) -> None:
        self.flipped: list[FlippedBit] = []
        """All bits that were flipped, in order."""
        self._cluster = cluster

    @property
    def is_repaired(self) -> bool:
        """Return True if no damage is left."""
        return not any(each.is_there for each in self.flipped)

    def flip(self, node: Node) -> bool:
        """Flip a bit of a committed batch in a log of a node. Return False if it has none."""
        rng = self._cluster.world.rng
        batches = list(_committed(node))
        if not batches:
            return False
        path, start, size = rng.choice(batches)
        inode, position = node.disk.files[path], start + rng.randrange(_AFTER_THE_CHECKSUM, size)
        inode.data[position] ^= 1 << rng.randrange(8)
        self.flipped.append(FlippedBit(node.node_id, inode, position, inode.data[position]))
        self._cluster.world.note(f"node {node.node_id}: a bit of byte {position} of {path} is flipped")
        return True


def _committed(node: Node) -> Iterator[tuple[str, int, int]]:
    """Yield path, position and size of the committed batches of a running node's replicas."""
    broker = node.running
    for hosted in () if broker is None or broker.replicas is None else broker.replicas:
        for segment in () if hosted.log is None else hosted.log.segments:
            path = segment.records.file.path
            inode = node.disk.files.get(path)
            for start, header in () if inode is None else iter_batches(bytes(inode.data)):
                if hosted.log is not None and header.next_offset <= hosted.log.high_watermark:
                    yield path, start, header.size
