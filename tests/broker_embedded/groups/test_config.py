"""The coordinator's options come out of the broker's."""

from __future__ import annotations

from pyclient.broker_embedded.groups.config import GroupConfig


def test_group_config_reads_kafka_names_and_ignores_others():
    options = {"group.max.size": "7", "offsets.retention.minutes": 60, "log.dirs": "/x"}
    assert GroupConfig.from_mapping(options) == GroupConfig(group_max_size=7, offsets_retention_minutes=60)
