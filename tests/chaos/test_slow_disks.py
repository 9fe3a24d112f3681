"""The writes of a broker process can be delayed, those of its successor are not, and the environment is restored."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pyclient import Admin, NewTopic, Producer
from pyclient.broker_embedded import EmbeddedCluster
from tests.chaos.slow_disks import FOLDER_VARIABLE, slow_disks

DELAY = 0.2


def test_slow_disk_delays_each_write_until_it_is_healed(tmp_path: Path) -> None:
    before = dict(os.environ)
    with slow_disks() as disks, EmbeddedCluster(1, processes=True, data_dir=tmp_path) as cluster:
        node = cluster.nodes[0]
        assert node.pid is not None
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("busy", 1, 1)])
        with Producer(cluster.bootstrap_servers) as producer:
            producer.send("busy", b"at once").result()
            assert disks.delayed(node.pid) == 0
            disks.slow(node.pid, DELAY)
            began = time.monotonic()
            producer.send("busy", b"late").result()
            assert time.monotonic() - began >= DELAY
            count = disks.delayed(node.pid)
            assert count >= 1
            disks.heal(cluster)
            producer.send("busy", b"at once").result()
            assert disks.delayed(node.pid) == count
            disks.slow(node.pid, DELAY)
        first = node.pid
        cluster.kill(node.id)
        disks.heal(cluster)  # without effect on a node that is down
        cluster.start()
        assert node.pid not in (None, first)
        assert disks.delayed(node.pid) == 0
    assert dict(os.environ) == before
    assert FOLDER_VARIABLE not in os.environ
