"""A short run of what `make torture` does for long."""

from __future__ import annotations

import os
import random

import pytest

from tests.torture.torture import WAYS, torture

SECONDS = float(os.environ.get("PYCLIENT_TORTURE_SECONDS", "40"))


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.timeout(SECONDS + 240)
@pytest.mark.parametrize("way", sorted(WAYS))
def test_storage_keeps_its_promises(way: str) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    cases, broken = torture(way, seed, SECONDS)
    assert not broken, f"make torture TORTURE_ARGS='--seed {seed} --only {way}'\n" + "\n".join(broken)
    assert cases > 1
