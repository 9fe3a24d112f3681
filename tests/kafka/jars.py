"""The jars of a real Apache Kafka: resolved by Maven once for each release, then kept in the user's cache."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

VERSIONS: Final = ("4.3.1", "3.9.2")
_POM: Final = Path(__file__).with_name("pom.xml")


class NoKafka(Exception):
    """There is no real Kafka to be had here; the text says why."""


def why_not(version: str = VERSIONS[0]) -> str | None:
    """Why no real Kafka of that release can run here; None if it can. May take minutes when the jars have to come."""
    try:
        class_path(version)
    except NoKafka as reason:
        return str(reason)
    return None


def class_path(version: str) -> str:
    """Java's class path for that release. Raises `NoKafka` without Java, or without Maven and without the jars."""
    java()
    folder = _cache() / f"kafka-{version}"
    if not (folder / "complete").exists():
        _resolve(version, folder)
    return f"{folder}/*"


def java() -> str:
    """The `java` command. Raises `NoKafka` when there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else None
    found = found or shutil.which("java")
    if found is None:
        raise NoKafka("Java is not installed (Debian: openjdk-17-jre-headless)")
    return found


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pyclient-kafka"


def _resolve(version: str, folder: Path) -> None:
    """Have Maven copy the jars; the first of several processes does it, the others wait."""
    maven = shutil.which("mvn")
    if maven is None:
        raise NoKafka("Maven is not installed (Debian: maven), and Kafka's jars are not in the cache yet")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "complete").exists():
            return
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
        command = [maven, "-q", "-B", "-f", str(_POM), f"-Dkafka.version={version}", *goal]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoKafka(f"Maven could not resolve Kafka {version}: {(done.stdout + done.stderr).strip()[-2000:]}")
        (folder / "complete").touch()
