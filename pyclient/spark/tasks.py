"""The context of a task in Spark, and the properties of its query."""

from __future__ import annotations

from typing import Any, Final

from pyspark import TaskContext

from pyclient.errors import ConfigError

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"


def task_context() -> Any:
    """Return the context of the running task; raise `ConfigError` in an engine that gives tasks none."""
    task = TaskContext.get()
    if task is None:
        raise ConfigError(
            "exactlyOnce needs the number of the task's partition (TaskContext), which this engine does not provide"
        )
    return task


def local_property(task: Any, name: str) -> str:
    """Return a property of the query that a task belongs to; raise `ConfigError` if this Spark does not give it."""
    value = task.getLocalProperty(name)
    if value is None:
        raise ConfigError(
            f"this release of Spark does not give tasks the property {name}, so that a repeated "
            "batch would not be known"
        )
    return str(value)
