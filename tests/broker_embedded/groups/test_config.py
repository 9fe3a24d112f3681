"""The coordinator's options come out of the broker's."""

from __future__ import annotations

from pyclient.broker_embedded.config.broker_config import BrokerConfig
from pyclient.broker_embedded.groups.config import GroupConfig


def test_group_config_has_the_options_of_the_broker_and_their_defaults():
    options = {"group.max.size": "7", "offsets.retention.minutes": 60, "group.consumer.assignors": "range"}
    config = BrokerConfig.build(options, data_dir="data", profile="kafka")
    assert GroupConfig.of(config) == GroupConfig(
        group_max_size=7, offsets_retention_minutes=60, group_consumer_assignors="range"
    )
