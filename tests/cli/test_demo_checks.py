"""The demo's checks find what they are there to find."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from pyclient import Record
from pyclient.cli.demo.consume import Tally, _compare
from pyclient.cli.demo.report import Report
from pyclient.cli.demo.source import DirectCount, FileDigest, package_of

LINES = [b"one", b"two", b"three"]


def truth() -> DirectCount:
    digest = FileDigest()
    for line in LINES:
        digest.add(line)
    return DirectCount(files={"json/tool.py": digest}, lines=3)


def record(offset: int, number: int, value: bytes) -> Record:
    return Record("t", 0, offset, 0, 0, 0, b"json/tool.py", value, (("line", b"%d" % number),))


def verdict(records: list[Record]) -> list[str]:
    report, tally = Report(Console(file=StringIO())), Tally()
    tally.add(0, records)
    _compare(report, tally, truth())
    return report.failures


GOOD = [record(n, n + 1, line) for n, line in enumerate(LINES)]


def test_a_faithful_copy_passes() -> None:
    assert verdict(GOOD) == []


def test_a_lost_record_is_found() -> None:
    assert any("2 records were read" in failure for failure in verdict(GOOD[:2]))
    assert any("skipped" in failure for failure in verdict([GOOD[0], GOOD[2]]))


def test_a_record_read_twice_is_found() -> None:
    assert any("read twice" in failure for failure in verdict([*GOOD, GOOD[2]]))


def test_a_record_written_twice_is_found() -> None:
    assert any("out of order" in failure for failure in verdict([*GOOD, record(3, 3, LINES[2])]))


def test_another_order_is_found() -> None:
    swapped = [record(0, 2, LINES[1]), record(1, 1, LINES[0]), GOOD[2]]
    assert any("out of order" in failure for failure in verdict(swapped))


def test_a_changed_value_is_found() -> None:
    assert any("came back different" in failure for failure in verdict([*GOOD[:2], record(2, 3, b"Three")]))


def test_a_package_is_the_first_folder() -> None:
    assert [package_of(key) for key in ("json/tool.py", "ast.py", "a/b/c.py")] == ["json", "ast", "a"]
