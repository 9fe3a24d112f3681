"""Torn, flipped, zeroed and appended bytes in every kind of file, after an end in order or a kill."""

from __future__ import annotations

import os
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Final

from pyclient.broker_embedded.log.filesystem import RealFileSystem
from pyclient.errors import KafkaError
from pyclient.records import iter_batches
from pyclient.types import TopicPartition
from tests.torture.client import Client, Gone
from tests.torture.failing import run_load
from tests.torture.load import check
from tests.torture.node import Node
from tests.torture.oracle import Oracle, PromiseBroken

_LOG: Final = re.compile(r"(\d{20})\.log")
_DATA: Final = re.compile(r"\d{20}\.(log|index|timeindex|txnindex|snapshot)")


def flip(content: bytes, rng: random.Random) -> tuple[bytes, int]:
    """Flip one bit."""
    changed = bytearray(content)
    at = rng.randrange(len(content))
    changed[at] ^= 1 << rng.randrange(8)
    return bytes(changed), at


def tear(content: bytes, rng: random.Random) -> tuple[bytes, int]:
    """Cut off the end."""
    at = rng.randrange(len(content))
    return content[:at], at


def zero(content: bytes, rng: random.Random) -> tuple[bytes, int]:
    """Overwrite some bytes with zeros."""
    at = rng.randrange(len(content))
    end = rng.randint(at + 1, len(content))
    return content[:at] + bytes(end - at) + content[end:], at


def scribble(content: bytes, rng: random.Random) -> tuple[bytes, int]:
    """Overwrite some bytes with random ones."""
    at = rng.randrange(len(content))
    end = min(len(content), at + rng.randint(1, 40))
    return content[:at] + rng.randbytes(end - at) + content[end:], at


def add(content: bytes, rng: random.Random) -> tuple[bytes, int]:
    """Append zeros or random bytes."""
    extra = rng.randint(1, 700)
    return content + (bytes(extra) if rng.random() < 0.5 else rng.randbytes(extra)), len(content)


def remove(_content: bytes, _rng: random.Random) -> tuple[None, int]:
    """Remove the file."""
    return None, 0


DAMAGES: Final[tuple[Callable[[bytes, random.Random], tuple[bytes | None, int]], ...]] = (
    flip,
    flip,
    tear,
    zero,
    scribble,
    add,
    remove,
)


def kind_of(path: Path) -> str:
    """Return the kind of a file; a random choice is among kinds first, since some have many files."""
    found = _DATA.fullmatch(path.name)
    kind = path.name if found is None else found[1]
    for prefix in ("__cluster_metadata", "__consumer_offsets"):
        if path.parent.name.startswith(prefix):
            return f"{prefix} {kind}"
    return kind


def first_lost_offset(path: Path, content: bytes, position: int) -> int:
    """Return the first offset of a log that damage at a byte of its segment may cost: that of the batch there."""
    offset = int(path.name[:20])
    for at, header in iter_batches(content):
        if at + header.size > position:
            break
        offset = header.next_offset
    return offset


def tree(root: str) -> dict[str, bytes]:
    """Return every file and what is in it."""
    return {str(path): path.read_bytes() for path in Path(root).rglob("*") if path.is_file() and path.name != ".lock"}


class DamageRun:
    """A data directory with promises, of which every case damages a copy."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.root = tempfile.mkdtemp(prefix="torture-damage-")
        self.oracle = Oracle()
        self.clean = self.rng.random() < 0.5
        node = Node(f"{self.root}/whole", RealFileSystem(durable=False))
        try:
            for _ in range(3):
                run_load(node, self.oracle, self.rng, cleans=False)
        finally:
            node.stop(clean=self.clean)

    def close(self) -> None:
        """Remove the directories."""
        shutil.rmtree(self.root, ignore_errors=True)

    def case(self, seed: int) -> str:
        """Damage one file and start a node on it; return what was done. Raise `PromiseBroken`."""
        rng = random.Random(seed)
        copy = f"{self.root}/copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(f"{self.root}/whole", copy)
        kinds: dict[str, list[Path]] = {}
        for path in sorted(Path(copy).rglob("*")):
            if path.is_file() and path.name != ".lock" and path.stat().st_size:
                kinds.setdefault(kind_of(path), []).append(path)
        kind = rng.choice(sorted(kinds))
        path = rng.choice(kinds[kind])
        damage = rng.choice(DAMAGES)
        content = path.read_bytes()
        changed, position = damage(content, rng)
        path.unlink() if changed is None else path.write_bytes(changed)
        end = "stopped" if self.clean else "killed"
        what = f"{damage.__name__} at byte {position} of {os.path.relpath(path, copy)} ({end}), case {seed}"
        try:
            self._judge(copy, path, content, position, kind)
        except PromiseBroken as error:
            raise PromiseBroken(f"{what}: {error}") from error
        except Exception as error:
            raise PromiseBroken(f"{what}: {error!r}") from error
        return what

    def _judge(self, copy: str, path: Path, content: bytes, position: int, kind: str) -> None:
        damaged: dict[TopicPartition, int] = {}
        topic, _, number = path.parent.name.rpartition("-")
        own = TopicPartition(topic, int(number)) if topic and number.isdigit() else None
        if own is not None and _LOG.fullmatch(path.name):
            damaged[own] = first_lost_offset(path, content, position)
        may_fail = own if path.name == "partition.metadata" else None
        before = tree(copy)
        for _ in range(2):
            try:
                node = Node(copy, RealFileSystem(durable=False))
            except KafkaError as error:
                if not (kind.startswith("__cluster_metadata") or path.name == "meta.properties"):
                    raise PromiseBroken(f"the broker does not start: {error}") from error
                if tree(copy) != before:
                    raise PromiseBroken(f"the broker refused to start, and changed files: {error}") from error
                return
            client = Client(node.bootstrap, self.oracle, self.rng)
            try:
                if kind == "__cluster_metadata log" and not set(self.oracle.living) <= client.topics():
                    self._judge_lost_topics(client, copy, before, path, content, position)
                    return
                check(client, damaged=damaged, may_fail=lambda partition: partition == may_fail)
            except Gone as error:
                raise PromiseBroken(f"the broker closed a connection: {error}") from error
            finally:
                client.close()
                node.stop()

    def _judge_lost_topics(
        self, client: Client, copy: str, before: dict[str, bytes], path: Path, content: bytes, position: int
    ) -> None:
        """Allow a lost end of the metadata log, if it looks like a crash; every log must be there then, set aside."""
        last = [at for at, _ in iter_batches(content)][-1]
        if position > 0 and path.exists() and position < last and len(content) - position < len(content) - last:
            raise PromiseBroken(f"the metadata log lost more than its last batch, topics are {client.topics()}")
        after = tree(copy)
        for name, data in before.items():
            if name.endswith(".log") and "__" not in name and data not in after.values():
                raise PromiseBroken(f"{name} is gone")


def cases(seed: int) -> Generator[Callable[[], object], None, None]:
    """Yield cases without end: a new directory every now and then, and damage to copies of it."""
    rng = random.Random(seed)
    while True:
        run = DamageRun(rng.randrange(1 << 30))
        try:
            for _ in range(40):
                yield partial(run.case, rng.randrange(1 << 30))
        finally:
            run.close()
