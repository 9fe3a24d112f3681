"""The identity of a data directory: `meta.properties` is read and compared, or written."""

from __future__ import annotations

import uuid
from typing import NamedTuple

from pyclient import errors
from pyclient.broker_embedded.log import checkpoints
from pyclient.broker_embedded.log.filesystem import FileSystem
from pyclient.clock import Rng


class Identity(NamedTuple):
    """The cluster's id (22 characters), the directory's id (KIP-858), and whether the directory is new."""

    cluster_id: str
    directory_id: uuid.UUID
    is_new: bool


def identify(fs: FileSystem, data_dir: str, *, node_id: int, cluster_id: str | None, rng: Rng) -> Identity:
    """Read or write the directory's identity. Raise `ConfigError` if it is another node's or cluster's."""
    path = f"{data_dir}/{checkpoints.META_PROPERTIES}"
    content = fs.read(path)
    known = {} if content is None else checkpoints.parse_identity(content, path)
    _compare(path, "node.id", known, str(node_id))
    _compare(path, "cluster.id", known, cluster_id)
    cluster = known.get("cluster.id") or cluster_id or checkpoints.uuid_text(_random_id(rng))
    stored = known.get("directory.id")
    try:
        directory_id = checkpoints.uuid_from_text(stored) if stored else _random_id(rng)
    except ValueError as error:
        raise errors.ConfigError(f"{path}: directory.id {stored!r} is not an id") from error
    if not stored or "cluster.id" not in known:
        identity = checkpoints.render_identity(cluster_id=cluster, node_id=node_id, directory_id=directory_id)
        fs.replace(path, identity)
    return Identity(cluster, directory_id, content is None)


def _compare(path: str, name: str, known: dict[str, str], ours: str | None) -> None:
    stored = known.get(name)
    if stored is not None and ours is not None and stored != ours:
        raise errors.ConfigError(f"{path}: the directory belongs to {name} {stored}, this broker has {ours}")


def _random_id(rng: Rng) -> uuid.UUID:
    """Return a random (version 4) id whose text does not begin with a dash, like a command-line option."""
    while True:
        made = uuid.UUID(int=rng.getrandbits(128), version=4)
        if not checkpoints.uuid_text(made).startswith("-"):
            return made
