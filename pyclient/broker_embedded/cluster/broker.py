"""One broker of an `EmbeddedCluster`, which can be stopped, killed, paused and started again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pyclient.broker_embedded.cluster.runners import ProcessRunner, ThreadRunner
from pyclient.broker_embedded.config.quorum_config import BOOTSTRAP
from pyclient.broker_embedded.controls.endpoint import NoAnswer
from pyclient.errors import ClientError, ClosedError, ConfigError, KafkaTimeout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyclient.broker_embedded.cluster.hosting import NewHttpServer
    from pyclient.broker_embedded.cluster.runners import Runner
    from pyclient.broker_embedded.config.broker_config import BrokerConfig

log = logging.getLogger("pyclient.broker_embedded")


class Broker:
    """A broker. Every call returns when it has taken effect.

    A restarted broker has the same port and data as before, and the faults that were not over. `links` returns the
    addresses that it dials in place of other nodes' own ones. `new_server` makes the HTTP server of its controls if it
    runs in a thread; a process makes its own.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        processes: bool,
        control_port: int | None,
        guard: Callable[[], None],
        new_server: NewHttpServer | None = None,
    ) -> None:
        self.config = config
        self.on_start: list[Callable[[], None]] = []
        self.on_end: list[Callable[[], None]] = []
        self.links: Callable[[], Mapping[str, str]] = dict
        self._processes = processes
        self._control_port = control_port
        self._guard = guard
        self._new_server = new_server
        self._runner: Runner | None = None
        self._paused = False
        self._late: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        kind = "process" if self._processes else "thread"
        return f"<Broker {self.id} in a {kind}, {self.state}>"

    @property
    def id(self) -> int:
        """Return the node id."""
        return self.config.integer("node.id")

    @property
    def state(self) -> str:
        """Return `new`, `running`, `paused` or `down`."""
        if self._runner is None:
            return "new"
        if not self._runner.alive:
            return "down"
        return "paused" if self._paused else "running"

    @property
    def crashed(self) -> bool:
        """Return True if it is down without having been stopped or killed."""
        return self._runner is not None and not self._runner.alive and self._runner.crashed

    @property
    def alive(self) -> bool:
        """Return True while it runs or is paused; False before `start()`, after its end, and when it has crashed."""
        return self._runner is not None and self._runner.alive

    @property
    def address(self) -> str:
        """Return `host:port`, also while the broker is down: the next start uses the same port."""
        return self.runner.bootstrap

    @property
    def data_dir(self) -> str:
        """Return the directory of its files."""
        return self.config.data_dir

    @property
    def pid(self) -> int | None:
        """Return the id of its process; None when it runs in a thread."""
        return self.runner.pid if isinstance(self.runner, ProcessRunner) else None

    @property
    def control_url(self) -> str | None:
        """Return where its controls are served by HTTP; None without `control_port`."""
        if self._control_port is None:
            return None
        url: str | None = self.call("GET", "/broker")["control_url"]
        return url

    @property
    def runner(self) -> Runner:
        """Return the runner. Raise `ClosedError` before the first start."""
        if self._runner is None:
            raise ClosedError("the cluster was not started: use `with` or start()")
        return self._runner

    def start(self) -> None:
        """Start it, also again: on the same port and data. A no-op if it runs.

        Raise `ConfigError` when the address is taken or the data directory is not a broker's.
        """
        self._guard()
        if self.alive and self._paused:
            return
        if self._runner is not None and self._runner.hosting:
            self.call(
                "POST", "/broker/start"
            )  # the node was ended by HTTP: its host still has the faults and the clock
            return
        self._late.clear()
        crashed = self._runner if self.crashed else None
        if self._processes:
            self._runner = ProcessRunner(self.config, self._control_port, self.links())
        else:
            self._runner = ThreadRunner(self.config, self._control_port, self.links(), self._new_server)
        if crashed is not None:
            crashed.kill()  # closes its pipes and sockets
        self._paused = False
        self.config = self.config.at(ports={self.config.listeners.clients[0].name: self._runner.port})
        if self._control_port == 0:
            self._control_port = int(str(self.control_url).rpartition(":")[2])
        for call in self.on_start:
            call()

    def reconfigure(self, config: BrokerConfig) -> None:
        """Begin with `config` at the next start; one by its controls looks for the controllers in it."""
        self.config = config
        if not config.quorum.dynamic:
            return
        if self.reachable:
            self._pass_controllers()
        else:
            self.later(self._pass_controllers)

    def _pass_controllers(self) -> None:
        servers = self.config.text(BOOTSTRAP)
        try:
            self.call("POST", "/quorum/bootstrap", {"servers": servers})
        except ClientError:
            if self.reachable:  # it has not ended meanwhile: the next one begins with `config`
                raise

    def stop(self) -> None:
        """Stop it cleanly: sync the logs to the disk and close the connections. A no-op if it is down."""
        self._end()
        self.runner.stop()

    def kill(self) -> None:
        """End it as a crash would: SIGKILL for a process; in a thread sockets are closed, files left as they are."""
        self._end()
        self.runner.kill()

    def restart(self) -> None:
        """`stop()` and `start()`."""
        if self._runner is not None:
            self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze it as a long garbage collection or a stalled disk would: it reads and answers nothing (SIGSTOP).

        The operating system still accepts connections for it, and buffers what clients send.
        """
        self._guard()
        if not self.alive:
            raise ClientError(f"{self!r}: there is nothing to pause")
        if not self._paused:
            for call in self.on_end:
                call()
        self.runner.pause()
        self._paused = True

    def resume(self) -> None:
        """End a pause, also one made by HTTP. A no-op if it is not paused."""
        self._guard()
        if self._paused:
            self._paused = False
            self.runner.resume()
            late, self._late = self._late, []
            for call in late:
                call()
        elif self.reachable and self.call("GET", "/broker")["paused"]:
            self.call("POST", "/broker/resume")

    @property
    def reachable(self) -> bool:
        """Return True if its controls can be called."""
        return self._runner is not None and self._runner.hosting and not self._paused

    def later(self, call: Callable[[], None]) -> None:
        """Call `call` when the pause is over; not at all if the broker is not paused or ends before."""
        if self._paused:
            self._late.append(call)

    def call(
        self, method: str, path: str, values: dict[str, Any] | None = None, *, timeout: float = 0.0
    ) -> dict[str, Any]:
        """Call its controls and return their answer; `timeout` (seconds) limits a call that waits."""
        self._guard()
        checked_timeout(timeout)
        if not self.reachable:
            help_is = "resume() it first" if self._paused else "start() it first"
            raise ClientError(f"{self!r}: it has to run to be asked ({method} {path}); {help_is}")
        answer: dict[str, Any] = self.runner.channel.call(method, path, values or {}, timeout)
        return answer

    def _end(self) -> None:
        self._guard()
        try:
            for call in self.on_end if self.reachable else ():
                call()
        except (NoAnswer, KafkaTimeout) as error:
            log.warning(
                "%r did not answer before its end: counts of its faults and advances of its time are lost: %s",
                self,
                error,
            )
        self.runner.resume()
        self._paused = False
        self._late.clear()


def checked_timeout(timeout: float) -> float:
    """Return the seconds that a call may wait. Raise `ConfigError` for what is no duration."""
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise ConfigError(f"timeout is {timeout!r}: it must be a number of seconds from 0")
    return timeout
