"""Step 4: count the identifiers in the same files with Spark, and write the counts with `foreachPartition`."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections import Counter
from time import perf_counter

from pyclient import Consumer, TopicPartition
from pyclient.cli.demo.report import Report
from pyclient.cli.demo.source import IDENTIFIER, SourceFile

PARTITIONS = 6
_SPARK_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def reason_to_skip() -> str | None:
    """Return the line to print if the Spark step cannot run here, else None."""
    java_home = os.environ.get("JAVA_HOME")
    if not (shutil.which("java") or (java_home and shutil.which("java", path=os.path.join(java_home, "bin")))):
        return "skipping the Spark step: it needs Java 17 or newer, and none was found"
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return "skipping the Spark step: PySpark is not installed (pip install 'pyclient-kafka[spark]')"
    return None


def write_identifiers(
    report: Report, files: list[SourceFile], bootstrap_servers: str, topic: str, expected: Counter[str]
) -> None:
    """Run the job, then read the topic back and compare every identifier's count."""
    started = perf_counter()
    with report.console.status("Spark counts identifiers"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark warns about the installed pandas
        _run_job(files, bootstrap_servers, topic)
    seconds = perf_counter() - started
    counts, repeated = _read_back(bootstrap_servers, topic, len(expected))
    report.check(not repeated, f"identifiers written more than once: {repeated[:5]}")
    different = [name for name in counts.keys() | expected.keys() if counts[name] != expected[name]]
    report.check(not different, f"{len(different):,} identifiers have another count than in the files: {different[:5]}")
    note = (
        f"{len(counts):,} identifiers, {counts.total():,} uses, as in the files" if not different else "counts differ"
    )
    report.step("spark", records=len(counts), seconds=seconds, note=note)


def _run_job(files: list[SourceFile], bootstrap_servers: str, topic: str) -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as sql

    import pyclient.spark

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's workers would take the first python3 on PATH
    builder = SparkSession.builder.master("local[2]").appName("pyclient demo")
    for key, value in _SPARK_SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        # not spark.read.text: it skips files whose names begin with an underscore
        read = sql.udf(_read_file, "binary")
        paths = spark.createDataFrame([(str(source.path),) for source in files], "path string").repartition(4)
        texts = paths.select(sql.decode(read("path"), "ISO-8859-1").alias("text"))
        found = texts.select(sql.explode(sql.regexp_extract_all("text", sql.lit(IDENTIFIER), sql.lit(0))).alias("key"))
        rows = found.groupBy("key").count().select("key", sql.col("count").cast("string").alias("value"))
        rows.foreachPartition(
            pyclient.spark.write_partition(topic=topic, bootstrap_servers=bootstrap_servers, linger_ms=5)
        )
    finally:
        spark.stop()


def _read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _read_back(bootstrap_servers: str, topic: str, expected: int) -> tuple[Counter[str], list[str]]:
    counts: Counter[str] = Counter()
    repeated = []
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for record in consumer.poll(timeout=1.0, max_records=5000):
                name = (record.key or b"").decode()
                if name in counts:
                    repeated.append(name)
                counts[name] = int(record.value or b"0")
    return counts, repeated
