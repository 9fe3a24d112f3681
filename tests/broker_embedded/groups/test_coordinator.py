"""The coordinator with an in-memory log: parked requests, timers, writes, and restarts."""

from __future__ import annotations

import asyncio

import pytest

from pyclient import errors
from pyclient.broker_embedded.groups.events import Heartbeat, Join, Leave, MemberIdentity, Protocol, Sync
from pyclient.broker_embedded.groups.offset_metadata_manager import Commit, Position
from pyclient.types import TopicPartition
from tests.broker_embedded.groups.conftest import committed


def join(node, member_id="", *, group="g", session=10_000, rebalance=60_000, **more):
    event = Join(
        member_id=member_id,
        fresh_id=node.groups.fresh_member_id("client"),
        protocol_type="consumer",
        protocols=(Protocol("range", b"topics"),),
        session_timeout_ms=session,
        rebalance_timeout_ms=rebalance,
        client_id="client",
        client_host="/127.0.0.1",
        **more,
    )
    return node.groups.join(group, event)


async def stable_member(node, **more) -> str:
    """Create a stable group of one member; return the member id."""
    joined = await join(node, **more)
    assignments = {joined.member_id: b"everything"}
    synced = await node.groups.sync(
        more.get("group", "g"),
        Sync(member_id=joined.member_id, generation=joined.generation, assignments=assignments),
    )
    assert (joined.error, synced.error, synced.assignment) == (0, 0, b"everything")
    return joined.member_id


def heartbeat(node, member_id, generation=1):
    return node.groups.heartbeat("g", Heartbeat(member_id=member_id, generation=generation))


def test_join_and_sync_wait_for_other_members(node):
    async def main():
        first = await stable_member(node)
        second = asyncio.create_task(join(node))
        await asyncio.sleep(0)
        assert heartbeat(node, first) == errors.RebalanceInProgress.code
        again = await join(node, first)
        other = await second
        assert again.generation == other.generation == 2
        assert len(again.members) == 2
        waiting = asyncio.create_task(
            node.groups.sync("g", Sync(member_id=other.member_id, generation=2, assignments={}))
        )
        await asyncio.sleep(0)
        assert not waiting.done()
        await node.groups.sync(
            "g", Sync(member_id=first, generation=2, assignments={first: b"1", other.member_id: b"2"})
        )
        assert (await waiting).assignment == b"2"

    asyncio.run(main())


def test_member_id_is_prefix_and_uuid(node):
    one, two = node.groups.fresh_member_id("client"), node.groups.fresh_member_id("client")
    assert one != two
    assert one.startswith("client-")
    assert len(one) == len("client-") + 36


def test_session_expires_by_timer(node):
    async def main():
        member = await stable_member(node)
        node.pass_time(9)
        assert heartbeat(node, member) == 0
        node.pass_time(9)
        assert heartbeat(node, member) == 0
        node.pass_time(10)
        assert heartbeat(node, member) == errors.UnknownMemberId.code

    asyncio.run(main())


def test_heartbeats_keep_one_timer(node):
    async def main():
        member = await stable_member(node)
        before = node.armed
        for _ in range(50):
            node.pass_time(1)
            assert heartbeat(node, member) == 0
        assert node.armed == before

    asyncio.run(main())


def test_empty_group_has_no_timer(node):
    async def main():
        idle = node.armed
        member = await stable_member(node)
        assert node.armed == idle + 1
        node.groups.leave("g", Leave(members=(MemberIdentity(member),)))
        assert node.armed == idle

    asyncio.run(main())


def test_session_timeout_outside_limits_is_refused(node):
    async def main():
        assert (await join(node, session=5999)).error == errors.InvalidSessionTimeout.code
        assert (await join(node, session=1_800_001)).error == errors.InvalidSessionTimeout.code
        assert len(node.groups.groups) == 0

    asyncio.run(main())


def test_empty_group_id_and_unknown_member_create_no_group(node):
    async def main():
        nameless, unknown = errors.InvalidGroupId.code, errors.UnknownMemberId.code
        assert (await join(node, group="")).error == nameless
        assert (await join(node, "unknown", group="g")).error == unknown
        assert (await node.groups.sync("", Sync(member_id="", generation=1, assignments={}))).error == nameless
        assert (await node.groups.sync("g", Sync(member_id="", generation=1, assignments={}))).error == unknown
        assert heartbeat(node, "unknown") == unknown
        identity = MemberIdentity("unknown")
        assert node.groups.leave("g", Leave(members=(identity,))).members == ((identity, unknown),)
        assert node.groups.leave("", Leave(members=(identity,))).error == nameless
        assert len(node.groups.groups) == 0

    asyncio.run(main())


def test_stable_group_is_restored_after_restart(node):
    async def main():
        member = await stable_member(node)
        committed(node, "g", Commit(member_id=member, generation=1, positions={TopicPartition("t", 0): Position(5)}))
        node.restart()
        assert heartbeat(node, member) == 0
        synced = await node.groups.sync("g", Sync(member_id=member, generation=1, assignments={}))
        assert (synced.assignment, synced.protocol_name) == (b"everything", "range")
        assert node.groups.offsets.fetch("g")[TopicPartition("t", 0)].offset == 5
        node.pass_time(10)
        assert heartbeat(node, member) == errors.UnknownMemberId.code, "sessions restart and expire"

    asyncio.run(main())


