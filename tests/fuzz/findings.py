"""Findings of the fuzzer: kind, place and inputs, as files that `--replay` reads."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.traffic import Sent


@dataclass(slots=True)
class Finding:
    """One thing that is wrong; `key` is the same for all its occurrences."""

    kind: str
    key: str
    text: str
    suspect: Sent | None
    history: list[Sent] = field(default_factory=list)
    count: int = 1
    reproduced: bool = False
    frames: list[Sent] = field(default_factory=list)
    """The smallest sequence that shows it."""

    @property
    def certain(self) -> bool:
        """Return True if the broker is at fault: a step that was slow once may have had a busy machine."""
        return self.kind != "slow" or self.reproduced or self.count > 2

    def to_json(self) -> dict[str, Any]:
        """Return the content of a reproducer file."""
        return {
            "kind": self.kind,
            "key": self.key,
            "text": self.text,
            "reproduced": self.reproduced,
            "frames": [
                {
                    "connection": each.wire,
                    "frame": each.frame.hex(),
                    "learned": [value if isinstance(value, str) else {"hex": value.hex()} for value in each.learned],
                }
                for each in self.frames
            ],
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> Finding:
        """Return a finding from a reproducer file."""
        frames = [
            Sent(
                bytes.fromhex(each["frame"]),
                each["connection"],
                [value if isinstance(value, str) else bytes.fromhex(value["hex"]) for value in each["learned"]],
            )
            for each in data["frames"]
        ]
        return Finding(data["kind"], data["key"], data["text"], None, frames=frames)


class Findings:
    """All that was found in a run, each once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.found: dict[str, Finding] = {}

    def add(self, kind: str, key: str, text: str, suspect: Sent | None, history: list[Sent]) -> Finding:
        """Count an occurrence; keep the history of the first one. Return its finding."""
        name = f"{kind}: {key}"
        finding = self.found.get(name)
        if finding is not None:
            finding.count += 1
            return finding
        finding = self.found[name] = Finding(kind, key, text, suspect, history)
        return finding

    def save(self, finding: Finding) -> Path:
        """Write a reproducer file. Return its path."""
        self.directory.mkdir(parents=True, exist_ok=True)
        words = "".join(letter if letter.isalnum() else "-" for letter in f"{finding.kind}-{finding.key}")[:80]
        path = self.directory / f"{time.strftime('%H%M%S')}-{words}.json"
        path.write_text(json.dumps(finding.to_json(), indent=1))
        return path
