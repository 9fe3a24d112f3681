"""The broker's loggers as Kafka's tools see them (resource type 8, KIP-412): told and changed while it runs.

They are Python's loggers of this package, under Python's names; `root` is the one above them all, `pyclient`, for a
broker inside somebody's process leaves that process's own logging alone. What is changed holds for the whole process,
and until it ends.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from pyclient import errors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyclient.broker_embedded.controller.config_changes import Changes
    from pyclient.broker_embedded.settings import SettingType

ROOT: Final = "root"
PACKAGE: Final = "pyclient"
TRACE: Final = 5  # Python has no name for it: finer than DEBUG

LEVELS: Final = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""Kafka's names of levels, the finest first."""


def loggers() -> dict[str, logging.Logger]:
    """The loggers by the names that they are told under."""
    known = logging.Logger.manager.loggerDict
    own = {name: each for name, each in known.items() if name.startswith(PACKAGE + ".")}
    return {ROOT: logging.getLogger(PACKAGE)} | {
        name: each for name, each in sorted(own.items()) if isinstance(each, logging.Logger)
    }


def level_of(logger: logging.Logger) -> str:
    """Kafka's name of the level in effect: the coarsest one that tells no less."""
    effective = logger.getEffectiveLevel()
    return next((name for name, level in reversed(LEVELS.items()) if level <= effective), "TRACE")


def check_broker(name: str, node_id: int) -> None:
    """Raise `InvalidRequest` unless the loggers are asked of the broker that has them."""
    if name != str(node_id):
        raise errors.InvalidRequest(f"loggers are each broker's own: this is broker {node_id}, not {name!r}")


def levels() -> dict[str, str]:
    """The levels that were set, by logger; the others take that of the one above."""
    return {name: level_of(each) for name, each in loggers().items() if each.level != logging.NOTSET or name == ROOT}


def no_type(name: str) -> SettingType | None:
    """Raise `InvalidRequest`: a level is not a list that could grow."""
    raise errors.InvalidRequest(f"{name}: a logger's level is set or deleted")


def check_names(names: Iterable[str]) -> None:
    """Raise `InvalidConfig` for a logger that there is not."""
    known = loggers()
    for name in names:
        if name not in known:
            raise errors.InvalidConfig(f"there is no logger {name!r}")


def check(changes: Changes) -> None:
    """Raise `InvalidConfig` for a level that is none, `InvalidRequest` for taking away the last level."""
    for name, level in changes.items():
        if level is None and name == ROOT:
            raise errors.InvalidRequest(f"the level of {ROOT} can be set and not deleted")
        if level is not None and level not in LEVELS:
            raise errors.InvalidConfig(f"{name}: {level!r} is no level: there are {', '.join(LEVELS)}")


def change(changes: Changes) -> None:
    """Set levels; a logger without one takes that of the one above again."""
    known = loggers()
    for name, level in changes.items():
        known[name].setLevel(logging.NOTSET if level is None else LEVELS[level])
