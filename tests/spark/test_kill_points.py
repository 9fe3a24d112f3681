"""The check of `make chaos-spark` sees rows that are not right, and a seed chooses its kills."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pyclient import Admin, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster
from tests.spark.conftest import needs_java
from tests.spark.dying_daemon import POINTS, point_of, request_of
from tests.spark.kill_points import MODES, check, check_kills
from tests.spark.killed_copy import COORDINATORS, PARTITIONS, Brokers, Plan
from tests.spark.processes import ROOT


def test_the_check_sees_lost_and_repeated_rows() -> None:
    assert check("exactly-once-stream", 3, [2, 0, 1]) == []
    assert check("at-least-once-stream", 3, [0, 1, 2, 1]) == []
    assert "1 rows are lost, the first ones [1]" in check("at-least-once-stream", 3, [0, 2])[0]
    assert "more than once, the first ones [2]" in check("exactly-once-batches", 3, [0, 1, 2, 2])[0]
    assert "never sent" in check("at-least-once-stream", 1, [0, 7])[0]


def test_check_fails_if_too_few_processes_were_killed() -> None:
    plan = Plan(1, 50, 0, 0, 3, 8)
    both = ["at-least-once-stream", "exactly-once-stream"]
    enough = {"workers": 100, "coordinators of transactions": 1, "coordinators of groups": 2}
    assert check_kills(plan, both, Counter(enough)) == []
    assert check_kills(plan, both, Counter(enough | {"workers": 99})) == [
        "only 99 of 100 workers were killed, then the copies had ended"
    ]
    assert check_kills(plan, both, Counter(enough | {"coordinators of groups": 0})) == [
        "only 1 of 3 coordinators were killed, then the copies had ended"
    ]


def test_a_seed_chooses_the_same_points_again_and_all_of_them() -> None:
    def chosen(exactly_once: bool) -> list[str]:
        return [
            point_of("7", f"0-{task}", attempt, exactly_once=exactly_once)
            for task in range(30)
            for attempt in (0, 1, 2)
        ]

    assert chosen(True) == chosen(True)
    assert set(chosen(True)) == set(POINTS)
    assert not any("ransaction" in point for point in chosen(False))


def test_seed_chooses_the_tasks_that_request_a_kill() -> None:
    plan = Plan(3, 100, 0, 0, 10, 8)
    assert plan.asking("at-least-once-stream") == []
    tasks = plan.asking("exactly-once-stream")
    assert tasks == plan.asking("exactly-once-stream") != plan.asking("exactly-once-batches")
    assert len(set(tasks)) == 12
    assert (plan.batches("exactly-once-stream") * PARTITIONS - 12) * 8 >= 1.2 * 100
    assert plan.batches("at-least-once-stream") < plan.batches("exactly-once-stream")
    requests = [request_of("7", f"{number}-0") for number in range(200)]
    assert {request.point for request in requests} == {point for point in POINTS if not point.startswith("Consumer")}
    assert len({(request.kind, request.waits) for request in requests}) == 4


def test_killed_broker_is_the_coordinator_that_a_task_names(tmp_path: Path) -> None:
    name, request = "pyclient-sink-q-0", tmp_path / "0-0"
    # On a busy machine, too, coordinators move when they are killed only.
    with EmbeddedCluster(brokers=3, config={"broker.session.timeout.ms": 6000}) as cluster:
        brokers = Brokers(cluster, random.Random(1))
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", 1, 3)])
            admin.alter_group_offsets(name, {TopicPartition("t", 0): OffsetAndMetadata(1)})
            with Producer(cluster.bootstrap_servers, transactional_id=name) as producer:
                producer.init_transactions()
            for kind in COORDINATORS:
                of_kind = admin.describe_groups if kind == "groups" else admin.describe_transactions
                coordinator = of_kind([name])[name].coordinator
                request.write_text(f"{kind} {name} Producer.flush")
                brokers.kill_coordinator(request)
                assert [node.id for node in cluster.nodes if not node.alive] == [coordinator]
                assert not request.exists()
                brokers.start()
                assert cluster.alive
        assert brokers.killed == {"coordinators of transactions": 1, "coordinators of groups": 1}


class TestInSpark:
    pytestmark = [*needs_java, pytest.mark.slow, pytest.mark.timeout(1800)]

    def test_a_hundred_kills_lose_and_repeat_no_rows(self) -> None:
        command = [sys.executable, "-m", "tests.spark.kill_points", "--kills", "100", "--seed", "1"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1700)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
        assert done.stdout.splitlines()[-1] == "all rows are right"
        killed = re.search(r"^killed: (\d+) workers", done.stdout, re.MULTILINE)
        assert killed is not None, done.stdout
        assert int(killed[1]) >= 100

    def test_killed_coordinators_lose_and_repeat_no_rows(self) -> None:
        once = [f"--only={mode}" for mode in MODES if mode.startswith("exactly-once")]
        command = [sys.executable, "-m", "tests.spark.kill_points", "--kills=24", "--coordinator-kills=4", "--seed=2"]
        done = subprocess.run([*command, *once], cwd=ROOT, capture_output=True, text=True, check=False, timeout=1700)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
        assert done.stdout.splitlines()[-1] == "all rows are right"
