"""Compare rates over TLS with confluent-kafka, the embedded broker with a real Kafka, and measure the cost of logins.

`python -m benchmarks.security [--count 1000000] [--runs 3] [--no-kafka]`

Clients take turns, each in a process of its own. The brokers' rates are those of the quicker client. A login is a
connection that is opened, authenticated and has asked for the versions of the APIs; its cost is the median over that of
a connection without SASL.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.produce_cases import CONFLUENT
from benchmarks.timed_work import BATCH_BYTES, LINGER_MS, values
from pyclient import Admin, NewTopic, Producer
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.clock import SYSTEM_CLOCK
from pyclient.config import ClientConfig
from pyclient.net.connection import Connection

OURS = "pyclient"
GOALS = {100: 1.5, 1024: 1.0}
BROKER_GOALS = {"produce": 2.0, "consume": 1.0}
PARTITIONS = 6
LOGINS = 200
_MOST_MS = 5.0
"""The most that PLAIN and OAUTHBEARER may add to a connection; SCRAM takes what its iterations demand."""


class TlsListener(NamedTuple):
    """A broker's listener with TLS, and the file with its authority."""

    name: str
    servers: str
    ca: str

    @property
    def options(self) -> dict[str, Any]:
        """The options of a client of ours."""
        return {"security_protocol": "SSL", "ssl_cafile": self.ca}


@contextmanager
def embedded() -> Iterator[TlsListener]:
    """Run the embedded broker in a process of its own during the block."""
    with EmbeddedCluster(processes=True, security="SSL") as cluster:
        yield TlsListener("the embedded broker", cluster.bootstrap_servers, cluster.client_options()["ssl_cafile"])


@contextmanager
def kafka() -> Iterator[TlsListener]:
    """Run a real Kafka during the block."""
    from tests.kafka.runner import AS_SHIPPED, RealKafka, free_ports
    from tests.kafka.test_security_listeners import TLS

    [port] = free_ports(1)
    settings = {
        "listeners": f"{{default}},TLS://127.0.0.1:{port}",
        "advertised.listeners": f"{{default}},TLS://127.0.0.1:{port}",
        "listener.security.protocol.map": "{default},TLS:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(TLS / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(TLS / "ca.pem"),
    }
    with RealKafka(settings=settings, jvm=AS_SHIPPED) as running:
        yield TlsListener(f"Apache Kafka {running.version}", f"127.0.0.1:{port}", str(TLS / "ca.pem"))


