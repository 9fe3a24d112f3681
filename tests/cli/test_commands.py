"""The commands in processes of their own: their output and exit status."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.records import IMPLEMENTATION

PYCLIENT = [sys.executable, "-c", "from pyclient.cli import main; main()"]


def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*PYCLIENT, *arguments], input=stdin, capture_output=True, timeout=280, check=False)


def said(stderr: bytes) -> list[str]:
    """Return the lines of stderr without the notice that connecting takes over a second, as on a busy machine."""
    return [line for line in stderr.decode().splitlines() if not line.startswith("connecting to ")]


@contextmanager
def broker(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    process = subprocess.Popen([*PYCLIENT, "broker", "--port", "0", *arguments], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        first = process.stdout.readline().decode()
        assert first.startswith("bootstrap.servers=127.0.0.1:"), first
        yield process, first.strip().removeprefix("bootstrap.servers=")
    finally:
        process.kill()
        process.communicate()


def test_version_names_codec_and_warns_of_pure_one() -> None:
    done = run("--version")
    assert done.returncode == 0
    assert IMPLEMENTATION.encode() in done.stdout
    assert (b"notice" in done.stdout) == (IMPLEMENTATION == "pure")


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_broker_prints_its_address_first_and_ends_cleanly(ending: signal.Signals, tmp_path: Path) -> None:
    with broker("--data-dir", str(tmp_path), "--set", "num.partitions=3") as (process, servers):
        assert run("topics", "create", "-b", servers, "orders").returncode == 0
        described = run("topics", "describe", "-b", servers, "orders").stdout.decode()
        assert [f" {number} " in described for number in range(4)] == [True, True, True, False]
        process.send_signal(ending)
        rest, _ = process.communicate(timeout=120)
        assert (process.returncode, rest) == (0, b"")
    with broker("--data-dir", str(tmp_path)) as (_, servers):
        assert run("topics", "list", "-b", servers).stdout == b"orders\n"


def test_produced_lines_are_consumed(kafka_cluster: EmbeddedCluster, kafka_topic: str) -> None:
    servers = ("-b", kafka_cluster.bootstrap_servers)
    sent = run("produce", *servers, "--key-separator", ":", kafka_topic, stdin=b"a:1\nb:2\n\xff\xfe\n")
    assert (sent.returncode, said(sent.stderr)) == (0, [f"3 records sent to {kafka_topic}"])
    read = run("consume", *servers, kafka_topic, "--from-beginning", "--key", "--max-records", "3")
    assert (read.returncode, read.stdout) == (0, b"a\t1\nb\t2\n\t\xff\xfe\n")
    first = run("consume", *servers, kafka_topic, "-c", "auto_offset_reset=earliest", "--max-records", "1")
    assert (first.returncode, first.stdout) == (0, b"1\n"), first.stderr
    assert said(first.stderr) == [f"1 record read from {kafka_topic}"]


def test_consume_does_not_create_mistyped_topic(kafka_cluster: EmbeddedCluster, kafka_topic: str) -> None:
    servers, missing = ("-b", kafka_cluster.bootstrap_servers), f"{kafka_topic}-mistyped"
    failed = run("consume", *servers, missing, "--timeout", "1")
    assert failed.returncode == 1 and failed.stdout == b""
    (line,) = said(failed.stderr)
    assert missing in line and "UnknownTopicOrPartition" in line
    assert run("consume", *servers, missing, "--timeout", "1", "--group", missing).returncode == 0
    assert missing not in run("topics", "list", *servers).stdout.decode().split()


@pytest.mark.parametrize("stdin", [b"", b"a line\n"])
def test_produce_to_unreachable_cluster_prints_one_error_line(stdin: bytes) -> None:
    failed = run("produce", "-b", "127.0.0.1:1", "-c", "max_block_ms=3000", "t", stdin=stdin)
    assert (failed.returncode, failed.stdout) == (1, b"")
    at_once, line = said(failed.stderr)
    assert at_once.startswith("client 'pyclient': no broker answers yet, retrying: 127.0.0.1:1: connection")
    assert line.startswith("Error: ") and "connection refused" in line


def test_error_is_one_line_with_failing_exit_status(kafka_cluster: EmbeddedCluster) -> None:
    failed = run("topics", "describe", "-b", kafka_cluster.bootstrap_servers, "no-such-topic")
    assert failed.returncode == 1
    (line,) = said(failed.stderr)
    assert "UnknownTopicOrPartition" in line
    assert "no-such-topic" in line


def test_demo_passes_its_checks_on_folder(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "latin.py").write_bytes(b"# caf\xe9\r\nx = 1\n\nlast line without end")
    (tmp_path / "top.py").write_text("\n".join(f"name_{n} = {n}" for n in range(5000)))
    (tmp_path / "empty.py").write_text("")
    done = run("demo", "--input", str(tmp_path), "--no-spark")
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    assert b"every check passed" in done.stdout
    assert b"5,004" in done.stdout
    table = done.stdout.decode()
    for role in ("leader", "controller"):
        killed = re.search(rf"│ kill {role} .*\(SIGKILL\) after ([\d,]+) of 5,004 records, and started again", table)
        assert killed, table
        assert 1_668 <= int(killed[1].replace(",", "")) < 5_004
    assert re.search(r"│ compare .*2 packages, 2 keys: nothing lost, nothing twice, order kept", table), table
    assert re.search(r"node [123], the leader of stdlib-lines-\d, killed", table)


def test_demo_keeps_existing_topics(kafka_cluster: EmbeddedCluster, tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("a = 1\n")
    servers = ("-b", kafka_cluster.bootstrap_servers)
    assert run("topics", "create", *servers, "stdlib-lines").returncode == 0
    refused = run("demo", *servers, "--input", str(tmp_path), "--no-spark")
    assert refused.returncode == 1
    assert b"stdlib-lines" in refused.stderr
    assert run("topics", "delete", *servers, "stdlib-lines").returncode == 0
    assert run("demo", *servers, "--input", str(tmp_path), "--no-spark").returncode == 0
    assert b"stdlib-lines" not in run("topics", "list", *servers).stdout
