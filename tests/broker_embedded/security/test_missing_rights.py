"""Errors of clients for a missing right name the resource, and the operation that the user has to be allowed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import pyclient
from pyclient import Admin, Consumer, GroupMetadata, Producer, TopicPartition, errors
from pyclient.acls import AclBinding, AclOperation, ResourceType
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.errors.rights import needed_right
from tests.broker_embedded.security.right_cases import CASES, CLUSTER, DESCRIBE, GROUP, READ, TOPIC, TXN, WRITE, Case

USERS: Final = {"alice": "hers", "admin": "his"}
NAMES: Final = {TOPIC: "orders", GROUP: "readers", TXN: "payments", CLUSTER: "kafka-cluster"}
PARTITION: Final = TopicPartition("orders", 0)

Rights = Iterable[tuple[ResourceType, AclOperation]]


def requests_of_clients() -> set[str]:
    package = Path(pyclient.__file__).parent
    sources = [path for name in ("admin", "cluster", "consumer", "producer") for path in (package / name).glob("*.py")]
    return {name for source in sources for name in re.findall(r"\b([A-Z]\w+)Request\b", source.read_text())}


def cases_of_clients() -> list[Case]:
    names = requests_of_clients()
    return [case for case in CASES if case.api in names and case.label != "AddPartitionsToTxn-4-CLUSTER_ACTION-CLUSTER"]


@pytest.mark.parametrize("case", cases_of_clients(), ids=lambda case: case.label)
def test_needed_right_is_the_one_that_brokers_check(case: Case) -> None:
    right = needed_right(case.api, case.refusal)
    assert case.tested.operation.name in right
    assert case.tested.kind.name.lower().replace("_", " ") in right


def test_right_is_named_for_errors_of_authorization_only() -> None:
    assert needed_right("Fetch", errors.OffsetOutOfRange.code) == needed_right("ApiVersions", 29) == ""
    assert str(errors.from_code(errors.OffsetOutOfRange.code, "reading x-0", "Fetch")) == "reading x-0"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    options = {"super.users": "User:admin"}
    with EmbeddedCluster(security="SASL_PLAINTEXT", users=USERS, acls=[], config=options) as cluster:
        with Admin(cluster.bootstrap_servers, **cluster.client_options("admin")) as admin:
            admin.create_topics([pyclient.NewTopic("orders", 1)])
        yield cluster


def allow(cluster: EmbeddedCluster, rights: Rights) -> None:
    with Admin(cluster.bootstrap_servers, **cluster.client_options("admin")) as admin:
        admin.delete_acls([pyclient.acls.AclFilter()])
        admin.create_acls([AclBinding(kind, NAMES[kind], "User:alice", operation) for kind, operation in rights])


def produce(options: dict[str, Any], **more: Any) -> None:
    with Producer(**options, **more) as producer:
        producer.send("orders", b"1").result(20)


def read(options: dict[str, Any], **more: Any) -> None:
    with Consumer(**options, auto_offset_reset="earliest", **more) as consumer:
        if "group_id" in more:
            consumer.subscribe(["orders"])
        else:
            consumer.assign([PARTITION])
        while True:
            consumer.poll(1.0)


def commit(options: dict[str, Any]) -> None:
    with Consumer(**options, group_id="readers") as consumer:
        consumer.assign([PARTITION])
        consumer.commit({PARTITION: 1}, timeout=20)


def produce_in_transaction(options: dict[str, Any]) -> None:
    with Producer(**options, transactional_id="payments") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("orders", b"1")


def send_offsets(options: dict[str, Any]) -> None:
    with Producer(**options, transactional_id="payments") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send_offsets_to_transaction({PARTITION: 1}, GroupMetadata("readers"))


def by_admin(call: Callable[[Admin], Any]) -> Callable[[dict[str, Any]], None]:
    def run(options: dict[str, Any]) -> None:
        with Admin(**options) as admin:
            call(admin)

    return run


SEE: Final = (TOPIC, DESCRIBE)
FIND: Final = (GROUP, DESCRIBE)
REFUSED: Final[list[tuple[str, Rights, Callable[[dict[str, Any]], None], type[errors.BrokerError], list[str]]]] = [
    ("Metadata", [], produce, errors.TopicAuthorizationFailed, ["topic 'orders'", "DESCRIBE", "on the topic"]),
    (
        "Produce",
        [SEE],
        lambda options: produce(options, enable_idempotence=False),
        errors.TopicAuthorizationFailed,
        ["orders-0", "WRITE on the topic"],
    ),
    (
        "InitProducerId without transactions",
        [SEE],
        produce,
        errors.ClusterAuthorizationFailed,
        ["enable_idempotence", "IDEMPOTENT_WRITE (or WRITE on a topic) on the cluster"],
    ),
    ("Fetch", [SEE], read, errors.TopicAuthorizationFailed, ["orders-0", "READ on the topic"]),
    (
        "FindCoordinator",
        [SEE],
        lambda options: read(options, group_id="readers"),
        errors.GroupAuthorizationFailed,
        ["group 'readers'", "DESCRIBE on the group"],
    ),
    (
        "JoinGroup",
        [SEE, FIND],
        lambda options: read(options, group_id="readers"),
        errors.GroupAuthorizationFailed,
        ["readers", "READ on the group"],
    ),
    ("OffsetCommit of group", [SEE, FIND], commit, errors.GroupAuthorizationFailed, ["readers", "READ on the group"]),
    (
        "OffsetCommit of topic",
        [SEE, (GROUP, READ)],
        commit,
        errors.TopicAuthorizationFailed,
        ["'readers'", "orders-0", "READ on the topic"],
    ),
    (
        "FindCoordinator of transaction",
        [(TOPIC, WRITE)],
        produce_in_transaction,
        errors.TransactionalIdAuthorizationFailed,
        ["'payments'", "DESCRIBE on the transactional id"],
    ),
    (
        "InitProducerId",
        [(TOPIC, WRITE), (TXN, DESCRIBE)],
        produce_in_transaction,
        errors.TransactionalIdAuthorizationFailed,
        ["'payments'", "WRITE on the transactional id"],
    ),
    (
        "AddPartitionsToTxn",
        [SEE, (TXN, WRITE)],
        produce_in_transaction,
        errors.TopicAuthorizationFailed,
        ["orders-0", "WRITE on the topic"],
    ),
    (
        "AddOffsetsToTxn",
        [SEE, (TXN, WRITE), FIND],
        send_offsets,
        errors.GroupAuthorizationFailed,
        ["group 'readers'", "READ on the group"],
    ),
    (
        "TxnOffsetCommit",
        [SEE, (TXN, WRITE), (GROUP, READ)],
        send_offsets,
        errors.TopicAuthorizationFailed,
        ["orders-0", "READ on the topic"],
    ),
    (
        "CreateTopics",
        [],
        by_admin(lambda admin: admin.create_topics([pyclient.NewTopic("more", 1)])),
        errors.TopicAuthorizationFailed,
        ["'more'", "CREATE (or CREATE on the cluster) on the topic"],
    ),
    (
        "DeleteTopics",
        [SEE],
        by_admin(lambda admin: admin.delete_topics(["orders"])),
        errors.TopicAuthorizationFailed,
        ["'orders'", "DELETE on the topic"],
    ),
    (
        "CreatePartitions",
        [SEE],
        by_admin(lambda admin: admin.create_partitions({"orders": 9})),
        errors.TopicAuthorizationFailed,
        ["'orders'", "ALTER on the topic"],
    ),
    (
        "DeleteGroups",
        [FIND],
        by_admin(lambda admin: admin.delete_groups(["readers"])),
        errors.GroupAuthorizationFailed,
        ["'readers'", "DELETE on the group"],
    ),
    (
        "DescribeAcls",
        [],
        by_admin(lambda admin: admin.describe_acls()),
        errors.ClusterAuthorizationFailed,
        ["DESCRIBE on the cluster"],
    ),
    (
        "DescribeQuorum",
        [],
        by_admin(lambda admin: admin.describe_metadata_quorum()),
        errors.ClusterAuthorizationFailed,
        ["DESCRIBE on the cluster"],
    ),
]


@pytest.mark.parametrize(
    ("rights", "act", "cls", "parts"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_error_names_the_resource_and_the_operation(
    cluster: EmbeddedCluster,
    rights: Rights,
    act: Callable[[dict[str, Any]], None],
    cls: type[errors.BrokerError],
    parts: list[str],
) -> None:
    allow(cluster, rights)
    with pytest.raises(errors.KafkaError) as caught:
        act({"bootstrap_servers": cluster.bootstrap_servers, **cluster.client_options("alice")})
    chain: BaseException | None = caught.value
    while chain is not None and not isinstance(chain, cls):
        chain = chain.__cause__
    assert chain is not None, repr(caught.value)
    text = str(caught.value)
    assert re.search(".*".join(map(re.escape, parts)), text), text
