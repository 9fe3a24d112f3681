"""The ways to break storage, each an endless series of cases that a seed determines."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from typing import Final

from tests.torture import damage, failing, killing
from tests.torture.oracle import PromiseBroken

WAYS: Final[Mapping[str, Callable[[int], Generator[Callable[[], object], None, None]]]] = {
    "damage": damage.cases,
    "failing": failing.cases,
    "killing": killing.cases,
}
_MOST_BROKEN: Final = 20  # after so many there is enough to look at


def torture(way: str, seed: int, seconds: float) -> tuple[int, list[str]]:
    """Run cases for a time. Return how many, and what each that broke a promise says."""
    broken: list[str] = []
    count = 0
    cases = WAYS[way](seed)
    end = time.monotonic() + seconds
    try:
        for case in cases:
            if time.monotonic() > end or len(broken) >= _MOST_BROKEN:
                break
            count += 1
            try:
                case()
            except PromiseBroken as error:
                broken.append(f"seed {seed}, case {count}: {error}")
    finally:
        cases.close()
    return count, broken
