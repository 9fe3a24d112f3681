"""A broker in the foreground of a process: it serves until a signal, or until its parent has ended.

A cluster of several brokers is served by one process for each broker, which this process starts and watches.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.cluster.control_port import listen_for_controls
from pyclient.broker_embedded.cluster.hosting import NodeHost, serve_calls, serve_http
from pyclient.broker_embedded.cluster.security import ClusterSecurity, host_of
from pyclient.broker_embedded.config.broker_config import BrokerConfig, acls_of, options_of, users_of
from pyclient.config.broker_security import AUTHORIZER, PROTOCOLS, STANDARD_AUTHORIZER
from pyclient.errors import KafkaError
from pyclient.net.latch import Latch
from pyclient.net.loop_thread import new_event_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyclient.broker_embedded.cluster.embedded_cluster import EmbeddedCluster
    from pyclient.broker_embedded.cluster.hosting import HttpServer
    from pyclient.broker_embedded.controls.channel import SocketServer

log = logging.getLogger("pyclient.broker_embedded")

_LOOK_SECONDS: Final = 0.5  # between two checks for crashed brokers
_LONGEST_PAUSE: Final = 30.0  # seconds between two starts of a node that cannot start
_FULL: Final = 2  # the oldest generation
_LONG_COLLECTION: Final = 0.005  # seconds of CPU time

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's numbers of mallopt parameters
_KEPT_BYTES: Final = 16 << 20
_MAPPED_BYTES: Final = 8 << 20


def serve(
    *,
    host: str,
    port: int,
    data_dir: str | None,
    profile: str,
    settings: Mapping[str, str],
    as_version: str | None,
    security: str,
    cluster_id: str | None = None,
    links: Mapping[str, str] | None = None,
    with_parent: bool = False,
    control_port: int | None,
    control_host: str,
    control_fd: int | None = None,
) -> int:
    """Run a broker until SIGTERM or Ctrl-C. Return the exit status.

    When it serves, the first line on stdout is `bootstrap.servers=HOST:PORT`; everything else goes to stderr. Without
    `data_dir` the data is in a temporary directory that is removed at the end. `as_version` is the release of Kafka
    that it looks like, `cluster_id` the cluster of a new data directory. `security` is the protocol
    of its listeners, if the options have none; with SASL, clients log in as one of the users in the environment
    variable PYCLIENT_BROKER_USERS, and with TLS it makes the certificates that the options lack. `links` has
    addresses to dial in place of other nodes' own ones. `with_parent` ends it when stdin closes.
    With `control_port` (0: any free one) the controls for tests are served there by HTTP, and the second line on stdout
    is `control.url=http://HOST:PORT`; `control_fd` is a listening Unix socket for the calls of a `SocketChannel`.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    with contextlib.ExitStack() as stack:
        try:
            config = _broker_config(
                stack,
                settings,
                data_dir=data_dir,
                host=host,
                security=security,
                port=port,
                profile=profile,
                as_version=as_version,
                cluster_id=cluster_id,
            )
            control = None
            if control_port is not None:
                control = stack.enter_context(listen_for_controls(control_host, control_port))
            return serve_forever(config, links=links, with_parent=with_parent, control=control, control_fd=control_fd)
        except (KafkaError, OSError) as error:
            print(f"pyclient broker: {error}", file=sys.stderr)  # noqa: T201 - a command's answer to its user
            return 1


