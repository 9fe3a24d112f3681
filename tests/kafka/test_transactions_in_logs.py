"""Transactions in a log of ours: Kafka's tool reads the batches, the markers and the index of aborted ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker_embedded.log.conftest import LogFixture
from tests.kafka.jars import VERSIONS
from tests.kafka.needs import skip_without_kafka
from tests.kafka.test_files import COMPLAINTS, dump

ROUNDS = 300
STARTS_OF_SEGMENTS = re.compile(r"^Non-consecutive offsets in .*\n(  -1 is followed by \d+\n?)+", re.MULTILINE)
"""The tool's output for every segment that does not begin at offset 0."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogFixture]:
    """A log of two producers whose transactions overlap: those of one are committed, those of the other are not."""
    fixture = LogFixture(tmp_path_factory.mktemp("log"))
    fixture.configure(segment_bytes=1 << 16, index_interval_bytes=500)
    log = fixture.open()
    for number in range(ROUNDS):
        for producer_id in (1, 2):
            fixture.append(log, bytes(number), producer_id=producer_id, epoch=0, sequence=number, transactional=True)
        fixture.end(log, 2, 0, commit=False)
        fixture.end(log, 1, 0, commit=True)
    log.close()
    yield fixture
    fixture.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_dump_log_reads_our_markers_and_our_index_of_aborted_transactions(written: LogFixture, version: str) -> None:
    skip_without_kafka(version)
    folder = Path(written.directory)
    kinds = ("log", "index", "timeindex", "txnindex", "snapshot")
    files = [path for kind in kinds for path in sorted(folder.glob(f"*.{kind}"))]
    assert len({path.suffix for path in files}) == len(kinds)
    assert len(list(folder.glob("*.txnindex"))) > 1, "the test wants several segments"
    output = dump(files, "--deep-iteration", "--print-data-log", version=version)
    assert "isvalid: false" not in output
    output = STARTS_OF_SEGMENTS.sub("", output.replace("isvalid", ""))
    assert not COMPLAINTS.search(output), output[-2000:]
    for kind in ("COMMIT", "ABORT"):
        assert len(re.findall(rf"endTxnMarker: {kind} coordinatorEpoch: 0", output)) == ROUNDS
    aborted = re.findall(r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", output)
    # each round is four offsets: a record of 1, one of 2, the end of 2 while 1 is still open, the end of 1
    assert [tuple(map(int, row)) for row in aborted] == [(2, n + 1, n + 2, n) for n in range(0, 4 * ROUNDS, 4)]
