"""Runs one client's piece of work in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys


def measure(work: str, client: str, servers: str, topic: str, size: int, codec: str, count: int) -> dict[str, float]:
    """Return the figures of `benchmarks.produce_work` or `benchmarks.consume_work`; `RuntimeError` if it failed."""
    command = [sys.executable, "-W", "ignore", "-m", f"benchmarks.{work}_work", client, "--servers", servers]
    command += ["--topic", topic, "--size", str(size), "--codec", codec, "--count", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found
