"""Metadata of topics added one after the other: only new or missing ones are requested, the rest is unchanged."""

import asyncio

import pytest

from pyclient.cluster.metadata import EMPTY, snapshot
from pyclient.errors import KafkaTimeout, LeaderNotAvailable
from pyclient.protocol.messages.metadata import MetadataRequest
from tests.cluster.clients import cluster_of, has_nodes, started
from tests.cluster.scripts import broker, metadata, partition, run, topic
from tests.net.scripted import ScriptedBroker

NODES = [broker(1, 9092), broker(2, 9093)]


def names_of(request):
    return None if request.topics is None else [each.name for each in request.topics]


def asked_by(scripted):
    return [names_of(request) for request in scripted.requests if isinstance(request, MetadataRequest)]


def test_response_about_some_topics_keeps_the_others():
    known = snapshot(EMPTY, metadata(NODES, [topic("a", [partition(0, 1)]), topic("b", [partition(0, 2)])]), 1.0)
    answer = metadata(NODES, [topic("b", [partition(0, 1)]), topic("not-asked", [partition(0, 1)])])
    merged = snapshot(known, answer, 2.0, frozenset({"b", "gone"}))
    assert merged.topics["a"] is known.topics["a"] and set(merged.topics) == {"a", "b"}
    assert merged.leader("b", 0) == 1 and known.leader("b", 0) == 2
    assert (merged.fetched_at, merged.updated) == (1.0, {"b", "gone"})


@pytest.mark.parametrize("count", [20, 100])
def test_new_topics_are_requested_one_by_one_and_then_all_at_once(count):
    async def scenario():
        only, names = ScriptedBroker(), [f"t{number}" for number in range(count)]
        cluster_of(only, topics=names)
        client = await started(only.address)
        await client.wait_metadata(has_nodes, 30)
        before = len(asked_by(only))
        for name in names:
            assert len((await client.topic_partitions(name, 30)).partitions) == 2
        requests = [[name] for name in names] if count < 32 else [*([name] for name in names[:31]), None]
        assert asked_by(only)[before:] == requests
        assert list(client.metadata.topics) == names
        assert client.topics == set(names)
        client.request_refresh()
        await only.until(lambda: len(asked_by(only)) > before + len(requests))
        assert asked_by(only)[-1] == sorted(names)
        await client.close()
        only.stop()

    run(scenario())


def test_unlisted_topics_are_requested_by_name():
    async def scenario():
        only, names = ScriptedBroker(), [f"t{number}" for number in range(40)]
        cluster_of(only, topics=names)
        by_name = only.answers[MetadataRequest]
        nothing_listed = metadata([broker(1, only.port)], [])
        only.answers[MetadataRequest] = lambda request, *given: (
            nothing_listed if request.topics is None else by_name(request, *given)
        )
        client = await started(only.address)
        await client.wait_metadata(has_nodes, 30)
        for name in names:
            assert len((await client.topic_partitions(name, 30)).partitions) == 2
        assert asked_by(only).count(None) == 1
        await client.close()
        only.stop()

    run(scenario())


def test_only_topics_without_leader_are_requested_again():
    async def scenario():
        only = ScriptedBroker()
        cluster_of(only, topics=("ready", "late"))
        whole, left = only.answers[MetadataRequest], [3]

        def answer(request, version, correlation_id):
            response = whole(request, version, correlation_id)
            for one in response.topics:
                if one.name == "late" and left[0]:
                    left[0] -= 1
                    one.partitions, one.error_code = [], LeaderNotAvailable.code
            return response

        only.answers[MetadataRequest] = answer
        client = await started(only.address)
        await client.topic_partitions("ready", 30)
        before = len(asked_by(only))
        await client.topic_partitions("late", 30)
        assert asked_by(only)[before:] == [["late"]] * 4
        await client.close()
        only.stop()

    run(scenario())


def test_removed_node_causes_refresh_of_all_topics():
    async def scenario():
        first, second = ScriptedBroker(), ScriptedBroker()
        cluster_of(first, second, topics=("a", "b"))
        client = await started(first.address)
        await client.topic_partitions("a", 30)
        assert set(client.metadata.nodes) == {1, 2} and client.metadata.leader("a", 1) == 2
        for each in (first, second):
            each.answers[MetadataRequest] = lambda request, version, correlation_id: metadata(
                [broker(1, first.port)], [topic(name, [partition(0, 1), partition(1, 1)]) for name in names_of(request)]
            )
        await client.topic_partitions("b", 30)
        await client.wait_metadata(lambda found: found.leader("a", 1) == 1, 30)
        await client.close()
        for each in (first, second):
            each.stop()

    run(scenario())


def test_missing_partition_is_requested_from_another_broker():
    async def scenario():
        lagging, current = ScriptedBroker(), ScriptedBroker()
        nodes = [broker(1, lagging.port), broker(2, current.port)]
        for each, count in ((lagging, 1), (current, 3)):
            each.answers[MetadataRequest] = lambda request, version, correlation_id, count=count: metadata(
                nodes, [topic(name, [partition(n, 1) for n in range(count)]) for name in names_of(request)]
            )
        client = await started(lagging.address)
        assert len((await client.topic_partitions("a", 30)).partitions) == 1
        assert len((await client.topic_partitions("a", 30, partitions=3)).partitions) == 3
        assert asked_by(current) == [["a"]]
        await client.close()
        for each in (lagging, current):
            each.stop()

    run(scenario())


def test_missing_partition_is_requested_until_timeout():
    async def scenario():
        only = ScriptedBroker()
        cluster_of(only)
        client = await started(only.address)
        await client.topic_partitions("a", 30)
        before = len(asked_by(only))
        waiting = asyncio.ensure_future(client.topic_partitions("a", 30, partitions=3))
        await only.until(lambda: len(asked_by(only)) > before + 2)
        assert not waiting.done()
        waiting.cancel()
        with pytest.raises(KafkaTimeout):
            await client.topic_partitions("a", 0.3, partitions=3)
        await client.close()
        only.stop()

    run(scenario())
