"""The two ways to run a node for an `EmbeddedCluster`: in a thread of this process, or in a separate process."""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from enum import Enum
from typing import IO, TYPE_CHECKING, Final, Protocol

from pyclient.broker_embedded.cluster.control_port import listen_for_controls
from pyclient.broker_embedded.config.broker_config import ACLS_VARIABLE, OPTIONS_VARIABLE, USERS_VARIABLE
from pyclient.config.addresses import DEFAULT_HOST
from pyclient.config.broker import BROKER_OPTIONS
from pyclient.config.broker_security import own_option
from pyclient.errors import ClientError, KafkaTimeout
from pyclient.net.latch import Latch

if TYPE_CHECKING:
    from pyclient.broker_embedded.broker import BrokerNode
    from pyclient.broker_embedded.cluster.hosting import HttpServer, NewHttpServer
    from pyclient.broker_embedded.config.broker_config import BrokerConfig
    from pyclient.broker_embedded.controls.channel import Channel, SocketChannel

log = logging.getLogger("pyclient.broker_embedded")

START_SECONDS: Final = 30.0
STOP_SECONDS: Final = 60.0  # closing thousands of partitions takes long
SWITCH_INTERVAL: Final = 0.0005
"""Seconds that a busy thread may keep the GIL while a broker runs in another thread (Python's default: 0.005).

Without it a busy thread delays the broker by 5 ms per wake-up: docs/measurements.md, "GIL switch interval".
"""

Links = Mapping[str, str]
"""The addresses that a node dials in place of other nodes' own ones."""

_TAIL_BYTES: Final = 4096


class Runner(Protocol):
    """A running node."""

    bootstrap: str
    port: int

    @property
    def alive(self) -> bool:
        """Return True if the node still serves."""

    @property
    def crashed(self) -> bool:
        """Return True if it has ended without a call of `stop` or `kill`."""

    @property
    def hosting(self) -> bool:
        """Return True if the controls can be called; they may have stopped the node itself."""

    @property
    def channel(self) -> Channel:
        """Return the channel to its controls."""

    def stop(self) -> None:
        """End it cleanly."""

    def kill(self) -> None:
        """End it as a crash would."""

    def pause(self) -> None:
        """Freeze it: it reads and answers nothing, and its timers do not run. Block until it is frozen."""

    def resume(self) -> None:
        """End the pause."""


class ThreadRunner:
    """A node on an event loop in a daemon thread. `new_server` makes the HTTP server of its controls."""

    def __init__(
        self,
        config: BrokerConfig,
        control_port: int | None = None,
        links: Links | None = None,
        new_server: NewHttpServer | None = None,
    ) -> None:
        from pyclient.broker_embedded.cluster.hosting import NodeHost, serve_http
        from pyclient.net.loop_thread import LoopThread

        self._thread = LoopThread(f"pyclient-broker-{config.integer('node.id')}")
        self._thread.start()
        self._host = NodeHost(config, self._thread.loop, links)
        self._control: HttpServer | None = None
        self._channel: Channel | None = None
        self._resumed: threading.Event | None = None
        listener: socket.socket | None = None
        try:
            if control_port is not None:
                listener = listen_for_controls(DEFAULT_HOST, control_port)
            self._thread.run(self._host.start, timeout=START_SECONDS)
            if listener is not None:
                self._control = self._thread.run(serve_http, self._host, listener, new_server, timeout=START_SECONDS)
        except BaseException:
            if listener is not None:
                listener.close()
            self._thread.stop(STOP_SECONDS)
            raise
        self._thread.keep()
        self.port = self._host.config.port
        self.bootstrap = self._host.address
        _switching.enter()

    @property
    def node(self) -> BrokerNode:
        """Return the node itself, for tests of the broker's internals."""
        assert self._host.node is not None, "the node was stopped by its controls"
        return self._host.node

    @property
    def alive(self) -> bool:
        """Return True if the node runs on its loop."""
        return self._thread.running and self._host.node is not None

    @property
    def crashed(self) -> bool:
        """Return False: a thread ends only by `stop` or `kill`."""
        return False

    @property
    def hosting(self) -> bool:
        """Return True if the loop runs."""
        return self._thread.running

    @property
    def channel(self) -> Channel:
        """Return the channel to its controls, by its loop."""
        if self._channel is None:
            from pyclient.broker_embedded.controls.channel import ThreadChannel

            self._channel = ThreadChannel(self._thread, self._host.controls)
        return self._channel

    def pause(self) -> None:
        """Block the loop's thread: requests of clients stay in the operating system's buffers."""
        if self._resumed is None:
            self._resumed = threading.Event()
            frozen = Latch()
            self._thread.call_soon(_freeze, frozen, self._resumed)
            frozen.wait(STOP_SECONDS)

    def resume(self) -> None:
        """Unblock the loop's thread."""
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None

    def stop(self) -> None:
        """Stop the node, then its thread."""
        self._end(clean=True)

    def kill(self) -> None:
        """Close sockets and files as they are: nothing is flushed, nothing is marked as clean."""
        self._end(clean=False)

    def _end(self, *, clean: bool) -> None:
        if not self._thread.running:
            return
        self.resume()
        _switching.leave()
        try:
            if self._control is not None:
                self._thread.run(self._control.close, timeout=STOP_SECONDS)
            self._thread.run(self._host.stop, clean, timeout=STOP_SECONDS)
        finally:
            self._thread.stop(STOP_SECONDS)


