"""Step 2: send every line of every file as a record."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from pyclient import Producer
from pyclient.cli.demo.report import Report, progress_bar, rates
from pyclient.cli.demo.source import DirectCount, SourceFile


def produce_lines(
    report: Report,
    files: list[SourceFile],
    bootstrap_servers: str,
    topic: str,
    expected: DirectCount,
    passed: Callable[[int], None],
) -> None:
    """Send key = path, value = line, header `line` = its number; acks=all, idempotent, lz4.

    Tell `passed` how many were sent so far.
    """
    sent = payload = 0
    started = perf_counter()
    with (
        Producer(
            bootstrap_servers, acks="all", enable_idempotence=True, compression_type="lz4", linger_ms=5
        ) as producer,
        progress_bar(report.console) as progress,
    ):
        bar = progress.add_task("produce", total=expected.lines, rates="")
        send = producer.send
        for source in files:
            key = source.key.encode()
            for number, line in enumerate(source.lines(), 1):
                send(topic, line, key=key, headers=(("line", b"%d" % number),))
                payload += len(line)
                sent += 1
            progress.update(bar, completed=sent, rates=rates(sent, payload, perf_counter() - started))
            passed(sent)
        producer.flush()
        seconds = perf_counter() - started
        progress.update(bar, completed=sent, rates=rates(sent, payload, seconds))
    report.check(sent == expected.lines, f"{sent:,} lines were sent, the files have {expected.lines:,}")
    note = f"{len(files):,} files, acks=all, idempotent, lz4"
    report.step("produce", records=sent, payload_bytes=payload, seconds=seconds, note=note)