def _broker_config(
    stack: contextlib.ExitStack,
    settings: Mapping[str, str],
    *,
    data_dir: str | None,
    host: str,
    security: str,
    **options: Any,
) -> BrokerConfig:
    """Complete the options by those of the environment, its users and ACLs, and the TLS files that they lack.

    `stack` removes the temporary directories; `options` are further ones of `BrokerConfig.build`.
    """
    if data_dir is None and not settings.keys() & {"log.dirs", "log.dir"}:
        data_dir = stack.enter_context(tempfile.TemporaryDirectory(prefix="pyclient-broker-"))
    security_of = ClusterSecurity(security, users_of(os.environ) if security != "PLAINTEXT" else None)
    acls = acls_of(os.environ)
    settings = {**({AUTHORIZER: STANDARD_AUTHORIZER} if acls else {}), **settings, **options_of(os.environ)}
    if security_of.uses_tls:
        directory = data_dir or stack.enter_context(tempfile.TemporaryDirectory(prefix="pyclient-security-"))
        settings |= security_of.options(directory, host_of(settings, host), settings)
    users = users_of(os.environ) if _has_users(security, settings) else None
    return BrokerConfig.build(
        settings, data_dir=data_dir or "", host=host, security=security, users=users, acls=acls, **options
    )


def _has_users(security: str, settings: Mapping[str, str]) -> bool:
    """Return True unless all listeners are PLAINTEXT, which has no authentication."""
    texts = (security, settings.get("listeners", ""), settings.get("listener.security.protocol.map", ""))
    return any(protocol in text.upper() for text in texts for protocol in PROTOCOLS[1:])


def serve_forever(
    config: BrokerConfig,
    *,
    on_ready: Callable[[str], None] | None = None,
    links: Mapping[str, str] | None = None,
    with_parent: bool = False,
    control: socket.socket | None = None,
    control_fd: int | None = None,
) -> int:
    """Run one node until SIGTERM or Ctrl-C, on a new event loop in this thread. Return 0 after a clean end.

    `on_ready` gets `host:port`; without it the line `bootstrap.servers=host:port` is printed.
    """
    loop = new_event_loop()
    try:
        host = NodeHost(config, loop, links)
        return loop.run_until_complete(_serve(host, on_ready or _announce, with_parent, control, control_fd))
    finally:
        loop.close()


async def _serve(
    host: NodeHost,
    on_ready: Callable[[str], None],
    with_parent: bool,
    control: socket.socket | None,
    control_fd: int | None,
) -> int:
    stopping, loop = asyncio.Event(), host.loop
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    await host.start()
    _keep_freed_memory()
    servers: list[HttpServer | SocketServer] = []
    if control_fd is not None:
        _serve_when_asked(host, socket.socket(fileno=control_fd), servers)
    if control is not None:
        from pyclient.broker_embedded.cluster.clusters import ServerWithClusters  # few brokers serve HTTP

        servers.append(await serve_http(host, control, ServerWithClusters))
    GarbageCollections().install()
    if with_parent:
        loop.add_reader(sys.stdin.fileno(), _on_stdin, loop, stopping)
    on_ready(host.address)
    if control is not None:
        print(f"control.url={host.controls.url}", flush=True)  # noqa: T201 - a parent process waits for it, too
    await stopping.wait()
    log.info("stopping")
    for server in servers:
        await server.close()
    await host.stop()
    return 0


def _keep_freed_memory() -> None:
    """Have glibc's malloc keep up to 16 MiB of freed memory at the end of its heap.

    Otherwise the memory of each decompressed batch is returned, and the next one pays a page fault for every page
    (docs/measurements.md, "Checking records").
    """
    import ctypes  # slow to import, and not needed to start

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, _MAPPED_BYTES)


class GarbageCollections:
    """Keeps full garbage collections short: they come often, and later ones skip what has survived a long one.

    One that walks all objects of a large broker blocks its loop for long (docs/measurements.md, "Requests of many
    items"). Frozen objects that later become garbage in a reference cycle are not freed: a broker has few of those.
    """

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._began = 0.0

    def install(self) -> None:
        """Freeze the objects of the start-up, and adjust the collector of this process."""
        gc.freeze()
        young, middle, _full = gc.get_threshold()
        gc.set_threshold(young, middle, 1)
        gc.callbacks.append(self.note)

    def note(self, phase: str, info: dict[str, int]) -> None:
        """Handle a call of the collector before or after a collection."""
        if info["generation"] < _FULL:
            return
        if phase == "start":
            self._began = self._clock()
        elif self._clock() - self._began > _LONG_COLLECTION:
            gc.freeze()