class ProcessRunner:
    """A node in a process started by `sys.executable -m pyclient.broker_embedded`, which ends with this process."""

    def __init__(self, config: BrokerConfig, control_port: int | None = None, links: Links | None = None) -> None:
        from pyclient.broker_embedded.controls.channel import SocketChannel

        self._ending = False
        self._paused = False
        self._stderr: IO[bytes] = tempfile.TemporaryFile(prefix="pyclient-broker-stderr-")  # noqa: SIM115
        self._channel: SocketChannel = SocketChannel(lambda: self.alive)
        descriptor = self._channel.listener.fileno()
        self._process = subprocess.Popen(
            _command(config, control_port, descriptor, links or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=_environment(config),
            pass_fds=(descriptor,),
            start_new_session=True,  # Ctrl-C at the terminal must only reach the tests, which end their broker
        )
        try:
            self.bootstrap = self._first_line()
        except BaseException:
            self.kill()
            raise
        self.port = int(self.bootstrap.rpartition(":")[2])
        self._watcher = threading.Thread(target=self._watch, name=f"pyclient-broker-watch-{self.pid}", daemon=True)
        self._watcher.start()

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Return True if the process runs."""
        return self._process.poll() is None

    @property
    def crashed(self) -> bool:
        """Return True if the process has ended without a call of `stop` or `kill`."""
        return not self.alive and not self._ending

    @property
    def hosting(self) -> bool:
        """Return True if the process runs."""
        return self.alive

    @property
    def channel(self) -> Channel:
        """Return the channel to its controls, by a Unix socket."""
        return self._channel

    def pause(self) -> None:
        """Send SIGSTOP and block until the process has stopped."""
        if self.alive and not self._paused:
            self._paused = True
            self._process.send_signal(signal.SIGSTOP)
            if hasattr(os, "waitid"):  # not on macOS
                os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Send SIGCONT."""
        if self._paused:
            self._paused = False
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL if the process does not end within a minute."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL and wait for the end of the process."""
        self._end(signal.SIGKILL)

    def stderr_tail(self) -> str:
        """Return the end of the broker's output to stderr."""
        size = os.fstat(self._stderr.fileno()).st_size
        start = max(0, size - _TAIL_BYTES)
        return os.pread(self._stderr.fileno(), size - start, start).decode(errors="replace").strip()

    def _end(self, number: signal.Signals) -> None:
        if self.crashed and hasattr(self, "_watcher"):
            self._watcher.join(STOP_SECONDS)  # it reports the crash
        self._ending = True
        self._channel.close()
        if self.alive:
            self._process.send_signal(number)
            self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            log.error("killing broker process %d: it did not end within %g s", self.pid, STOP_SECONDS)
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        if not self._stderr.closed and hasattr(self, "_watcher"):
            self._watcher.join(STOP_SECONDS)
        self._stderr.close()

    def _first_line(self) -> str:
        stdout = self._process.stdout
        assert stdout is not None
        line = b""
        with selectors.DefaultSelector() as selector:  # select() takes no descriptor above 1023
            selector.register(stdout, selectors.EVENT_READ)
            while b"\n" not in line:
                if not selector.select(START_SECONDS):
                    raise KafkaTimeout(
                        f"the broker process did not serve within {START_SECONDS:g} s: {self.stderr_tail()}"
                    )
                more = os.read(stdout.fileno(), 4096)
                if not more:
                    code = self._process.wait(STOP_SECONDS)
                    raise ClientError(
                        f"the broker process ended with status {code} before it served: {self.stderr_tail()}"
                    )
                line += more
        return line.partition(b"\n")[0].decode().strip().removeprefix("bootstrap.servers=")

    def _watch(self) -> None:
        code = self._process.wait()
        if not self._ending:
            log.error("the broker process %d ended by itself with status %d: %s", self.pid, code, self.stderr_tail())


class _Switching:
    """Lowers the interpreter's switch interval while at least one broker runs in a thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = 0.0

    def enter(self) -> None:
        """Count a broker; the first one lowers the interval."""
        with self._lock:
            if self._users == 0:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before, SWITCH_INTERVAL))
            self._users += 1

    def leave(self) -> None:
        """Discount a broker; the last one restores the interval."""
        with self._lock:
            self._users -= 1
            if self._users == 0:
                sys.setswitchinterval(self._before)


_switching: Final = _Switching()


def _freeze(frozen: Latch, resumed: threading.Event) -> None:
    frozen.open()
    resumed.wait()


def _command(config: BrokerConfig, control_port: int | None, control_fd: int, links: Links) -> list[str]:
    command = [sys.executable, "-m", "pyclient.broker_embedded", "--with-parent"]
    command += ["--host", config.host, "--port", str(config.port)]
    command += ["--data-dir", config.data_dir, "--profile", config.profile]
    command += ["--control-fd", str(control_fd)]
    if control_port is not None:
        command += ["--control-port", str(control_port)]
    if config.as_version is not None:
        command += ["--as-version", config.as_version]
    for address, dialled in links.items():
        command += ["--link", f"{address}={dialled}"]
    if config.cluster_id is not None and config.cluster_id_given:
        command.append(f"--cluster-id={config.cluster_id}")
    if config.other_dirs:
        command += ["--set", f"log.dirs={','.join(config.log_dirs)}"]
    hidden = _hidden(config)
    for name, value in {**config.explicit, **config.own, **config.authorizer}.items():
        if name not in hidden:
            command += ["--set", f"{name}={value}"]
    return command


def _plain(value: object) -> object:
    return value.name if isinstance(value, Enum) else value


def _hidden(config: BrokerConfig) -> dict[str, str]:
    """Return the options whose values other users of the machine must not see."""
    given = {**config.explicit, **config.own}
    return {name: text for name, text in given.items() if BROKER_OPTIONS[own_option(name) or name].sensitive}


def _environment(config: BrokerConfig) -> dict[str, str]:
    """Return this process's environment with the path of this pyclient in PYTHONPATH, passwords and keys.

    Other users of the machine see a command line, and not an environment.
    """
    import pyclient

    home = os.path.dirname(os.path.dirname(os.path.abspath(pyclient.__file__)))
    paths = [home, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    acls = [[*map(_plain, acl)] for acl in config.acls]
    secrets = {USERS_VARIABLE: dict(config.users), OPTIONS_VARIABLE: _hidden(config), ACLS_VARIABLE: acls}
    given = {name: json.dumps(values) for name, values in secrets.items() if values}
    inherited = {name: text for name, text in os.environ.items() if name not in secrets}
    return inherited | given | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
