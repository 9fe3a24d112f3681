"""Topics of thousands of partitions are made in short steps, between which other requests are served."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.config.broker_config import BrokerConfig
from pyclient.broker_embedded.controller import records as metadata_records
from pyclient.broker_embedded.controller import topics
from pyclient.broker_embedded.controller.controller import Controller
from pyclient.broker_embedded.controller.image import MetadataImage
from pyclient.broker_embedded.controller.metadata_log import MetadataLog
from pyclient.broker_embedded.controller.topics import TopicPlan
from pyclient.broker_embedded.log.filesystem import RealFileSystem
from pyclient.broker_embedded.log.incremental_task import run_here
from pyclient.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pyclient.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pyclient.protocol.messages.metadata_log import FeatureLevelRecord
from pyclient.records import decode_key_values, iter_batches
from tests.broker_embedded.test_large_requests import calls_of_steps

MANY = 2000
FIRST, SECOND = uuid.UUID(int=1), uuid.UUID(int=2)


class FixedClock:
    """A clock that does not advance."""

    def monotonic(self) -> float:
        return 0.0

    def time_ms(self) -> int:
        return 1_700_000_000_000


class Broker:
    """A controller on a metadata log in files, without a node."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.image = MetadataImage()
        self.online = [(FIRST, False)]
        self.charged: list[int] = []
        self.log = open_log(directory, self.image)
        config = BrokerConfig.build(data_dir=str(directory))
        self.controller = Controller(config, self.image, self.log, Random(1), lambda: list(self.online))
        self.controller.register([("PLAINTEXT", "h", 1, 0)])

    def creating(self, name: str, count: int = MANY) -> Iterator[Any]:
        return self.controller.create_topic(TopicPlan(name, count), charge=self.charged.append)

    def growing(self, name: str, count: int = MANY) -> Iterator[Any]:
        return self.controller.create_partitions(name, count, None, charge=self.charged.append)

    def create(self, name: str, count: int) -> None:
        run_here(self.controller.create_topic(TopicPlan(name, count)))

    def delete(self, name: str) -> None:
        self.controller.delete_topic(self.image.topics[name])

    def partitions(self, name: str) -> int:
        return len(self.image.topics[name].partitions)

    def bytes(self) -> bytes:
        return (self.directory / "__cluster_metadata-0" / f"{0:020}.log").read_bytes()


def open_log(directory: Path, image: MetadataImage) -> MetadataLog:
    return MetadataLog.open(
        str(directory), image, fs=RealFileSystem(durable=False), clock=FixedClock(), node_id=1, clean=True
    )


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path)
    yield broker
    broker.log.close()
    image = MetadataImage()
    open_log(tmp_path, image).close()
    assert (image.topics, +image.directory_sizes) == (broker.image.topics, +broker.image.directory_sizes)


def finish(steps: Iterator[Any], between: Callable[[], object]) -> None:
    """Take two steps, call `between`, and take the others."""
    for _ in range(2):
        next(steps)
    between()
    for _ in steps:
        pass


def test_new_topic_appears_with_all_partitions_in_last_step(broker: Broker) -> None:
    steps, before, version = broker.creating("t"), broker.log.end_offset, broker.image.version
    count = 0
    for _ in steps:
        count += 1
        assert (broker.image.topics, broker.log.end_offset) == ({}, before)
    assert count == MANY // 50
    assert broker.partitions("t") == MANY
    assert (broker.log.end_offset - before, broker.image.version - version) == (MANY + 1, MANY + 1)


def test_few_partitions_take_one_step(broker: Broker) -> None:
    assert list(broker.creating("t", 49)) == []
    assert list(broker.growing("t", 99)) == []
    assert broker.partitions("t") == 99


def test_records_are_written_as_one_batch_as_without_steps(broker: Broker, tmp_path: Path) -> None:
    run_here(broker.creating("t"))  # type: ignore[arg-type]
    run_here(broker.growing("t", MANY + 100))  # type: ignore[arg-type]
    other = Broker(tmp_path / "other")
    one, topic_id = topics.Assigned([1], [1], [FIRST]), broker.image.topics["t"].topic_id
    other.log.append(list(topics.records_for_new_topic("t", topic_id, [one] * MANY, {})))
    other.log.append(list(topics.records_for_partitions(topic_id, MANY, [one] * 100)))
    other.log.close()
    assert broker.bytes() == other.bytes()
    assert broker.image.topics == other.image.topics
    assert broker.log.unsynced_partitions("t") is not None or other.log.unsynced_partitions("t") is None