def test_empty_group_keeps_generation_after_restart(node):
    async def main():
        member = await stable_member(node)
        node.groups.leave("g", Leave(members=(MemberIdentity(member),)))
        node.restart()
        entry = node.groups.groups.find("g")
        assert (entry.classic.state.value, entry.classic.generation) == ("Empty", 2)
        assert entry.state_ms == node.clock.time_ms()
        assert (await join(node)).generation == 3

    asyncio.run(main())


def test_new_id_of_static_member_is_restored_after_restart(node):
    async def main():
        old = await stable_member(node, instance_id="one")
        new = await join(node, instance_id="one", can_skip_assignment=True)
        assert (new.member_id != old, new.skip_assignment) == (True, True)
        node.restart()
        assert heartbeat(node, new.member_id) == 0
        assert heartbeat(node, old) == errors.UnknownMemberId.code

    asyncio.run(main())


def test_failed_write_fails_sync_and_starts_rebalance(node):
    async def main():
        joined = await join(node)
        node.failure = errors.NotEnoughReplicas("one of two")
        synced = await node.groups.sync("g", Sync(member_id=joined.member_id, generation=1, assignments={}))
        assert synced.error == errors.CoordinatorNotAvailable.code
        node.failure = None
        assert (await join(node, joined.member_id)).generation == 2

    asyncio.run(main())


def test_deleted_group_stays_deleted_after_restart(node):
    async def main():
        member = await stable_member(node)
        assert node.groups.delete("g") == errors.NonEmptyGroup.code
        node.groups.leave("g", Leave(members=(MemberIdentity(member),)))
        committed(node, "g", Commit(positions={TopicPartition("t", 0): Position(5)}))
        assert node.groups.delete("g") == 0
        assert node.groups.delete("g") == errors.GroupIdNotFound.code
        node.restart()
        assert node.groups.groups.find("g") is None
        assert node.groups.offsets.fetch("g") == {}

    asyncio.run(main())


def test_group_is_kept_if_its_deletion_is_not_written(node):
    committed(node, "g", Commit(positions={TopicPartition("t", 0): Position(5)}))
    node.failure = errors.KafkaStorageError("full")
    assert node.groups.delete("g") == errors.NotCoordinator.code
    assert node.groups.groups.find("g") is not None


def test_unload_answers_parked_requests_and_refuses_later_ones(node):
    async def main():
        member = await stable_member(node)
        waiting = asyncio.create_task(join(node))
        await asyncio.sleep(0)
        node.groups.unload(node.groups.groups.partition_of("g"))
        code = errors.NotCoordinator.code
        assert (await waiting).error == code
        assert heartbeat(node, member) == code
        assert (await join(node)).error == code
        assert committed(node, "g", Commit(positions={TopicPartition("t", 0): Position(5)})) == {
            TopicPartition("t", 0): code
        }
        with pytest.raises(errors.NotCoordinator):
            node.groups.offsets.fetch("g")
        assert node.groups.delete("g") == code

    asyncio.run(main())


def test_cancelled_join_does_not_block_rebalance(node):
    async def main():
        first = await stable_member(node)
        waiting = asyncio.create_task(join(node))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert len((await join(node, first)).members) == 2
        node.pass_time(10)
        assert heartbeat(node, first, 2) == errors.UnknownMemberId.code

    asyncio.run(main())


def test_partition_being_loaded_is_reported(node):
    read = node.read_partition

    def load_while_loading(partition):
        with pytest.raises(errors.CoordinatorLoadInProgress):
            node.groups.groups.find("g")
        with pytest.raises(errors.CoordinatorLoadInProgress):
            node.groups.load(partition)
        return read(partition)

    node.read_partition = load_while_loading
    node.groups.load(node.groups.groups.partition_of("g"))
    assert node.groups.groups.find("g") is None


def test_unreadable_record_affects_only_its_group(node, caplog):
    committed(node, "g", Commit(positions={TopicPartition("t", 0): Position(5)}))
    node.log[node.groups.groups.partition_of("g")] += [(b"\0\x02\0\x09short", b""), (None, b"x"), (b"\0\x63", b"?")]
    node.restart()
    assert list(node.groups.offsets.fetch("g")) == [TopicPartition("t", 0)]
    assert caplog.text.count("skipped a record") == 2


def test_close_cancels_all_timers(node):
    async def main():
        await stable_member(node)
        node.groups.close()
        assert node.armed == 0

    asyncio.run(main())


def test_group_with_pending_member_is_deleted_after_session_timeout(node):
    async def main():
        asked = await join(node, needs_known_id=True)
        assert asked.error == errors.MemberIdRequired.code
        assert node.groups.offsets.expire() == 0
        assert len(node.groups.groups) == 1
        node.pass_time(10)
        node.groups.offsets.expire()
        assert len(node.groups.groups) == 0

    asyncio.run(main())


def test_group_of_one_member_writes_expected_records(node):
    """A group record at its creation and for each generation, an offset record for each commit, and tombstones."""

    async def main():
        member = await stable_member(node)
        committed(node, "g", Commit(member_id=member, generation=1, positions={TopicPartition("t", 0): Position(5)}))
        node.groups.leave("g", Leave(members=(MemberIdentity(member),)))
        node.groups.delete("g")

    asyncio.run(main())
    log = node.log[node.groups.groups.partition_of("g")]
    assert [(key[:2], value is None) for key, value in log] == [
        (b"\0\x02", False),
        (b"\0\x02", False),
        (b"\0\x01", False),
        (b"\0\x02", False),
        (b"\0\x01", True),
        (b"\0\x02", True),
    ]
