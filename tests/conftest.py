"""Configuration of all tests: PYCLIENT_REQUIRE_ALL=1 turns skips into failures; the header names the record codec."""

from __future__ import annotations

import ast
import gc
import os
import signal
import sys
from collections.abc import Callable, Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from pyclient import records
from tests.socket_origins import note_origins

REQUIRE_ALL = os.environ.get("PYCLIENT_REQUIRE_ALL") == "1"

# The duration of an example means nothing on a shared machine. Runs with PYCLIENT_REQUIRE_ALL=1 use the same examples
# every time, others search for new ones.
settings.register_profile(
    "pyclient", deadline=None, derandomize=REQUIRE_ALL, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("pyclient")


def pytest_configure(config: pytest.Config) -> None:
    """Ignore a deprecation warning of kafka-python, which reads its schemas in a deprecated way."""
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    ):  # started in the background; the Ctrl-C tests need the handler
        signal.signal(signal.SIGINT, signal.default_int_handler)
    note_origins()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return the scheduler for `--dist loadgroup`, None for others."""
    if config.option.dist != "loadgroup":
        return None
    from tests.scheduling import GroupScheduling

    return GroupScheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Keep the modules and tests, which last until the end, out of garbage collections: these took 0.3 s each."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Let pytest's last garbage collection find everything."""
    gc.unfreeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail if pytest-xdist does not keep the tests of a group in one process: several clusters would run at a time."""
    is_grouped = item.get_closest_marker("xdist_group") is not None and getattr(item.config.option, "loadgroup", False)
    if is_grouped and "@" not in item.nodeid:
        pytest.fail("pytest-xdist ignores xdist_group: it does not know this release of pytest")


def pytest_report_header() -> str:
    rule = (
        "a skip is a failure (PYCLIENT_REQUIRE_ALL=1)" if REQUIRE_ALL else "tests with missing requirements are skipped"
    )
    return f"pyclient records: {records.IMPLEMENTATION}; {rule}"


def without_collections(parse: Callable[..., ast.AST]) -> Callable[..., ast.AST]:
    """Return `parse` so that no garbage collection runs in it."""

    def parse_without_collections(*arguments: Any, **options: Any) -> ast.AST:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return parse(*arguments, **options)
        finally:
            if was_enabled:
                gc.enable()

    return parse_without_collections


# Python 3.11 counts the recursion of ast.parse once for all callers. A finalizer that a collection calls in there,
# and that formats a traceback, parses too, and the outer call fails with "AST constructor recursion depth mismatch".
# pytest and Hypothesis parse while clients and brokers of earlier tests are collected.
if sys.version_info < (3, 12):
    ast.parse = without_collections(ast.parse)  # type: ignore[assignment]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    return _without_skip(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    return _without_skip(report)


def _without_skip(report: Any) -> Any:
    """Return the report, a skip as a failure under PYCLIENT_REQUIRE_ALL. An expected failure (xfail) stays one."""
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: PYCLIENT_REQUIRE_ALL=1 allows no skip. {reason}"
    return report
