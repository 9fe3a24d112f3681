"""A cluster of several brokers in the foreground of a process: each broker has a process of its own."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from pyclient.broker_embedded.cluster.embedded_cluster import EmbeddedCluster
from pyclient.broker_embedded.config.broker_config import options_of, users_of
from pyclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger("pyclient.broker_embedded")

_LOOK_SECONDS = 0.5


def serve_cluster(brokers: int, *, settings: Mapping[str, str], **options: Any) -> int:
    """Run a cluster until SIGTERM or Ctrl-C; `options` are those of `EmbeddedCluster`. Return the exit status.

    When it serves, the first line on stdout is `bootstrap.servers=HOST:PORT,...`; with `control_port` the second one is
    `control.url=http://HOST:PORT`. A broker that ends by itself is started again.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    stopping = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopping.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        config, users = {**settings, **options_of(os.environ)}, users_of(os.environ) or None
        with EmbeddedCluster(brokers, processes=True, config=config, users=users, **options) as cluster:
            print(f"bootstrap.servers={cluster.bootstrap_servers}", flush=True)  # noqa: T201 - a parent waits for it
            if cluster.control_url is not None:
                print(f"control.url={cluster.control_url}", flush=True)  # noqa: T201 - a parent waits for it, too
            while not stopping.wait(_LOOK_SECONDS):
                for node in [node for node in cluster.nodes if node.crashed]:
                    log.warning("starting node %d again", node.id)
                    cluster.start(node.id)
            log.info("stopping")
        return 0
    except KafkaError as error:
        print(f"pyclient broker: {error}", file=sys.stderr)  # noqa: T201 - a command's answer to its user
        return 1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
