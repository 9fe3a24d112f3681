"""Controllers of several nodes register with the active one (KIP-919), over real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

from pyclient import errors
from pyclient.broker_embedded.broker import BrokerNode
from pyclient.broker_embedded.controller.topics import TopicPlan
from pyclient.broker_embedded.log.incremental_task import run_here
from pyclient.broker_embedded.network.node_channels import NodeChannels
from pyclient.protocol.messages.controller_registration import ControllerRegistrationRequest, Listener
from pyclient.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker_embedded.quorum.several_nodes import STEADY, Nodes
from tests.waiting import until_async


def registered(node: BrokerNode) -> dict[int, UUID]:
    """Return the process of each registered controller."""
    return {controller.node_id: controller.incarnation for controller in node.image.controllers.values()}


async def all_registered(nodes: Nodes, *controllers: int) -> dict[int, UUID]:
    """Wait until all nodes know these controllers, and return their processes."""
    await nodes.all_have(lambda node: registered(node).keys() == set(controllers), f"controllers {controllers}")
    return registered(await nodes.active())


def test_all_controllers_are_registered_and_after_a_restart_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        nodes = Nodes(tmp_path, count=4, voters=3)
        async with nodes:
            first = await all_registered(nodes, 1, 2, 3)
            active = await nodes.active()
            for controller in active.image.controllers.values():
                assert controller.endpoints == (("CONTROLLER", *nodes.addresses[controller.node_id], 0),)
                assert ("metadata.version", 7, 30) in controller.features
            restarted = next(node for node in (1, 2, 3) if node != active.node_id)
            await nodes.stop(restarted, clean=False)
            await nodes.start(restarted)
            await nodes.all_have(lambda node: registered(node)[restarted] != first[restarted], "another process")
            again = registered(active)
            assert {node for node in (1, 2, 3) if again[node] != first[node]} == {restarted}
        async with nodes:
            await nodes.active()
            await nodes.all_have(lambda node: registered(node).keys() == {1, 2, 3}, "registrations are kept")

    asyncio.run(scenario())


def test_controller_that_joins_is_registered_and_a_snapshot_keeps_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        nodes = Nodes(tmp_path, count=1, dynamic=True, metadata_log_max_record_bytes_between_snapshots=2000)
        async with nodes:
            first = await nodes.active()
            await nodes.add(2)
            await all_registered(nodes, 1, 2)
            await until_async(lambda: first.controller.brokers, "a broker is unfenced")
            registration = first.metadata_offset
            for number in range(20):
                run_here(first.controller.create_topic(TopicPlan(f"t{number}", 3, 1)))
            await nodes.all_have(lambda node: node.quorum and node.quorum.log.start_offset > registration, "snapshots")
            await nodes.add(3)  # it begins with the snapshot
            await all_registered(nodes, 1, 2, 3)

    asyncio.run(scenario())


def test_features_that_a_registered_controller_lacks_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Nodes(tmp_path, **STEADY) as nodes:
            await all_registered(nodes, 1, 2, 3)
            active = await nodes.active()
            channels = NodeChannels(asyncio.get_running_loop(), "test")
            channel = channels.to(active.node_id, *nodes.addresses[active.node_id])
            listener = Listener(name="CONTROLLER", host="127.0.0.1", port=1, security_protocol=0)
            request = ControllerRegistrationRequest(
                controller_id=9, incarnation_id=UUID(int=9), zk_migration_ready=False, listeners=[listener], features=[]
            )
            assert (await channel.send(request, 20.0)).error_code == 0
            update = FeatureUpdateKey(feature="group.version", max_version_level=1)
            answer = await channel.send(UpdateFeaturesRequest(timeout_ms=5000, feature_updates=[update]), 20.0)
            assert answer.error_code == errors.InvalidUpdateVersion.code
            assert "Controller 9 does not support this feature" in str(answer.error_message)
            channels.close()

    asyncio.run(scenario())