def _serve_when_asked(host: NodeHost, listener: socket.socket, servers: list[HttpServer | SocketServer]) -> None:
    """Import the controls at the first connection, which keeps the start short."""

    async def begin() -> None:
        servers.append(await serve_calls(host, listener))

    def first() -> None:
        host.loop.remove_reader(listener.fileno())
        tasks.add(host.loop.create_task(begin()))

    tasks: set[asyncio.Task[None]] = set()
    host.loop.add_reader(listener.fileno(), first)


def _on_stdin(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        loop.remove_reader(sys.stdin.fileno())
        stopping.set()


def _announce(bootstrap: str) -> None:
    print(f"bootstrap.servers={bootstrap}", flush=True)  # noqa: T201 - a parent process waits for it


class Restarts:
    """Starts the nodes of a cluster that have ended by themselves. The others serve on while one cannot start."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self._failed: dict[int, tuple[float, int]] = {}  # node id -> when it is tried again, and its failures so far

    def check(self, now: float) -> None:
        """Start the nodes that have ended; one that could not start again after a pause."""
        for node in [node for node in self._cluster.nodes if node.crashed]:
            due, failures = self._failed.get(node.id, (now, 0))
            if now < due:
                continue
            log.warning("starting node %d again", node.id)
            try:
                self._cluster.start(node.id)
            except (KafkaError, OSError) as error:
                pause = min(_LOOK_SECONDS * 2**failures, _LONGEST_PAUSE)
                log.error("node %d cannot start, the next attempt is in %g s: %s", node.id, pause, error)
                self._failed[node.id] = now + pause, failures + 1
            else:
                self._failed.pop(node.id, None)


def serve_cluster(brokers: int, *, settings: Mapping[str, str], **options: Any) -> int:
    """Run a cluster until SIGTERM or Ctrl-C; `options` are those of `EmbeddedCluster`. Return the exit status.

    When it serves, the first line on stdout is `bootstrap.servers=HOST:PORT,...`; with `control_port` the second one is
    `control.url=http://HOST:PORT`. A node that ends by itself is started again. If nodes of an earlier run on the
    directory are still ending, it waits for them.
    """
    from pyclient.broker_embedded.cluster.earlier_run import start_after_earlier_run
    from pyclient.broker_embedded.cluster.embedded_cluster import EmbeddedCluster

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    stopping = Latch()  # the lock within an event may be held by the very wait that a signal interrupts
    before = {number: signal.signal(number, opens(stopping)) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        config, users = {**settings, **options_of(os.environ)}, users_of(os.environ) or None
        acls = acls_of(os.environ) or None
        made = EmbeddedCluster(brokers, processes=True, config=config, users=users, acls=acls, **options)
        with contextlib.closing(made) as cluster:
            if start_after_earlier_run(cluster, stopping):
                _serve_until(stopping, cluster)
            log.info("stopping")
        return 0
    except KafkaError as error:
        print(f"pyclient broker: {error}", file=sys.stderr)  # noqa: T201 - a command's answer to its user
        return 1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def opens(stopping: Latch) -> Callable[[int, object], None]:
    """Return a handler of signals that opens the latch with the first of them."""

    def handle(_number: int, _frame: object) -> None:
        if not stopping.opened:
            with contextlib.suppress(RuntimeError):  # another signal came just now, in this handler, and has opened it
                stopping.open()

    return handle


def _serve_until(stopping: Latch, cluster: EmbeddedCluster) -> None:
    """Print the addresses, and start nodes that end by themselves again."""
    print(f"bootstrap.servers={cluster.bootstrap_servers}", flush=True)  # noqa: T201 - a parent process waits for it
    if cluster.control_url is not None:
        print(f"control.url={cluster.control_url}", flush=True)  # noqa: T201 - a parent process waits for it, too
    restarts = Restarts(cluster)
    while not stopping.wait(_LOOK_SECONDS):
        restarts.check(time.monotonic())
