"""`EmbeddedCluster`: a Kafka cluster inside a test or a program, in threads or in separate processes."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.cluster.broker import Broker
from pyclient.broker_embedded.cluster.faults import Faults
from pyclient.broker_embedded.cluster.layout import Layout
from pyclient.broker_embedded.cluster.node_configs import NodeConfigs
from pyclient.broker_embedded.cluster.parallel import in_parallel
from pyclient.broker_embedded.cluster.requests import Requests
from pyclient.broker_embedded.cluster.views import Views
from pyclient.errors import ClosedError, ConfigError, ForkError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

log = logging.getLogger("pyclient.broker_embedded")


class EmbeddedCluster:
    """A Kafka cluster to test with.

        with EmbeddedCluster() as cluster:
            producer = Producer(cluster.bootstrap_servers)

    `processes=True` runs each broker in a process of its own: for load, and for `kill()` to be a real SIGKILL. In a
    thread it shares the GIL with the program; while it runs there, Python's switch interval is lowered to 0.5 ms, so
    that a busy thread does not hold it up for 5 ms a turn.
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
        self._layout = Layout.build(brokers, config=config)
        if not self._layout.is_one_node:
            raise ConfigError(f"brokers is {brokers}: a cluster has one broker for now (replication is not there yet)")
        self._processes = processes
        self._pid = os.getpid()
        self._closed = False
        self._opened = False
        self._advanced = 0.0
        self._configs = NodeConfigs(host=host, port=port, profile=profile, as_version=as_version)
        drafts = [self._configs.draft(self._layout, node, os.fspath(data_dir or "")) for node in self._layout.nodes]
        self._data_dir = drafts[0].data_dir if self._layout.is_one_node else os.fspath(data_dir or "")
        self._temporary = not self._data_dir
        if control_port is not None and not 0 <= control_port <= 65535:
            raise ConfigError(f"control_port is {control_port}: it must be from 0 (any free one) to 65535")
        self._brokers = [
            Broker(draft, processes=processes, control_port=control_port, guard=self._check_open) for draft in drafts
        ]
        for broker in self._brokers:
            broker.on_start.append(partial(self._advance_again, broker))
            broker.on_end.append(partial(self._note_time, broker))
        self._views = Views(self._brokers)
        self._faults = Faults(self._brokers)
        self._requests = Requests(self._brokers)

    def __repr__(self) -> str:
        count, kind = len(self._brokers), "process" if self._processes else "thread"
        which = (
            f"1 broker in a {kind}" if count == 1 else f"{count} brokers in {kind}{'es' if self._processes else 's'}"
        )
        state = "closed" if self._closed else "not started" if not self._was_started else self._addresses
        return f"<EmbeddedCluster {which}, {state}>"

    def __enter__(self) -> EmbeddedCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_requests", None) and self._was_started and not self._closed and self._is_mine():
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
        return self._addresses

    @property
    def alive(self) -> bool:
        """Return True if all brokers run; False before `start()`, after `kill()`, and when a process has crashed."""
        return all(broker.alive for broker in self._brokers)

    @property
    def data_dir(self) -> str:
        """Return the directory of the brokers' files."""
        return self._data_dir

    @property
    def pid(self) -> int | None:
        """Return the id of the first broker's process; None when it runs in a thread."""
        self._check_not_closed()
        return self._brokers[0].pid

    @property
    def control_url(self) -> str | None:
        """Return where the controls are served by HTTP, `http://127.0.0.1:PORT`; None without `control_port`."""
        self._check_open()
        return self._brokers[0].control_url

    def start(self) -> EmbeddedCluster:
        """Start the brokers that do not run, also after `kill()` or a crash: on the same data and ports.

        Raises `ConfigError` when an address is taken or a data directory is not a broker's.
        """
        self._check_process()
        if self._closed:
            raise ClosedError("the cluster is closed: make a new one (on the same data_dir, if it had one)")
        if self.alive:
            return self
        if not self._data_dir:
            self._data_dir = tempfile.mkdtemp(prefix="pyclient-cluster-")
        _close_at_exit(self)
        try:
            self._open()
            self._start_all()
        except BaseException:
            self._remove_data()
            raise
        return self

    def kill(self) -> None:
        """End the brokers as a crash would (SIGKILL with `processes=True`); `start()` starts them again."""
        self._check_open()
        in_parallel([broker.kill for broker in self._brokers])

    def restart(self) -> None:
        """Stop the brokers that run cleanly, and start them again on the same data and ports."""
        self._check_process()
        in_parallel([broker.stop for broker in self._brokers if broker.alive])
        self.start()

    def repair(self) -> None:
        """Undo faults: cancel injected ones, stop the request log, resume paused brokers, start those that are down.

        Advanced time stays advanced. The fixture `kafka_cluster` does this after each test.
        """
        self._check_open()
        for broker in self._brokers:
            broker.resume()
            broker.start()
            broker.call("POST", "/broker/resume")
        self._faults.clear()
        self._requests.stop()

    def close(self) -> None:
        """Stop the brokers, and remove their data unless it was given a `data_dir`. May be called twice.

        A no-op in a child made by `fork`: the parent still uses the brokers.
        """
        if self._closed or not self._is_mine():
            return
        self._closed = True
        _live.discard(self)
        try:
            in_parallel([broker.runner.stop for broker in self._brokers if broker.state != "new"])
        finally:
            self._configs.close()
            self._remove_data()

    def advance_time(self, seconds: float) -> None:
        """Advance the brokers' clocks by `seconds`: sessions expire, records age, waiting requests are answered.

        The clients' clocks do not change, nor do connections become idle.
        Return when the timers that became due were run. The clock stays advanced when a broker is started again.
        """
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
            raise ConfigError(f"seconds is {seconds!r}: it must be a number of seconds from 0")
        self._views.each("POST", "/time/advance", {"seconds": seconds})

    def retention_now(self) -> int:
        """Apply retention to all logs, by time and by size, also to active segments. Return how many were deleted."""
        return sum(answer["segments_removed"] for answer in self._views.each("POST", "/retention").values())

    def compact_now(self, topic: str | None = None) -> int:
        """Compact the logs of compacted topics, or of one, however little is dirty. Return the number of rounds.

        Active segments are rolled first, so that every record takes part.
        """
        return sum(answer["rounds"] for answer in self._views.each("POST", "/compact", {"topic": topic}).values())

    def verify_now(self, topic: str | None = None) -> list[dict[str, Any]]:
        """Check every batch of all logs, or of one topic's, against its checksum, while the brokers serve requests.

        Return what is damaged: `topic`, `partition`, `path` of the segment, `position` (bytes) of the first bad batch
        in it and `error`. The broker logs each, too.
        """
        answers = self._views.each("POST", "/verify", {"topic": topic}).values()
        return [damage for answer in answers for damage in answer["damaged"]]

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
        return self._views.wait_group(group, states, members, timeout)

    def wait_topic(
        self, topic: str, partitions: int | None = None, records: int | None = None, timeout: float = 30.0
    ) -> dict[str, Any]:
        """Wait until a topic exists with at least that many `partitions`, and `records` in all of them together.

        Return `topic`, `topic_id` and `partitions` (`partition`, `leader`, `leader_epoch`, `replicas`, `isr`,
        `start_offset`, `end_offset`, `high_watermark`). Raise `KafkaTimeout`, with the last state, after `timeout`
        seconds.
        """
        return self._views.wait_topic(topic, partitions, records, timeout)

    @property
    def _was_started(self) -> bool:
        return any(broker.state != "new" for broker in self._brokers)

    @property
    def _addresses(self) -> str:
        return ",".join(broker.address for broker in self._brokers)

    def _open(self) -> None:
        """Reserve the ports and complete the nodes' configurations, before the first start."""
        if not self._opened:
            self._configs.open(self._layout, self._data_dir)
            for node, broker in zip(self._layout.nodes, self._brokers, strict=True):
                broker.config = self._configs.config(self._layout, node)
            self._opened = True

    def _start_all(self) -> None:
        """Start the brokers that do not run, all at once; if one cannot be started, stop those of this call again."""
        starting = [broker for broker in self._brokers if not broker.alive]
        try:
            in_parallel([broker.start for broker in starting])
        except BaseException:
            in_parallel([broker.stop for broker in starting if broker.alive])
            raise

    def _note_time(self, broker: Broker) -> None:
        """Note the advance of a broker's clock before the broker ends; its next start repeats it."""
        self._advanced = max(self._advanced, broker.call("GET", "/broker")["advanced_seconds"] or 0.0)

    def _advance_again(self, broker: Broker) -> None:
        if self._advanced:
            broker.call("POST", "/time/advance", {"seconds": self._advanced})

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
        if self._temporary and self._data_dir:
            shutil.rmtree(self._data_dir, ignore_errors=True)


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
