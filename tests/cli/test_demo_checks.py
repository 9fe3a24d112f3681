"""The demo's checks detect lost, repeated, reordered and changed records."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from pyclient import Record
from pyclient.cli.demo.report import Report
from pyclient.cli.demo.round_trip import Tally, compare
from pyclient.cli.demo.source import DirectCount, FileDigest, package_of

LINES = [b"one", b"two", b"three"]


def expected_counts() -> DirectCount:
    digest = FileDigest()
    for line in LINES:
        digest.add(line)
    return DirectCount(files={"json/tool.py": digest}, lines=3)


def record(offset: int, number: int, value: bytes) -> Record:
    return Record("t", 0, offset, 0, 0, 0, b"json/tool.py", value, (("line", b"%d" % number),))


def failed_checks(records: list[Record]) -> list[str]:
    report, tally = Report(Console(file=StringIO())), Tally()
    tally.add(0, records)
    compare(report, tally, expected_counts())
    return report.failures


CORRECT = [record(n, n + 1, line) for n, line in enumerate(LINES)]


def test_correct_copy_passes() -> None:
    assert failed_checks(CORRECT) == []


def test_lost_record_is_detected() -> None:
    assert any("2 records were read" in failure for failure in failed_checks(CORRECT[:2]))
    assert any("skipped" in failure for failure in failed_checks([CORRECT[0], CORRECT[2]]))


def test_record_read_twice_is_detected() -> None:
    assert any("read twice" in failure for failure in failed_checks([*CORRECT, CORRECT[2]]))


def test_record_written_twice_is_detected() -> None:
    assert any("out of order" in failure for failure in failed_checks([*CORRECT, record(3, 3, LINES[2])]))


def test_wrong_order_is_detected() -> None:
    swapped = [record(0, 2, LINES[1]), record(1, 1, LINES[0]), CORRECT[2]]
    assert any("out of order" in failure for failure in failed_checks(swapped))


def test_changed_value_is_detected() -> None:
    assert any("came back different" in failure for failure in failed_checks([*CORRECT[:2], record(2, 3, b"Three")]))


def test_package_is_first_directory() -> None:
    assert [package_of(key) for key in ("json/tool.py", "ast.py", "a/b/c.py")] == ["json", "ast", "a"]
