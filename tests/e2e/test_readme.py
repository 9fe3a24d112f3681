"""Code in the README and in docs/ runs unchanged."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
import threading
import tomllib
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pyclient import Admin, Consumer, NewTopic, Producer, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.log.checkpoints import render_identity

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
RUN = ("cluster", "fault-injection", "spark", "transactions")
"""The documents in docs/ with code that tests run."""
ADDRESS = "localhost:9092"
"""The address in the examples, which tests replace by that of their cluster."""


def blocks(text: str) -> dict[tuple[str, str], str]:
    """Return the code blocks of a document by language and heading; each heading has at most one."""
    found: dict[tuple[str, str], str] = {}
    heading = ""
    for title, language, code in re.findall(r"^#+ (.*)|^```(\w+)\n((?s:.*?))^```", text, re.MULTILINE):
        heading = title or heading
        if language:
            assert (language, heading) not in found, f"two blocks of {language} under {heading!r}: one is not tested"
            found[language, heading] = code
    return found


BLOCKS = blocks(README)
FAULTS = blocks((ROOT / "docs" / "fault-injection.md").read_text())
TRANSACTIONS = blocks((ROOT / "docs" / "transactions.md").read_text())
CLUSTER = blocks((ROOT / "docs" / "cluster.md").read_text())
SPARK = blocks((ROOT / "docs" / "spark.md").read_text())
"""Run by tests/spark/test_document.py, which has a Spark session."""
CLIENTS = {
    "Produce": "orders 0\ndelivered: True\n2 of 2\n",
    "Consume": "b'three apples'\nb'two pears'\nb'a plum'\nb'a quince'\nTrue\n",
    "Administer": "['invoices', 'orders']\norders-0 4\n",
    "asyncio": "0\nb'an event'\n",
}
"""The output of the client examples, in order."""
FAILURES = ("An example per failure", "Damaged bits", "A failed disk", "Controllers without a majority")
GROWING = "Controllers that join and leave"
MIXED = "Brokers of Apache Kafka in the same cluster"


def test_scenarios_in_the_document_are_those_that_tests_run() -> None:
    text = (ROOT / "docs" / "cluster.md").read_text()
    shown = re.findall(r"^`(tests/\S+)`:\n\n```\n((?s:.*?))^```", text, re.MULTILINE)
    assert len(shown) == 2
    for path, scenario in shown:
        assert scenario == (ROOT / path).read_text(), path


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", *command], capture_output=True, text=True, timeout=240, check=False, cwd=cwd
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_every_code_block_of_documents_is_tested() -> None:
    tested = {("python", heading) for heading in ("pyclient", *CLIENTS, "A broker in a test")}
    assert set(BLOCKS) == tested | {("sh", heading) for heading in ("Install", "Two commands", "Command line")}
    assert set(FAULTS) == {("python", "From Python"), ("sh", "Over HTTP")}
    assert set(TRANSACTIONS) == {("python", "Transactions"), ("python", "Exactly once from topic to topic")}
    assert set(SPARK) == {("python", "Kafka from Spark")}
    runs = [("python", heading) for heading in ("A cluster of several brokers", *FAILURES, GROWING, MIXED)]
    assert list(CLUSTER) == [*runs[:-1], ("properties", MIXED), runs[-1], ("bash", "Over HTTP")]
    others = set((ROOT / "docs").glob("**/*.md")) - {ROOT / "docs" / f"{name}.md" for name in RUN}
    assert [path.name for path in sorted(others) if blocks(path.read_text())] == []


def test_first_example_runs(tmp_path: Path) -> None:
    assert run("-c", BLOCKS["python", "pyclient"], cwd=tmp_path).stdout == "b'42' b'three apples' (('trace', b'1'),)\n"


def test_client_examples_run_in_order(tmp_path: Path) -> None:
    with EmbeddedCluster() as cluster:
        for heading, printed in CLIENTS.items():
            code = BLOCKS["python", heading]
            assert ADDRESS in code
            done = run("-c", code.replace(ADDRESS, cluster.bootstrap_servers), cwd=tmp_path)
            assert done.stdout == printed, heading


def test_pytest_example_passes(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(BLOCKS["python", "A broker in a test"])
    assert "1 passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py", cwd=tmp_path).stdout


def test_command_line_example_runs() -> None:
    pytest.importorskip("click", reason="the extra cli is not installed")
    program = "from pyclient.cli import main; main()"
    pyclient = f'pyclient() {{ {shlex.quote(sys.executable)} -W error -c {shlex.quote(program)} "$@"; }}\n'
    with EmbeddedCluster() as cluster:
        commands = BLOCKS["sh", "Command line"].replace(ADDRESS, cluster.bootstrap_servers)
        done = subprocess.run(
            ["/bin/sh", "-ec", pyclient + commands], capture_output=True, text=True, timeout=90, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "three apples\n" in done.stdout


def test_extras_of_install_section_exist() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.findall(r"^\| `(\w+)` \|", README.partition("## Install")[2].partition("## ")[0], re.MULTILINE)
    assert named
    assert set(named) <= set(declared)
    assert f".[{','.join(named)}]" in BLOCKS["sh", "Install"]


@contextmanager
def members(servers: str, topic: str, group: str, count: int, **options: Any) -> Iterator[None]:
    """Run `count` members of a group that poll until the block ends."""
    ended = threading.Event()

    def poll() -> None:
        with Consumer(topic, bootstrap_servers=servers, group_id=group, **options) as consumer:
            while not ended.is_set():
                consumer.poll(0.1)

    threads = [threading.Thread(target=poll) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def test_fault_injection_example_runs() -> None:
    with EmbeddedCluster() as cluster:
        servers = cluster.bootstrap_servers
        with Producer(servers) as producer, members(servers, "orders", "billing", 2):
            for _ in range(100):
                producer.send("orders", b"an apple")
            producer.flush()
            cluster.wait_group("billing", "Stable", members=2)
            names: dict[str, Any] = {"cluster": cluster, "producer": producer, "errors": errors}
            for statement in ast.parse(FAULTS["python", "From Python"]).body:
                exec(compile(ast.Module([statement], []), "fault-injection.md", "exec"), names)
                if ".kill()" in ast.unparse(statement):
                    cluster.brokers[0].start()
                if ".hold(" in ast.unparse(statement):
                    names["held"].release()


def requests_of(shell: str, url: str) -> list[tuple[str, str, str | None]]:
    """Return method, URL and body of every `curl` in a block of shell commands."""
    found = []
    for command in re.split(r"[;\n]", shell.replace("$URL", url)):
        words = shlex.split(command, comments=True)
        if words:
            assert words[0] == "curl"
            method = words[words.index("-X") + 1] if "-X" in words else None
            body = words[words.index("-d") + 1] if "-d" in words else None
            (address,) = [word for word in words if word.startswith("http")]
            found.append((method or ("POST" if body else "GET"), address, body))
    return found


def ask(method: str, address: str, body: str | None) -> None:
    request = urllib.request.Request(address, body and body.encode(), method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200, address


def test_curl_example_runs() -> None:
    with EmbeddedCluster(control_port=0) as cluster:
        servers = cluster.bootstrap_servers
        with Producer(servers) as producer, members(servers, "orders", "billing", 1, client_id="my-app"):
            producer.send("orders", b"an apple").result(30)
            cluster.wait_group("billing", "Stable", members=1)
            *before, (method, address, body) = requests_of(FAULTS["sh", "Over HTTP"], str(cluster.control_url))
            for request in before:
                ask(*request)
                if "fail" in str(request):
                    producer.send("orders", b"an apple").result(30)
        assert "state=Empty" in address
        ask(method, address, body)  # the member has left; before, it may have rejoined


def test_cluster_examples_run(tmp_path: Path) -> None:
    assert run("-c", CLUSTER["python", "A cluster of several brokers"], cwd=tmp_path).stdout == "0\n"
    with EmbeddedCluster(brokers=3, control_port=0) as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("orders", 1, 3)])
        for heading in FAILURES:
            exec(CLUSTER["python", heading], {"cluster": cluster})
        for request in requests_of(CLUSTER["bash", "Over HTTP"], str(cluster.control_url)):
            ask(*request)


def test_example_of_controllers_runs(tmp_path: Path) -> None:
    run("-c", CLUSTER["python", GROWING], cwd=tmp_path)


def test_broker_of_the_document_joins_a_cluster(tmp_path: Path) -> None:
    with EmbeddedCluster(brokers=1, controllers=1) as cluster:
        identity = render_identity(cluster_id=cluster.cluster_id, node_id=7, directory_id=uuid.uuid4())
        (tmp_path / "meta.properties").write_bytes(identity)
        code = CLUSTER["python", MIXED]
        own = {"3000@127.0.0.1:9093": cluster.controller_quorum_voters, "/var/lib/pyclient-7": tmp_path}
        for written, real in own.items():
            assert written in code
            code = code.replace(written, str(real))
        assert re.fullmatch(r"127\.0\.0\.1:\d+\n", run("-c", code, cwd=tmp_path).stdout)


def test_commands_and_files_named_in_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)\b", README)) | {"lint", "bench", "test-pure", "test-slow", "test-kafka"}
    assert named <= targets | {"help"}
    assert {"demo", "test"} <= named
    for path in re.findall(r"\]\(([A-Z]+\.md)\)|`(examples/\w+\.py)`", README):
        assert (ROOT / (path[0] or path[1])).exists(), path


def test_transactions_of_the_document_run() -> None:
    stop = threading.Event()
    with EmbeddedCluster() as cluster:
        code = {
            heading: text.replace(ADDRESS, cluster.bootstrap_servers) for (_, heading), text in TRANSACTIONS.items()
        }
        exec(code["Transactions"], {})
        with Producer(cluster.bootstrap_servers) as producer:
            producer.send_many("orders", [b"a", b"b"])
        names: dict[str, Any] = {}
        exec(code["Exactly once from topic to topic"], names)
        worker = threading.Thread(target=names["bill"], args=(stop,))
        worker.start()
        found: list[bytes | None] = []
        options = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        with Consumer(bootstrap_servers=cluster.bootstrap_servers, config=options) as consumer:
            consumer.assign([("invoices", 0)])
            while len(found) < 3:
                found += [record.value for record in consumer.poll(10.0)]
        stop.set()
        worker.join()
    assert found == [b"...", b"A", b"B"]
