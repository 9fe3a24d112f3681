"""Other releases of packages than those of the environment, for programs that run in a process of their own."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.waiting import until

CONNECT = (
    "grpcio==1.85.3",
    "grpcio-status==1.85.3",
    "googleapis-common-protos==1.76.0",
    "protobuf==7.36.2",
    "pyyaml==6.0.4",
)
"""The packages for Spark Connect and declarative pipelines: `pip install 'pyspark[pipelines]'`."""

CACHE = Path.home() / ".cache" / "pyclient-kafka"
ROOT = Path(__file__).parents[2]
SECONDS: Final = 500.0
"""The time for a process: less than a test has, so that the process ends with it."""


def installed(*packages: str) -> Path:
    """Return a directory with these packages alone, without what they need: the environment has that.

    It appears when it is complete, so that an interrupted installation or another process leaves no part of one.
    """
    name = "-".join((str(sys.implementation.cache_tag), *packages)).replace("=", "")
    place = CACHE / name
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released when the file is closed
        if not place.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as directory:
                _install(Path(directory, "packages"), packages)
                os.rename(Path(directory, "packages"), place)
    return place


def _install(place: Path, packages: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(place), *packages]
    command.append("--no-cache-dir")  # it would hold an archive and a wheel more of each, hundreds of megabytes
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    if found.returncode and os.environ.get("PYCLIENT_REQUIRE_ALL") != "1":
        pytest.skip(f"{', '.join(packages)} cannot be installed: {found.stderr[-300:]}")
    assert not found.returncode, found.stderr


def run_with_packages(packages: tuple[str, ...], *command: str) -> str:
    """Run a command of Python that finds these packages before those of the environment; return its output."""
    options: dict[str, Any] = {"env": _environment(packages), "capture_output": True, "text": True}
    done = subprocess.run(command, check=False, timeout=SECONDS, **options)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """Yield the address of a Spark Connect server, which runs at a free port and logs to a file in the folder."""
    import pyspark

    options = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [str(submit), "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += ["--master", "local[2]", *(part for pair in options.items() for part in ("--conf", "=".join(pair)))]
    log = folder / "connect-server.log"
    with log.open("w") as output:
        server = subprocess.Popen(command, env=_environment(CONNECT), cwd=folder, stdout=output, stderr=output)

    def address() -> str | None:
        found = re.search(r"Connect server started at: *[^ ]*?:(\d+)\s", log.read_text())
        assert found or server.poll() is None, log.read_text()[-4000:]
        return f"sc://127.0.0.1:{found[1]}" if found else None

    try:
        until(address, "the Spark Connect server did not start")
        yield str(address())
    finally:
        server.terminate()
        server.wait(60)


@contextmanager
def workers_on_two_hosts(folder: Path) -> Iterator[str]:
    """Yield the address of a Spark master with two workers of one core, on loopback addresses of their own."""
    import pyspark

    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    environment = _environment(())
    del environment["SPARK_LOCAL_IP"]  # each has its own
    with ExitStack() as stack:

        def start(name: str, *arguments: str) -> tuple[Path, subprocess.Popen[bytes]]:
            log = folder / f"{name}.log"
            command = [spark_class, f"org.apache.spark.deploy.{name.partition('-')[0]}", "--webui-port", "0"]
            with log.open("w") as output:
                process = subprocess.Popen(
                    [*command, *arguments], env=environment, cwd=folder, stdout=output, stderr=output
                )
            stack.callback(process.wait, 60)
            stack.callback(process.terminate)
            return log, process

        def found(started: tuple[Path, subprocess.Popen[bytes]], pattern: str) -> list[str]:
            log, process = started
            text = log.read_text()
            assert process.poll() is None, text[-4000:]
            return re.findall(pattern, text)

        address = r"Starting Spark master at (spark://\S+)"
        master = start("master.Master", "--host", "127.0.0.1", "--port", "0")
        until(lambda: found(master, address), "the Spark master did not start")
        [url] = found(master, address)
        size = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work"))
        workers = [start(f"worker.Worker-{number}", "--host", f"127.0.0.{number}", *size, url) for number in (2, 3)]
        for worker in workers:
            until(lambda worker=worker: found(worker, "Successfully registered"), "a Spark worker did not register")
        yield url


def _environment(packages: tuple[str, ...]) -> dict[str, str]:
    """Return the environment of a process that finds these packages before those of this process's environment."""
    paths = os.pathsep.join([*([str(installed(*packages))] if packages else []), str(ROOT)])
    own = ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "PYSPARK_GATEWAY_PORT")
    environment = {name: value for name, value in os.environ.items() if name not in own}  # of this process's session
    return environment | {"PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