@pytest.mark.parametrize(("other", "error"), [("t.many", errors.TopicAlreadyExists), ("t_many", errors.InvalidTopic)])
def test_topic_created_by_other_request_meanwhile_is_refused(
    broker: Broker, other: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        finish(broker.creating("t.many"), lambda: broker.create(other, 3))
    assert {name: broker.partitions(name) for name in broker.image.topics} == {other: 3}


def test_two_requests_for_one_topic_create_it_once(broker: Broker) -> None:
    first, second = broker.creating("t"), broker.creating("t", MANY + 1)
    with pytest.raises(errors.TopicAlreadyExists):
        finish(second, lambda: run_here(first))  # type: ignore[arg-type]
    assert broker.partitions("t") == MANY


def test_directory_cordoned_meanwhile_gets_no_new_partition(broker: Broker) -> None:
    def cordon() -> None:
        broker.online = [(FIRST, True), (SECOND, False)]

    finish(broker.creating("t"), cordon)
    assert +broker.image.directory_sizes == {SECOND: MANY}
    broker.online = [(FIRST, False)]
    finish(broker.growing("t", 2 * MANY), cordon)
    assert +broker.image.directory_sizes == {SECOND: 2 * MANY}
    assert broker.charged == [MANY, MANY]


@pytest.mark.parametrize("grown", [False, True])
def test_partitions_are_encoded_for_metadata_version_at_the_end(broker: Broker, grown: bool) -> None:
    def lower() -> None:
        broker.log.append([FeatureLevelRecord(name="metadata.version", feature_level=22)])

    if grown:
        broker.create("t", 1)
    finish(broker.growing("t") if grown else broker.creating("t"), lower)
    content = broker.bytes()
    *_, (position, header) = iter_batches(content)
    values = [bytes(value or b"") for _offset, _time, _key, value in decode_key_values(content, position, header)]
    kinds = [value[:3] for value in values]
    expected = [metadata_records.FRAME_VERSION, 3, metadata_records.version_of(3, 22)]
    assert kinds == [bytes([1, 2, 0])] * (not grown) + [bytes(expected)] * (MANY - grown)
    assert metadata_records.version_of(3, 22) == 1


def test_topic_deleted_meanwhile_does_not_grow(broker: Broker) -> None:
    broker.create("t", 3)
    with pytest.raises(errors.UnknownTopicOrPartition):
        finish(broker.growing("t"), lambda: broker.delete("t"))
    assert broker.image.topics == {}


def test_topic_recreated_meanwhile_grows_from_its_own_size(broker: Broker) -> None:
    broker.create("t", 70)

    def recreate() -> None:
        broker.delete("t")
        broker.create("t", 3)

    finish(broker.growing("t"), recreate)
    assert sorted(broker.image.topics["t"].partitions) == list(range(MANY))


def test_topic_grown_meanwhile_gets_missing_partitions_only(broker: Broker) -> None:
    broker.create("t", 3)
    finish(broker.growing("t"), lambda: run_here(broker.growing("t", 100)))  # type: ignore[arg-type]
    assert sorted(broker.image.topics["t"].partitions) == list(range(MANY))
    assert broker.charged == [MANY - 3, 97]


def test_topic_grown_further_meanwhile_is_left_alone(broker: Broker) -> None:
    broker.create("t", 3)
    with pytest.raises(errors.InvalidPartitions):
        finish(broker.growing("t"), lambda: run_here(broker.growing("t", MANY)))  # type: ignore[arg-type]
    assert broker.partitions("t") == MANY


def test_abandoned_steps_create_nothing(broker: Broker) -> None:
    steps = broker.controller.create_topic(TopicPlan("t", MANY))
    next(steps)
    steps.close()
    assert broker.image.topics == {}


def test_requests_for_10000_partitions_take_short_steps(connect: Any) -> None:
    with EmbeddedCluster() as cluster:
        client = connect(cluster)

        def create(name: str, count: int) -> int:
            wanted = CreatableTopic(name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[])
            code: int = client.call(CreateTopicsRequest(topics=[wanted]), 7).topics[0].error_code
            return code

        def grow(name: str, count: int) -> int:
            wanted = CreatePartitionsTopic(name=name, count=count, assignments=None)
            request = CreatePartitionsRequest(topics=[wanted], timeout_ms=1, validate_only=False)
            code: int = client.call(request, 3).results[0].error_code
            return code

        assert create("warm", 100) == 0  # compiles the codec
        codes: list[int] = []
        calls = calls_of_steps(cluster, lambda: codes.append(create("made", 9999)))
        calls += calls_of_steps(cluster, lambda: codes.append(grow("warm", 10_000)))
        assert codes == [0, 0]
        assert len(calls) > 2 * 190
        assert max(calls) < 30_000
