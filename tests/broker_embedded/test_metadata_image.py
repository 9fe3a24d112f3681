"""Metadata records: framing, versions and replay."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyclient.broker_embedded.controller import records
from pyclient.broker_embedded.controller.delta import MetadataDelta
from pyclient.broker_embedded.controller.image import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    MetadataImage,
    PartitionImage,
)
from pyclient.errors import MalformedMessage, ProtocolError, UnsupportedVersion
from pyclient.protocol.messages.metadata_log import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    ControllerEndpoint,
    ControllerFeature,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from pyclient.protocol.parts import fields_of
from pyclient.types import TopicPartition

ID = uuid.UUID(int=77)


def partition(index: int, **options: Any) -> PartitionRecord:
    values: dict[str, Any] = {
        "topic_id": ID,
        "replicas": [1],
        "isr": [1],
        "removing_replicas": [],
        "adding_replicas": [],
        "leader": 1,
        "leader_epoch": 0,
        "partition_epoch": 0,
    }
    return PartitionRecord(partition_id=index, **(values | options))


def registration(**options: Any) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=1,
        incarnation_id=ID,
        broker_epoch=9,
        end_points=[BrokerEndpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0)],
        features=[],
        rack="r",
        **options,
    )


RECORDS = [
    TopicRecord(name="t", topic_id=ID),
    partition(0),
    ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="t", name="retention.ms", value="5"),
    PartitionChangeRecord(partition_id=0, topic_id=ID, leader=-1, isr=[]),
    ProducerIdsRecord(broker_id=1, broker_epoch=4, next_producer_id=1000),
    FeatureLevelRecord(name="metadata.version", feature_level=25),
    registration(),
    BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=9, fenced=-1),
    UnregisterBrokerRecord(broker_id=1, broker_epoch=9),
    RemoveTopicRecord(topic_id=ID),
    ClearElrRecord(topic_name="t"),
    RegisterControllerRecord(
        controller_id=3000,
        incarnation_id=ID,
        zk_migration_ready=False,
        end_points=[ControllerEndpoint(name="CONTROLLER", host="h", port=9093, security_protocol=0)],
        features=[ControllerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30)],
    ),
]


def image_of(*applied: Any) -> MetadataImage:
    image = MetadataImage()
    for record in applied:
        image.apply(record)
    return image


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_metadata_record_round_trips(record: Any) -> None:
    assert records.decode(records.encode(record, 30)) == record


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_truncated_metadata_record_is_refused(record: Any) -> None:
    data = records.encode(record, 30)
    for size in range(len(data)):
        with pytest.raises(ProtocolError):
            records.decode(data[:size])


def test_frame_is_version_type_version_body() -> None:
    assert records.encode(TopicRecord(name="ab", topic_id=uuid.UUID(int=1)), 30) == (
        b"\x01\x02\x00" + b"\x03ab" + b"\0" * 15 + b"\x01" + b"\0"
    )


@pytest.mark.parametrize(
    ("level", "versions"),
    [
        (7, (1, 0, 0, 1)),
        (8, (2, 0, 0, 1)),
        (17, (3, 1, 1, 2)),
        (21, (3, 1, 1, 2)),
        (25, (3, 2, 2, 2)),
        (30, (4, 2, 2, 3)),
    ],
)
def test_record_version_depends_on_metadata_version(level: int, versions: tuple[int, ...]) -> None:
    for api_key, version in zip((0, 3, 5, 17), versions, strict=True):
        assert records.version_of(api_key, level) == version
    for record in RECORDS:
        data = records.encode(record, level)
        assert data[2] == records.version_of(record.api_key, level)
        back, names = records.decode(data), {each.name: each for each in fields_of(type(record))}
        for name, each in names.items():
            if each.present_in(data[2]):
                assert getattr(back, name) == getattr(record, name)


def test_uninterpreted_record_type_is_ignored() -> None:
    assert records.decode(b"\x01\x14\x00\x00") is None
    assert records.decode(b"\x01\xff\x01\x07whatever") is None
    assert image_of(NoOpRecord()).version == 1


def test_unknown_frame_version_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="frame version 2"):
        records.decode(b"\x02\x02\x00")


def test_unknown_record_version_is_refused() -> None:
    with pytest.raises(UnsupportedVersion, match="TopicRecord"):
        records.decode(b"\x01\x02\x07\x03ab")


@given(st.integers(0, 30), st.integers(0, 5), st.binary(max_size=64))
def test_arbitrary_bytes_are_decoded_or_refused(kind: int, version: int, data: bytes) -> None:
    try:
        records.decode(bytes([1, kind, version]) + data)
    except (ProtocolError, UnsupportedVersion):
        return


def test_topic_is_found_by_name_and_id() -> None:
    image = image_of(TopicRecord(name="t", topic_id=ID), partition(0), partition(1, leader=-1))
    assert image.topics["t"] is image.topics_by_id[ID]
    assert image.partition("t", 0) is not None
    assert image.partition("t", 2) is None
    assert image.partition("u", 0) is None


def test_removed_topic_removes_partitions_and_options() -> None:
    image = image_of(*RECORDS[:3], RemoveTopicRecord(topic_id=ID))
    assert image.topics == image.topics_by_id == {}
    assert image.configs == {}


def test_leader_change_increments_leader_epoch() -> None:
    change = PartitionChangeRecord(partition_id=0, topic_id=ID, leader=2, isr=[2], replicas=[2, 1])
    image = image_of(TopicRecord(name="t", topic_id=ID), partition(0), change)
    changed = image.partition("t", 0)
    assert changed is not None
    assert (changed.leader, changed.leader_epoch, changed.partition_epoch) == (2, 1, 1)
    assert (changed.isr, changed.replicas) == ([2], [2, 1])


def test_isr_change_keeps_leader_epoch() -> None:
    change = PartitionChangeRecord(partition_id=0, topic_id=ID, isr=[])
    changed = image_of(TopicRecord(name="t", topic_id=ID), partition(0), change).partition("t", 0)
    assert changed is not None
    assert (changed.leader, changed.leader_epoch, changed.partition_epoch) == (1, 0, 1)


def test_option_without_value_is_removed() -> None:
    setting = {"resource_type": BROKER_RESOURCE, "resource_name": "1", "name": "a"}
    image = image_of(ConfigRecord(**setting, value="1"))
    assert image.configs == {(BROKER_RESOURCE, "1"): {"a": "1"}}
    image.apply(ConfigRecord(**setting, value=None))
    assert image.configs == {}


def test_broker_is_registered_fenced_and_unregistered() -> None:
    image = image_of(registration(fenced=True))
    assert image.brokers[1].fenced
    image.apply(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=9, fenced=-1))
    assert not image.brokers[1].fenced
    assert image.brokers[1].endpoints == [("PLAINTEXT", "h", 9092)]
    image.apply(UnregisterBrokerRecord(broker_id=1, broker_epoch=9))
    assert image.brokers == {}


def test_feature_of_level_0_is_removed() -> None:
    image = image_of(FeatureLevelRecord(name="group.version", feature_level=1))
    assert image.features == {"group.version": 1}
    image.apply(FeatureLevelRecord(name="group.version", feature_level=0))
    assert image.features == {}


@pytest.mark.parametrize(("name", "other"), [("a.b", "a_b"), ("a_b", "a.b"), ("a.b_c", "a_b.c"), ("..", "__")], ids=str)
def test_topic_names_that_differ_in_dot_collide(name: str, other: str) -> None:
    image = image_of(TopicRecord(name=other, topic_id=ID))
    assert image.colliding_topic(name) == other
    assert image.colliding_topic(other) is None


def test_partition_change_sets_recovery_state_and_eligible_leaders() -> None:
    image = image_of(TopicRecord(name="t", topic_id=ID), partition(0, eligible_leader_replicas=[2], last_known_elr=[3]))
    found = image.topics["t"].partitions[0]
    assert (found.leader_recovery_state, found.elr, found.last_known_elr) == (0, (2,), (3,))
    image.apply(PartitionChangeRecord(partition_id=0, topic_id=ID, leader=2, isr=[2], leader_recovery_state=1))
    found = image.topics["t"].partitions[0]
    assert (found.leader_recovery_state, found.elr, found.last_known_elr) == (1, (2,), (3,))
    image.apply(
        PartitionChangeRecord(partition_id=0, topic_id=ID, eligible_leader_replicas=[], leader_recovery_state=0)
    )
    found = image.topics["t"].partitions[0]
    assert (found.leader_recovery_state, found.elr, found.last_known_elr) == (0, (), (3,))


@pytest.mark.parametrize(("name", "cleared"), [("t", True), ("", True), ("other", False)])
def test_clearing_eligible_leader_replicas_of_a_topic_or_of_all(name: str, cleared: bool) -> None:
    image = image_of(TopicRecord(name="t", topic_id=ID), partition(0, eligible_leader_replicas=[2], last_known_elr=[3]))
    image.apply(ClearElrRecord(topic_name=name))
    found = image.topics["t"].partitions[0]
    assert (found.elr, found.last_known_elr) == (((), ()) if cleared else ((2,), (3,)))


def test_registration_change_sets_only_what_it_names() -> None:
    first, second = uuid.UUID(int=5), uuid.UUID(int=6)
    image = image_of(registration(log_dirs=[first, second]))
    broker = image.brokers[1]
    assert (broker.fenced, broker.active, broker.log_dirs, broker.incarnation) == (True, False, (first, second), ID)
    image.apply(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=9, fenced=-1))
    assert image.brokers[1].active
    image.apply(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=9, in_controlled_shutdown=1))
    broker = image.brokers[1]
    assert (broker.active, broker.fenced, broker.log_dirs) == (False, False, (first, second))
    image.apply(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=9, log_dirs=[second], cordoned_log_dirs=[]))
    broker = image.brokers[1]
    assert (broker.log_dirs, broker.cordoned) == ((second,), ())


def registered(node_id: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=node_id, incarnation_id=ID, broker_epoch=1, end_points=[], features=[], rack=None, fenced=True
    )


topic_ids = st.integers(1, 3)
changes = st.one_of(
    st.builds(lambda number: TopicRecord(name=f"t_{number % 2}", topic_id=uuid.UUID(int=number)), topic_ids),
    st.builds(
        lambda number, index: partition(index, topic_id=uuid.UUID(int=number), directories=[ID], last_known_elr=[2]),
        topic_ids,
        st.integers(0, 2),
    ),
    st.builds(
        lambda number, index, leader: PartitionChangeRecord(
            partition_id=index, topic_id=uuid.UUID(int=number), leader=leader, isr=[leader], directories=[ID]
        ),
        topic_ids,
        st.integers(0, 2),
        st.integers(-2, 3),
    ),
    st.builds(lambda number: RemoveTopicRecord(topic_id=uuid.UUID(int=number)), topic_ids),
    st.builds(
        lambda number, value: ConfigRecord(
            resource_type=TOPIC_RESOURCE, resource_name=f"t_{number}", name="retention.ms", value=value
        ),
        st.integers(0, 1),
        st.one_of(st.none(), st.sampled_from(["1", "2"])),
    ),
    st.builds(registered, st.integers(1, 3)),
    st.builds(
        lambda number, fenced: BrokerRegistrationChangeRecord(broker_id=number, broker_epoch=1, fenced=fenced),
        st.integers(1, 3),
        st.sampled_from([-1, 1]),
    ),
    st.builds(
        lambda number: RegisterControllerRecord(
            controller_id=number, incarnation_id=ID, zk_migration_ready=False, end_points=[], features=[]
        ),
        st.integers(1, 3),
    ),
    st.builds(lambda name: ClearElrRecord(topic_name=name), st.sampled_from(["", "t_0"])),
    st.builds(lambda level: FeatureLevelRecord(name="metadata.version", feature_level=level), st.integers(7, 9)),
)


def apply_valid(target: MetadataImage | MetadataDelta, image: MetadataImage, record: Any) -> None:
    """Apply a record, unless no controller would write it after those before it."""
    known = image.topics_by_id.get(getattr(record, "topic_id", ID))
    if isinstance(record, TopicRecord):
        valid = record.name not in image.topics and known is None
    elif isinstance(record, PartitionChangeRecord):
        valid = known is not None and record.partition_id in known.partitions
    elif isinstance(record, ConfigRecord):
        valid = record.resource_name in image.topics
    else:
        valid = known is not None or not hasattr(record, "topic_id")
    if valid:
        target.apply(record)


def contents(image: MetadataImage) -> dict[str, Any]:
    return {name: repr(value) for name, value in vars(image).items()}


def partitions_of(image: MetadataImage) -> dict[TopicPartition, PartitionImage]:
    return {
        TopicPartition(name, index): each
        for name, topic in image.topics.items()
        for index, each in topic.partitions.items()
    }


@given(st.lists(changes, max_size=20), st.lists(changes, max_size=20))
@example(
    [ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="t_0", name="retention.ms", value="1")],
    [TopicRecord(name="t_0", topic_id=uuid.UUID(int=2)), RemoveTopicRecord(topic_id=uuid.UUID(int=2))],
)
def test_a_delta_has_what_changed_and_a_copy_stays_as_it_was(first: list[Any], then: list[Any]) -> None:
    image = MetadataImage()
    for record in first:
        apply_valid(image, image, record)
    before = image.copy()
    assert contents(before) == contents(image)
    was = contents(before)
    delta = MetadataDelta(image)
    for record in then:
        apply_valid(delta, image, record)
    assert contents(before) == was
    old, new = partitions_of(before), partitions_of(image)
    differing = {key for key in old.keys() | new.keys() if old.get(key) is not new.get(key)}
    assert delta.partitions == {key: (old.get(key), new.get(key)) for key in differing}
    ids, ids_before = image.topics_by_id.keys(), before.topics_by_id.keys()
    assert delta.created_topics.keys() - delta.deleted_topics.keys() == ids - ids_before
    assert delta.deleted_topics.keys() - delta.created_topics.keys() == ids_before - ids
    assert {node for node in (1, 2, 3) if before.brokers.get(node) != image.brokers.get(node)} <= delta.brokers
    assert image.controllers.keys() - before.controllers.keys() <= delta.controllers
    nodes = delta.brokers or delta.controllers
    assert bool(delta) == bool(
        delta.created_topics or delta.deleted_topics or differing or nodes or delta.configs or delta.features
    )
    for name in (0, 1):
        key = TOPIC_RESOURCE, f"t_{name}"
        if image.topics.get(f"t_{name}") is before.topics.get(f"t_{name}") is None:
            assert key in delta.configs or image.configs.get(key) == before.configs.get(key)


def test_difference_of_images_has_the_partitions_of_a_topic_created_again() -> None:
    """Although they are equal to those of the deleted topic of that name."""
    again = uuid.UUID(int=78)
    before = image_of(TopicRecord(name="t", topic_id=ID), partition(0), partition(1))
    image = image_of(TopicRecord(name="t", topic_id=again), partition(0, topic_id=again))
    delta = MetadataDelta.between(before, image)
    assert (delta.deleted_topics, delta.created_topics) == ({ID: "t"}, {again: "t"})
    assert delta.partitions == {
        TopicPartition("t", 0): (before.partition("t", 0), image.partition("t", 0)),
        TopicPartition("t", 1): (before.partition("t", 1), None),
    }
    assert not MetadataDelta.between(image, image.copy())
