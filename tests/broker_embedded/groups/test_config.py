"""The coordinator's options come out of the broker's."""

from __future__ import annotations

from pyclient.broker_embedded.groups.config import GroupConfig


def test_options_are_taken_by_kafkas_names_and_others_are_left():
    options = {"group.max.size": "7", "offsets.retention.minutes": 60, "log.dirs": "/x"}
    assert GroupConfig.from_mapping(options) == GroupConfig(group_max_size=7, offsets_retention_minutes=60)
