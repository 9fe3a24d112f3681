"""`EmbeddedCluster`: a Kafka cluster inside a test or a program, in threads or in processes of its own."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import warnings
import weakref
from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.config import BrokerConfig
from pyclient.broker_embedded.runners import ProcessRunner, ThreadRunner
from pyclient.errors import ClosedError, ConfigError, ForkError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from pyclient.broker_embedded.runners import Runner

log = logging.getLogger("pyclient.broker_embedded")


class EmbeddedCluster:
    """A Kafka broker to test with.

        with EmbeddedCluster() as cluster:
            producer = Producer(cluster.bootstrap_servers)

    `processes=True` runs it in a process of its own: for load, and for `kill()` to be a real SIGKILL. In a thread it
    shares the GIL with the program; while it runs there, Python's switch interval is lowered to 0.5 ms, so that a busy
    thread does not hold it up for 5 ms a turn.
    `profile="test"` has no rebalance delay and short sessions, `profile="kafka"` Kafka's own defaults; `config` sets
    broker options by Kafka's names on top. Without `data_dir` the data goes with the cluster; with it, it stays, and
    the next cluster on it has the same topics and records.
    A cluster that is still open at interpreter exit is closed after the clients. In a child made by `fork` its address
    can be used; to end or start it is the parent's business (`ForkError`).
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        processes: bool = False,
        profile: str = "test",
        data_dir: str | os.PathLike[str] | None = None,
        config: Mapping[str, Any] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        """Check the options; nothing runs before `start()` or `with`. Raises `ConfigError`."""
        if brokers != 1:
            raise ConfigError(f"brokers is {brokers}: a cluster has one broker for now (replication is not there yet)")
        self._processes = processes
        self._temporary = data_dir is None
        self._config = BrokerConfig.build(
            config, data_dir=os.fspath(data_dir or ""), host=host, port=port, profile=profile
        )
        self._runner: Runner | None = None
        self._closed = False
        self._pid = os.getpid()

    def __repr__(self) -> str:
        kind = "process" if self._processes else "thread"
        state = "closed" if self._closed else "not started" if self._runner is None else self._runner.bootstrap
        return f"<EmbeddedCluster 1 broker in a {kind}, {state}>"

    def __enter__(self) -> EmbeddedCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_runner", None) is not None and not self._closed and self._is_mine():
            warnings.warn(f"{self!r} was never closed", ResourceWarning, stacklevel=2, source=self)
            self.close()

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, for any Kafka client. `ClosedError` when the cluster does not run."""
        return self._running().bootstrap

    @property
    def alive(self) -> bool:
        """Whether the broker runs: False before `start()`, after `kill()`, and when its process has crashed."""
        return self._runner is not None and self._runner.alive

    @property
    def data_dir(self) -> str:
        """Where the broker keeps its files."""
        return self._config.data_dir

    @property
    def pid(self) -> int | None:
        """The broker's process, or None when it runs in a thread."""
        runner = self._running()
        return runner.pid if isinstance(runner, ProcessRunner) else None

    def start(self) -> EmbeddedCluster:
        """Start the broker, or start it again after `kill()` or a crash: on the same data and port.

        Raises `ConfigError` when the address is taken or the data directory is not a broker's.
        """
        self._check_process()
        if self._closed:
            raise ClosedError("the cluster is closed: make a new one (on the same data_dir, if it had one)")
        if self.alive:
            return self
        if not self._config.data_dir:
            self._config = self._config.at(data_dir=tempfile.mkdtemp(prefix="pyclient-cluster-"))
        _close_at_exit(self)
        try:
            self._runner = ProcessRunner(self._config) if self._processes else ThreadRunner(self._config)
        except BaseException:
            self._remove_data()
            raise
        self._config = self._config.at(port=self._runner.port)
        return self

    def kill(self) -> None:
        """End the broker as a crash would (SIGKILL with `processes=True`); `start()` brings it back."""
        self._check_process()
        self._running().kill()

    def restart(self) -> None:
        """Stop the broker cleanly, if it runs, and start it again on the same data and port."""
        self._check_process()
        if self._runner is not None:
            self._runner.stop()
        self.start()

    def close(self) -> None:
        """Stop the broker, and remove its data unless it was given a `data_dir`. May be called twice.

        In a child made by `fork` it does nothing: the parent goes on using its broker.
        """
        if self._closed or not self._is_mine():
            return
        self._closed = True
        _live.discard(self)
        try:
            if self._runner is not None:
                self._runner.stop()
        finally:
            self._remove_data()

    def _running(self) -> Runner:
        if self._closed:
            raise ClosedError("the cluster is closed")
        if self._runner is None:
            raise ClosedError("the cluster was not started: use `with` or start()")
        return self._runner

    def _is_mine(self) -> bool:
        return self._pid == os.getpid()

    def _check_process(self) -> None:
        if not self._is_mine():
            raise ForkError(f"this cluster belongs to process {self._pid}, which alone may start and end it")

    def _remove_data(self) -> None:
        if self._temporary and self._config.data_dir:
            shutil.rmtree(self._config.data_dir, ignore_errors=True)


_live: Final[weakref.WeakSet[EmbeddedCluster]] = weakref.WeakSet()


def _close_at_exit(cluster: EmbeddedCluster) -> None:
    from pyclient.net.loop_thread import call_after_clients

    _live.add(cluster)
    call_after_clients(_close_all)


def _close_all() -> None:
    for cluster in list(_live):
        try:
            cluster.close()
        except Exception:
            log.exception("closing %r at interpreter exit failed", cluster)