def rate(listener: TlsListener, work: str, topic: str, size: int, count: int) -> float:
    """Return the records a second of one client's turn."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.security_work", work, "--ca", listener.ca]
    command += ["--servers", listener.servers, "--topic", topic, "--size", str(size), "--codec", "none"]
    done = subprocess.run([*command, "--count", str(count)], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise RuntimeError(f"{work} on {listener.name}: {done.stderr[-500:]}")
    return count / float(json.loads(done.stdout.splitlines()[-1])["seconds"])


def fill(listener: TlsListener, topic: str, size: int, count: int) -> None:
    """Write what is to be read."""
    column = values(size) * 100
    with Producer(listener.servers, linger_ms=LINGER_MS, batch_size=BATCH_BYTES, **listener.options) as producer:
        for start in range(0, count, len(column)):
            producer.send_many(topic, column[: count - start])


def rates(listener: TlsListener, size: int, count: int, runs: int) -> Mapping[tuple[str, str], float]:
    """Return the median rate of each work and client: the first round is not counted."""
    found: dict[tuple[str, str], list[float]] = {}
    with Admin(listener.servers, **listener.options) as admin:
        for work in BROKER_GOALS:
            topic = f"{work}-{size}"
            admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
            if work == "consume":
                fill(listener, topic, size, count)
            for number in range(runs + 1):
                for client in (OURS, CONFLUENT):
                    reached = rate(listener, f"{work} {client}", topic, size, count)
                    if number:
                        found.setdefault((work, client), []).append(reached)
            admin.delete_topics([topic])
    return {key: median(each) for key, each in found.items()}


def show_rates(by_broker: Mapping[str, Mapping[tuple[int, str, str], float]]) -> None:
    """Print the rates, and their ratios."""
    table = Table("broker", "work", "size", OURS, CONFLUENT, "ratio", "goal", title="records a second over TLS")
    for broker, found in by_broker.items():
        for size, goal in GOALS.items():
            for work in BROKER_GOALS:
                mine, theirs = found[size, work, OURS], found[size, work, CONFLUENT]
                met = f">= {goal} {'met' if mine >= goal * theirs else 'MISSED'}"
                table.add_row(broker, work, str(size), f"{mine:,.0f}", f"{theirs:,.0f}", f"{mine / theirs:.2f}", met)
    console = Console(width=120)
    console.print(table)
    if len(by_broker) == 2:
        ours, theirs = by_broker.values()
        for work, goal in BROKER_GOALS.items():
            for size in GOALS:
                best = [max(each[size, work, client] for client in (OURS, CONFLUENT)) for each in (ours, theirs)]
                ratio = best[0] / best[1]
                console.print(
                    f"{work}, {size} B: the embedded broker at {ratio:.2f} times Kafka's rate; "
                    f"goal {goal} {'met' if ratio >= goal else 'MISSED'}"
                )


async def _open(address: str, options: Mapping[str, Any]) -> float:
    """Return the milliseconds until a connection has the API versions, after it was authenticated."""
    host, _, port = address.rpartition(":")
    config = ClientConfig(bootstrap_servers=(address,), **options)
    began = time.perf_counter()
    connection = await Connection.open(host, int(port), config=config, clock=SYSTEM_CLOCK)
    taken = time.perf_counter() - began
    await connection.close()
    return taken * 1000


def show_logins() -> None:
    """Print what a login costs by each mechanism; the mechanisms take turns."""
    users = {"alice": "a-password"}
    tokens = {"sasl.enabled.mechanisms": "OAUTHBEARER"}
    with (
        EmbeddedCluster(processes=True) as plain,
        EmbeddedCluster(processes=True, security="SASL_PLAINTEXT", users=users) as sasl,
        EmbeddedCluster(processes=True, security="SASL_PLAINTEXT", users=["alice"], config=tokens) as oauth,
    ):
        places: dict[str, tuple[str, Mapping[str, Any]]] = {"none": (plain.bootstrap_servers, {})}
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            places[mechanism] = sasl.bootstrap_servers, sasl.client_options("alice", mechanism)
        places["OAUTHBEARER"] = oauth.bootstrap_servers, oauth.client_options("alice", "OAUTHBEARER")
        taken: dict[str, list[float]] = {name: [] for name in places}
        for _ in range(LOGINS):
            for name, (address, options) in places.items():
                taken[name].append(asyncio.run(_open(address, options)))
    base = median(taken.pop("none"))
    console = Console(width=120)
    console.print(f"a connection without SASL: {base:.2f} ms")
    for name, each in taken.items():
        added = median(each) - base
        goal = "" if name.startswith("SCRAM") else f"; goal {_MOST_MS:g} {'met' if added < _MOST_MS else 'MISSED'}"
        console.print(f"{name} adds {added:.2f} ms{goal}")


def main() -> None:
    """Print the rates over TLS, and the cost of logins."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000, help="records of 100 bytes; a third of them of 1 KB")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-kafka", action="store_true", help="on the embedded broker only")
    given = parser.parse_args()
    show_logins()
    found: dict[str, dict[tuple[int, str, str], float]] = {}
    for place in (embedded, *(() if given.no_kafka else (kafka,))):
        with place() as listener:
            for size in GOALS:
                count = given.count if size == min(GOALS) else given.count // 3
                for (work, client), reached in rates(listener, size, count, given.runs).items():
                    found.setdefault(listener.name, {})[size, work, client] = reached
    show_rates(found)


if __name__ == "__main__":
    main()
