import asyncio
import uuid

import pytest

from pyclient import Admin, AsyncAdmin, NewTopic, errors
from tests.patience import retry_until_error


@pytest.fixture
def admin(kafka_cluster):
    with Admin(kafka_cluster.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def name(request):
    return f"admin-{uuid.uuid4().hex[:8]}"


def test_topic_is_created_described_grown_and_deleted(admin, name):
    created = admin.create_topics([NewTopic(name, 3, 1, configs={"retention.ms": "3600000"})])
    assert [partition.leader for partition in created[name].partitions] == [1, 1, 1]
    assert created[name].topic_id.int != 0
    assert name in admin.list_topics()
    grown = admin.create_partitions({name: 5})
    assert len(grown[name].partitions) == 5
    assert admin.describe_topics([name]) == grown
    admin.delete_topics([name])
    assert name not in admin.list_topics(include_internal=True)
    with pytest.raises(errors.UnknownTopicOrPartition, match=f"describing topic '{name}'"):
        admin.describe_topics([name])


def test_topic_without_numbers_gets_broker_defaults(admin, name):
    assert len(admin.create_topics([NewTopic(name)])[name].partitions) >= 1
    admin.delete_topics([name])


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        (NewTopic("bad/name"), errors.InvalidTopic),
        (NewTopic(""), errors.InvalidTopic),
        (NewTopic("x" * 250), errors.InvalidTopic),
        (NewTopic("none", 0), errors.InvalidPartitions),
        (NewTopic("many-copies", 1, 7), errors.InvalidReplicationFactor),
        (NewTopic("odd-option", configs={"no.such.option": "1"}), errors.InvalidConfig),
        (NewTopic("odd-replicas", assignments={0: [77]}), errors.InvalidReplicaAssignment),
    ],
)
def test_broker_error_is_raised_as_its_class(admin, topic, kind):
    with pytest.raises(kind, match=f"creating topic '{topic.name}'"):
        admin.create_topics([topic])
    assert topic.name not in admin.list_topics()


def test_create_topics_creates_valid_ones_of_several(admin, name):
    admin.create_topics([NewTopic(name)])
    with pytest.raises(errors.TopicAlreadyExists, match=f"done for: {name}-2") as error:
        admin.create_topics([NewTopic(name), NewTopic(f"{name}-2")])
    assert error.value.results[f"{name}-2"] is None
    assert f"{name}-2" in admin.list_topics()
    with pytest.raises(errors.InvalidPartitions):
        admin.create_partitions({name: 1})
    admin.delete_topics([name, f"{name}-2"])


def test_validate_only_creates_nothing(admin, name):
    assert admin.create_topics([NewTopic(name, assignments={0: [1]})], validate_only=True) == {}
    assert name not in admin.list_topics()


def test_async_admin_does_the_same(kafka_cluster, name):
    async def scenario():
        async with AsyncAdmin(kafka_cluster.bootstrap_servers) as admin:
            await asyncio.gather(*[admin.create_topics([NewTopic(f"{name}-{n}")]) for n in range(20)])
            made = [topic for topic in await admin.list_topics() if topic.startswith(name)]
            assert len(made) == 20
            await admin.delete_topics(made)

    asyncio.run(scenario())


def test_admin_works_after_broker_restart(tmp_path):
    from pyclient.broker_embedded import EmbeddedCluster

    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        servers = cluster.bootstrap_servers
        admin = Admin(servers)
        admin.create_topics([NewTopic("kept")])
    try:
        retry_until_error(lambda: admin.list_topics(timeout=0.5), f"{servers}: connection refused")
        with EmbeddedCluster(data_dir=tmp_path, port=int(servers.rpartition(":")[2])):
            assert "kept" in admin.list_topics(timeout=30)
    finally:
        admin.close()
