"""Groups through the sync and the async admin client, against the embedded broker."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pyclient import (
    Admin,
    AsyncAdmin,
    Consumer,
    GroupMetadata,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
    errors,
)
from pyclient.admin.groups import classic_description
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember


@pytest.fixture
def admin(kafka_cluster: Any) -> Iterator[Admin]:
    with Admin(kafka_cluster.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def topic(kafka_cluster: Any, admin: Admin) -> str:
    name = f"groups-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, 2, 1)])
    with Producer(kafka_cluster.bootstrap_servers) as producer:
        for number in range(10):
            producer.send(name, b"value", partition=number % 2)
    return name


def open_consumer(cluster: Any, topic: str, group: str, **options: Any) -> Any:
    return Consumer(
        topic,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        client_id="reader",
        **options,
    )


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_is_listed_described_and_deleted(kafka_cluster: Any, admin: Admin, topic: str, protocol: str) -> None:
    group = f"g-{topic}-{protocol}"
    with open_consumer(kafka_cluster, topic, group, group_protocol=protocol) as consumer:
        seen = 0
        while seen < 10:
            seen += len(consumer.poll(timeout=30))
        consumer.commit()
        kafka_cluster.wait_group(group, "Stable", members=1)
        [listed] = [each for each in admin.list_groups(states=["stable"]) if each.group_id == group]
        assert (listed.state, listed.type, listed.protocol_type) == ("Stable", protocol, "consumer")
        described = admin.describe_groups([group])[group]
        assert (described.state, described.type, described.coordinator) == ("Stable", protocol, 1)
        [member] = described.members
        assert member.client_id == "reader"
        assert member.assignment == (TopicPartition(topic, 0), TopicPartition(topic, 1))
        with pytest.raises(errors.NonEmptyGroup, match=f"deleting group '{group}'"):
            admin.delete_groups([group])
    assert group not in [each.group_id for each in admin.list_groups(states="Stable")]
    offsets = admin.list_group_offsets(group)
    assert {partition: position.offset for partition, position in offsets.items()} == {
        TopicPartition(topic, 0): 5,
        TopicPartition(topic, 1): 5,
    }
    assert list(admin.list_group_offsets(group, [TopicPartition(topic, 1)])) == [TopicPartition(topic, 1)]
    admin.delete_groups([group])
    assert group not in [each.group_id for each in admin.list_groups()]
    assert admin.list_group_offsets(group) == {}
    with pytest.raises(errors.GroupIdNotFound, match=f"'{group}'"):
        admin.delete_groups([group])


def test_altered_offsets_are_read_by_consumer(kafka_cluster: Any, admin: Admin, topic: str) -> None:
    group = f"g-{topic}"
    wanted = {TopicPartition(topic, 0): 3, TopicPartition(topic, 1): OffsetAndMetadata(4, "by hand")}
    admin.alter_group_offsets(group, wanted)
    found = admin.list_group_offsets(group)
    assert found[TopicPartition(topic, 0)].offset == 3
    assert found[TopicPartition(topic, 1)][:2] == (4, "by hand")
    with open_consumer(kafka_cluster, topic, group) as consumer:
        offsets: list[tuple[int, int]] = []
        while len(offsets) < 3:
            offsets += [(record.partition, record.offset) for record in consumer.poll(timeout=30)]
        assert sorted(offsets) == [(0, 3), (0, 4), (1, 4)]
        with pytest.raises(errors.UnknownMemberId, match=f"altering the offsets of group '{group}'"):
            admin.alter_group_offsets(group, wanted)


@pytest.mark.parametrize("as_version", [None, "2.8"])
def test_stable_offsets_wait_for_the_end_of_a_transaction(as_version: str | None) -> None:
    partition = TopicPartition("t", 0)
    with EmbeddedCluster(as_version=as_version) as cluster, Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("t", 1, 1)])
        admin.alter_group_offsets("g", {partition: 1})
        with (
            Producer(cluster.bootstrap_servers, transactional_id="commits") as producer,
            cluster.requests.start() as requests,
            ThreadPoolExecutor(1) as thread,
        ):
            producer.init_transactions()
            producer.begin_transaction()
            producer.send_offsets_to_transaction({partition: 2}, GroupMetadata("g"))
            assert admin.list_group_offsets("g")[partition].offset == 1
            stable = thread.submit(admin.list_group_offsets, "g", require_stable=True)
            requests.wait_request("OffsetFetch", error=errors.UnstableOffsetCommit)
            producer.commit_transaction()
            assert stable.result(60)[partition].offset == 2


def test_missing_group_is_an_error_with_results_of_others(admin: Admin, topic: str) -> None:
    admin.alter_group_offsets(f"g-{topic}", {TopicPartition(topic, 0): 1})
    with pytest.raises(errors.GroupIdNotFound, match=f"describing group 'none'.*done for: g-{topic}") as error:
        admin.describe_groups(["none", f"g-{topic}"])
    assert error.value.results[f"g-{topic}"] is None
    assert admin.describe_groups([f"g-{topic}"])[f"g-{topic}"].state == "Empty"
    with pytest.raises(TypeError, match="list"):
        admin.describe_groups("none")


def test_async_admin_manages_groups(kafka_cluster: Any, topic: str) -> None:
    async def run() -> None:
        async with AsyncAdmin(kafka_cluster.bootstrap_servers) as admin:
            await admin.alter_group_offsets(f"a-{topic}", {TopicPartition(topic, 1): 2})
            assert (await admin.list_group_offsets(f"a-{topic}"))[TopicPartition(topic, 1)].offset == 2
            assert f"a-{topic}" in [each.group_id for each in await admin.list_groups()]
            assert (await admin.describe_groups([f"a-{topic}"]))[f"a-{topic}"].members == ()
            await admin.delete_groups([f"a-{topic}"])

    asyncio.run(run())


@pytest.mark.parametrize("api", ["FindCoordinator", "DeleteGroups", "OffsetFetch", "OffsetCommit"])
@pytest.mark.parametrize("error", [errors.NotCoordinator, errors.CoordinatorLoadInProgress])
def test_request_is_retried_while_coordinator_moves_or_loads(
    kafka_cluster: Any, admin: Admin, topic: str, api: str, error: Any
) -> None:
    group = f"m-{topic}"
    with kafka_cluster.faults.fail(api, error, group=group, times=2) as fault:
        admin.alter_group_offsets(group, {TopicPartition(topic, 0): 1})
        assert len(admin.list_group_offsets(group)) == 1
        admin.delete_groups([group])
        assert fault.hits() == 2


def test_members_of_another_protocol_have_no_partitions() -> None:
    member = DescribedGroupMember(
        member_id="m", client_id="c", client_host="/h", member_metadata=b"", member_assignment=b"\xff\x01?"
    )
    for kind in ("connect", "consumer"):
        group = DescribedGroup(
            error_code=0, group_id="g", group_state="Stable", protocol_type=kind, protocol_data="", members=[member]
        )
        assert classic_description(group, 1).members[0].assignment == ()
