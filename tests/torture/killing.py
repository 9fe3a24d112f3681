"""A broker in a process of its own, killed under load again and again; sometimes with a torn write at a log's end."""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Final

from pyclient.broker_embedded import EmbeddedCluster
from tests.torture.client import Client, Gone
from tests.torture.load import Load, check
from tests.torture.node import SETTINGS
from tests.torture.oracle import Oracle, PromiseBroken

ROUNDS: Final = 6
_LONGEST_LOAD: Final = 0.6  # seconds from the first request to the kill


class KillRun:
    """One data directory with one set of promises over several lives of its broker."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.oracle = Oracle()
        self.load = Load(self.oracle, random.Random(seed + 1))
        self.directory = tempfile.mkdtemp(prefix="torture-killing-")
        profile = self.rng.choice(("kafka", "test"))  # with and without waiting for the disk
        self.cluster = EmbeddedCluster(
            processes=True, data_dir=f"{self.directory}/data", config=dict(SETTINGS), profile=profile
        )

    def close(self) -> None:
        """End the broker, remove its directory."""
        self.cluster.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def case(self, seed: int) -> None:
        """Start the broker, check what was promised before, and make new promises until it is killed."""
        rng = random.Random(seed)
        try:
            self.cluster.start()
            client = Client(self.cluster.bootstrap_servers, self.oracle, rng)
            try:
                check(client)
                self._work_until_killed(client, rng)
            finally:
                client.close()
            if rng.random() < 0.4:
                self._tear(rng)
        except Gone as error:
            raise PromiseBroken(f"case {seed}: the broker closed a connection: {error}") from error
        except PromiseBroken as error:
            raise PromiseBroken(f"case {seed}: {error}") from error

    def _work_until_killed(self, client: Client, rng: random.Random) -> None:
        killer = threading.Timer(rng.uniform(0.02, _LONGEST_LOAD), self.cluster.kill)
        killer.start()
        try:
            while True:
                self.load.step(client)
        except Gone:
            pass
        finally:
            killer.join()

    def _tear(self, rng: random.Random) -> None:
        """Append the beginning of a batch, or zeros, to a log, as a write that was under way leaves it."""
        logs = [path for path in Path(self.directory).rglob("*.log") if path.stat().st_size]
        active = {path.parent: path for path in sorted(logs)}
        path = rng.choice(sorted(active.values()))
        content = path.read_bytes()
        size = 12 + int.from_bytes(content[8:12], "big")
        torn = content[: rng.randrange(1, min(size, len(content)))] if rng.random() < 0.7 else bytes(600)
        path.write_bytes(content + torn)


def cases(seed: int) -> Generator[Callable[[], object], None, None]:
    """Yield cases without end: some kills of a broker, then another directory."""
    rng = random.Random(seed)
    while True:
        run = KillRun(rng.randrange(1 << 30))
        try:
            for _ in range(ROUNDS):
                yield partial(run.case, rng.randrange(1 << 30))
        finally:
            run.close()
