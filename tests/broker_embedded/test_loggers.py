"""The levels of the broker's loggers are described and changed over the wire (KIP-412)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded.config.loggers import LEVELS, PACKAGE, level_of, loggers
from pyclient.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pyclient.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

LOGGER, SET, DELETE = 8, 0, 1
OWN = "pyclient.broker_embedded"


@pytest.fixture(autouse=True)
def kept() -> Iterator[None]:
    """Restore the process-wide levels after a test."""
    names = (PACKAGE, OWN)
    before = [logging.getLogger(name).level for name in names]
    yield
    for name, level in zip(names, before, strict=True):
        logging.getLogger(name).setLevel(level)


def change(client: Any, *changes: tuple[str, int, str | None], validate_only: bool = False) -> Any:
    configs = [
        AlterableConfig(name=name, config_operation=operation, value=value) for name, operation, value in changes
    ]
    resource = AlterConfigsResource(resource_type=LOGGER, resource_name="1", configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    return client.call(request, 1).responses[0]


def logger_levels(client: Any) -> dict[str, str]:
    resource = DescribeConfigsResource(resource_type=LOGGER, resource_name="1", configuration_keys=None)
    [result] = client.call(DescribeConfigsRequest(resources=[resource]), 4).results
    assert result.error_code == 0
    return {each.name: each.value for each in result.configs}


@pytest.mark.parametrize("level", LEVELS)
def test_level_is_set_and_described(client: Any, level: str) -> None:
    assert change(client, (OWN, SET, level)).error_code == 0
    assert logger_levels(client)[OWN] == level
    assert logging.getLogger(OWN).level == LEVELS[level]


def test_logger_without_level_has_level_of_parent(client: Any) -> None:
    change(client, ("root", SET, "ERROR"), (OWN, SET, "DEBUG"))
    assert (logger_levels(client)["root"], logger_levels(client)[OWN]) == ("ERROR", "DEBUG")
    assert change(client, (OWN, DELETE, None)).error_code == 0
    assert logger_levels(client)[OWN] == "ERROR"


def test_invalid_change_refuses_all_changes(client: Any) -> None:
    change(client, (OWN, SET, "WARN"))
    assert change(client, (OWN, SET, "DEBUG"), ("root", SET, "LOUD")).error_code == errors.InvalidConfig.code
    assert change(client, (OWN, SET, "DEBUG"), validate_only=True).error_code == 0
    assert logger_levels(client)[OWN] == "WARN"


def test_level_between_two_of_kafka_is_described_as_finer_one() -> None:
    logger = logging.Logger("some")
    for level, name in ((1, "TRACE"), (5, "TRACE"), (15, "DEBUG"), (30, "WARN"), (35, "WARN"), (99, "FATAL")):
        logger.setLevel(level)
        assert level_of(logger) == name


def test_loggers_of_other_packages_are_unchanged(client: Any) -> None:
    logging.getLogger("somebody.else")
    assert "somebody.else" not in loggers()
    assert change(client, ("somebody.else", SET, "DEBUG")).error_code == errors.InvalidConfig.code
    assert change(client, ("somebody.else", DELETE, None)).error_code == errors.InvalidConfig.code
