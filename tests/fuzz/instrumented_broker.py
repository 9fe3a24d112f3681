"""A broker process that reports on itself: errors it logs, loop steps that take long, its memory when asked by SIGUSR1.

    python -m tests.fuzz.instrumented_broker REPORT DEFECT [arguments of pyclient.broker_embedded]

REPORT is a file to which one line of JSON is appended per event. DEFECT is `none` or one of `planted_defects.DEFECTS`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import re
import reprlib
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from importlib import import_module
from pkgutil import walk_packages
from types import FrameType
from typing import Any, Final

from pyclient import broker_embedded, protocol, records
from pyclient.broker_embedded import __main__ as broker_main
from pyclient.broker_embedded.cluster import foreground
from pyclient.broker_embedded.network.server import BrokerConnection

SLOW_STEP: Final = float(os.environ.get("PYCLIENT_FUZZ_SLOW_MS", "100")) / 1000
"""Seconds of CPU time that one step of the loop may take: other connections wait meanwhile."""
_CONTROLS: Final = frozenset({"_serve", "RequestResponseCycle.run_asgi"})
"""The start, and what the fuzzer itself asks the broker to do between its rounds."""
_VERSION: Final = re.compile(r"_v[0-9]+\b")
_LONGEST_FRAME: Final = 1 << 20
_MANY: Final = 5_000
"""More instances of one type than at the report before that have the report say what refers to them."""
_DEPTH: Final = 8
_HOLDERS: Final = 4


class Report:
    """Appends events to the report file."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.frame: memoryview | None = None
        self.connection: BrokerConnection | None = None
        self.frames = 0
        self.slow = False
        self.types: dict[str, int] = {}
        self.own_seconds = 0.0
        """CPU time that reports of memory have taken: the signal's handler runs inside any step of the loop."""

    def add(self, kind: str, text: str, **more: Any) -> None:
        """Add an event, with the frame that is being served or was served last."""
        event: dict[str, Any] = {"kind": kind, "text": text, **more}
        if self.frame is not None and self.connection is not None:
            event["port"] = int(self.connection.stream.peername.rpartition(":")[2])
            event["frame"] = bytes(self.frame[:_LONGEST_FRAME]).hex()
        os.write(self._file, json.dumps(event).encode() + b"\n")


class ErrorHandler(logging.Handler):
    """Reports what is logged at ERROR, and warnings of the interpreter."""

    def __init__(self, report: Report) -> None:
        super().__init__(logging.WARNING)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        """Report one record."""
        if record.levelno < logging.ERROR and record.name != "py.warnings":
            return
        error = record.exc_info[1] if record.exc_info else None
        text, place = record.getMessage(), ""
        if error is not None:
            place = place_of(error)
            text += "\n" + "".join(traceback.format_exception(error, limit=-8))
        self._report.add("error", text, place=place or record.msg)


def place_of(error: BaseException) -> str:
    """Return the error's type and the last place in pyclient that it came through: what makes two findings the same."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [each for each in frames if "pyclient" in each.filename] or list(frames)
    where = f"{os.path.basename(ours[-1].filename)}:{ours[-1].name}" if ours else "nowhere"
    return f"{type(error).__name__} in {_VERSION.sub('', where)}"


def instrument(report: Report) -> None:
    """Note the frame that is served, and report steps of the loop that take long."""
    on_frame = BrokerConnection._on_frame
    run = asyncio.events.Handle._run
    clock = time.thread_time

    def noting(self: BrokerConnection, frame: memoryview) -> None:
        report.frame, report.connection = frame, self
        report.frames += 1
        began = clock() - report.own_seconds
        on_frame(self, frame)
        spent = clock() - report.own_seconds - began
        if spent > SLOW_STEP:
            report.slow = True
            report.add("slow", f"a request took {spent * 1000:.0f} ms of CPU time", place="a request")

    def timed(self: asyncio.Handle) -> None:
        report.frame, report.frames, report.slow = None, 0, False
        callback = self._callback
        began = clock() - report.own_seconds
        run(self)
        spent = clock() - report.own_seconds - began
        if spent > SLOW_STEP and not report.slow:
            task = getattr(callback, "__self__", None)
            name = (
                task.get_coro().__qualname__
                if isinstance(task, asyncio.Task)
                else getattr(callback, "__qualname__", "")
            )
            if name in _CONTROLS:
                return
            text = (
                f"a step of the loop took {spent * 1000:.0f} ms of CPU time in {name}, {report.frames} requests in it"
            )
            report.add("slow", text, place=name)

    BrokerConnection._on_frame = noting  # type: ignore[method-assign]
    asyncio.events.Handle._run = timed  # type: ignore[method-assign]
    foreground.new_event_loop = asyncio.SelectorEventLoop  # uvloop's steps cannot be timed


def report_memory(report: Report) -> None:
    """Report how many objects there are, of which types, and the resident memory in bytes."""
    began = time.thread_time()
    gc.collect()
    gc.unfreeze()  # what start-up and earlier collections have set aside counts, too
    counts = Counter(type(each).__name__ for each in gc.get_objects())
    report.frame = None
    types = dict(counts.most_common(40))
    grown = [name for name, count in types.items() if count > report.types.get(name, 0) + _MANY]
    holders = {name: holders_of(name) for name in grown} if report.types else {}
    report.types = types
    report.add("memory", "", types=types, holders=holders, resident=resident_bytes())
    gc.freeze()  # as before: the broker's own collections must not walk all of it
    report.own_seconds += time.thread_time() - began


def holders_of(name: str) -> list[str]:
    """Describe what refers to three instances of a type, and what refers to that, and so on."""
    instances = [each for each in gc.get_objects() if type(each).__name__ == name]
    seen = {id(instances)}
    return [line for each in instances[-1 :: -(len(instances) // 3)] for line in _holders(each, seen)]


def _holders(instance: Any, seen: set[int]) -> list[str]:
    level: list[Any] = [instance]
    seen.add(id(level))
    lines = [reprlib.repr(instance)]
    for depth in range(_DEPTH):
        found: list[Any] = []
        for each in level:
            for holder in gc.get_referrers(each):
                ours = isinstance(holder, FrameType) and holder.f_code.co_filename == __file__
                if ours or id(holder) in seen or holder is found or holder is level:
                    continue
                seen.add(id(holder))
                found.append(holder)
        level = found[:_HOLDERS]
        seen.add(id(level))
        lines += [f"{'  ' * (depth + 1)}{type(each).__qualname__} {reprlib.repr(each)}" for each in level]
    return lines


def resident_bytes(pid: int | str = "self") -> int:
    """Return the resident memory of a process."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _load_everything() -> None:
    """Import what the broker otherwise imports with the first request that needs it: that is no slow request."""
    for package in (broker_embedded, records, protocol):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)


def main(arguments: list[str]) -> int:
    """Instrument and serve. Return the exit status."""
    path, defect, *rest = arguments
    report = Report(path)
    logging.captureWarnings(True)
    warnings.simplefilter("default")
    logging.getLogger().addHandler(ErrorHandler(report))
    logging.getLogger().addHandler(logging.StreamHandler(sys.stderr))
    logging.getLogger().setLevel(logging.WARNING)
    if defect != "none":
        import_module("tests.fuzz.planted_defects").plant(defect)
    _load_everything()
    instrument(report)
    signal.signal(signal.SIGUSR1, lambda *_: report_memory(report))
    return broker_main.main(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
