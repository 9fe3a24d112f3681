"""Requests of many items: served in slices, in linear time, and bounded; other clients are served in between."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from benchmarks.large_requests import REQUESTS, api_of, large_request
from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.dispatch import handler_of
from pyclient.broker_embedded.log.incremental_task import finished
from pyclient.broker_embedded.request_context import RequestContext
from pyclient.broker_embedded.scheduling.request_slices import SlicedRequest
from pyclient.broker_embedded.served_apis import SERVED
from pyclient.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker_embedded.nodes import node_of
from tests.broker_embedded.security.tokens import CREATE, log_in
from tests.waiting import until

TOPIC = "existing"
ITEMS = 2000
ASK = MetadataRequest(topics=[])


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _topic(client: Any) -> None:
    wanted = CreatableTopic(name=TOPIC, num_partitions=1000, replication_factor=1, assignments=[], configs=[])
    assert client.call(CreateTopicsRequest(topics=[wanted]), 7).topics[0].error_code in (0, 36)


def test_every_api_has_large_request() -> None:
    assert {api_of(name) for name in REQUESTS} == set(SERVED)


@pytest.mark.parametrize("name", REQUESTS)
def test_large_request_is_served_in_short_slices(name: str, client: Any, broker: EmbeddedCluster) -> None:
    """The work of each step is counted in function calls, as times depend on the machine."""
    request, version = large_request(name, ITEMS, TOPIC)
    if name == "JoinGroup":  # answered only when the other members have joined
        client.send(request, version)
        return
    client.call(*large_request(name, 300, TOPIC))  # compiles the codec
    calls = calls_of_steps(broker, lambda: client.call(request, version))
    assert max(calls, default=0) < MOST_CALLS.get(name, 4 * ITEMS)


def test_other_client_is_answered_during_large_request(
    client: Any, connect: Any, broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()
    slices = 0
    advance = SlicedRequest.advance

    def held(request: SlicedRequest, seconds: float, clock: Callable[[], float]) -> bool:
        """Stop at the tenth slice until other requests were answered."""
        nonlocal slices
        slices += 1
        return advance(request, 0.0 if slices < 10 else seconds, clock) if slices < 10 or may_end.is_set() else False

    other = connect(broker)
    other.call(ASK, 9)  # cached: takes no slices later
    request, version = large_request("ListOffsets", 5000, TOPIC)
    monkeypatch.setattr(SlicedRequest, "advance", held)
    client.send(request, version)
    until(lambda: slices > 10)
    for _ in range(5):
        assert other.call(ASK, 9).controller_id == 1
    assert len(node_of(broker).request_slices) == 1  # it is not done yet
    may_end.set()
    response, _ = client.receive(type(request), version)
    assert len(response.topics[0].partitions) == 5000


def test_requests_after_large_request_are_answered_in_order(client: Any) -> None:
    request, version = large_request("ListOffsets", 5000, TOPIC)
    first = client.send(request, version)
    later = [client.send(ASK, 9) for _ in range(3)]
    assert client.receive(type(request), version)[1] == first
    assert [client.receive(MetadataRequest, 9)[1] for _ in later] == later


def test_large_request_of_reset_connection_is_dropped(
    connect: Any, broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance, begun = SlicedRequest.advance, set[SlicedRequest]()

    def advance_once(self: SlicedRequest, seconds: float, clock: Callable[[], float]) -> bool:
        if self in begun:
            return False  # stops until the broker has seen the disconnect
        begun.add(self)
        return advance(self, seconds, clock)

    monkeypatch.setattr(SlicedRequest, "advance", advance_once)
    before = len(node_of(broker).image.topics)
    request, version = large_request("Metadata, creating", 3000, TOPIC)
    client = connect(broker)
    client.send(request, version)
    until(lambda: len(node_of(broker).request_slices) == 1)
    client.reset()
    until(lambda: len(node_of(broker).request_slices) == 0)
    assert len(node_of(broker).image.topics) < before + 3000


def test_topic_creation_cost_is_independent_of_topic_count(connect: Any) -> None:
    with EmbeddedCluster() as cluster:
        _compare_with_more_topics(connect(cluster), cluster)


def _compare_with_more_topics(client: Any, broker: EmbeddedCluster) -> None:
    def calls(first: int) -> int:
        names = [f"made.{number}" for number in range(first, first + 200)]
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
        return sum(calls_of_steps(broker, lambda: client.call(request, 9)))

    calls(0)
    few = min(calls(first) for first in range(200, 800, 200))
    for first in range(800, 2000, 200):
        calls(first)
    assert min(calls(first) for first in range(2000, 2600, 200)) < 1.5 * few


class CountingName(str):
    """A name that counts its comparisons."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        CountingName.comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


