"""The admin client's calls about the metadata quorum, against an embedded quorum whose voters change."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pyclient import AsyncAdmin, errors
from tests.broker_embedded.quorum.several_nodes import Nodes
from tests.waiting import until_async


def test_voters_are_described_added_and_removed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Nodes(tmp_path, count=1, dynamic=True) as nodes:
            first = await nodes.active()
            second = await nodes.add(2)
            await nodes.all_have(lambda node: len(node.image.brokers) == 2 and node.port, "both brokers")
            await until_async(lambda: len(first.controller.brokers) == 2, "both brokers are unfenced")
            async with AsyncAdmin(f"127.0.0.1:{second.port}") as admin:  # the request is forwarded
                quorum = await admin.describe_metadata_quorum()
                assert (quorum.leader_id, [each.replica_id for each in quorum.voters]) == (1, [1])
                [observer] = quorum.observers
                assert (observer.replica_id, observer.directory_id) == (2, nodes.key(2).directory_id)
                assert quorum.high_watermark > 0
                address = "{}:{}".format(*nodes.addresses[2])
                await admin.add_raft_voter(2, observer.directory_id, {"CONTROLLER": address})
                quorum = await admin.describe_metadata_quorum()
                assert [each.replica_id for each in quorum.voters] == [1, 2]
                assert quorum.voters[1].endpoints == {"CONTROLLER": address}
                assert quorum.voters[1].last_caught_up_ms is not None
                with pytest.raises(errors.DuplicateVoter, match=r"adding the voter 2 .* is already part of the set"):
                    await admin.add_raft_voter(2, observer.directory_id, {"CONTROLLER": address})
                await admin.remove_raft_voter(2, observer.directory_id)
                with pytest.raises(errors.VoterNotFound, match="removing the voter 2"):
                    await admin.remove_raft_voter(2, observer.directory_id)
                with pytest.raises(errors.ConfigError, match="endpoints: CONTROLLER"):
                    await admin.add_raft_voter(2, observer.directory_id, {"CONTROLLER": "nowhere"})

    asyncio.run(scenario())
