"""Registration, heartbeats, fencing and controlled shutdown of brokers."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from pyclient import errors
from pyclient.broker_embedded.controller.replication_control import LOST
from pyclient.protocol.messages.broker_registration import Feature, Listener
from tests.broker_embedded.controller.cluster_model import TIMEOUT, ClusterModel

LISTENER = Listener(name="A", host="h", port=1, security_protocol=0)


@pytest.fixture
def model() -> ClusterModel:
    return ClusterModel()


# ---- registration


def test_broker_starts_fenced_with_the_offset_of_its_registration_as_epoch(model: ClusterModel) -> None:
    offset = model.end_offset
    assert model.register(1, rack="r") == offset
    broker = model.image.brokers[1]
    assert (broker.epoch, broker.fenced, broker.active, broker.rack) == (offset, True, False, "r")
    assert (broker.endpoints, broker.log_dirs) == ([("PLAINTEXT", "h", 9001)], (model.directory_of(1),))


def test_broker_is_unfenced_when_it_has_read_its_registration(model: ClusterModel) -> None:
    epoch = model.register(1)
    beat = model.beat(1, offset=epoch - 1)
    assert (beat.records, beat.is_caught_up, beat.is_fenced, beat.should_shut_down) == ([], False, True, False)
    beat = model.beat(1, offset=epoch, want_fence=True)
    assert (beat.records, beat.is_caught_up, beat.is_fenced) == ([], True, True)
    beat = model.beat(1, offset=epoch)
    assert (len(beat.records), beat.is_caught_up, beat.is_fenced) == (1, True, False)
    assert model.image.brokers[1].active
    assert model.beat(1).records == []


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"cluster_id": "other"}, errors.InconsistentClusterId, "cluster 'other'"),
        ({"broker_id": -1}, errors.InvalidRegistration, "-1 is no node id"),
        ({"listeners": []}, errors.InvalidRegistration, "no listener"),
        ({"listeners": [LISTENER] * 2}, errors.InvalidRegistration, "twice"),
        ({"log_dirs": []}, errors.InvalidRegistration, "No directories"),
        ({"log_dirs": [LOST]}, errors.InvalidRegistration, "Reserved directory"),
        ({"log_dirs": [UUID(int=7)] * 2}, errors.InvalidRegistration, "Duplicate directory"),
        ({"log_dirs": [UUID(int=101)]}, errors.InvalidRegistration, "Broker 1 is already registered with"),
        ({"is_migrating_zk_broker": True}, errors.BrokerIdNotRegistered, "ZooKeeper"),
        ({"features": []}, errors.UnsupportedVersion, "finalized version 30 of metadata.version"),
        (
            {"features": [Feature(name="metadata.version", min_supported_version=1, max_supported_version=29)]},
            errors.UnsupportedVersion,
            "between 1 and 29",
        ),
    ],
)  # fmt: skip
def test_registration_is_refused(
    model: ClusterModel, fields: dict[str, Any], error: type[errors.BrokerError], message: str
) -> None:
    model.start(1)
    request = model.registration(2)
    for name, value in fields.items():
        setattr(request, name, value)
    with pytest.raises(error, match=message):
        model.cluster.register(request, model.now, model.end_offset)
    assert 2 not in model.image.brokers


def test_second_broker_with_an_id_is_refused_while_the_first_one_lives(model: ClusterModel) -> None:
    model.start(1)
    model.now += TIMEOUT - 1
    with pytest.raises(errors.DuplicateBrokerRegistration):
        model.register(1, incarnation=1)
    model.now += 2
    epoch = model.register(1, incarnation=1)
    assert (model.image.brokers[1].epoch, model.image.brokers[1].fenced) == (epoch, True)
    assert not model.beat(1).is_fenced


def test_same_incarnation_keeps_its_epoch_and_state(model: ClusterModel) -> None:
    model.start(1)
    epoch = model.image.brokers[1].epoch
    offset = model.end_offset
    assert model.register(1) == epoch
    assert not model.image.brokers[1].fenced
    assert not model.beat(1, offset=offset - 1).is_caught_up
    assert model.beat(1, offset=offset).is_caught_up


def test_fenced_broker_can_be_replaced_at_once(model: ClusterModel) -> None:
    model.register(1)
    epoch = model.register(1, incarnation=1)
    assert model.image.brokers[1].epoch == epoch


def test_old_levels_have_no_directories() -> None:
    model = ClusterModel(level=15)
    model.register(1, log_dirs=[])
    assert model.image.brokers[1].log_dirs == ()


# ---- heartbeats


def test_heartbeat_of_an_earlier_incarnation_is_refused(model: ClusterModel) -> None:
    with pytest.raises(errors.StaleBrokerEpoch, match="not registered"):
        model.cluster.check_epoch(1, 5)
    model.register(1)
    old = model.image.brokers[1].epoch
    model.register(1, incarnation=1)
    with pytest.raises(errors.StaleBrokerEpoch, match=f"not {old}"):
        model.cluster.check_epoch(1, old)


def test_silent_brokers_are_stale_one_after_another(model: ClusterModel) -> None:
    assert model.cluster.next_check() is None
    model.start(1)
    model.now += 1
    model.start(2)
    assert model.cluster.next_check() == 100 + TIMEOUT
    assert model.cluster.stale_broker(100 + TIMEOUT) is None
    model.now = 102 + TIMEOUT
    assert model.cluster.stale_broker(model.now) == 1
    model.fence(1)
    assert model.cluster.stale_broker(model.now) == 2
    model.fence(2)
    assert (model.cluster.stale_broker(model.now), model.cluster.next_check()) == (None, None)


def test_heartbeat_renews_the_session(model: ClusterModel) -> None:
    model.start(1)
    for _ in range(5):
        model.now += TIMEOUT - 1
        assert model.cluster.stale_broker(model.now) is None
        model.beat(1)


def test_new_controller_gives_every_broker_a_session(model: ClusterModel) -> None:
    model.start(1, 2)
    model.now += 50
    model.cluster.activate(model.now)
    assert model.cluster.stale_broker(model.now + TIMEOUT) is None
    assert model.cluster.stale_broker(model.now + TIMEOUT + 1) in (1, 2)


def test_end_of_a_connection_shortens_the_session(model: ClusterModel) -> None:
    model.start(1, 2)
    first, second = object(), object()
    model.beat(1, connection=first)
    model.beat(2, connection=second)
    model.cluster.connection_ended(object(), model.now, 0.1)
    model.cluster.connection_ended(None, model.now, 0.1)
    assert model.cluster.next_check() == model.now + TIMEOUT
    model.cluster.connection_ended(first, model.now, 0.1)
    assert model.cluster.next_check() == pytest.approx(model.now + 0.1)
    assert model.cluster.stale_broker(model.now + 0.2) == 1
    model.beat(1, connection=object())  # it was only the connection
    assert model.cluster.stale_broker(model.now + 0.2) is None


def note_commits(model: ClusterModel, committed: int, until: float) -> None:
    """Let time pass, with that high watermark, as the controller does: in steps of a tenth of the timeout."""
    while model.now < until:
        model.now += TIMEOUT / 10
        model.cluster.note_commits(committed, model.end_offset, model.now)


def test_no_session_ends_while_nothing_is_committed(model: ClusterModel) -> None:
    model.start(1, 2)
    committed = model.end_offset
    note_commits(model, committed, model.now + TIMEOUT)
    model.beat(1)
    model.beat(2)
    model.create([1, 2])
    began = model.now
    note_commits(model, committed, began + 3 * TIMEOUT)
    assert model.cluster.stale_broker(model.now) is None
    assert model.cluster.next_check() is None
    note_commits(model, model.end_offset, model.now + 0.1)
    assert model.cluster.stale_broker(model.now) is None
    assert model.cluster.next_check() == pytest.approx(model.now + TIMEOUT, abs=TIMEOUT / 5)
    assert model.cluster.stale_broker(model.now + TIMEOUT + 1) in (1, 2)


def test_killed_broker_is_fenced_after_a_time_without_commits(model: ClusterModel) -> None:
    model.start(1, 2)
    connection = object()
    model.beat(1, connection=connection)
    model.create([1, 2])
    model.cluster.connection_ended(connection, model.now, 0.1)
    note_commits(model, model.end_offset - 1, model.now + 3 * TIMEOUT)
    note_commits(model, model.end_offset, model.now + 0.1)
    model.beat(2)
    assert model.cluster.stale_broker(model.now + TIMEOUT / 5) == 1


def test_slow_commits_keep_no_silent_broker(model: ClusterModel) -> None:
    model.start(1, 2)
    began, committed = model.now, model.end_offset
    while model.now < began + 2 * TIMEOUT:
        model.create([1, 2])  # there is always something to commit
        note_commits(model, committed, model.now + TIMEOUT / 3)
        committed += 1
        model.beat(2)
    assert committed < model.end_offset
    assert model.cluster.stale_broker(model.now) == 1


def test_new_controller_begins_without_a_stalled_log(model: ClusterModel) -> None:
    model.start(1, 2)
    model.create([1, 2])
    note_commits(model, model.end_offset - 1, model.now + TIMEOUT)
    assert model.cluster.next_check() is None
    model.cluster.activate(model.now)
    assert model.cluster.next_check() == model.now + TIMEOUT


def test_unreachable_broker_is_stale_for_a_new_controller(model: ClusterModel) -> None:
    model.start(1, 2)
    model.cluster.activate(model.now)
    model.beat(2)
    for broker in (1, 2, 9):
        model.cluster.not_reached(broker, model.now, 0.1)
    assert model.cluster.stale_broker(model.now + 0.05) is None
    assert model.cluster.stale_broker(model.now + 0.2) == 1
    model.fence(1)
    assert model.cluster.stale_broker(model.now + 0.2) is None, "broker 2 has sent a heartbeat"


def test_broker_may_ask_to_be_fenced(model: ClusterModel) -> None:
    model.start(1, 2)
    model.create([1, 2])
    assert model.beat(1, want_fence=True).is_fenced
    assert model.partition.leader == 2
    model.beat(1)
    beat = model.beat(1, want_fence=True, want_shut_down=True)
    assert (beat.is_fenced, beat.should_shut_down) == (True, True)


# ---- controlled shutdown


def test_broker_without_leaderships_may_stop_at_once(model: ClusterModel) -> None:
    model.start(1, 2)
    model.create([1, 2])
    beat = model.beat(2, want_shut_down=True)
    assert (beat.is_fenced, beat.should_shut_down) == (True, True)
    assert model.partition.isr == [1]
    beat = model.beat(2, want_shut_down=True)
    assert (beat.records, beat.should_shut_down) == ([], True)


def test_leader_stops_when_the_others_know_its_successor(model: ClusterModel) -> None:
    model.start(1, 2, 3)
    model.create([1, 2, 3])
    for broker in (2, 3):
        model.beat(broker)
    beat = model.beat(1, want_shut_down=True)
    assert (beat.is_fenced, beat.should_shut_down) == (False, False)
    assert (model.partition.leader, model.partition.isr) == (2, [2, 3])
    assert (model.image.brokers[1].active, model.image.brokers[1].fenced) == (False, False)
    assert model.cluster.usable_brokers() == [(2, None, False), (3, None, False)]
    last = model.end_offset - 1
    assert not model.beat(1, want_shut_down=True).should_shut_down
    model.beat(2, offset=last)
    model.beat(3, offset=last - 1)
    assert not model.beat(1, want_shut_down=True).should_shut_down
    model.beat(3, offset=last)
    beat = model.beat(1, want_shut_down=True)
    assert (beat.is_fenced, beat.should_shut_down) == (True, True)
    assert model.beat(1).is_fenced, "it has to register again"


def test_broker_fenced_after_its_controlled_shutdown_gets_replicas(model: ClusterModel) -> None:
    model.start(1, 2, 3)
    model.create([1, 2, 3])
    model.beat(1, want_shut_down=True)
    registration = model.image.brokers[1]
    assert (registration.in_controlled_shutdown, registration.fenced) == (True, False)
    assert model.cluster.usable_brokers() == [(2, None, False), (3, None, False)]
    for broker in (2, 3):
        model.beat(broker)
    assert model.beat(1, want_shut_down=True).should_shut_down
    registration = model.image.brokers[1]
    assert (registration.in_controlled_shutdown, registration.fenced) == (True, True)
    assert model.cluster.usable_brokers() == [(1, None, True), (2, None, False), (3, None, False)]


def test_broker_that_dies_in_its_controlled_shutdown_gets_replicas(model: ClusterModel) -> None:
    model.start(1, 2, 3)
    model.create([1, 2, 3])
    model.beat(1, want_shut_down=True)
    model.append(model.cluster.fence(1))  # its session has ended
    assert model.cluster.usable_brokers() == [(1, None, True), (2, None, False), (3, None, False)]


def test_only_broker_may_stop(model: ClusterModel) -> None:
    model.start(1)
    model.create([1])
    assert not model.beat(1, want_shut_down=True).should_shut_down
    assert (model.partition.leader, model.partition.isr) == (-1, [1])
    assert model.beat(1, want_shut_down=True).should_shut_down
    model.register(1, incarnation=1)
    model.beat(1)
    assert (model.partition.leader, model.partition.isr) == (1, [1])


def test_shutdown_goes_on_under_a_new_controller(model: ClusterModel) -> None:
    model.start(1, 2)
    model.create([1, 2])
    model.beat(1, want_shut_down=True)
    model.cluster.activate(model.now)
    assert not model.beat(1, want_shut_down=True).should_shut_down
    model.beat(2)
    assert model.beat(1, want_shut_down=True).should_shut_down


# ---- cordoned directories, removal


def test_cordoned_directories_are_noted(model: ClusterModel) -> None:
    model.start(1)
    first = model.directory_of(1)
    model.beat(1, cordoned_log_dirs=[first])
    assert model.image.brokers[1].cordoned == (first,)
    assert model.beat(1, cordoned_log_dirs=[first]).records == []
    model.beat(1, cordoned_log_dirs=[])
    assert model.image.brokers[1].cordoned == ()


def test_unregistered_broker_is_gone_until_it_registers(model: ClusterModel) -> None:
    with pytest.raises(errors.BrokerIdNotRegistered, match="Broker ID 1 is not"):
        model.cluster.unregister(1)
    model.start(1)
    model.append(model.cluster.unregister(1))
    with pytest.raises(errors.StaleBrokerEpoch):
        model.cluster.check_epoch(1, 1)
    assert model.cluster.next_check() is None
    model.start(1)
    assert model.image.brokers[1].active
