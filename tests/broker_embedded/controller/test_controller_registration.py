"""Registrations of controllers (KIP-919), and the features of registered nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from pyclient import errors
from pyclient.broker_embedded.config.broker_config import BrokerConfig
from pyclient.broker_embedded.controller.controller_registration import ControllerRegistrationManager
from pyclient.broker_embedded.controller.features import METADATA_VERSION, check_update
from pyclient.broker_embedded.controller.image import MetadataImage
from pyclient.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
    Listener,
)
from pyclient.protocol.messages.metadata_log import (
    ControllerEndpoint,
    ControllerFeature,
    FeatureLevelRecord,
    RegisterControllerRecord,
)
from tests.broker_embedded.controller.cluster_model import ClusterModel

LISTENER = Listener(name="CONTROLLER", host="h", port=9093, security_protocol=1)
PROCESS = UUID(int=7)


def registration(node: int = 3000, process: int = 1, **fields: Any) -> ControllerRegistrationRequest:
    values: dict[str, Any] = {
        "zk_migration_ready": False,
        "listeners": [LISTENER],
        "features": [Feature(name=METADATA_VERSION, min_supported_version=7, max_supported_version=30)],
    }
    return ControllerRegistrationRequest(controller_id=node, incarnation_id=UUID(int=process), **(values | fields))


# ---- the active controller


def test_controller_is_registered_with_its_listeners_and_features() -> None:
    model = ClusterModel()
    model.append(model.cluster.register_controller(registration()))
    found = model.image.controllers[3000]
    assert (found.node_id, found.incarnation) == (3000, UUID(int=1))
    assert found.endpoints == (("CONTROLLER", "h", 9093, 1),)
    assert found.features == ((METADATA_VERSION, 7, 30),)


def test_registration_of_another_process_replaces_the_first_one() -> None:
    model = ClusterModel()
    model.append(model.cluster.register_controller(registration()))
    assert model.cluster.register_controller(registration()) == []
    model.append(model.cluster.register_controller(registration(process=2)))
    assert [each.incarnation for each in model.image.controllers.values()] == [UUID(int=2)]


@pytest.mark.parametrize(
    ("level", "fields", "error", "message"),
    [
        (14, {}, errors.UnsupportedVersion, "MetadataVersion is too old to support controller registrations"),
        (30, {"node": -1}, errors.InvalidRegistration, "-1 is no node id"),
        (30, {"listeners": []}, errors.InvalidRegistration, "needs one at least"),
        (30, {"listeners": [LISTENER] * 2}, errors.InvalidRegistration, "each once"),
    ],
)
def test_controller_is_refused(
    level: int, fields: dict[str, Any], error: type[errors.BrokerError], message: str
) -> None:
    model = ClusterModel(level=level)
    with pytest.raises(error, match=message):
        model.cluster.register_controller(registration(**fields))


# ---- features


OLDER = [("Broker 1", [(METADATA_VERSION, 7, 30)]), ("Controller 2", [(METADATA_VERSION, 7, 27)])]


@pytest.mark.parametrize(
    ("name", "level", "kind", "reason"),
    [
        (METADATA_VERSION, 28, 1, "Controller 2 only supports versions 7-27"),
        ("group.version", 1, 1, "Broker 1 does not support this feature"),
        (METADATA_VERSION, 27, 1, None),
        ("group.version", 0, 2, None),
    ],
)
def test_level_has_to_be_supported_by_registered_nodes(name: str, level: int, kind: int, reason: str | None) -> None:
    levels = {METADATA_VERSION: 25}
    if reason is None:
        check_update(name, level, kind, levels, 3, None, OLDER)
        return
    with pytest.raises(errors.InvalidUpdateVersion, match=reason):
        check_update(name, level, kind, levels, 3, None, OLDER)


# ---- the controller that registers


class ActiveController:
    """Takes registrations; `codes` are the errors of the next answers."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.taken: list[ControllerRegistrationRequest] = []

    def send(self, request: Any, _timeout: float) -> asyncio.Future[Any]:
        """Answer in the loop's next turn."""
        self.taken.append(request)
        code = self.codes.pop(0) if self.codes else 0
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer = ControllerRegistrationResponse(throttle_time_ms=0, error_code=code, error_message=None)
        asyncio.get_running_loop().call_soon(done.set_result, answer)
        return done


