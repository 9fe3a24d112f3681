"""The demo's report: a table with one row per step, and one line per failed check."""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table


@dataclass(slots=True)
class Step:
    """One row of the table; without rates if `seconds` or `records` is 0."""

    name: str
    records: int
    payload_bytes: int
    seconds: float
    note: str

    @property
    def rate(self) -> str:
        return f"{self.records / self.seconds:,.0f}" if self.records and self.seconds else ""

    @property
    def megabytes(self) -> str:
        return f"{self.payload_bytes / self.seconds / 1e6:,.1f}" if self.payload_bytes and self.seconds else ""


@dataclass(slots=True)
class Report:
    """The steps so far, and every check that failed."""

    console: Console
    steps: list[Step] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def step(
        self, name: str, *, records: int = 0, payload_bytes: int = 0, seconds: float = 0.0, note: str = ""
    ) -> None:
        self.steps.append(Step(name, records, payload_bytes, seconds, note))

    def check(self, holds: bool, failure: str) -> None:
        """Record and print `failure` unless the check holds."""
        if not holds:
            self.failures.append(failure)
            self.console.print(f"check failed: {failure}", style="red")

    def show(self) -> None:
        """Print the table and the result of the checks."""
        table = Table(title="pyclient demo")
        table.add_column("step")
        for column in ("records", "seconds", "records/s", "MB/s"):
            table.add_column(column, justify="right")
        table.add_column("notes")
        for step in self.steps:
            count = f"{step.records:,}" if step.records else ""
            seconds = f"{step.seconds:.2f}" if step.seconds else ""
            table.add_row(step.name, count, seconds, step.rate, step.megabytes, step.note)
        self.console.print(table)
        if self.failures:
            self.console.print(f"{len(self.failures)} checks failed", style="bold red")
        else:
            self.console.print("every check passed", style="bold green")


def progress_bar(console: Console) -> Progress:
    """Return a progress bar with records/s and MB/s."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rates]}"),
        TimeElapsedColumn(),
        console=console,
    )


def rates(records: int, payload_bytes: int, seconds: float) -> str:
    """Return a text like `812,345 records/s  31.2 MB/s`."""
    if seconds <= 0:
        return ""
    return f"{records / seconds:,.0f} records/s  {payload_bytes / seconds / 1e6:,.1f} MB/s"
