"""Spark's reads and writes by `format("pyclient")` compared with Spark's own connector, on the same broker in one run.

    python -m benchmarks.spark --connector                  # Maven gets the connector that the tests use
    python -m benchmarks.spark --connector A.jar,B.jar      # the jars of spark-sql-kafka-0-10 of another release

Without `--connector` only pyclient is measured. The connector's release need not be that of Spark: that of 4.2 works in
Spark 4.3. Every figure is the best of `--runs` after a warm-up; sides, and what is compared, take turns.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.spark_limits import Constant
from pyclient import Admin, NewTopic
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.spark import write, write_partition

PARTITIONS = 4
FORMATS = {"pyclient": "pyclient", "connector": "kafka"}
ONCE = {"exactlyOnce": "true"}
AT_ONCE = {"log.segment.delete.delay.ms": "0"}  # files of deleted topics go before their pages are written to the disk


def main() -> None:
    """Print a table of rates, and of ratios where both sides were measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows of 100 bytes that are read and written")
    parser.add_argument("--row-api-rows", type=int, default=400_000, help="rows through foreachPartition")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--servers", help="a cluster of yours; without it, an embedded broker in a process of its own")
    parser.add_argument(
        "--connector",
        nargs="?",
        default="",
        const="maven",
        help="measure Spark's own connector, too: its jars, with commas",
    )
    parser.add_argument("--master", default="local[2]", help="local-cluster[2,1,1024] has two executors of one core")
    given = parser.parse_args()
    jars = given.connector
    if jars == "maven":
        from tests.kafka.jars import spark_connector

        jars = spark_connector()
    session = spark_session(given.master, jars)
    sides = ["pyclient", *(["connector"] if jars else [])]
    cluster = None if given.servers else EmbeddedCluster(processes=True, config=AT_ONCE).start()
    try:
        servers = given.servers or (cluster.bootstrap_servers if cluster else "")
        Run(session, servers, sides, given.rows, given.row_api_rows, given.runs).all()
    finally:
        session.stop()
        if cluster is not None:
            cluster.close()


