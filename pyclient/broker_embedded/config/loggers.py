"""The broker's loggers as a config resource (type 8, KIP-412), which clients can describe and change.

They are Python's loggers of this package, under Python's names; `root` is their parent `pyclient`: a broker inside a
program must not change the program's own logging. A change applies to the whole process, until it ends.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from pyclient import errors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyclient.broker_embedded.controller.config_changes import Changes
    from pyclient.config.options import ConfigType

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
"""Kafka's level names, the finest first."""


def loggers() -> dict[str, logging.Logger]:
    """Return the loggers by the names that clients see."""
    known = logging.Logger.manager.loggerDict
    own = {name: each for name, each in known.items() if name.startswith(PACKAGE + ".")}
    return {ROOT: logging.getLogger(PACKAGE)} | {
        name: each for name, each in sorted(own.items()) if isinstance(each, logging.Logger)
    }


def level_of(logger: logging.Logger) -> str:
    """Return Kafka's name of the effective level: the coarsest one that logs no less."""
    effective = logger.getEffectiveLevel()
    return next((name for name, level in reversed(LEVELS.items()) if level <= effective), "TRACE")


def check_broker(name: str, node_id: int) -> None:
    """Raise `InvalidRequest` unless the resource names this broker, which alone has the loggers."""
    if name != str(node_id):
        raise errors.InvalidRequest(f"loggers are each broker's own: this is broker {node_id}, not {name!r}")


def levels() -> dict[str, str]:
    """Return the levels that are set, by logger; the other loggers inherit theirs."""
    return {name: level_of(each) for name, each in loggers().items() if each.level != logging.NOTSET or name == ROOT}


def no_type(name: str) -> ConfigType | None:
    """Raise `InvalidRequest`: a level is no list, to which values could be appended."""
    raise errors.InvalidRequest(f"{name}: a logger's level is set or deleted")


def check_names(names: Iterable[str]) -> None:
    """Raise `InvalidConfig` for an unknown logger."""
    known = loggers()
    for name in names:
        if name not in known:
            raise errors.InvalidConfig(f"there is no logger {name!r}")


def check(changes: Changes) -> None:
    """Raise `InvalidConfig` for an unknown level, `InvalidRequest` for deleting the level of the root logger."""
    for name, level in changes.items():
        if level is None and name == ROOT:
            raise errors.InvalidRequest(f"the level of {ROOT} can be set and not deleted")
        if level is not None and level not in LEVELS:
            raise errors.InvalidConfig(f"{name}: {level!r} is no level: there are {', '.join(LEVELS)}")


def change(changes: Changes) -> None:
    """Set levels; a logger without one inherits its parent's again."""
    known = loggers()
    for name, level in changes.items():
        known[name].setLevel(logging.NOTSET if level is None else LEVELS[level])
