"""Requests that only the controller serves."""

import asyncio

import pytest

from pyclient.errors import (
    KafkaTimeout,
)
from pyclient.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from tests.cluster.clients import cluster_of, started
from tests.cluster.scripts import run
from tests.net.scripted import CLOSE, ScriptedBroker
from tests.patience import retry_until_error_async

CREATED = CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=0)])
NOT_HERE = CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=41)])
CREATE = CreateTopicsRequest(topics=[])


def test_controller_request_follows_moved_controller():
    async def scenario():
        one, two = ScriptedBroker({CreateTopicsRequest: NOT_HERE}), ScriptedBroker({CreateTopicsRequest: CREATED})
        cluster_of(one, two, controller=1)
        client = await started(one.address, two.address)
        asking = asyncio.ensure_future(client.request_controller(CREATE, timeout=30))
        await one.until(lambda: one.count(CreateTopicsRequest))
        assert one.count(CreateTopicsRequest) == 1
        cluster_of(one, two, controller=2)
        assert (await asking) == CREATED
        await client.close()
        one.stop()
        two.stop()

    run(scenario())


def test_controller_request_times_out_while_controller_is_unreachable():
    async def scenario():
        one = ScriptedBroker({CreateTopicsRequest: CLOSE})
        cluster_of(one)
        client = await started(one.address)
        why = "no answer to CreateTopics v7: the broker closed the connection"
        text = await retry_until_error_async(lambda: client.request_controller(CREATE, timeout=0.3), why)
        assert text.startswith("CreateTopics on the controller: not done within 0.3 s: ")
        await client.close()
        one.stop()

    run(scenario())


def test_controller_request_times_out_without_controller():
    async def scenario():
        one = ScriptedBroker()
        cluster_of(one, controller=-1)
        client = await started(one.address)
        with pytest.raises(KafkaTimeout, match=r"CreateTopics on the controller: not done within 0\.05 s"):
            await client.request_controller(CREATE, timeout=0.05)
        await client.close()
        one.stop()

    run(scenario())
