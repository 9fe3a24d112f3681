"""Sessions of brokers on a controller whose process does not run for a while."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from pyclient.broker_embedded.config.broker_config import BrokerConfig
from pyclient.broker_embedded.controller.image import BrokerImage
from pyclient.broker_embedded.controller.session_watch import SessionWatch
from pyclient.errors import ConnectionFailed, KafkaTimeout
from tests.broker_embedded.controller.cluster_model import TIMEOUT, ClusterModel


class Calls:
    """Calls that are due at a time; a test runs them late. It is the clock, too."""

    def __init__(self, now: float) -> None:
        self.now = now
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []

    def schedule(self, seconds: float, callback: Callable[[], None]) -> Any:
        """Wait for a time."""
        entry = (self.now + seconds, len(self._waiting), callback)
        self._waiting.append(entry)
        return SimpleNamespace(cancel=lambda: self._waiting.remove(entry) if entry in self._waiting else None)

    def run_at(self, now: float) -> None:
        """Run what is due, all at this time."""
        self.now = now
        while due := sorted(entry for entry in self._waiting if entry[0] <= now):
            self._waiting.remove(due[0])
            due[0][2]()

    def pass_until(self, end: float) -> None:
        """Run each call when it is due."""
        while due := sorted(entry[0] for entry in self._waiting if entry[0] <= end):
            self.run_at(due[0])
        self.now = end


@pytest.fixture
def model() -> ClusterModel:
    made = ClusterModel()
    made.start(1, 2)
    return made


class Commits:
    """The high watermark of a log with something to commit; None while all of it is committed."""

    high_watermark: int | None = None


@pytest.fixture
def commits() -> Commits:
    return Commits()


@pytest.fixture
def calls(model: ClusterModel, commits: Commits) -> Calls:
    made = Calls(model.now)

    def append(_records: object) -> None:
        stale = model.cluster.stale_broker(made.now)
        assert stale is not None
        model.fence(stale)

    def note_commits(now: float) -> bool:
        end = model.end_offset
        return model.cluster.note_commits(end if commits.high_watermark is None else commits.high_watermark, end, now)

    controller: Any = SimpleNamespace(
        cluster=model.cluster, image=model.image, node_id=1, append=append, note_commits=note_commits
    )
    config = BrokerConfig.build(data_dir="/nonexistent")
    watch = SessionWatch(config, made.schedule, lambda: made.now, lambda: made.now)
    watch.start(controller)
    return made


def fenced(model: ClusterModel) -> list[int]:
    return [node for node, broker in model.image.brokers.items() if broker.fenced]


def test_silent_brokers_are_fenced_after_their_timeout(model: ClusterModel, calls: Calls) -> None:
    began = calls.now
    calls.pass_until(began + TIMEOUT)
    assert fenced(model) == []
    calls.pass_until(began + TIMEOUT + 0.1)
    assert fenced(model) == [1, 2]


def test_sessions_get_the_time_back_in_which_nothing_ran(model: ClusterModel, calls: Calls) -> None:
    began = calls.now
    calls.pass_until(began + TIMEOUT / 2)
    calls.run_at(began + 10 * TIMEOUT)  # nothing ran meanwhile
    assert fenced(model) == []
    calls.pass_until(began + 10 * TIMEOUT + TIMEOUT / 4)
    assert fenced(model) == []
    calls.pass_until(began + 10 * TIMEOUT + TIMEOUT / 2 + TIMEOUT / 5)
    assert fenced(model) == [1, 2]


def test_broker_with_a_heartbeat_after_the_stall_stays(model: ClusterModel, calls: Calls) -> None:
    began = calls.now
    calls.run_at(began + 10 * TIMEOUT)
    model.now = calls.now
    model.beat(2)
    calls.pass_until(calls.now + TIMEOUT)
    assert fenced(model) == [1]


def test_sessions_go_on_with_the_next_commit(model: ClusterModel, calls: Calls, commits: Commits) -> None:
    began = calls.now
    commits.high_watermark = model.end_offset - 1
    calls.pass_until(began + 5 * TIMEOUT)
    assert fenced(model) == []
    commits.high_watermark = None
    calls.pass_until(began + 5 * TIMEOUT + TIMEOUT * 3 / 4)
    assert fenced(model) == []
    calls.pass_until(began + 6 * TIMEOUT + TIMEOUT / 4)
    assert fenced(model) == [1, 2]


def test_probe_that_timed_out_is_repeated_until_a_heartbeat_comes(model: ClusterModel) -> None:
    model.cluster.activate(model.now)
    calls, probes = Calls(model.now), list[tuple[int, Future[object]]]()

    def reach(broker: BrokerImage) -> Any:
        probes.append((broker.node_id, Future()))
        return probes[-1][1]

    controller: Any = SimpleNamespace(cluster=model.cluster, image=model.image, node_id=3, note_commits=lambda _: False)
    config = BrokerConfig.build(data_dir="/nonexistent")
    watch = SessionWatch(config, calls.schedule, lambda: calls.now, lambda: calls.now, reach)
    watch.start(controller)
    assert [node for node, _ in probes] == [1, 2]
    probes[0][1].set_exception(KafkaTimeout("no answer"))
    assert [node for node, _ in probes] == [1, 2, 1]
    model.beat(2)
    probes[1][1].set_exception(KafkaTimeout("no answer"))
    assert len(probes) == 3, "broker 2 has sent a heartbeat"
    probes[2][1].set_exception(ConnectionFailed("refused"))
    assert len(probes) == 3
    assert model.cluster.stale_broker(calls.now + TIMEOUT / 2) == 1
