"""Kafka's metadata shell and dump-log show what our metadata log and its snapshots have."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pyclient import Admin, NewTopic
from pyclient.broker_embedded import EmbeddedCluster
from tests.kafka import tools
from tests.kafka.needs import skip_without_kafka
from tests.kafka.topics import wait_until

TOPICS = [f"t{number}" for number in range(10)]
PASSING = "passing"
ACL = ("topic", "t", "User:alice", "read", "allow", "prefixed")
ENTITIES = {
    ("users", "alice"): "SCRAM-SHA-256=[iterations=8192,password=secret-of-alice]",
    ("clients", "loader"): "producer_byte_rate=1024",
    ("brokers", "1"): "log.cleaner.threads=2",
}


def shell(file: Path, *command: str, shows: tuple[str, ...], lacks: str = "No such file") -> str:
    """Return what a command of the shell prints on a snapshot or a log, once that has `shows` and no `lacks`.

    The shell waits until the file is read and not until it is applied: a command may still see parts of it only.
    """
    output = ""

    def complete() -> bool:
        nonlocal output
        result = tools.run("metadata-shell", "--snapshot", str(file), *command)
        said = [line for line in result.err.splitlines() if "Ignoring control record with type SNAPSHOT_" not in line]
        assert said == []
        output = result.out
        return all(each in output for each in shows) and lacks not in output

    wait_until(complete, f"{command}: not all is shown")
    return output


def fill(cluster: EmbeddedCluster) -> None:
    """Make topics, delete one, and set ACLs, a SCRAM user, quotas and an option of a broker."""
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, 2, 1, configs={"retention.ms": "5000"}) for topic in TOPICS])
        admin.delete_topics(["t9"])
        admin.create_acls([ACL])
    for (kind, name), added in ENTITIES.items():
        entity = ("--entity-type", kind, "--entity-name", name)
        at = ("--bootstrap-server", cluster.bootstrap_servers)
        tools.run("configs", *at, *entity, "--alter", "--add-config", added)


def dumped(file: Path) -> dict[str, list[Any]]:
    """Return the records of a metadata log or snapshot by type, as dump-log decodes them."""
    output = tools.run("dump-log", "--cluster-metadata-decoder", "--files", str(file)).out
    assert not re.search(r"Could not|exception|unknown", output, re.IGNORECASE)
    made: dict[str, list[Any]] = {}
    for text in re.findall(r" payload: (\{.*\})$", output, re.MULTILINE):
        record = json.loads(text)
        made.setdefault(record["type"], []).append(record["data"])
    return made


def check_log(file: Path) -> None:
    """Compare the records of a log from offset 0 on with what `fill` has made."""
    assert file.name == f"{0:020}.log"
    made = dumped(file)
    ids = {topic["topicId"]: topic["name"] for topic in made["TOPIC_RECORD"]}
    assert sorted(ids.values()) == TOPICS
    assert [ids[topic["topicId"]] for topic in made["REMOVE_TOPIC_RECORD"]] == ["t9"]
    check_entities(made, TOPICS)


def check_snapshot(file: Path) -> None:
    """Compare the records of a snapshot with what `fill` has left; the topic that comes and goes may be there, too."""
    made = dumped(file)
    assert {topic["name"] for topic in made["TOPIC_RECORD"]} - {PASSING} == {*TOPICS[:-1]}
    assert "REMOVE_TOPIC_RECORD" not in made
    check_entities(made, TOPICS[:-1])


def check_entities(made: dict[str, list[Any]], topics: list[str]) -> None:
    """Compare records of users, quotas, ACLs and options with what `fill` has made."""
    assert [user["name"] for user in made["USER_SCRAM_CREDENTIAL_RECORD"]] == ["alice"]
    assert [quota["value"] for quota in made["CLIENT_QUOTA_RECORD"]] == [1024.0]
    [acl] = made["ACCESS_CONTROL_ENTRY_RECORD"]
    assert (acl["resourceName"], acl["principal"]) == ("t", "User:alice")
    configs = {(each["resourceName"], each["name"]): each["value"] for each in made["CONFIG_RECORD"]}
    assert configs == {("1", "log.cleaner.threads"): "2", **{(topic, "retention.ms"): "5000" for topic in topics}}


def check_shown(file: Path, brokers: int) -> None:
    """Compare what the shell shows of a log or a snapshot with what `fill` has left, apart from the passing topic."""
    shows = ("/image/topics/byName/t0/name", "/image/configs/BROKER:1/log.cleaner.threads")
    found = set(shell(file, "find", "/image", shows=shows, lacks="/byName/t9").splitlines())
    topics = {path.split("/")[4] for path in found if re.fullmatch(r"/image/topics/byName/\w+", path)}
    assert topics - {PASSING} == {*TOPICS[:-1]}
    assert {path for path in found if "/byName/t0/" in path} == {
        f"/image/topics/byName/t0/{name}" for name in ("0", "1", "id", "name")
    }
    assert {f"/image/cluster/brokers/{number}" for number in range(1, brokers + 1)} <= found
    controllers = {path for path in found if re.fullmatch(r"/image/cluster/controllers/\d+", path)}
    voters = range(1, brokers + 1) if brokers > 1 else ()  # a node alone has no listener for controllers
    assert controllers == {f"/image/cluster/controllers/{number}" for number in voters}
    users = {path.rpartition("/")[2] for path in found if path.startswith("/image/scram/SCRAM-SHA-256/")}
    assert users == {"alice"}
    [acl] = (path for path in found if re.fullmatch(r"/image/acls/byId/.+", path))
    quotas = sorted(path for path in found if path.startswith("/image/clientQuotas/") and path.endswith("_rate"))
    assert [path.rpartition("/")[2] for path in quotas] == ["producer_byte_rate"]
    paths = (
        acl,
        "/image/scram/SCRAM-SHA-256/alice",
        "/image/configs/TOPIC:t8/retention.ms",
        "/image/configs/BROKER:1/log.cleaner.threads",
        *quotas,
        "/image/features/metadataVersion",
        "/image/topics/byName/t8/1",
        "/image/cluster/brokers/1",
    )
    shown = shell(file, "cat", *paths, shows=("BrokerRegistration",))
    assert all(each in shown for each in ("User:alice", "PREFIXED", "READ", "ALLOW")), shown
    assert "iterations=8192" in shown
    assert re.search(r"^5000\n2\n1024\.0\n", shown, re.MULTILINE), shown
    assert re.search(r"PartitionRegistration\(replicas=\[\d\].*isr=\[\d?\].*leader=-?\d", shown)
    assert re.search(r"BrokerRegistration\(id=1, .*fenced=", shown)
    listed = shell(file, "ls", "/image/topics/byName", shows=("t8",), lacks="t9").split()
    assert [topic for topic in listed if topic != PASSING] == TOPICS[:-1]


@pytest.mark.parametrize("brokers", [1, 3])
def test_log_and_its_snapshot_are_shown(tmp_path: Path, brokers: int) -> None:
    skip_without_kafka()
    authorizer = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    config = authorizer | {"super.users": "User:ANONYMOUS"}
    with EmbeddedCluster(brokers, data_dir=str(tmp_path), config=config) as cluster:
        fill(cluster)
        directory = Path(cluster.brokers[0].data_dir) / "__cluster_metadata-0"
    [log] = directory.glob("*.log")
    check_log(log)
    check_shown(log, brokers)
    size = log.stat().st_size
    config |= {"metadata.log.max.record.bytes.between.snapshots": str(size // 2)}
    with EmbeddedCluster(brokers, data_dir=str(tmp_path), config=config) as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            for _ in range(100):
                admin.create_topics([NewTopic(PASSING, 9, 1)])
                admin.delete_topics([PASSING])
                if snapshots(directory):
                    break
        wait_until(lambda: snapshots(directory) != [], "no snapshot is written")
    check_snapshot(snapshots(directory)[-1])
    check_shown(snapshots(directory)[-1], brokers)


def snapshots(directory: Path) -> list[Path]:
    """Return the snapshots that are complete, but for the one that formatting writes."""
    return sorted(path for path in directory.glob("*.checkpoint") if not path.name.startswith(f"{0:020}"))
