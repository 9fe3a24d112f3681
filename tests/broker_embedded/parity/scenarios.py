"""All scenarios, in the order of the file of answers."""

from __future__ import annotations

from typing import Final

from tests.broker_embedded.parity import admin_texts, group_kinds, log_dirs, offsets, offsets_topic
from tests.broker_embedded.parity.scenario import Scenario

SCENARIOS: Final[tuple[Scenario, ...]] = (
    *offsets_topic.SCENARIOS,
    *group_kinds.SCENARIOS,
    *admin_texts.SCENARIOS,
    *offsets.SCENARIOS,
    *log_dirs.SCENARIOS,
)
