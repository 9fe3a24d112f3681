"""A node on a disk that a test holds up."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import pytest

from pyclient.broker_embedded.broker import BrokerNode
from pyclient.broker_embedded.config.broker_config import BrokerConfig
from pyclient.broker_embedded.log.filesystem import RealFile, RealFileSystem
from pyclient.net.loop_thread import LoopThread
from tests.waiting import until

SECONDS = 30


class HeldFile(RealFile):
    """A file whose bytes reach the disk when the filesystem's gate is open."""

    __slots__ = ()

    def sync(self) -> None:
        fs = self._fs
        assert isinstance(fs, HeldFileSystem)
        if fs.held in self.path and self.path.endswith(".log"):
            fs.syncs += 1
            fs.reached.release()
            assert fs.gate.wait(SECONDS)
            if fs.fails:
                raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)


class HeldFileSystem(RealFileSystem):
    """A slow disk, for the files whose paths contain `held`."""

    def __init__(self, held: str) -> None:
        super().__init__(durable=False)
        self.durable = True
        self.held = held
        self.reached, self.gate, self.fails, self.syncs = threading.Semaphore(0), threading.Event(), False, 0

    def file(self, path: str) -> HeldFile:
        return HeldFile(self, path)


Disk = TypeVar("Disk", bound=RealFileSystem)


class NodeOnDisk(Generic[Disk]):
    """A node whose files are on `fs`, on a loop thread of its own."""

    def __init__(self, data_dir: str, fs: Disk) -> None:
        self.fs = fs
        self.thread = LoopThread("node")
        self.thread.start()
        config = BrokerConfig.build(None, data_dir=data_dir, host="127.0.0.1", port=0, profile="test")
        self.node: BrokerNode = self.on_loop(lambda: BrokerNode(config, loop=self.thread.loop, fs=fs))
        self.thread.run(self.node.start, timeout=SECONDS)
        self.bootstrap_servers = f"127.0.0.1:{self.node.port}"

    def on_loop(self, function: Callable[[], Any]) -> Any:
        """Return the result of the function, called on the loop."""

        async def call() -> Any:
            return function()

        return self.thread.run(call, timeout=SECONDS)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so, as the loop sees it."""
        until(lambda: self.on_loop(condition), lambda: self.node.logs)

    def stop(self, *, clean: bool = True) -> None:
        """End the node, in order or as if it was killed."""
        self.thread.run(self.node.stop, clean, timeout=SECONDS)
        self.thread.stop(SECONDS)


@pytest.fixture
def start(data_dir: str) -> Iterator[Callable[[], NodeOnDisk[RealFileSystem]]]:
    """Return a function that starts a node on the test's data directory and kills the previous one."""
    running: list[NodeOnDisk[RealFileSystem]] = []

    def one() -> NodeOnDisk[RealFileSystem]:
        if running:
            running.pop().stop(clean=False)
        running.append(NodeOnDisk(data_dir, RealFileSystem(durable=False)))
        return running[-1]

    yield one
    running.pop().stop()
