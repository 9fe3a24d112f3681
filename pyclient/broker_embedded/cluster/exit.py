"""Closes the clusters that are still open when the interpreter exits, after the clients."""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyclient.broker_embedded.cluster.embedded_cluster import EmbeddedCluster

log = logging.getLogger("pyclient.broker_embedded")

_live: Final[weakref.WeakSet[EmbeddedCluster]] = weakref.WeakSet()


def close_at_exit(cluster: EmbeddedCluster) -> None:
    """Close a cluster at the exit of the interpreter, unless `closed` is called for it."""
    from pyclient.net.loop_thread import call_after_clients

    _live.add(cluster)
    call_after_clients(_close_all)


def closed(cluster: EmbeddedCluster) -> None:
    """Do not close a cluster at the exit: it is closed."""
    _live.discard(cluster)


def _close_all() -> None:
    for cluster in list(_live):
        try:
            cluster.close()
        except Exception:  # the other clusters must be closed, too
            log.exception("closing %r at interpreter exit failed", cluster)
