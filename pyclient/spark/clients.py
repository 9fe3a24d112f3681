"""Clients of Python workers, kept between tasks: one for each process and configuration.

Spark's daemon forks its workers, so a client that came over a fork belongs to the parent: the process id is part of the
key. Options may name a secret instead of holding it, as `env:NAME` or `file:PATH`; it is read in the process that makes
the client, so that plans and task closures never have it.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from pyclient.errors import ConfigError

if TYPE_CHECKING:
    from pyclient.admin import Admin
    from pyclient.consumer import Consumer
    from pyclient.producer import Producer

C = TypeVar("C", bound="Consumer[Any, Any] | Producer | Admin")

_SECRET: Final = ("password", "secret", "token", "jaas", "key")


def resolved(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with the secrets that `env:NAME` and `file:PATH` name.

    Raise one `ConfigError` with every variable that is not set and every file that cannot be read.
    """
    found, problems = dict(options), []
    for name, value in options.items():
        kind, _, place = value.partition(":") if isinstance(value, str) else ("", "", "")
        try:
            if kind == "env":
                found[name] = os.environ[place]
            elif kind == "file":
                found[name] = Path(place).read_text().rstrip("\n")
        except KeyError:
            problems.append(f"{name}={value}: the environment of this process has no variable {place}")
        except (OSError, UnicodeError) as error:
            problems.append(f"{name}={value}: the file cannot be read: {error}")
    if problems:
        raise ConfigError(*problems)
    return found


def admin_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a consumer's or producer's options, with their secrets, that an `Admin` has, too."""
    return _of_admin(resolved(options))


def _of_admin(options: Mapping[str, Any]) -> dict[str, Any]:
    from pyclient.admin.config import AdminConfig
    from pyclient.config import options_of

    known = options_of(AdminConfig)
    names = {*known, *(alias for option in known.values() for alias in option.aliases)}
    return {name: value for name, value in options.items() if name.replace(".", "_") in names}


def hidden(options: Mapping[str, Any]) -> str:
    """Return the options as they may be shown: `name=value, ...` with secrets hidden."""
    return ", ".join(
        f"{name}='[hidden]'" if _is_secret(name, value) else f"{name}={value!r}" for name, value in options.items()
    )


def _is_secret(name: str, value: Any) -> bool:
    named = isinstance(value, str) and value.startswith(("env:", "file:"))
    return not named and any(word in name for word in _SECRET)


IDLE_SECONDS: Final = 60.0
"""Seconds after its last task for which a client is kept: the next micro-batch needs no new connections."""


class WorkerClients(Generic[C]):
    """The clients of one kind in this process. A task takes one, and gives it back or discards it."""

    def __init__(self, make: Callable[[dict[str, Any]], C], idle_seconds: float = IDLE_SECONDS) -> None:
        self._make = make
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._free: dict[tuple[int, str], list[tuple[C, threading.Timer]]] = {}

    def take(self, options: Mapping[str, Any]) -> C:
        """Return a client for these options that no other task uses, a new one if there is none."""
        with self._lock:
            free = self._free.get(key_of(options))
            if free:
                client, timer = free.pop()
                timer.cancel()
                return client
        return self._make(resolved(options))

    def give_back(self, options: Mapping[str, Any], client: C) -> None:
        """Keep a client for the next task; close it if none comes in time."""
        key = key_of(options)
        timer = threading.Timer(self._idle_seconds, self._close_idle, (key, client))
        timer.daemon = True
        with self._lock:
            self._free.setdefault(key, []).append((client, timer))
        timer.start()

    def _close_idle(self, key: tuple[int, str], client: C) -> None:
        with self._lock:
            free = self._free.get(key, [])
            kept = [entry for entry in free if entry[0] is not client]
            if len(kept) == len(free):
                return  # a task has it
            self._free[key] = kept
        client.close()


def key_of(options: Mapping[str, Any]) -> tuple[int, str]:
    """Return the key of a client: its options, and the process, since a forked process cannot use the client."""
    return os.getpid(), repr(sorted(options.items()))


def _producer(options: dict[str, Any]) -> Producer:
    from pyclient.producer import Producer

    return Producer(config=options)


def _consumer(options: dict[str, Any]) -> Consumer[Any, Any]:
    from pyclient.consumer import Consumer

    return Consumer(config=options)


def _admin(options: dict[str, Any]) -> Admin:
    from pyclient.admin import Admin

    return Admin(config=_of_admin(options))


_DAEMONS: Final = ("pyspark.daemon", "pyclient.spark.daemon")
_frozen = (0, 0)


def freeze_loaded_objects() -> None:
    """Leave out of garbage collections what a worker of Spark has loaded; call it where a task ends.

    Such a process collects all garbage after every task. Going through the objects of the loaded modules takes 20 to
    40 ms each time, which a micro-batch waits for ten times. This is done after tasks that have loaded modules, and
    in no other process than those that Spark's daemon has forked.
    """
    global _frozen
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    loaded = os.getpid(), len(sys.modules)
    if spec is not None and spec.name in _DAEMONS and _frozen != loaded:
        _frozen = loaded
        gc.collect()
        gc.freeze()


PRODUCERS: Final = WorkerClients["Producer"](_producer)
CONSUMERS: Final = WorkerClients["Consumer[Any, Any]"](_consumer)
ADMINS: Final = WorkerClients["Admin"](_admin)
