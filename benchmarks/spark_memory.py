"""The memory of a Spark job that reads a topic, groups its rows and writes the groups, for few rows and for many.

    python -m benchmarks.spark_memory --rows 20000000

Prints, after a quarter of the rows and after all, the time of the job and the highest resident memory so far of Spark's
JVM, whose heap is limited to 1 GB, and of the Python workers, the largest one and their sum. Memory that grows with the
rows is a defect: 20 million rows of 100 bytes are more than the heap.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from pyclient import Admin, NewTopic, Producer
from pyclient.broker_embedded import EmbeddedCluster

PARTITIONS = 4
PER_CALL = 10_000


def main() -> None:
    """Print a line for each number of rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000, help="rows of 100 bytes")
    rows = parser.parse_args().rows
    with EmbeddedCluster(processes=True) as cluster:
        servers = cluster.bootstrap_servers
        for part in (rows // 4, rows):
            fill(servers, f"rows-{part}", part)
        before = set(children(os.getpid()))
        spark = session()
        [jvm_process] = set(children(os.getpid())) - before
        print(f"{'rows':>12} {'seconds':>8} {'JVM, MB':>8} {'worker, MB':>11} {'workers, MB':>12}")
        for part in (rows // 4, rows):
            started = perf_counter()
            counted = job(spark, servers, f"rows-{part}", f"groups-{part}")
            assert counted == part, f"{counted} of {part} rows were counted"
            jvm, *workers = map(peak, [jvm_process, *descendants(jvm_process)])
            seconds = perf_counter() - started
            print(f"{part:12,} {seconds:8.1f} {jvm:8.0f} {max(workers):11.0f} {sum(workers):12.0f}", flush=True)
        spark.stop()


def fill(servers: str, topic: str, rows: int) -> None:
    """Create a topic with rows of a key of 1,000 and a value of 100 bytes."""
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, 1), NewTopic(topic.replace("rows", "groups"), PARTITIONS, 1)])
    keys, values = [b"%d" % (number % 1000) for number in range(PER_CALL)], [b"v" * 100] * PER_CALL
    with Producer(servers) as producer:
        for _ in range(rows // PER_CALL):
            producer.send_many(topic, values, keys=keys)


def session() -> Any:
    """Return a Spark session of two cores and 1 GB of heap."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "1g")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    return builder.config("spark.log.level", "ERROR").config("spark.sql.shuffle.partitions", "4").getOrCreate()


def job(spark: Any, servers: str, source: str, sink: str) -> int:
    """Count the rows of each key and write the counts; return the sum of the counts that were written."""
    options = {"kafka.bootstrap.servers": servers}
    rows = spark.read.format("pyclient").options(**options, subscribe=source).load()
    groups = rows.groupBy("key").agg({"value": "count"}).toDF("key", "count")
    written = groups.selectExpr("key", "cast(count as string) as value").write.format("pyclient")
    written.options(**options, topic=sink).mode("append").save()
    counts = spark.read.format("pyclient").options(**options, subscribe=sink).load()
    return int(counts.selectExpr("sum(cast(cast(value as string) as bigint))").first()[0])


def descendants(pid: int) -> list[int]:
    """Return the processes that a process or one of its descendants has started."""
    found = [pid]
    for each in found:  # grows by the children of each
        found += children(each)
    return found[1:]


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
        if parent == pid:
            found.append(int(status.parent.name))
    return found


def peak(pid: int) -> float:
    """Return the highest resident memory of a process so far, in MB."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1000


if __name__ == "__main__":
    main()
