"""Documents name only files that exist, and comments refer only to headings that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "pyclient"
SOURCES = [path for kind in ("py", "pyx", "pxi") for path in sorted(PACKAGE.rglob(f"*.{kind}"))]


def test_rooms_of_the_architecture_are_those_of_the_import_contract() -> None:
    diagram = (ROOT / "ARCHITECTURE.md").read_text().split("```")[1]
    lines = [re.split(r"  +", line)[0] for line in diagram.splitlines() if line.strip(" |")]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    assert lines == layers


@pytest.mark.parametrize("name", ["ARCHITECTURE.md"])
def test_files_and_classes_that_a_document_names_exist(name: str) -> None:
    text = (ROOT / name).read_text()
    named = re.findall(r"`([\w/]+\.py)`", text)
    assert [path for path in named if not any((base / path).exists() for base in (PACKAGE, *PACKAGE.rglob("*/")))] == []
    classes = set(re.findall(r"`([A-Z]\w*[a-z]\w*)(?:\.\w+)?`", text))
    declared = set(re.findall(r"^\s*(?:cdef )?class (\w+)", "\n".join(path.read_text() for path in SOURCES), re.M))
    assert classes
    assert classes - declared == set()


def test_glossary_names_each_class_with_its_file() -> None:
    rows = re.findall(r"^\| (.*) \| (.*) \| (.*) \|$", (ROOT / "GLOSSARY.md").read_text(), re.MULTILINE)
    rows = [(term, re.findall(r"`(\w+)`", classes), re.findall(r"`(\S+)`", files)) for term, classes, files in rows]
    rows = [(term, classes, files) for term, classes, files in rows if classes]
    assert len(rows) > 50
    for term, classes, files in rows:
        text = "".join((PACKAGE / file).read_text() for file in files)
        assert files, term
        assert [name for name in classes if not re.search(rf"^class {name}\b", text, re.MULTILINE)] == [], term


def test_measurements_named_in_the_code_exist() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "docs" / "measurements.md").read_text(), re.MULTILINE)
    assert len(set(headings)) == len(headings)
    named = 0
    for path in SOURCES:
        text = re.sub(r"\n[ #]*", " ", path.read_text())
        for mention in re.findall(r"docs/measurements\.md(.{60})", text):
            found = re.match(r', "([^"]+)"', mention)
            assert found, f"{path}: name a heading in quotes after docs/measurements.md, not {mention!r}"
            assert found[1] in headings, f"{path}: {found[1]!r} is no heading of docs/measurements.md"
            named += 1
    assert named


def test_measurements_name_commands_that_exist() -> None:
    text = (ROOT / "docs" / "measurements.md").read_text()
    for module, arguments in re.findall(r"`python -m benchmarks\.(\w+)([^`]*)`", text):
        assert (ROOT / "benchmarks" / f"{module}.py").exists(), module
        source = "".join(path.read_text() for path in sorted((ROOT / "benchmarks").glob("*.py")))
        for option, value in re.findall(r"(--\w+) (\S+)", arguments):
            assert f'"{option}"' in source, option
            assert option != "--only" or f'"{value}"' in source, value
    sections = text.split("\n## ")[1:]
    assert [section.splitlines()[0] for section in sections if not re.match(r".*\n\nCommands?: ", section)] == []