class Node:
    """A controller with the metadata that a test gives it, and timers that a test ends."""

    def __init__(self, directory: Path, level: int = 30) -> None:
        self.image = MetadataImage()
        self.set_level(level)
        self.timers: list[Any] = []
        self.delays: list[float] = []
        self.active = ActiveController()
        settings = {"node.id": 2, "controller.quorum.voters": "1@a:1,2@b:2,3@c:3"}
        env: Any = SimpleNamespace(
            node_id=2,
            image=self.image,
            config=BrokerConfig.build(settings, data_dir=str(directory)),
            rng=Random(1),
            schedule=self._schedule,
        )
        self.manager = ControllerRegistrationManager(env, self.active, PROCESS)

    def _schedule(self, delay: float, callback: Any) -> Any:
        self.delays.append(delay)
        self.timers.append(callback)
        return SimpleNamespace(cancel=lambda: None)

    def set_level(self, level: int) -> None:
        """Change the metadata.version."""
        self.image.apply(FeatureLevelRecord(name=METADATA_VERSION, feature_level=level))

    def replay(self, request: ControllerRegistrationRequest, process: UUID = PROCESS) -> None:
        """Apply the record of a registration."""
        self.image.apply(
            RegisterControllerRecord(
                controller_id=request.controller_id,
                incarnation_id=process,
                zk_migration_ready=False,
                end_points=[ControllerEndpoint(name="CONTROLLER", host="b", port=2, security_protocol=0)],
                features=[ControllerFeature(name=METADATA_VERSION, min_supported_version=7, max_supported_version=30)],
            )
        )
        self.manager.metadata_changed()


async def turns() -> None:
    """Let the loop deliver an answer."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_controller_registers_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path)
        for _ in range(3):
            node.manager.metadata_changed()
        await turns()
        [request] = node.active.taken
        assert (request.controller_id, request.incarnation_id) == (2, PROCESS)
        [listener] = request.listeners
        assert (listener.name, listener.host, listener.port, listener.security_protocol) == ("CONTROLLER", "b", 2, 0)
        ranges = {each.name: (each.min_supported_version, each.max_supported_version) for each in request.features}
        assert ranges[METADATA_VERSION] == (7, 30)
        assert not node.manager.registered
        node.replay(request)
        await turns()
        assert node.manager.registered
        assert node.active.taken == [request]

    asyncio.run(scenario())


def test_controller_registers_again_after_a_refusal(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path)
        node.active.codes = [errors.RequestTimedOut.code, errors.UnknownServerError.code]
        node.manager.metadata_changed()
        for attempts in (1, 2):
            await turns()
            assert len(node.active.taken) == attempts
            node.manager.metadata_changed()  # it waits for its timer
            assert len(node.active.taken) == attempts
            node.timers.pop()()
        await turns()
        assert len(node.active.taken) == 3
        assert node.timers == []

    asyncio.run(scenario())


def test_controller_registers_when_the_metadata_version_allows_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path, level=14)
        node.manager.metadata_changed()
        assert node.active.taken == []
        node.set_level(15)
        node.manager.metadata_changed()
        assert len(node.active.taken) == 1

    asyncio.run(scenario())


def test_controller_replaces_the_registration_of_another_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path)
        node.replay(registration(2), UUID(int=8))
        await turns()
        assert len(node.active.taken) == 1
        node.manager.stop()
        node.replay(registration(2), UUID(int=9))
        assert len(node.active.taken) == 1

    asyncio.run(scenario())


def test_two_controllers_with_one_id_replace_each_other_ever_more_rarely(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        node = Node(tmp_path)
        node.manager.metadata_changed()
        for turn in range(8):
            await turns()
            assert len(node.active.taken) == turn + 1
            node.replay(node.active.taken[-1])
            node.replay(registration(2), UUID(int=9))
            assert len(node.active.taken) == turn + 1
            node.timers.pop()()
        assert node.delays[-1] > 10 * node.delays[0]

    asyncio.run(scenario())
    assert "controller 2 was registered by another process: give one of the two another node.id" in caplog.text
