"""The clock, random generators and connector that clients and nodes take from their process."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyclient.clock import SYSTEM_CLOCK, Clock, Rng

if TYPE_CHECKING:
    from pyclient.net.connect import Connector


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The defaults of everything that is created without a clock, a random generator or a connector of its own.

    `new_rng` is called for each client. Without a `connector` connections are opened by TCP.
    """

    clock: Clock = SYSTEM_CLOCK
    new_rng: Callable[[], Rng] = random.Random
    connector: Connector | None = None


_SYSTEM: Final = Surroundings()

SURROUNDINGS: Final = ContextVar("pyclient-surroundings", default=_SYSTEM)
"""Read when a client is created and when a connection is opened. A simulation sets it in the context of a process."""
