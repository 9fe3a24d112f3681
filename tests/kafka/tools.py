"""Kafka's own command-line tools, run on any broker and any log directory."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.kafka.jars import VERSIONS, class_path, java

if TYPE_CHECKING:
    from collections.abc import Mapping

PATIENCE: Final = 150.0
"""Seconds that a tool may take on a busy machine; some seconds on an idle one."""

QUICK: Final = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""For processes that end soon: half the start of a JVM made for throughput."""

_CLASSES: Final = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "producer-perf": "org.apache.kafka.tools.ProducerPerformance",
    "consumer-perf": "org.apache.kafka.tools.ConsumerPerformance",
    "api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "metadata-shell": "org.apache.kafka.shell.MetadataShell",
    "storage": "kafka.tools.StorageTool",
    "server": "kafka.Kafka",
}
_CLASSES_3: Final = {
    "dump-log": "kafka.tools.DumpLogSegments",
    "console-producer": "kafka.tools.ConsoleProducer",
    "api-versions": "kafka.admin.BrokerApiVersionsCommand",
}
"""The class of each tool before 4.0, where it differs."""

_WAITS: Final = {"groups": ("--timeout", "90000")}
"""Options of tools whose own limit is too short for a busy machine (5 s in "groups")."""


def shows(version: str, **properties: str) -> list[str]:
    """Return the options that set the console consumer's formatter, `key=true` for print.key=true."""
    return _properties("--formatter-property" if _is_new(version) else "--property", "print", properties)


def parses(version: str, **properties: str) -> list[str]:
    """Return the options that set the console producer's reader, `key=true` for parse.key=true."""
    return _properties("--reader-property" if _is_new(version) else "--property", "parse", properties)


def _is_new(version: str) -> bool:
    return not version.startswith("3.")


def _properties(option: str, verb: str, properties: Mapping[str, str]) -> list[str]:
    return [word for name, value in properties.items() for word in (option, f"{verb}.{name}={value}")]


class Output(NamedTuple):
    """The output of a tool."""

    code: int
    out: str
    err: str


def command(tool: str, *arguments: str, version: str = VERSIONS[0], jvm: tuple[str, ...] = QUICK) -> list[str]:
    """Return the command line of a tool (a short name, or any Java class)."""
    old = {} if _is_new(version) else _CLASSES_3
    name = old.get(tool) or _CLASSES.get(tool, tool)
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    arguments = (*arguments, *_WAITS.get(tool, ()))
    return [java(), *jvm, "-Djava.awt.headless=true", quiet, "-cp", class_path(version), name, *arguments]


def start(
    tool: str, *arguments: str, version: str = VERSIONS[0], jvm: tuple[str, ...] = QUICK
) -> subprocess.Popen[str]:
    """Start a tool, and return its process."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command(tool, *arguments, version=version, jvm=jvm), stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )


def finish(process: subprocess.Popen[str], *, stdin: str = "", timeout: float = PATIENCE, check: bool = True) -> Output:
    """Wait for a tool's end; an AssertionError with all it said if it takes too long or (with `check`) fails."""
    what = process.args[-6:] if isinstance(process.args, list) else process.args
    try:
        out, err = process.communicate(stdin, timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"{what!r} did not end in {timeout} s:\n{out}\n{err}") from None
    output = Output(process.returncode, out, err)
    failed = output.code != 0 or out.lstrip().startswith("Error: ")  # "groups" ends with 0 after an error
    assert not check or not failed, f"{what!r} ended with {output.code}:\n{out}\n{err}"
    return output


def run(
    tool: str,
    *arguments: str,
    stdin: str = "",
    timeout: float = PATIENCE,
    check: bool = True,
    version: str = VERSIONS[0],
) -> Output:
    """Run a tool to its end."""
    return finish(start(tool, *arguments, version=version), stdin=stdin, timeout=timeout, check=check)
