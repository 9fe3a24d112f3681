"""The stories of stories/*.txt: what they print is what the quorum does now. `REWRITE_STORIES=1` rewrites them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.broker_embedded.raft.stories import run_story

STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story_prints_what_is_written(path: Path) -> None:
    printed = run_story(path)
    if os.environ.get("REWRITE_STORIES"):
        path.write_text(printed)
    assert printed == path.read_text()


def test_stories_exist() -> None:
    assert len(STORIES) >= 8
