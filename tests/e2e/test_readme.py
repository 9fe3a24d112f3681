"""What the README shows runs as it is written there."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyclient import Consumer, Producer, errors
from pyclient.broker_embedded import EmbeddedCluster

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
TEN_LINES, IN_A_TEST, BREAKING = (code for kind, code in BLOCKS if kind == "python")
_, BY_HTTP = (code for kind, code in BLOCKS if kind == "sh")


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", *command], capture_output=True, text=True, timeout=90, check=False, cwd=cwd
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_the_ten_lines_run(tmp_path: Path) -> None:
    assert run("-c", TEN_LINES, cwd=tmp_path).stdout == "b'42' b'three apples' (('trace', b'1'),)\n"


def test_the_test_in_the_readme_passes(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text("from pyclient import Producer\n\n\n" + IN_A_TEST)
    assert "1 passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py", cwd=tmp_path).stdout


@contextmanager
def members(servers: str, topic: str, group: str, count: int, **options: Any) -> Iterator[None]:
    """So many members of a group that poll until the block ends."""
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


def test_what_is_said_of_breaking_things_can_be_done_in_that_order() -> None:
    with EmbeddedCluster() as cluster:
        servers = cluster.bootstrap_servers
        with Producer(servers) as producer, members(servers, "orders", "billing", 2):
            for _ in range(100):
                producer.send("orders", b"an apple")
            producer.flush()
            cluster.wait_group("billing", "Stable", members=2)
            names: dict[str, Any] = {"cluster": cluster, "producer": producer, "errors": errors}
            for statement in ast.parse(BREAKING).body:
                exec(compile(ast.Module([statement], []), "README.md", "exec"), names)
                if ".kill()" in ast.unparse(statement):
                    cluster.brokers[0].start()
                if ".hold(" in ast.unparse(statement):
                    names["held"].release()


def requests_of(shell: str, url: str) -> list[tuple[str, str, str | None]]:
    """Method, address and body of every `curl` in a block of shell commands."""
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


def test_what_is_asked_for_by_http_is_done_in_that_order() -> None:
    with EmbeddedCluster(control_port=0) as cluster:
        servers = cluster.bootstrap_servers
        with Producer(servers) as producer, members(servers, "orders", "billing", 1, client_id="my-app"):
            producer.send("orders", b"an apple").result(30)
            cluster.wait_group("billing", "Stable", members=1)
            *before, (method, address, body) = requests_of(BY_HTTP, str(cluster.control_url))
            for request in before:
                ask(*request)
                if "fail" in str(request):
                    producer.send("orders", b"an apple").result(30)
        assert "state=Empty" in address
        ask(method, address, body)  # now that the member has gone; before, it may have joined again


def test_commands_and_files_that_the_readme_names_are_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)\b", TEXT)) | {"lint", "bench", "test-pure", "test-slow", "test-kafka"}
    assert named <= targets | {"help"}
    assert {"demo", "test"} <= named
    for path in re.findall(r"\]\(([A-Z]+\.md)\)|`(examples/\w+\.py)`", TEXT):
        assert (ROOT / (path[0] or path[1])).exists(), path
