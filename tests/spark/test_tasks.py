"""The context of tasks, in Spark and in engines without one."""

from __future__ import annotations

import pytest

from pyclient import errors
from pyclient.spark.tasks import task_context


def test_a_task_without_a_number_cannot_write_exactly_once() -> None:
    with pytest.raises(errors.ConfigError, match="exactlyOnce needs the number of the task's partition"):
        task_context()