def spark_session(master: str, jars: str) -> Any:
    """Return a Spark session."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.log.level", "OFF").config("spark.driver.memory", "2g")
    builder = builder.config("spark.executor.memory", "1g")
    builder = builder.config("spark.executorEnv.PYTHONPATH", str(Path(__file__).parents[1]))  # they import this package
    return (builder.config("spark.jars", jars) if jars else builder).getOrCreate()


class Run:
    """One run of all measurements."""

    def __init__(self, spark: Any, servers: str, sides: list[str], rows: int, row_api_rows: int, runs: int) -> None:
        self._spark = spark
        self._servers = servers
        self._sides = sides
        self._rows = rows
        self._row_api_rows = row_api_rows
        self._runs = runs
        self._topics = 0
        spark.dataSource.register(Constant)

    def all(self) -> None:
        """Measure everything and print it."""
        print(f"{'what':34} {'pyclient':>14} {'connector':>14} {'ratio':>7}")
        filled = self._topic()
        data = self._frame(self._rows)
        dropped = data.write.format("constant").mode("append")
        limits = self._spark.read.format("constant").option("rows", str(self._rows)).load()
        self._write("pyclient", data, filled)
        writes = {side: lambda side=side: self._write(side, data) for side in self._sides}
        best = self._best({**writes, "once": lambda: self._write_once(data), "limit": lambda: self._rate(dropped.save)})
        self._line("batch write, rows/s", best, "{:,.0f}")
        self._part("the same exactly once", best["once"], best["pyclient"], "of at least once")
        self._part("Spark's limit of writing, rows/s", best["limit"])
        reads = {side: lambda side=side: self._read(side, filled) for side in self._sides}
        value = {"value": lambda: self._read("pyclient", filled, columns="value")}
        best = self._best({**reads, **value, "limit": lambda: self._rate(lambda: _drop(limits))})
        self._line("batch read, rows/s", best, "{:,.0f}")
        self._part("of value only", best["value"])
        self._part("Spark's limit of reading, rows/s", best["limit"])
        self._show("write() by mapInArrow, rows/s", {"pyclient": lambda: self._write_function(data)})
        small = self._frame(self._row_api_rows)
        self._show("write_partition, rows/s", {"pyclient": lambda: self._row_api(small, self._writer())})
        self._show("foreachPartition that only loops", {"pyclient": lambda: self._row_api(small, _loop)})
        latencies = {side: self._micro_batch(side, filled) for side in self._sides}
        self._line("micro-batch of 1,000 rows, s", latencies, "{:.3f}", lower=True)
        once = self._micro_batch("pyclient", filled, **ONCE)
        self._line("the same exactly once, s", {"pyclient": once}, "{:.3f}", lower=True)
        constant = self._micro_batch("constant", filled)
        self._line("the same without Kafka, s", {"pyclient": constant}, "{:.3f}", lower=True)

    def _show(self, what: str, calls: dict[str, Callable[[], float]]) -> None:
        self._line(what, self._best(calls), "{:,.0f}")

    def _best(self, calls: dict[str, Callable[[], float]]) -> dict[str, float]:
        best = dict.fromkeys(calls, 0.0)
        for call in calls.values():
            call()  # warm-up
        for _ in range(self._runs):
            for side, call in calls.items():
                best[side] = max(best[side], call())
        return best

    def _part(self, what: str, rate: float, whole: float = 0.0, text: str = "") -> None:
        print(f"{what:34} {rate:>14,.0f} {f'{rate / whole:.2f} {text}' if whole else ''}", flush=True)

    def _line(self, what: str, figures: dict[str, float], form: str, *, lower: bool = False) -> None:
        ours, theirs = figures["pyclient"], figures.get("connector")
        ratio = "" if not theirs else f"{(theirs / ours if lower else ours / theirs):.2f}x"
        other = "" if theirs is None else form.format(theirs)
        print(f"{what:34} {form.format(ours):>14} {other:>14} {ratio:>7}", flush=True)

    def _topic(self) -> str:
        self._topics += 1
        name = f"benchmark-spark-{os.getpid()}-{self._topics}"
        with Admin(self._servers) as admin:
            admin.create_topics([NewTopic(name, PARTITIONS, 1)])
        return name

    def _frame(self, rows: int) -> Any:
        frame = self._spark.range(rows).selectExpr("cast(id as string) as key", "repeat('v', 100) as value")
        frame = frame.repartition(2).cache()
        frame.count()
        return frame

    def _write(self, side: str, frame: Any, topic: str | None = None) -> float:
        writer = frame.write.format(FORMATS[side]).option("kafka.bootstrap.servers", self._servers).mode("append")
        if topic is not None:
            return self._rate(writer.option("topic", topic).save)
        return self._rate_and_delete(lambda name: writer.option("topic", name).save())

    def _read(self, side: str, topic: str, **options: str) -> float:
        reader = self._spark.read.format(FORMATS[side]).option("kafka.bootstrap.servers", self._servers)
        started = perf_counter()
        reader.option("subscribe", topic).options(**options).load().write.format("noop").mode("overwrite").save()
        return float(self._rows / (perf_counter() - started))

    def _write_function(self, frame: Any) -> float:
        return self._rate_and_delete(lambda name: write(frame, topic=name, bootstrap_servers=self._servers))

    def _writer(self) -> Any:
        return write_partition(topic=self._topic(), bootstrap_servers=self._servers)

    def _row_api(self, frame: Any, function: Any) -> float:
        started = perf_counter()
        frame.foreachPartition(function)
        return float(self._row_api_rows / (perf_counter() - started))

    def _rate(self, action: Callable[[], object]) -> float:
        started = perf_counter()
        action()
        return float(self._rows / (perf_counter() - started))

    def _rate_and_delete(self, action: Callable[[str], object]) -> float:
        """Return the rate of writing to a topic, which is deleted: else the disk would slow down later measurements."""
        topic = self._topic()
        rate = self._rate(lambda: action(topic))
        with Admin(self._servers) as admin:
            admin.delete_topics([topic])
        return rate

    def _write_once(self, frame: Any) -> float:
        writer = frame.write.format("pyclient").option("kafka.bootstrap.servers", self._servers).mode("append")
        return self._rate_and_delete(lambda name: writer.options(topic=name, writeId=name, **ONCE).save())

    def _micro_batch(self, side: str, topic: str, **options: str) -> float:
        """Return the median duration of a micro-batch from the source to the sink of the same side."""
        form = FORMATS.get(side, side)
        source = self._spark.readStream.format(form).option("kafka.bootstrap.servers", self._servers)
        source = source.option("subscribe", topic).option("startingOffsets", "earliest")
        frame = source.option("maxOffsetsPerTrigger", "1000").load().select("key", "value")
        with tempfile.TemporaryDirectory() as checkpoint:
            sink = frame.writeStream.format(form).option("kafka.bootstrap.servers", self._servers).options(**options)
            query = sink.option("topic", self._topic()).option("checkpointLocation", checkpoint).start()
            try:
                while query.lastProgress is None or query.lastProgress["batchId"] < 25:
                    query.awaitTermination(0.2)
            finally:
                query.stop()
            return median(each["durationMs"]["triggerExecution"] for each in query.recentProgress[5:25]) / 1000


def _drop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _loop(rows: Any) -> None:
    for row in rows:
        assert row.value


if __name__ == "__main__":
    main()