class CountingNumber(int):
    """A number that counts its comparisons."""

    def __eq__(self, other: object) -> bool:
        CountingName.comparisons += 1
        return int.__eq__(self, other)

    __hash__ = int.__hash__


@pytest.mark.parametrize(
    "name", ["ListOffsets", "AlterConfigs", "IncrementalAlterConfigs", "DescribeUserScramCredentials"]
)
def test_items_of_request_are_not_compared_with_all_others(name: str, broker: EmbeddedCluster) -> None:
    request, version = large_request(name, 1000, TOPIC)
    for each in getattr(request, "resources", ()):
        each.resource_name = CountingName(each.resource_name)
    for each in getattr(request, "users", ()):
        each.name = CountingName(each.name)
    for topic in getattr(request, "topics", ()):
        for partition in topic.partitions:
            partition.partition_index = CountingNumber(partition.partition_index)
    CountingName.comparisons = 0
    context = RequestContext(node_of(broker), type(request).api_key, version, "test", None)  # type: ignore[arg-type]
    finished(handler_of(api_of(name))(request, context))
    assert CountingName.comparisons < 10_000


# How much work there was


MOST_CALLS = {
    "ConsumerGroupHeartbeat": 40_000,  # a change of a group takes one step
    "LeaveGroup": 40_000,
    "IncrementalAlterConfigs, list": 30_000,  # one value, whose length is bounded
}


def calls_of_steps(broker: EmbeddedCluster, ask: Callable[[], object]) -> list[int]:
    """Return the number of function calls, also of C functions, in each step of the requests that `ask` sends."""
    calls: list[int] = []

    def advance(request: SlicedRequest, _seconds: float, _clock: Callable[[], float]) -> bool:
        counted = 0

        def count(_frame: object, event: str, _arg: object) -> None:
            nonlocal counted
            counted += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            next(request.steps)
        except StopIteration:
            return True
        finally:
            sys.setprofile(None)
            calls.append(counted)
        return False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SlicedRequest, "advance", advance)
        ask()
        until(lambda: len(node_of(broker).request_slices) == 0)
    return calls


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("CreateDelegationToken", 0),
        ("RenewDelegationToken", errors.DelegationTokenNotFound.code),
        ("ExpireDelegationToken", errors.DelegationTokenNotFound.code),
        ("DescribeDelegationToken", 0),
    ],
)
def test_request_about_many_tokens_is_served_in_short_slices(connect: Any, name: str, code: int) -> None:
    """From a client that may ask: the others are refused before there is any work."""
    with EmbeddedCluster(security="SASL_PLAINTEXT", users={"alice": "secret"}) as cluster:
        client = connect(cluster)
        assert log_in(client, "alice", "secret").error_code == 0
        for _ in range(300):
            assert client.call(CREATE, 3).error_code == 0
        client.call(*large_request(name, 300, TOPIC))  # compiles the codec
        answers: list[Any] = []
        request, version = large_request(name, 1000, TOPIC)
        calls = calls_of_steps(cluster, lambda: answers.append(client.call(request, version)))
        assert answers[0].error_code == code
        assert len(calls) > 100
        assert max(calls) < 4 * ITEMS
