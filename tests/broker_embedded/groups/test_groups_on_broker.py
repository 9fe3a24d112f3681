"""The coordinator inside a running broker: its log on disk, restarts, and deleted topics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pyclient.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pyclient.protocol.messages.delete_topics import DeleteTopicsRequest
from pyclient.protocol.messages.describe_groups import DescribeGroupsRequest
from pyclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from pyclient.protocol.messages.heartbeat import HeartbeatRequest
from pyclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pyclient.protocol.messages.list_groups import ListGroupsRequest
from pyclient.protocol.messages.metadata import MetadataRequest
from pyclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyclient.protocol.messages.offset_fetch import OffsetFetchRequest
from pyclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker_embedded.groups.raw import RawConnection


def create(client: RawConnection, topic: str) -> None:
    topics = [CreatableTopic(name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=[])]
    assert client.ask(CreateTopicsRequest(topics=topics), 5).topics[0].error_code == 0


def find_coordinator(client: RawConnection, group: str) -> None:
    """Send FindCoordinator, the only request that creates `__consumer_offsets`."""
    assert client.ask(FindCoordinatorRequest(key=group), 1).error_code == 0


def join(client: RawConnection, group: str, *, session: int = 60_000) -> str:
    """Create a stable group of one member; return the member id."""
    find_coordinator(client, group)
    joined = client.ask(
        JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session,
            rebalance_timeout_ms=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"subscription")],
        ),
        3,
    )
    parts = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")]
    request = SyncGroupRequest(group_id=group, generation_id=1, member_id=joined.member_id, assignments=parts)
    assert client.ask(request, 3).error_code == 0
    return str(joined.member_id)


def commit(client: RawConnection, group: str, topic: str, offset: int, **member: Any) -> int:
    find_coordinator(client, group)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="note")
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    answer = client.ask(OffsetCommitRequest(group_id=group, topics=topics, **member), 7)
    return int(answer.topics[0].partitions[0].error_code)


def committed(client: RawConnection, group: str) -> dict[str, list[tuple[int, int, str]]]:
    answer = client.ask(OffsetFetchRequest(group_id=group, topics=None), 7)
    assert answer.error_code == 0
    return {
        topic.name: [(part.partition_index, part.committed_offset, part.metadata) for part in topic.partitions]
        for topic in answer.topics
    }


def test_groups_and_offsets_are_restored_after_restart(tmp_path: Path) -> None:
    names = [f"group-{n}" for n in range(12)]
    config = {"internal.group.session.cap.ms": 600_000}  # a busy machine may take longer than the default of 10 s
    kept: dict[str, Any] = {"data_dir": str(tmp_path), "config": config}
    with EmbeddedCluster(**kept) as cluster, RawConnection(cluster.bootstrap_servers) as client:
        create(client, "orders")
        members = {name: join(client, name) for name in names}
        for n, name in enumerate(names):
            member = {"member_id": members[name], "generation_id_or_member_epoch": 1}
            assert commit(client, name, "orders", n, **member) == 0
    with EmbeddedCluster(**kept) as cluster, RawConnection(cluster.bootstrap_servers) as client:
        listed = client.ask(ListGroupsRequest(), 4).groups
        assert sorted((group.group_id, group.group_state) for group in listed) == sorted((n, "Stable") for n in names)
        for n, name in enumerate(names):
            alive = HeartbeatRequest(group_id=name, generation_id=1, member_id=members[name])
            assert client.ask(alive, 3).error_code == 0
            assert committed(client, name) == {"orders": [(0, n, "note")]}


def test_groups_are_restored_after_broker_is_killed(tmp_path: Path) -> None:
    with EmbeddedCluster(data_dir=str(tmp_path), processes=True) as cluster:
        with RawConnection(cluster.bootstrap_servers) as client:
            create(client, "orders")
            member = join(client, "g")
            assert commit(client, "g", "orders", 7, member_id=member, generation_id_or_member_epoch=1) == 0
        cluster.kill()
    with EmbeddedCluster(data_dir=str(tmp_path)) as cluster, RawConnection(cluster.bootstrap_servers) as client:
        assert client.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id=member), 3).error_code == 0
        assert committed(client, "g") == {"orders": [(0, 7, "note")]}


def test_offsets_are_deleted_with_their_topic() -> None:
    with EmbeddedCluster() as cluster, RawConnection(cluster.bootstrap_servers) as client:
        for topic in ("orders", "bills"):
            create(client, topic)
            assert commit(client, "g", topic, 5) == 0
        assert client.ask(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000), 4).responses[0].error_code == 0
        assert committed(client, "g") == {"bills": [(0, 5, "note")]}


def test_silent_member_is_removed_by_running_broker() -> None:
    with EmbeddedCluster() as cluster, RawConnection(cluster.bootstrap_servers) as client:
        join(client, "g", session=30_000)
        cluster.advance_time(31)
        describe = DescribeGroupsRequest(groups=["g"])
        while client.ask(describe, 4).groups[0].group_state != "Empty":
            pass


def topics(client: RawConnection) -> list[str | None]:
    return [topic.name for topic in client.ask(MetadataRequest(topics=None), 1).topics]


def test_only_find_coordinator_creates_offsets_topic() -> None:
    with EmbeddedCluster() as cluster, RawConnection(cluster.bootstrap_servers) as client:
        assert client.ask(ListGroupsRequest(), 4).groups == []
        assert topics(client) == []
        found = client.ask(FindCoordinatorRequest(coordinator_keys=["g", "h"]), 4).coordinators
        host, port = cluster.bootstrap_servers.split(":")
        assert [(each.key, each.error_code, each.host, each.port) for each in found] == [
            ("g", 0, host, int(port)),
            ("h", 0, host, int(port)),
        ]
        assert topics(client) == ["__consumer_offsets"]


def test_groups_work_in_offsets_topic_created_by_client(tmp_path: Path) -> None:
    names = [f"group-{n}" for n in range(12)]
    place: Any = {"data_dir": str(tmp_path), "profile": "kafka"}
    with EmbeddedCluster(**place) as cluster, RawConnection(cluster.bootstrap_servers) as client:
        create(client, "orders")
        create(client, "__consumer_offsets")  # one partition, not the 50 of offsets.topic.num.partitions
        for n, name in enumerate(names):
            assert commit(client, name, "orders", n) == 0
        delete = DeleteTopicsRequest(topic_names=["__consumer_offsets"], timeout_ms=1000)
        assert client.ask(delete, 4).responses[0].error_code == 0
        fetch = OffsetFetchRequest(group_id=names[0], topics=None)
        assert client.ask(fetch, 7).error_code == errors.NotCoordinator.code
        create(client, "__consumer_offsets")
        for n, name in enumerate(names):
            assert committed(client, name) == {}
            assert commit(client, name, "orders", n) == 0
    with EmbeddedCluster(**place) as cluster, RawConnection(cluster.bootstrap_servers) as client:
        for n, name in enumerate(names):
            assert committed(client, name) == {"orders": [(0, n, "note")]}


def test_coordinators_of_share_groups_are_refused() -> None:
    with EmbeddedCluster() as cluster, RawConnection(cluster.bootstrap_servers) as client:
        shares = client.ask(FindCoordinatorRequest(key="x", key_type=2), 1)
        assert shares.error_code == errors.InvalidRequest.code
        assert topics(client) == []


def test_partitions_added_to_offsets_topic_do_not_move_groups(tmp_path: Path) -> None:
    names = [f"group-{n}" for n in range(12)]
    with EmbeddedCluster(data_dir=str(tmp_path)) as cluster, RawConnection(cluster.bootstrap_servers) as client:
        create(client, "orders")
        for n, name in enumerate(names):
            assert commit(client, name, "orders", n) == 0
        more = CreatePartitionsTopic(name="__consumer_offsets", count=7, assignments=None)
        request = CreatePartitionsRequest(topics=[more], timeout_ms=1000, validate_only=False)
        assert client.ask(request, 3).results[0].error_code == 0
        for n, name in enumerate(names):
            assert committed(client, name) == {"orders": [(0, n, "note")]}
            assert commit(client, name, "orders", n + 1) == 0
            assert committed(client, name) == {"orders": [(0, n + 1, "note")]}
