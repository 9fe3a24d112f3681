"""Steps 4 and 5: Spark reads the lines from Kafka, counts what is in them, and writes the counts back.

A batch counts identifiers, a stream counts the lines of each package; both read by `format("pyclient")`.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Final

from pyclient import Consumer, TopicPartition
from pyclient.cli.demo.report import Report
from pyclient.cli.demo.source import IDENTIFIER, DirectCount

PARTITIONS: Final = 6
_BATCHES: Final = 3  # micro-batches of the stream, about
_SPARK_SETTINGS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def reason_to_skip() -> str | None:
    """Return the line to print if the Spark steps cannot run here, else None."""
    java_home = os.environ.get("JAVA_HOME")
    if not (shutil.which("java") or (java_home and shutil.which("java", path=os.path.join(java_home, "bin")))):
        return "skipping the Spark steps: they need Java 17 or newer, and none was found"
    try:
        from pyspark.sql import datasource  # noqa: F401
    except ImportError:
        return "skipping the Spark steps: PySpark 4 is not installed (pip install 'pyclient-kafka[spark]')"
    return None


def count_with_spark(
    report: Report, bootstrap_servers: str, lines: str, identifiers: str, packages: str, expected: DirectCount
) -> None:
    """Count identifiers in a batch and lines in a stream; read the counts back and compare every one."""
    with warnings.catch_warnings(), _session() as spark:
        warnings.simplefilter("ignore")  # PySpark warns about the installed pandas
        started = perf_counter()
        with report.console.status("Spark counts identifiers"):
            _count_identifiers(spark, bootstrap_servers, lines, identifiers)
        seconds = perf_counter() - started
        compare(
            report, "spark batch", "identifiers", _last(bootstrap_servers, identifiers), expected.identifiers, seconds
        )
        started = perf_counter()
        with report.console.status("Spark counts lines in a stream"):
            _count_lines(spark, bootstrap_servers, lines, packages, expected.lines)
        seconds = perf_counter() - started
        compare(report, "spark stream", "packages", _last(bootstrap_servers, packages), expected.by_package(), seconds)


@contextmanager
def _session() -> Iterator[Any]:
    """Start and stop Spark; what it and its workers write to stderr is shown only if the job fails."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's workers would take the first python3 on PATH
    builder = SparkSession.builder.master("local[2]").appName("pyclient demo")
    for key, value in _SPARK_SETTINGS.items():
        builder = builder.config(key, value)
    with tempfile.TemporaryFile() as noise:
        try:
            with _stderr_to(noise.fileno()):
                spark = builder.getOrCreate()
            try:
                yield spark
            finally:
                spark.stop()
        except Exception:
            noise.seek(0)
            sys.stderr.write(noise.read().decode(errors="replace"))
            raise


@contextmanager
def _stderr_to(descriptor: int) -> Iterator[None]:
    """Let processes that are started meanwhile write their stderr to another file, for good."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        os.dup2(descriptor, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _count_identifiers(spark: Any, bootstrap_servers: str, lines: str, topic: str) -> None:
    from pyspark.sql import functions as sql

    read = spark.read.format("pyclient").option("kafka.bootstrap.servers", bootstrap_servers)
    texts = read.option("subscribe", lines).option("columns", "value").load()
    text = sql.decode("value", "ISO-8859-1")  # not every file is UTF-8
    found = texts.select(sql.explode(sql.regexp_extract_all(text, sql.lit(IDENTIFIER), sql.lit(0))).alias("key"))
    counts = found.groupBy("key").count().select("key", sql.col("count").cast("string").alias("value"))
    write = counts.write.format("pyclient").option("kafka.bootstrap.servers", bootstrap_servers)
    write.option("topic", topic).mode("append").save()


def _count_lines(spark: Any, bootstrap_servers: str, lines: str, topic: str, total: int) -> None:
    """Count the lines of each package in micro-batches; each writes the counts that have changed."""
    from pyspark.sql import functions as sql

    from pyclient.spark import foreach_batch

    read = spark.readStream.format("pyclient").option("kafka.bootstrap.servers", bootstrap_servers)
    read = read.option("subscribe", lines).option("startingOffsets", "earliest").option("columns", "key")
    keys = read.option("maxOffsetsPerTrigger", str(total // _BATCHES + 1)).load()
    package = sql.regexp_replace(sql.substring_index(sql.decode("key", "UTF-8"), "/", 1), r"\.py$", "")
    counts = keys.groupBy(package.alias("key")).count().select("key", sql.col("count").cast("string").alias("value"))
    with tempfile.TemporaryDirectory() as checkpoint:
        write = counts.writeStream.outputMode("update").option("checkpointLocation", checkpoint)
        write = write.foreachBatch(foreach_batch(topic=topic, bootstrap_servers=bootstrap_servers))
        write.trigger(availableNow=True).start().awaitTermination()


def _last(bootstrap_servers: str, topic: str) -> Counter[str]:
    """Return the last value of each key."""
    counts: Counter[str] = Counter()
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for record in consumer.poll(timeout=1.0, max_records=5000):
                counts[(record.key or b"").decode()] = int(record.value or b"0")
    return counts


def compare(report: Report, step: str, what: str, counts: Counter[str], expected: Counter[str], seconds: float) -> None:
    """Check counts of a topic against those of the files."""
    different = [name for name in counts.keys() | expected.keys() if counts[name] != expected[name]]
    report.check(not different, f"{len(different):,} {what} have another count than in the files: {different[:5]}")
    note = f"{len(counts):,} {what}, {counts.total():,} counted, as in the files" if not different else "counts differ"
    report.step(step, records=len(counts), seconds=seconds, note=note)
