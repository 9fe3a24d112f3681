"""Options of every command that connects to a cluster, and invalid values."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pyclient import Admin, Consumer, Producer, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.cli.app import cli
from pyclient.cli.demo.report import Report
from pyclient.cli.options import console
from tests.waiting import until


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


COMMANDS: dict[str, Callable[[str], tuple[str, ...]]] = {
    "topics list": lambda topic: ("topics", "list"),
    "topics describe": lambda topic: ("topics", "describe", topic),
    "topics add-partitions": lambda topic: ("topics", "add-partitions", topic, "3"),
    "groups list": lambda topic: ("groups", "list"),
    "groups reset": lambda topic: ("groups", "reset", "g", "--topic", topic, "--to-latest"),
    "groups describe": lambda topic: ("groups", "describe", "g"),
    "groups delete": lambda topic: ("groups", "delete", "g"),
    "produce": lambda topic: ("produce", topic),
    "consume": lambda topic: ("consume", topic, "--timeout", "0.1"),
    "perf produce": lambda topic: ("perf", "produce", topic, "--records", "10"),
    "perf consume": lambda topic: ("perf", "consume", topic, "--records", "5"),
}


def test_every_command_takes_client_options_and_option_file(tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    with EmbeddedCluster() as cluster, cluster.requests.start():
        properties.write_text(f"# a comment\n\nbootstrap.servers={cluster.bootstrap_servers}\nclient.id=by-file\n")
        assert run("topics", "create", "orders", "--command-config", str(properties)).exit_code == 0
        for name, arguments in COMMANDS.items():
            client_id = f"by-option-{name.replace(' ', '-')}"
            done = run(*arguments("orders"), "--command-config", str(properties), "-X", f"client.id={client_id}")
            assert done.exit_code == 0, (name, done.output)
            assert cluster.requests.query(client=client_id), name
        assert cluster.requests.query(client="by-file")


@pytest.mark.parametrize("command", ["groups reset", "produce", "consume", "perf produce", "perf consume"])
def test_mistyped_topic_is_not_created(command: str) -> None:
    with EmbeddedCluster() as cluster, Admin(cluster.bootstrap_servers) as admin:
        with Producer(cluster.bootstrap_servers) as producer:
            producer.send("orders", b"1")
        arguments = [*COMMANDS[command]("ordres"), *(["--dry-run"] if command == "groups reset" else [])]
        failed = run(*arguments, "-b", cluster.bootstrap_servers)
        assert failed.exit_code == 1
        assert re.match("Error: UnknownTopicOrPartition: .*'ordres'", failed.output.splitlines()[-1]), failed.output
        assert admin.list_topics() == ["orders"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("consume", "t", "--timeout", "-1"),
        ("consume", "t", "--timeout", "nan"),
        ("consume", "t", "--timeout", "soon"),
        ("consume", "t", "--max-records", "-3"),
        ("consume", "t", "--max-records", "0"),
        ("perf", "consume", "t", "--timeout", "-1"),
        ("perf", "produce", "t", "--records", "-1"),
        ("groups", "reset", "g", "--to-time", "-5"),
        ("topics", "create", "t", "--partitions", "0"),
        ("topics", "create", "t", "--replication-factor", "-2"),
        ("topics", "add-partitions", "t", "-3"),
        ("broker", "--port", "65536"),
        ("topics", "list", "-X", "client.id"),
        ("topics", "list", "--command-config", "/no/such/file"),
    ],
)
def test_invalid_argument_is_usage_error(arguments: tuple[str, ...]) -> None:
    refused = run(*arguments)
    assert refused.exit_code == 2, refused.output
    assert "Error: " in refused.output and "Traceback" not in refused.output


def test_brackets_and_colons_are_printed_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(console())
    report.console.print("pip install 'pyclient-kafka[spark]' :smile:")
    report.step("[bold]step[/bold]", note=":smile: [red]note[/red]")
    report.check(False, "pip install 'pyclient-kafka[spark]'")
    report.show()
    printed = capsys.readouterr().out
    assert printed.count("pip install 'pyclient-kafka[spark]'") == 2
    assert "[bold]step[/bold]" in printed and ":smile: [red]note[/red]" in printed


def test_brackets_in_client_id_are_printed_unchanged() -> None:
    with EmbeddedCluster() as cluster:
        with Producer(cluster.bootstrap_servers) as producer:
            producer.send("orders", b"1")
        options = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "g", "client_id": "[bold]me[/bold]"}
        with Consumer("orders", **options) as consumer:
            until(lambda: consumer.poll(0.01) or consumer.assignment())
            described = run("groups", "describe", "g", "-b", cluster.bootstrap_servers).output
    assert "[bold]me[/bold]" in described


def test_command_prints_addresses_before_it_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        failed = run("topics", "list", "-b", address, "-X", "default.api.timeout.ms=4000")
    first, *_, last = failed.output.splitlines()
    assert first == f"connecting to {address}, no answer yet"
    assert failed.exit_code == 1 and "KafkaTimeout" in last


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_consume_commits_and_leaves_group_on_signal(number: signal.Signals) -> None:
    with EmbeddedCluster() as cluster, Admin(cluster.bootstrap_servers) as admin:
        with Producer(cluster.bootstrap_servers) as producer:
            producer.send_many("orders", [b"%d" % n for n in range(10)])
        command = [sys.executable, "-c", "from pyclient.cli import main; main()", "consume", "orders", "--group", "g"]
        command += ["-b", cluster.bootstrap_servers, "--from-beginning", "-X", "auto.commit.interval.ms=3600000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert [process.stdout.readline() for _ in range(10)] == [b"%d\n" % n for n in range(10)]
            process.send_signal(number)
            rest, said = process.communicate(timeout=120)
        assert (process.returncode, rest) == (128 + number, b"")
        assert said.endswith(b"10 records read from orders\n")  # before it, that a connection takes its time
        assert admin.list_group_offsets("g")[TopicPartition("orders", 0)].offset == 10
        assert admin.describe_groups(["g"])["g"].members == ()


def test_produce_delivers_lines_read_before_signal() -> None:
    with EmbeddedCluster() as cluster, cluster.requests.start():
        assert run("topics", "create", "orders", "-b", cluster.bootstrap_servers).exit_code == 0
        command = [sys.executable, "-c", "from pyclient.cli import main; main()", "produce", "orders"]
        command += ["-b", cluster.bootstrap_servers, "-X", "linger.ms=3600000", "-X", "delivery.timeout.ms=7200000"]
        command += ["-X", "batch.size=1000"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdin is not None
            process.stdin.write(b"1" * 600 + b"\n" + b"2" * 600 + b"\n")
            process.stdin.flush()
            until(lambda: cluster.requests.query("Produce"))  # the second line did not fit into the batch of the first
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=120)
        assert process.returncode == 128 + signal.SIGTERM
        with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            assert consumer.end_offsets([TopicPartition("orders", 0)]) == {TopicPartition("orders", 0): 2}
