"""Responses about other items than requested: a typed error, neither a success nor an IndexError."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pyclient import AsyncAdmin, NewTopic, TopicPartition, errors
from pyclient.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from pyclient.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from pyclient.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from pyclient.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from pyclient.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from pyclient.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from pyclient.protocol.messages.metadata import MetadataRequest
from pyclient.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from pyclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.cluster.scripts import broker, metadata, run
from tests.net.scripted import ScriptedBroker

OTHER_PARTITION = OffsetFetchResponseTopics(
    name="t",
    partitions=[OffsetFetchResponsePartitions(partition_index=7, committed_offset=1, metadata="", error_code=0)],
)
CASES: dict[str, tuple[type, Any, Callable[[AsyncAdmin], Any]]] = {
    "create, nothing": (
        CreateTopicsRequest,
        CreateTopicsResponse(topics=[]),
        lambda admin: admin.create_topics([NewTopic("t")]),
    ),
    "create, another topic": (
        CreateTopicsRequest,
        CreateTopicsResponse(topics=[CreatableTopicResult(name="u", error_code=0, error_message=None)]),
        lambda admin: admin.create_topics([NewTopic("t")], validate_only=True),
    ),
    "delete, one topic more": (
        DeleteTopicsRequest,
        DeleteTopicsResponse(responses=[DeletableTopicResult(name=name, error_code=0) for name in ("t", "u")]),
        lambda admin: admin.delete_topics(["t"]),
    ),
    "grow, another topic": (
        CreatePartitionsRequest,
        CreatePartitionsResponse(
            throttle_time_ms=0, results=[CreatePartitionsTopicResult(name="u", error_code=0, error_message=None)]
        ),
        lambda admin: admin.create_partitions({"t": 3}),
    ),
    "describe groups, nothing": (
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=[]),
        lambda admin: admin.describe_groups(["g"]),
    ),
    "delete groups, nothing": (
        DeleteGroupsRequest,
        DeleteGroupsResponse(throttle_time_ms=0, results=[]),
        lambda admin: admin.delete_groups(["g"]),
    ),
    "delete groups, another group": (
        DeleteGroupsRequest,
        DeleteGroupsResponse(throttle_time_ms=0, results=[DeletableGroupResult(group_id="h", error_code=0)]),
        lambda admin: admin.delete_groups(["g"]),
    ),
    "offsets, no group": (
        OffsetFetchRequest,
        OffsetFetchResponse(groups=[]),
        lambda admin: admin.list_group_offsets("g"),
    ),
    "offsets, another partition": (
        OffsetFetchRequest,
        OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[OTHER_PARTITION])]),
        lambda admin: admin.list_group_offsets("g", [TopicPartition("t", 0)]),
    ),
    "alter offsets, nothing": (
        OffsetCommitRequest,
        OffsetCommitResponse(topics=[]),
        lambda admin: admin.alter_group_offsets("g", {TopicPartition("t", 0): 5}),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_response_about_other_items_is_malformed_message(case: str) -> None:
    request, answer, call = CASES[case]

    async def scenario() -> None:
        only = ScriptedBroker()
        only.answers[MetadataRequest] = lambda *_: metadata([broker(1, only.port)], [])
        only.answers[FindCoordinatorRequest] = lambda *_: FindCoordinatorResponse(
            coordinators=[
                Coordinator(key="g", node_id=1, host="127.0.0.1", port=only.port, error_code=0, error_message=None)
            ]
        )
        only.answers[request] = answer
        async with AsyncAdmin(only.address, retry_backoff_ms=5, default_api_timeout_ms=20_000) as admin:
            with pytest.raises(errors.MalformedMessage, match="do not name the same"):
                await call(admin)
        only.stop()

    run(scenario())
