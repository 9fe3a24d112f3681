"""Members join, leave, are killed and paused at random: every record is processed, none twice without a reason."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from pyclient import Admin, NewTopic
from pyclient.broker_embedded import EmbeddedCluster

sys.path.insert(0, str(Path(__file__).parent))
from group_soak import soak

PARTITIONS = 12
SESSION_SECONDS = 3.0
PER_SECOND = 667  # 200,000 records in five minutes
SCALE = float(os.environ.get("PYCLIENT_SOAK_SCALE", "1"))  # of the times below; 5 for a long run

CLASSIC: dict[str, Any] = {"session_timeout_ms": int(SESSION_SECONDS * 1000), "heartbeat_interval_ms": 300}
BROKER = {
    "group.consumer.session.timeout.ms": str(int(SESSION_SECONDS * 1000)),
    "group.consumer.heartbeat.interval.ms": "300",
}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.xdist_group("soak")
@pytest.mark.parametrize(
    ("seconds", "options"),
    [
        pytest.param(60, {**CLASSIC, "partition_assignment_strategy": "range"}, id="range"),
        pytest.param(120, {**CLASSIC, "partition_assignment_strategy": "cooperative-sticky"}, id="cooperative-sticky"),
        pytest.param(60, {"group_protocol": "consumer"}, id="consumer-protocol"),
    ],
)
def test_six_members_under_faults_process_every_record(tmp_path: Path, seconds: int, options: dict[str, Any]) -> None:
    with EmbeddedCluster(processes=True, config=BROKER) as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("soak", PARTITIONS, 1)])
        run = soak(
            cluster.bootstrap_servers, "soak", PARTITIONS, tmp_path, seed=1, seconds=seconds * SCALE,
            records=int(PER_SECOND * seconds * SCALE), session_seconds=SESSION_SECONDS, **options,
        )  # fmt: skip
    assert {"join", "leave", "kill", "pause"} <= set(run.actions), run.actions
