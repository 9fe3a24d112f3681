"""Every test of this folder that takes `run` runs on asyncio's own loop and on uvloop."""

from __future__ import annotations

import asyncio

import pytest
import uvloop


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request):
    def run(scenario):
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(asyncio.wait_for(scenario, 120))

    return run
