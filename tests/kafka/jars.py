"""The jars of a real Apache Kafka: resolved by Maven once for each release, then kept in the user's cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Final

VERSIONS: Final = ("4.3.1", "3.9.2")
PATIENCE: Final = 300.0  # seconds
RUN: Final = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}-{time.time_ns()}"
"""The id of this run of the tests: what failed in it is not tried again."""
SPARK_CONNECTOR: Final = "4.2.0"
"""The release of Spark's own Kafka connector that the tests use: it works with later releases of Spark, too."""
_HERE: Final = Path(__file__).parent


class NoKafka(Exception):
    """No real Kafka can be run here; the text says why."""


def why_not(version: str = VERSIONS[0]) -> str | None:
    """Return why no real Kafka of that release can run here; None if it can. Downloading the jars may take minutes."""
    try:
        class_path(version)
    except NoKafka as reason:
        return str(reason)
    return None


def class_path(version: str) -> str:
    """Return Java's class path for a release. Raise `NoKafka` without Java, or without Maven and without the jars."""
    java()
    folder = _cache() / f"kafka-{version}"
    if not _is_complete(folder, "pom.xml"):
        _resolve(f"Kafka {version}", "pom.xml", f"-Dkafka.version={version}", folder)
    return f"{folder}/*"


def spark_connector() -> str:
    """Return the jars of Spark's own Kafka connector, with commas. Raise `NoKafka` as `class_path` does."""
    java()
    folder = _cache() / f"spark-{SPARK_CONNECTOR}"
    if not _is_complete(folder, "spark-pom.xml"):
        _resolve(
            f"the connector of Spark {SPARK_CONNECTOR}", "spark-pom.xml", f"-Dspark.version={SPARK_CONNECTOR}", folder
        )
    return ",".join(sorted(str(jar) for jar in folder.glob("*.jar")))


def java() -> str:
    """Return the `java` command. Raise `NoKafka` when there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else None
    found = found or shutil.which("java")
    if found is None:
        raise NoKafka("Java is not installed (Debian: openjdk-17-jre-headless)")
    return found


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pyclient-kafka"


def _is_complete(folder: Path, pom: str) -> bool:
    """Return True if the folder has the jars of this `pom`, and not of one before it was changed."""
    try:
        return (folder / "complete").read_text() == _digest(pom)
    except FileNotFoundError:
        return False


def _digest(pom: str) -> str:
    return hashlib.sha256((_HERE / pom).read_bytes()).hexdigest()


def _resolve(what: str, pom: str, version: str, folder: Path) -> None:
    """Have Maven copy the jars; the first of several processes does it, the others wait, and fail as it does."""
    maven = shutil.which("mvn")
    if maven is None:
        raise NoKafka(f"Maven is not installed (Debian: maven), and the jars of {what} are not in the cache yet")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_complete(folder, pom):
            return
        lock.seek(0)
        run, _, reason = lock.read().partition("\n")
        if run != RUN:
            reason = _copy(maven, pom, version, folder)
        if reason:
            lock.truncate(0)
            lock.write(f"{RUN}\n{reason}")
            raise NoKafka(f"Maven could not resolve {what}: {reason}")
        (folder / "complete").write_text(_digest(pom))


def _copy(maven: str, pom: str, version: str, folder: Path) -> str:
    """Return why Maven could not copy the jars; empty if it could."""
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    command = [maven, "-q", "-B", "-f", str(_HERE / pom), version, *goal]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return f"it is not done after {PATIENCE:g} s"
    if done.returncode:
        return (done.stdout + done.stderr).strip()[-2000:] or f"it ended with {done.returncode}"
    return ""
