"""The jars of a real Kafka are resolved once in a run of the tests, with a time limit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka import jars


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """`maven(script)` puts a `mvn` in the place of the real one; how often it ran is the size of the file returned."""
    ran = tmp_path / "ran"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("JAVA_HOME", raising=False)

    def put(script: str) -> Path:
        for name, text in {"mvn": f"printf x >> {ran}; {script}", "java": "exit 1"}.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)
        return ran

    return put


@pytest.mark.parametrize(("script", "says"), [("echo no route; exit 1", "no route"), ("exit 3", "it ended with 3")])
def test_failed_resolution_is_not_retried_in_the_same_run(
    maven: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, script: str, says: str
) -> None:
    ran = maven(script)
    for _ in range(3):
        assert jars.why_not("1.2.3") == f"Maven could not resolve Kafka 1.2.3: {says}"
    assert ran.stat().st_size == 1
    assert jars.why_not("1.2.4") is not None
    assert ran.stat().st_size == 2
    monkeypatch.setattr(jars, "RUN", "another")
    maven("exit 0")
    assert jars.why_not("1.2.3") is None
    assert jars.class_path("1.2.3").endswith("/kafka-1.2.3/*")
    assert ran.stat().st_size == 3


def test_maven_is_killed_after_its_timeout(maven: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    ran = maven("exec sleep 100")
    monkeypatch.setattr(jars, "PATIENCE", 0.2)
    for _ in range(2):
        assert jars.why_not("1.2.3") == "Maven could not resolve Kafka 1.2.3: it is not done after 0.2 s"
    assert ran.stat().st_size == 1
