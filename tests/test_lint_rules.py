"""The rules about files that import each other and about private fields in Cython code, on small packages."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tools import lint_rules

RING = {
    "__init__.py": "",
    "a.py": "import pyclient.b",
    "b.py": "from pyclient import c",
    "c.py": "from pyclient.d import name",
    "d.py": "from pyclient.a import name",
}


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that writes a package and returns what the rule says of it, with the path and line."""
    package = tmp_path / "pyclient"
    monkeypatch.setattr(lint_rules, "PACKAGE", package)

    def check(files: dict[str, str]) -> list[tuple[str, int, str]]:
        for name, text in files.items():
            path = package / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text))
        findings = lint_rules.few_files_import_each_other()
        return [(path.relative_to(package).as_posix(), line, text) for path, line, text in findings]

    return check


def names_in(findings: list[tuple[str, int, str]]) -> list[str]:
    return [text.partition(": ")[2] for _, _, text in findings]


def test_circle_of_four_files_is_found_once(found) -> None:
    text = "4 files import each other in a loop, at most 3 may: a.py, b.py, c.py, d.py"
    files = {**RING, "above.py": "import pyclient.a", "a.py": "import os\nimport pyclient.b"}
    assert found(files) == [("a.py", 2, text)]


def test_circle_of_three_files_is_allowed(found) -> None:
    assert found({**RING, "c.py": "from pyclient.a import name"}) == []


@pytest.mark.parametrize(
    "text",
    [
        """
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from pyclient.a import name
        """,
        """
        def late():
            from pyclient.a import name
        """,
        "from .a import name",
        "from . import a",
    ],
    ids=["for annotations", "in a function", "relative", "relative to the package"],
)
def test_all_imports_count(found, text: str) -> None:
    assert names_in(found({**RING, "d.py": text})) == ["a.py, b.py, c.py, d.py"]


def test_package_counts_for_names_that_are_no_modules(found) -> None:
    files = {**RING, "d.py": "from pyclient import name", "__init__.py": "from pyclient.a import name"}
    assert names_in(found(files)) == ["__init__.py, a.py, b.py, c.py, d.py"]


def test_package_does_not_count_for_its_modules(found) -> None:
    files = {**RING, "d.py": "from pyclient import e", "e.py": "", "__init__.py": "from pyclient.a import name"}
    assert found(files) == []


def test_package_within_package_is_a_file_of_the_circle(found) -> None:
    files = {**RING, "c.py": "from pyclient.inner import name", "inner/__init__.py": "from ..d import name"}
    assert names_in(found(files)) == ["a.py, b.py, c.py, d.py, inner/__init__.py"]


def test_each_circle_is_found(found) -> None:
    second = {f"second_{name}": text.replace("pyclient.", "pyclient.second_") for name, text in RING.items()}
    second["second_b.py"] = "from pyclient import second_c"
    assert names_in(found({**RING, **second})) == [
        "a.py, b.py, c.py, d.py",
        "second_a.py, second_b.py, second_c.py, second_d.py",
    ]


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("self._count = other.count", False),
        ("self._take(self._count)", False),
        ("from pyclient.producer._speedups cimport Handle", False),
        ("return pyclient.records._speedups", False),
        ("return 1  # as other._count", False),
        ("other._count = 1", True),
        ("return self.reader._count", True),
        ("return self._reader._count", True),
        ("return readers[index]._count", True),
    ],
)
def test_private_fields_of_other_objects_in_cython_code_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, is_found: bool
) -> None:
    monkeypatch.setattr(lint_rules, "PACKAGE", tmp_path)
    (tmp_path / "module.pxi").write_text(f"cdef int value\n{line}\n")
    findings = list(lint_rules.compiled_code_touches_no_private_fields_of_others())
    assert [number for _path, number, _text in findings] == [2] * is_found
