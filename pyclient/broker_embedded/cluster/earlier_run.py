"""The start of a cluster on a directory whose nodes of an earlier run have not ended yet.

The nodes are not children of the next run: when the process that started them is killed, they stop in order, which
takes seconds, and when all processes are killed at once, the system still ends them for a moment.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.cluster.runners import START_SECONDS
from pyclient.broker_embedded.log.data_directory import LOCK
from pyclient.broker_embedded.log.filesystem import RealFileSystem
from pyclient.errors import ConfigError

if TYPE_CHECKING:
    from pyclient.broker_embedded.cluster.embedded_cluster import EmbeddedCluster
    from pyclient.net.latch import Latch

log = logging.getLogger("pyclient.broker_embedded")

_DIRECTORY_SECONDS: Final = 30.0  # an orderly stop takes up to a broker's session and the flush of its logs
_PORT_SECONDS: Final = 5.0  # the system closes the ports of a process that has ended soon after its locks, or before
_LOOK_SECONDS: Final = 0.05
_REGISTRATION: Final = "initial.broker.registration.timeout.ms"


def start_after_earlier_run(
    cluster: EmbeddedCluster,
    stopping: Latch,
    *,
    directory_seconds: float = _DIRECTORY_SECONDS,
    port_seconds: float = _PORT_SECONDS,
) -> bool:
    """Start a cluster once its directories and ports are free. Return False if `stopping` is opened before.

    Brokers may take `initial.broker.registration.timeout.ms` to register: after a crash the controller refuses that
    until the session of the earlier registration has ended. Raise `ConfigError` if a directory or a port is not free
    in time. A taken port of a directory without data is an error at once.
    """
    known = [path for path in _locks(cluster) if os.path.isfile(path)]
    if not _wait_for_directories(known, stopping, directory_seconds):
        return False
    end = time.monotonic() + port_seconds
    while True:
        try:
            cluster.start(timeout=max(START_SECONDS, cluster.nodes[0].config.seconds(_REGISTRATION)))
            return True
        except ConfigError as error:
            if not known or not _is_taken(error) or time.monotonic() >= end:
                raise
            log.warning("%s: trying again, as a node of an earlier run may still have it", error)
        if stopping.wait(_LOOK_SECONDS):
            return False


def _wait_for_directories(locks: list[str], stopping: Latch, seconds: float) -> bool:
    """Wait until no process has one of the locks. Return False if `stopping` is opened before. Raise `ConfigError`."""
    end = time.monotonic() + seconds
    announced = False
    while used := [path for path in locks if _is_locked(path)]:
        directories = ", ".join(os.path.dirname(path) for path in used)
        if time.monotonic() >= end:
            raise ConfigError(
                f"{directories}: in use by another broker, also after {seconds:g} s: stop it or use another directory"
            )
        if not announced:
            log.warning("waiting up to %g s for nodes of an earlier run to end: %s is in use", seconds, directories)
            announced = True
        if stopping.wait(_LOOK_SECONDS):
            return False
    return True


def _locks(cluster: EmbeddedCluster) -> list[str]:
    """Return the paths of the lock files of a cluster's nodes; none for a temporary directory."""
    return [os.path.join(node.data_dir, LOCK) for node in cluster.nodes if node.data_dir]


def _is_locked(path: str) -> bool:
    try:
        RealFileSystem().lock(path).release()
    except BlockingIOError:
        return True
    except OSError:  # the start of the node reports it
        return False
    return False


def _is_taken(error: ConfigError) -> bool:
    """Return True for the error of a port that another socket has."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE
