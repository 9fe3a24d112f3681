"""`pyclient demo`: pass real input through producer, broker, consumer group and Spark, and check the result."""

from __future__ import annotations

import sys
import uuid
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter

import click

from pyclient import Admin, NewTopic
from pyclient.cli.demo import identifiers
from pyclient.cli.demo.consume import consume_lines
from pyclient.cli.demo.produce import produce_lines
from pyclient.cli.demo.report import Report
from pyclient.cli.demo.source import count_directly, find_files, standard_library
from pyclient.cli.options import console

LINES, IDENTIFIERS = "stdlib-lines", "stdlib-identifiers"
LINE_PARTITIONS = 6


@click.command()
@click.option(
    "--input",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Read the .py files below this folder; without it, the interpreter's standard library.",
)
@click.option(
    "--bootstrap-servers", "-b", metavar="HOST:PORT[,...]", help="Use this cluster; without it, an embedded one."
)
@click.option("--no-spark", is_flag=True, help="Skip the Spark step.")
@click.option("--keep", is_flag=True, help="Keep the topics on the cluster afterwards.")
def demo(folder: Path | None, bootstrap_servers: str | None, no_spark: bool, keep: bool) -> None:
    """Send every line of the standard library through a cluster and check that it comes back.

    Exits with 1 if any check fails.
    """
    report = Report(console())
    files = find_files(folder or standard_library())
    if not files:
        raise click.UsageError(f"no .py file below {folder or standard_library()}")
    reason = "skipping the Spark step, as requested" if no_spark else identifiers.reason_to_skip()
    if reason:
        report.console.print(reason)
    with ExitStack() as stack:
        servers = bootstrap_servers or _start_cluster(report, stack)
        _create_topics(stack, servers, LINES, *(() if reason else (IDENTIFIERS,)), keep=keep)
        with report.console.status("counting the files directly"):
            expected = count_directly(files, identifiers=not reason)
        report.step(
            "input", records=expected.lines, note=f"{len(files):,} files, {expected.value_bytes / 1e6:,.1f} MB of lines"
        )
        produce_lines(report, files, servers, LINES, expected)
        consume_lines(report, servers, LINES, f"pyclient-demo-{uuid.uuid4().hex[:8]}", expected)
        if not reason:
            identifiers.write_identifiers(report, files, servers, IDENTIFIERS, expected.identifiers)
    report.show()
    sys.exit(1 if report.failures else 0)


def _start_cluster(report: Report, stack: ExitStack) -> str:
    from pyclient.broker_embedded import EmbeddedCluster

    started = perf_counter()
    cluster = stack.enter_context(EmbeddedCluster(processes=True))
    servers: str = cluster.bootstrap_servers
    report.step("start broker", seconds=perf_counter() - started, note=f"in its own process at {servers}")
    return servers


def _create_topics(stack: ExitStack, servers: str, *names: str, keep: bool) -> None:
    """Create the topics, and delete them at the end; an existing one is an error, since it may hold user data."""
    with Admin(servers) as admin:
        existing = sorted(set(names) & set(admin.list_topics()))
        if existing:
            raise click.ClickException(
                f"the cluster has topics of these names: {', '.join(existing)}. To delete them: "
                f"pyclient topics delete -b {servers} {' '.join(existing)}"
            )
        partitions = {LINES: LINE_PARTITIONS, IDENTIFIERS: identifiers.PARTITIONS}
        admin.create_topics([NewTopic(name, partitions[name], 1) for name in names])
    if not keep:
        stack.callback(_delete_topics, servers, names)


def _delete_topics(servers: str, names: tuple[str, ...]) -> None:
    with Admin(servers) as admin:
        admin.delete_topics(list(names))
