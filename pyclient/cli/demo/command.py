"""`pyclient demo`: pass real input through producer, broker, consumer group and Spark, and check the result."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import click

from pyclient import Admin, NewTopic
from pyclient.cli.demo import spark
from pyclient.cli.demo.killing import Killing, active_controller, busiest_leader
from pyclient.cli.demo.report import Report
from pyclient.cli.demo.round_trip import consume_lines, produce_lines
from pyclient.cli.demo.source import count_directly, find_files, standard_library
from pyclient.cli.options import console

if TYPE_CHECKING:
    from pyclient.broker_embedded import EmbeddedCluster

LINES, IDENTIFIERS, PACKAGES = "stdlib-lines", "stdlib-identifiers", "stdlib-packages"
LINE_PARTITIONS = 6
_ENOUGH_BROKERS = 3  # to serve on when one is killed


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
@click.option(
    "--brokers",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Brokers of the embedded cluster; with 3 or more, two nodes are killed on the way.",
)
@click.option("--no-spark", is_flag=True, help="Skip the Spark steps.")
@click.option("--keep", is_flag=True, help="Keep the topics on the cluster afterwards.")
def demo(folder: Path | None, bootstrap_servers: str | None, brokers: int, no_spark: bool, keep: bool) -> None:
    """Send every line of the standard library through a cluster and check that it comes back.

    The embedded cluster loses the leader of the busiest partition while records are sent, and its active controller
    while they are read: both are killed, and started again a second later.

    Exits with 1 if any check fails.
    """
    report = Report(console())
    files = find_files(folder or standard_library())
    if not files:
        raise click.UsageError(f"no .py file below {folder or standard_library()}")
    reason = "skipping the Spark steps, as requested" if no_spark else spark.reason_to_skip()
    if reason:
        report.console.print(reason)
    with ExitStack() as stack:
        cluster = None if bootstrap_servers else _start_cluster(report, stack, brokers)
        servers = bootstrap_servers or cluster.bootstrap_servers  # type: ignore[union-attr]  # one of them is there
        replicas = 1 if cluster is None else min(3, brokers)
        _create_topics(
            stack, servers, LINES, *(() if reason else (IDENTIFIERS, PACKAGES)), replicas=replicas, keep=keep
        )
        with report.console.status("counting the files directly"):
            expected = count_directly(files, identifiers=not reason)
        report.step(
            "input", records=expected.lines, note=f"{len(files):,} files, {expected.value_bytes / 1e6:,.1f} MB of lines"
        )
        with _killing(report, cluster, "leader", expected.lines) as passed:
            produce_lines(report, files, servers, LINES, expected, passed)
        with _killing(report, cluster, "controller", expected.lines) as passed:
            group = f"pyclient-demo-{uuid.uuid4().hex[:8]}"
            consume_lines(report, servers, LINES, group, expected, passed)
        if not reason:
            spark.count_with_spark(report, servers, LINES, IDENTIFIERS, PACKAGES, expected)
    report.show()
    sys.exit(1 if report.failures else 0)


def _start_cluster(report: Report, stack: ExitStack, brokers: int) -> EmbeddedCluster:
    from pyclient.broker_embedded import EmbeddedCluster

    started = perf_counter()
    cluster: EmbeddedCluster = stack.enter_context(EmbeddedCluster(brokers, processes=True))
    what = "start broker" if brokers == 1 else f"start {brokers} brokers"
    report.step(
        what, seconds=perf_counter() - started, note=f"in processes of their own at {cluster.bootstrap_servers}"
    )
    return cluster


@contextmanager
def _killing(report: Report, cluster: EmbeddedCluster | None, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes the number of records so far; a node of a cluster of several is killed meanwhile."""
    if cluster is None or len(cluster.brokers) < _ENOUGH_BROKERS:
        yield lambda _records: None
        return
    choose = partial(busiest_leader, cluster, LINES) if what == "leader" else partial(active_controller, cluster)
    killing = Killing(cluster, what, choose, total)
    yield killing.passed
    killing.finish(report)


def _create_topics(stack: ExitStack, servers: str, *names: str, replicas: int, keep: bool) -> None:
    """Create the topics, and delete them at the end; an existing one is an error, since it may hold user data."""
    with Admin(servers) as admin:
        existing = sorted(set(names) & set(admin.list_topics()))
        if existing:
            raise click.ClickException(
                f"the cluster has topics of these names: {', '.join(existing)}. To delete them: "
                f"pyclient topics delete -b {servers} {' '.join(existing)}"
            )
        admin.create_topics(
            [NewTopic(name, LINE_PARTITIONS if name == LINES else spark.PARTITIONS, replicas) for name in names]
        )
    if not keep:
        stack.callback(_delete_topics, servers, names)


def _delete_topics(servers: str, names: tuple[str, ...]) -> None:
    with Admin(servers) as admin:
        admin.delete_topics(list(names))
