"""One broker of an `EmbeddedCluster`, as an object that can be stopped, killed, frozen and started again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyclient.broker_embedded.runners import ProcessRunner, ThreadRunner
from pyclient.errors import ClientError, ClosedError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyclient.broker_embedded.config import BrokerConfig
    from pyclient.broker_embedded.runners import Runner


class Broker:
    """A broker. Every call returns when what it says is so.

    After `start()` it has the port and the data that it had before, and the faults that were not over.
    """

    def __init__(
        self, config: BrokerConfig, *, processes: bool, control_port: int | None, guard: Callable[[], None]
    ) -> None:
        self.config = config
        self.on_start: list[Callable[[], None]] = []
        self.on_end: list[Callable[[], None]] = []
        self._processes = processes
        self._control_port = control_port
        self._guard = guard
        self._runner: Runner | None = None
        self._paused = False
        self._late: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        kind = "process" if self._processes else "thread"
        return f"<Broker {self.id} in a {kind}, {self.state}>"

    @property
    def id(self) -> int:
        """Its node id."""
        return self.config.integer("node.id")

    @property
    def state(self) -> str:
        """`new`, `running`, `paused` or `down`."""
        if self._runner is None:
            return "new"
        if not self._runner.alive:
            return "down"
        return "paused" if self._paused else "running"

    @property
    def alive(self) -> bool:
        """Whether it runs, paused or not: False before `start()`, when it was ended, and when its process crashed."""
        return self._runner is not None and self._runner.alive

    @property
    def address(self) -> str:
        """`host:port`; also while it is down, for it comes back there."""
        return self.runner.bootstrap

    @property
    def data_dir(self) -> str:
        """Where it keeps its files."""
        return self.config.data_dir

    @property
    def pid(self) -> int | None:
        """Its process, or None when it runs in a thread."""
        return self.runner.pid if isinstance(self.runner, ProcessRunner) else None

    @property
    def control_url(self) -> str | None:
        """Where its controls are served by HTTP, if they are (`control_port`)."""
        if self._control_port is None:
            return None
        url: str | None = self.call("GET", "/broker")["control_url"]
        return url

    @property
    def runner(self) -> Runner:
        """What runs it; `ClosedError` before the first start."""
        if self._runner is None:
            raise ClosedError("the cluster was not started: use `with` or start()")
        return self._runner

    def start(self) -> None:
        """Start it, or start it again: on the same port and data. Nothing if it runs.

        Raises `ConfigError` when the address is taken or the data directory is not a broker's.
        """
        self._guard()
        if self.alive and self._paused:
            return
        if self._runner is not None and self._runner.hosting:
            self.call("POST", "/broker/start")  # if it was ended by HTTP; it has its faults and its time there
            return
        self._late.clear()
        kind = ProcessRunner if self._processes else ThreadRunner
        self._runner = kind(self.config, self._control_port)
        self._paused = False
        self.config = self.config.at(port=self._runner.port)
        if self._control_port == 0:
            self._control_port = int(str(self.control_url).rpartition(":")[2])
        for call in self.on_start:
            call()

    def stop(self) -> None:
        """End it cleanly: what it has is on the disk, and connections are closed. Nothing if it is down."""
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
        """Freeze it, as a long garbage collection or a stalled disk would: it reads and answers nothing.

        The system still accepts connections for it, and what clients send waits. SIGSTOP for a process.
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
        """Let it go on where it was, whoever has paused it. Nothing if it is not paused."""
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
        """Whether its controls can be asked."""
        return self._runner is not None and self._runner.hosting and not self._paused

    def later(self, call: Callable[[], None]) -> None:
        """Do this when the pause is over; a broker that is ended meanwhile has no need of it."""
        if self._paused:
            self._late.append(call)

    def call(
        self, method: str, path: str, values: dict[str, Any] | None = None, *, timeout: float = 0.0
    ) -> dict[str, Any]:
        """Ask its controls; `timeout` is how many seconds they may wait for something."""
        self._guard()
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout >= 0:
            raise ConfigError(f"timeout is {timeout!r}: it must be a number of seconds from 0")
        if not self.reachable:
            help_is = "resume() it first" if self._paused else "start() it first"
            raise ClientError(f"{self!r}: it has to run to be asked ({method} {path}); {help_is}")
        answer: dict[str, Any] = self.runner.channel.call(method, path, values or {}, timeout)
        return answer

    def _end(self) -> None:
        self._guard()
        if self.reachable:
            for call in self.on_end:
                call()
        self.runner.resume()
        self._paused = False
        self._late.clear()
