"""Events of a killed client count as far as it wrote them; what it had begun is unknown."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from pyclient import Admin, NewTopic, Producer
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.errors import FencedInstanceId
from tests.chaos import killed_clients
from tests.chaos.checkers import Limits, check
from tests.chaos.history import (
    COMMITTED,
    IDEMPOTENT,
    INFO,
    OK,
    Call,
    ClientFault,
    Commit,
    CommitCall,
    Event,
    History,
    Place,
    Read,
    Send,
    Value,
    event_of,
    line_of,
    payload,
)
from tests.chaos.killed_clients import FENCED, FREEZE, KILL, KilledClient, unknown_outcomes
from tests.chaos.workload import Notes, OurReader
from tests.waiting import until

A, B = Place("a", 0), Place("a", 1)
LIMITS = Limits(delivery_timeout=30.0, recovery=10.0)
NOWHERE: dict[str, Any] = {"servers": "127.0.0.1:1", "topic": "a", "partitions": 1, "kind": IDEMPOTENT, "seed": 1}


def sent(number: int) -> Send:
    return Send(Value("p.1", number), A, IDEMPOTENT, OK, number, number, number + 0.5)


def called(number: int) -> Call:
    return Call(Value("p.1", number), A, number, IDEMPOTENT)


def read(number: int) -> Read:
    return Read("c", number, A, number, Value("p.1", number), A, COMMITTED)


def test_call_without_an_outcome_is_unknown_when_its_client_is_killed() -> None:
    noted: list[Event] = [called(0), called(1), sent(0), replace(called(2), transaction="t-1")]
    assert list(unknown_outcomes(noted, 9.0)) == [
        Send(Value("p.1", 1), A, IDEMPOTENT, INFO, None, 1, 9.0, None, "its client was killed"),
        Send(Value("p.1", 2), A, IDEMPOTENT, INFO, None, 2, 9.0, "t-1", "its client was killed"),
    ]


def test_commit_is_unknown_in_each_partition_without_an_outcome() -> None:
    first = CommitCall("g", "m.1", (A, B), (3, 4), 1.0)
    second = CommitCall("g", "m.1", (A, B), (5, 6), 2.0)
    done = [Commit("g", "m.1", 7, place, offset, 1.5, 1.0) for place, offset in ((A, 3), (B, 4))]
    half = Commit("g", "m.1", 7, A, 5, 2.5, 2.0)
    assert list(unknown_outcomes([first, *done, second, half], 9.0)) == [Commit("g", "m.1", -1, B, 6, 9.0, 2.0, INFO)]
    assert list(unknown_outcomes([first, *done], 9.0)) == []


@pytest.mark.parametrize("is_there", [True, False])
def test_send_of_a_killed_client_may_be_written_or_not(is_there: bool) -> None:
    noted: list[Event] = [called(0), sent(0), called(1)]
    history = History().add(*noted, read(0), *([read(1)] if is_there else []))
    assert set(check(history, LIMITS)) == {"unaccounted sends"}
    assert check(history.add(*unknown_outcomes(noted, 9.0)), LIMITS) == {}


def test_acknowledged_send_of_a_killed_client_may_not_be_lost() -> None:
    noted: list[Event] = [called(0), sent(0), called(1)]
    history = History().add(*noted, *unknown_outcomes(noted, 9.0))
    assert len(check(history, LIMITS)["lost"]) == 1


def test_events_are_the_same_after_they_were_a_line() -> None:
    for event in (
        called(1),
        sent(1),
        read(1),
        CommitCall("g", "m", (A, B), (3, 4), 1.0),
        ClientFault("m", KILL, 1, 1, 2),
    ):
        assert event_of(line_of(event)) == event


def test_process_writes_a_call_as_a_line_at_once() -> None:
    options = json.dumps(NOWHERE | {"rate": 50})
    command = [sys.executable, "-m", "tests.chaos.client_process", "OurSender", "p", options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = event_of(process.stdout.readline())
        process.kill()
    assert isinstance(first, Call)
    assert (first.value, first.place, first.kind) == (Value("p", 0), A, IDEMPOTENT)


@pytest.fixture
def short_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(killed_clients, "_LIFE_SECONDS", (1.0, 2.0))
    monkeypatch.setattr(killed_clients, "_FROZEN_SHARE", 1.0)
    monkeypatch.setattr(killed_clients, "_FROZEN_SECONDS", (0.1, 0.2))
    monkeypatch.setattr(killed_clients, "_AWAY_SECONDS", 0.1)


@pytest.mark.usefixtures("short_lives")
def test_killed_producer_and_member_go_on_in_a_new_life() -> None:
    notes = Notes()
    with EmbeddedCluster() as cluster:
        servers = cluster.bootstrap_servers
        with Admin(servers) as admin:
            admin.create_topics([NewTopic("a", 1, 1)])
        producer = KilledClient("p", notes, "OurSender", 1, **NOWHERE | {"servers": servers}, rate=50)
        member = KilledClient(
            "m", notes, "GroupMember", 2, servers=servers, topic="a", group="g", protocol="classic", instance="m"
        )
        for client in (producer, member):
            client.start()
        deadline = time.monotonic() + 120
        while not {"p.1", "p.2"} <= {send.value.producer for send in list(notes.history.sends) if send.outcome == OK}:
            assert time.monotonic() < deadline
            time.sleep(0.05)  # between two looks
        producer.stop()
        producer.join(60)
        member.stop()
        member.join(60)
        OurReader("drain", notes, servers, {"a": 1}, COMMITTED).drain(60)
    history = notes.history
    assert notes.failures == []
    assert {each.name for each in history.client_faults} == {KILL, FREEZE}
    assert history.commits
    assert {read.consumer for read in history.reads} == {"m", "drain"}
    assert check(history, LIMITS) == {}


@pytest.mark.usefixtures("short_lives")
def test_static_member_that_is_fenced_by_its_former_life_is_started_again() -> None:
    notes = Notes()
    with EmbeddedCluster() as cluster:
        servers = cluster.bootstrap_servers
        with Admin(servers) as admin:
            admin.create_topics([NewTopic("a", 1, 1)])
        with Producer(servers) as producer:
            producer.send("a", payload(Value("p.1", 0), A), partition=0).result(60)
        member = KilledClient(
            "m", notes, "GroupMember", 2, servers=servers, topic="a", group="g", protocol="classic", instance="m"
        )

        def ends() -> list[str]:
            return [each.name for each in list(notes.history.client_faults)]

        with cluster.faults.fail("Heartbeat", FencedInstanceId, times=None, group="g"):
            member.start()
            until(lambda: FENCED in ends())
        until(lambda: KILL in ends()[ends().index(FENCED) :])
        member.stop()
        member.join(60)
    assert notes.failures == []


def test_client_that_is_stopped_before_it_begins_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(client: KilledClient, _at_work: threading.Event) -> bool:
        client.stop()
        return False

    monkeypatch.setattr(KilledClient, "_begins", stopped)
    notes = Notes()
    client = KilledClient("p", notes, "OurSender", 1, **NOWHERE)
    client.start()
    client.join(60)
    assert notes.failures == []


@pytest.mark.usefixtures("short_lives")
def test_client_that_ends_by_itself_is_a_failure() -> None:
    notes = Notes()
    client = KilledClient("p", notes, "OurSender", 1, servers="127.0.0.1:1")  # arguments are missing
    client.start()
    client.join(60)
    assert [each.split("(")[0] for each in notes.failures] == ["p: ChildProcessError"]
