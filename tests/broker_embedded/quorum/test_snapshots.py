"""Snapshots of the metadata: their contents, when they are written, and how a lagging node gets one."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded.broker import BrokerNode
from pyclient.broker_embedded.config.broker_config import BrokerConfig
from pyclient.broker_embedded.controller.image import MetadataImage
from pyclient.broker_embedded.controller.metadata_log import MetadataReplay
from pyclient.broker_embedded.controller.raft.replica_log import OffsetAndEpoch
from pyclient.broker_embedded.controller.snapshots import check_snapshot, encode_snapshot, snapshots_in
from pyclient.broker_embedded.controller.topics import TopicPlan
from pyclient.broker_embedded.log.incremental_task import run_here
from pyclient.broker_embedded.network.node_channels import NodeChannels
from pyclient.errors import ProtocolError
from pyclient.protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotRequestPartitionSnapshot,
    FetchSnapshotRequestSnapshotId,
    FetchSnapshotRequestTopicSnapshot,
)
from pyclient.protocol.messages.metadata_log import (
    BrokerEndpoint,
    BrokerFeature,
    ClientQuotaRecord,
    ConfigRecord,
    ControllerEndpoint,
    ControllerFeature,
    DelegationTokenRecord,
    EntityData,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from pyclient.records import iter_batches
from tests.broker_embedded.quorum.several_nodes import STEADY, Nodes
from tests.waiting import until_async

FIRST, SECOND = uuid.UUID(int=11), uuid.UUID(int=12)


def full_image() -> MetadataImage:
    image = MetadataImage()
    for record in (
        FeatureLevelRecord(name="group.version", feature_level=1),
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        RegisterBrokerRecord(
            broker_id=1,
            incarnation_id=FIRST,
            broker_epoch=7,
            end_points=[BrokerEndpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0)],
            features=[BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30)],
            rack="r",
            fenced=True,
            in_controlled_shutdown=True,
            log_dirs=[FIRST, SECOND],
            cordoned_log_dirs=[SECOND],
        ),
        RegisterControllerRecord(
            controller_id=3000,
            incarnation_id=SECOND,
            zk_migration_ready=False,
            end_points=[ControllerEndpoint(name="CONTROLLER", host="h", port=9093, security_protocol=1)],
            features=[ControllerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30)],
        ),
        TopicRecord(name="a.b", topic_id=FIRST),
        *(
            PartitionRecord(
                partition_id=index,
                topic_id=FIRST,
                replicas=[1, 2],
                isr=[1],
                removing_replicas=[2],
                adding_replicas=[1],
                leader=-1,
                leader_recovery_state=1,
                leader_epoch=4,
                partition_epoch=9,
                directories=[FIRST, SECOND],
                eligible_leader_replicas=[2],
                last_known_elr=[1],
            )
            for index in range(450)
        ),
        ConfigRecord(resource_type=2, resource_name="a.b", name="retention.ms", value="5"),
        ClientQuotaRecord(
            entity=[EntityData(entity_type="user", entity_name=None)], key="producer_byte_rate", value=2.5, remove=False
        ),
        ProducerIdsRecord(broker_id=1, broker_epoch=7, next_producer_id=3000),
        DelegationTokenRecord(
            owner="User:u",
            requester="User:v",
            renewers=["User:w", "User:x"],
            issue_timestamp=1,
            max_timestamp=9,
            expiration_timestamp=5,
            token_id="t",
        ),
        UserScramCredentialRecord(name="u", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096),
    ):
        image.apply(record)
    return image


def contents(image: MetadataImage) -> dict[str, Any]:
    return {name: value for name, value in vars(image).items() if name not in ("version", "acls_version")}


def test_a_snapshot_has_all_of_the_image_and_what_is_not_interpreted() -> None:
    image = full_image()
    unknown = b"\x01\x15\x00whatever"
    content = run_here(encode_snapshot(image, 3, 1000, [unknown]))
    check_snapshot(content)
    back = MetadataImage()
    replay = MetadataReplay(back)
    offsets = []
    for position, header in iter_batches(content):
        replay.apply_batch(content, position, header)
        offsets += range(header.base_offset, header.next_offset)
        assert header.leader_epoch == 3
    assert offsets == list(range(len(offsets)))
    assert contents(back) == contents(image)
    assert replay.uninterpreted == [unknown]
    taken = MetadataImage()
    quotas = taken.client_quotas
    taken.become(back)
    assert contents(taken) == contents(image)
    assert taken.client_quotas is quotas


@pytest.mark.parametrize("size", [0, 61, 200, -1])
def test_a_snapshot_without_its_end_is_refused(size: int) -> None:
    content = run_here(encode_snapshot(full_image(), 3, 1000))
    with pytest.raises(ProtocolError):
        check_snapshot(content[:size])


def metadata_bytes(directory: Path) -> int:
    return sum(each.stat().st_size for each in (directory / "__cluster_metadata-0").glob("*.log"))


def create(node: BrokerNode, topic: str) -> None:
    run_here(node.controller.create_topic(TopicPlan(topic, 4, 1)))


async def churn(node: BrokerNode, topics: int) -> None:
    """Create topics and delete them."""
    for number in range(topics):
        create(node, f"gone-{number}")
        node.controller.delete_topic(node.controller.image.topics[f"gone-{number}"])
        await asyncio.sleep(0)  # a step of a snapshot


@pytest.mark.parametrize("profile", ["test", "kafka"])
def test_the_log_of_a_node_alone_does_not_grow_with_its_history(tmp_path: Path, profile: str) -> None:
    settings = {"metadata.log.max.record.bytes.between.snapshots": 4000}

    async def scenario() -> None:
        for start in range(3):
            config = BrokerConfig.build(settings, data_dir=str(tmp_path), profile=profile)
            node = BrokerNode(config, loop=asyncio.get_running_loop())
            await node.start()
            assert set(node.image.topics) == {f"kept-{number}" for number in range(start)}
            create(node, f"kept-{start}")
            await churn(node, 30)
            directory = str(tmp_path / "__cluster_metadata-0")
            before = node.metadata_offset
            await until_async(lambda node=node, directory=directory: snapshots_in(node.fs, directory), "a snapshot")
            assert len(snapshots_in(node.fs, directory)) == 1
            assert before > 150 * (start + 1)
            await node.stop(clean=start != 1)
        node = BrokerNode(BrokerConfig.build(settings, data_dir=str(tmp_path)), loop=asyncio.get_running_loop())
        await node.start()
        assert set(node.image.topics) == {"kept-0", "kept-1", "kept-2"}
        assert all(len(topic.partitions) == 4 for topic in node.image.topics.values())
        await node.stop()
        assert metadata_bytes(tmp_path) < 15_000

    asyncio.run(scenario())


def test_a_snapshot_is_written_after_its_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = BrokerConfig.build({"metadata.log.max.snapshot.interval.ms": 1000}, data_dir=str(tmp_path))
        node = BrokerNode(config, loop=asyncio.get_running_loop())
        await node.start()
        directory = str(tmp_path / "__cluster_metadata-0")
        await until_async(lambda: node.timers.pending, "the timer of the snapshot")
        assert not snapshots_in(node.fs, directory)
        node.timers.advance(1.0)
        await until_async(lambda: snapshots_in(node.fs, directory), "a snapshot")
        await node.stop()

    asyncio.run(scenario())


def test_lagging_node_fetches_a_snapshot_in_pieces(tmp_path: Path) -> None:
    async def scenario() -> None:
        nodes = Nodes(
            tmp_path,
            metadata_log_max_record_bytes_between_snapshots=3000,
            controller_quorum_fetch_snapshot_max_bytes=500,
        )
        async with nodes:
            active = await nodes.active()
            await until_async(lambda: len(active.controller.brokers) == 3, "brokers are unfenced")
            create(active, "early")
            await nodes.all_have(lambda node: "early" in node.image.topics, "early")
            behind = next(node_id for node_id in nodes.running if node_id != active.node_id)
            await nodes.stop(behind)
            end = active.metadata_offset
            active.controller.delete_topic(active.controller.image.topics["early"])
            await churn(active, 30)
            create(active, "late")

            def is_past(node: BrokerNode) -> bool:
                assert node.quorum is not None
                return node.quorum.log.start_offset > end

            await nodes.all_have(is_past, "the log starts at a snapshot")
            back = await nodes.start(behind)
            await nodes.all_have(lambda node: set(node.image.topics) == {"late"}, "late")
            assert is_past(back)
            assert contents_of_topics(back) == contents_of_topics(active)
            create(await nodes.active(), "last")
            await nodes.all_have(lambda node: "last" in node.image.topics, "the log goes on after the snapshot")
        async with nodes:
            await nodes.active()
            await nodes.all_have(lambda node: {"late", "last"} <= node.image.topics.keys(), "all after a restart")

    asyncio.run(scenario())


def test_running_node_installs_a_snapshot(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Nodes(tmp_path, metadata_log_max_record_bytes_between_snapshots=3000) as nodes:
            active = await nodes.active()
            await until_async(lambda: len(active.controller.brokers) == 3, "brokers are unfenced")
            create(active, "early")
            await nodes.all_have(lambda node: "early" in node.image.topics, "early")
            behind = next(node for node in nodes.running.values() if node is not active)
            behind.pause()
            end = active.metadata_offset
            active.controller.delete_topic(active.controller.image.topics["early"])
            await churn(active, 30)
            create(active, "late")
            quorum: Any = active.quorum
            await until_async(lambda: quorum.log.start_offset > end, "the log starts at a snapshot")
            behind.resume()
            await nodes.all_have(lambda node: set(node.image.topics) == {"late"}, "late")

    asyncio.run(scenario())


def test_leader_refuses_pieces_of_snapshots_that_it_does_not_have(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = {**STEADY, "metadata_log_max_record_bytes_between_snapshots": 3000}
        async with Nodes(tmp_path, **config) as nodes:
            active = await nodes.active()
            await until_async(lambda: len(active.controller.brokers) == 3, "brokers are unfenced")
            await churn(active, 30)
            quorum: Any = active.quorum
            await until_async(lambda: quorum.log.start_offset > 0, "the log starts at a snapshot")
            snapshot, epoch = await last_snapshot(active), quorum.epoch
            follower = next(node for node in nodes.running.values() if node is not active)
            await nodes.all_have(lambda node: node.metadata_epoch == epoch, "the leader's epoch")
            channels = NodeChannels(asyncio.get_running_loop(), "asker")

            async def answer(request: FetchSnapshotRequest, node: BrokerNode = active) -> Any:
                response = await channels.to(node.node_id, *nodes.addresses[node.node_id]).send(request, 5.0)
                return response.topics[0].partitions[0]

            size = (await answer(fetch_snapshot(snapshot, 0, epoch))).size
            for position in (-1, size, size + 1):
                refused = await answer(fetch_snapshot(snapshot, position, epoch))
                assert refused.error_code == errors.PositionOutOfRange.code
                assert refused.unaligned_records == b""
            for other in (OffsetAndEpoch(snapshot.offset - 1, epoch), OffsetAndEpoch(snapshot.offset, epoch + 1)):
                refused = await answer(fetch_snapshot(other, 0, epoch))
                assert refused.error_code == errors.SnapshotNotFound.code
            for node, asked_epoch, error in (
                (active, epoch - 1, errors.FencedLeaderEpoch),
                (active, epoch + 1, errors.UnknownLeaderEpoch),
                (follower, epoch, errors.NotLeaderOrFollower),
            ):
                refused = await answer(fetch_snapshot(snapshot, 0, asked_epoch), node)
                assert (refused.error_code, refused.current_leader.leader_id) == (error.code, active.node_id)
            last = await answer(fetch_snapshot(snapshot, size - 1, epoch))
            assert (last.error_code, len(last.unaligned_records)) == (0, 1)
            channels.close()

    asyncio.run(scenario())


async def last_snapshot(node: BrokerNode) -> OffsetAndEpoch:
    """Return the newest snapshot once no other one is being written; only appended records begin the next one."""
    quorum: Any = node.quorum
    await until_async(lambda: quorum.applied == quorum.log.end_offset, "all records are committed")
    for _ in range(100):
        await asyncio.sleep(0)  # a step of a snapshot; one of this small image takes a few
    snapshot: OffsetAndEpoch = quorum.raft.state.log.snapshot
    return snapshot


def fetch_snapshot(snapshot: OffsetAndEpoch, position: int, epoch: int) -> FetchSnapshotRequest:
    piece = FetchSnapshotRequestPartitionSnapshot(
        partition=0,
        current_leader_epoch=epoch,
        snapshot_id=FetchSnapshotRequestSnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        position=position,
    )
    topics = [FetchSnapshotRequestTopicSnapshot(name="__cluster_metadata", partitions=[piece])]
    return FetchSnapshotRequest(replica_id=9, max_bytes=1 << 20, topics=topics)


def contents_of_topics(node: BrokerNode) -> dict[str, Any]:
    return {name: dict(topic.partitions) for name, topic in node.image.topics.items()}
