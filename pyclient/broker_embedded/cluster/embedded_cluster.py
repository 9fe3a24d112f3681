"""`EmbeddedCluster`: a Kafka cluster inside a test or a program, in threads or in separate processes."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from pyclient.broker_embedded.cluster.broker import Broker
from pyclient.broker_embedded.cluster.faults import Faults
from pyclient.broker_embedded.cluster.requests import Requests
from pyclient.broker_embedded.config.broker_config import BrokerConfig
from pyclient.errors import ClosedError, ConfigError, ForkError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from pyclient.broker_embedded.cluster.runners import Runner

log = logging.getLogger("pyclient.broker_embedded")


class EmbeddedCluster:
    """A Kafka broker to test with.

        with EmbeddedCluster() as cluster:
            producer = Producer(cluster.bootstrap_servers)

    `processes=True` runs it in a process of its own: for load, and for `kill()` to be a real SIGKILL. In a thread it
    shares the GIL with the program; while it runs there, Python's switch interval is lowered to 0.5 ms, so that a busy
    thread does not hold it up for 5 ms a turn.
    `as_version="3.9"` makes it look like that release to clients: it offers no newer versions of APIs.
    `profile="test"` has no rebalance delay and short sessions, `profile="kafka"` Kafka's own defaults; `config` sets
    broker options by Kafka's names on top. Without `data_dir` the data is removed with the cluster; with it, it stays,
    and the next cluster on it has the same topics and records. `config={"log.dirs": "/a,/b"}` uses several directories,
    of which the first one has the metadata.
    Controls for tests: `cluster.faults` for requests, `cluster.brokers[0]` to kill, stop, pause and start a broker,
    `advance_time`, `retention_now`, `wait_group` and `wait_topic`; `cluster.requests` logs the requests of clients.
    With `control_port` (0: any free one) the same controls are served by HTTP at `control_url`.
    A cluster that is still open at interpreter exit is closed after the clients. A child made by `fork` can use its
    address; only the parent may start and stop it (`ForkError`).
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        processes: bool = False,
        profile: str = "test",
        as_version: str | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        config: Mapping[str, Any] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        control_port: int | None = None,
    ) -> None:
        """Check the options; nothing runs before `start()` or `with`. Raises `ConfigError`."""
        if brokers != 1:
            raise ConfigError(f"brokers is {brokers}: a cluster has one broker for now (replication is not there yet)")
        self._processes = processes
        self._pid = os.getpid()
        self._closed = False
        self._advanced = 0.0
        checked = BrokerConfig.build(
            config,
            data_dir=os.fspath(data_dir or ""),
            host=host,
            port=port,
            profile=profile,
            as_version=as_version,
        )
        self._temporary = not checked.data_dir
        if control_port is not None and not 0 <= control_port <= 65535:
            raise ConfigError(f"control_port is {control_port}: it must be from 0 (any free one) to 65535")
        self._brokers = [Broker(checked, processes=processes, control_port=control_port, guard=self._check_open)]
        self._broker.on_start.append(self._advance_again)
        self._broker.on_end.append(self._note_time)
        self._faults = Faults(self._brokers)
        self._requests = Requests(self._broker)

    def __repr__(self) -> str:
        kind = "process" if self._processes else "thread"
        broker = self._broker
        state = "closed" if self._closed else "not started" if broker.state == "new" else broker.address
        return f"<EmbeddedCluster 1 broker in a {kind}, {state}>"

    def __enter__(self) -> EmbeddedCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_requests", None) and self._broker.state != "new" and not self._closed and self._is_mine():
            warnings.warn(f"{self!r} was never closed", ResourceWarning, stacklevel=2, source=self)
            self.close()

    @property
    def brokers(self) -> tuple[Broker, ...]:
        """Return the brokers, each with `kill()`, `stop()`, `start()`, `restart()`, `pause()` and `resume()`."""
        return tuple(self._brokers)

    @property
    def faults(self) -> Faults:
        """Return the fault injection: it makes requests fail, take long, get lost or wait."""
        return self._faults

    @property
    def requests(self) -> Requests:
        """Return the log of the clients' requests; it is off until its `start()`."""
        return self._requests

    @property
    def bootstrap_servers(self) -> str:
        """Return `host:port`, for any Kafka client. Raise `ClosedError` if the cluster is closed or was not started."""
        self._check_not_closed()
        return self._broker.address

    @property
    def alive(self) -> bool:
        """Return True if the broker runs; False before `start()`, after `kill()`, and when its process has crashed."""
        return self._broker.alive

    @property
    def data_dir(self) -> str:
        """Return the directory of the broker's files."""
        return self._broker.data_dir

    @property
    def pid(self) -> int | None:
        """Return the id of the broker's process; None when it runs in a thread."""
        self._check_not_closed()
        return self._broker.pid

    @property
    def control_url(self) -> str | None:
        """Return where the controls are served by HTTP, `http://127.0.0.1:PORT`; None without `control_port`."""
        self._check_open()
        return self._broker.control_url

    def start(self) -> EmbeddedCluster:
        """Start the broker, also after `kill()` or a crash: on the same data and port.

        Raises `ConfigError` when the address is taken or the data directory is not a broker's.
        """
        self._check_process()
        if self._closed:
            raise ClosedError("the cluster is closed: make a new one (on the same data_dir, if it had one)")
        if self.alive:
            return self
        if not self.data_dir:
            self._broker.config = self._broker.config.at(data_dir=tempfile.mkdtemp(prefix="pyclient-cluster-"))
        _close_at_exit(self)
        try:
            self._broker.start()
        except BaseException:
            self._remove_data()
            raise
        return self

    def kill(self) -> None:
        """End the broker as a crash would (SIGKILL with `processes=True`); `start()` starts it again."""
        self._check_open()
        self._broker.kill()

    def restart(self) -> None:
        """Stop the broker cleanly, if it runs, and start it again on the same data and port."""
        self._check_process()
        if self._broker.alive:
            self._broker.stop()
        self.start()

    def repair(self) -> None:
        """Undo faults: cancel injected ones, stop the request log, resume a paused broker, start one that is down.

        Advanced time stays advanced. The fixture `kafka_cluster` does this after each test.
        """
        self._check_open()
        for broker in self._brokers:
            broker.resume()
            broker.start()
        self._ask("POST", "/broker/resume")
        self._faults.clear()
        self._requests.stop()

    def close(self) -> None:
        """Stop the broker, and remove its data unless it was given a `data_dir`. May be called twice.

        A no-op in a child made by `fork`: the parent still uses the broker.
        """
        if self._closed or not self._is_mine():
            return
        self._closed = True
        _live.discard(self)
        try:
            if self._broker.state != "new":
                self._broker.runner.stop()
        finally:
            self._remove_data()

    def advance_time(self, seconds: float) -> None:
        """Advance the broker's clock by `seconds`: sessions expire, records age, waiting requests are answered.

        The clients' clocks do not change, nor do connections become idle.
        Return when the timers that became due were run. The clock stays advanced when the broker is started again.
        """
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
            raise ConfigError(f"seconds is {seconds!r}: it must be a number of seconds from 0")
        self._ask("POST", "/time/advance", {"seconds": seconds})

    def retention_now(self) -> int:
        """Apply retention to all logs, by time and by size, also to active segments. Return how many were deleted."""
        removed: int = self._ask("POST", "/retention")["segments_removed"]
        return removed

    def compact_now(self, topic: str | None = None) -> int:
        """Compact the logs of compacted topics, or of one, however little is dirty. Return the number of rounds.

        Active segments are rolled first, so that every record takes part.
        """
        rounds: int = self._ask("POST", "/compact", {"topic": topic})["rounds"]
        return rounds

    def verify_now(self, topic: str | None = None) -> list[dict[str, Any]]:
        """Check every batch of all logs, or of one topic's, against its checksum, while the broker serves requests.

        Return what is damaged: `topic`, `partition`, `path` of the segment, `position` (bytes) of the first bad batch
        in it and `error`. The broker logs each, too.
        """
        damaged: list[dict[str, Any]] = self._ask("POST", "/verify", {"topic": topic})["damaged"]
        return damaged

    def wait_group(
        self,
        group: str,
        state: str | Iterable[str] | None = None,
        members: int | None = None,
        timeout: float = 30.0,
    ) -> dict[str, Any]:
        """Wait until a group is in `state` (one or several of Kafka's names) and has that many `members`.

        Without both, until it exists. Return `group`, `state`, `type`, `protocol_type` and `members` (their
        `member_id`, `instance_id`, `client_id`, `client_host`). Raise `KafkaTimeout`, with the last state, after
        `timeout` seconds.
        """
        states = state if state is None or isinstance(state, str) else ",".join(_names("state", state))
        values = {"state": states, "members": members, "timeout": timeout}
        return self._ask("GET", f"/groups/{_quoted('group', group)}/wait", values, timeout)

    def wait_topic(
        self, topic: str, partitions: int | None = None, records: int | None = None, timeout: float = 30.0
    ) -> dict[str, Any]:
        """Wait until a topic exists with at least that many `partitions`, and `records` in all of them together.

        Return `topic`, `topic_id` and `partitions` (`partition`, `leader`, `start_offset`, `end_offset`,
        `high_watermark`). Raise `KafkaTimeout`, with the last state, after `timeout` seconds.
        """
        values = {"partitions": partitions, "records": records, "timeout": timeout}
        return self._ask("GET", f"/topics/{_quoted('topic', topic)}/wait", values, timeout)

    def _ask(
        self, method: str, path: str, values: Mapping[str, Any] | None = None, timeout: float = 0.0
    ) -> dict[str, Any]:
        given = {name: value for name, value in (values or {}).items() if value is not None}
        return self._broker.call(method, path, given, timeout=timeout)

    @property
    def _broker(self) -> Broker:
        return self._brokers[0]

    @property
    def _runner(self) -> Runner:
        return self._broker.runner

    def _note_time(self) -> None:
        """Note the advance of the broker's clock before the broker ends; the next start repeats it."""
        self._advanced = self._ask("GET", "/broker")["advanced_seconds"] or self._advanced

    def _advance_again(self) -> None:
        if self._advanced:
            self._ask("POST", "/time/advance", {"seconds": self._advanced})

    def _check_open(self) -> None:
        """Raise `ClosedError` after `close()`, `ForkError` in a forked child."""
        self._check_process()
        self._check_not_closed()

    def _check_not_closed(self) -> None:
        if self._closed:
            raise ClosedError("the cluster is closed")

    def _is_mine(self) -> bool:
        return self._pid == os.getpid()

    def _check_process(self) -> None:
        if not self._is_mine():
            raise ForkError(f"this cluster belongs to process {self._pid}; only that process may start and stop it")

    def _remove_data(self) -> None:
        if self._temporary and self.data_dir:
            shutil.rmtree(self.data_dir, ignore_errors=True)


def _quoted(name: str, value: object) -> str:
    """Return a name quoted for a URL path."""
    if not isinstance(value, str):
        raise ConfigError(f"{name} is {value!r}: it must be a text")
    return quote(value, safe="")


def _names(name: str, value: object) -> list[str]:
    several = list(value) if isinstance(value, Iterable) else [value]
    texts = [each for each in several if isinstance(each, str)]
    if len(texts) < len(several):
        raise ConfigError(f"{name} is {value!r}: it must be a text, or several")
    return texts


_live: Final[weakref.WeakSet[EmbeddedCluster]] = weakref.WeakSet()


def _close_at_exit(cluster: EmbeddedCluster) -> None:
    from pyclient.net.loop_thread import call_after_clients

    _live.add(cluster)
    call_after_clients(_close_all)


def _close_all() -> None:
    for cluster in list(_live):
        try:
            cluster.close()
        except Exception:  # the other clusters must be closed, too
            log.exception("closing %r at interpreter exit failed", cluster)
