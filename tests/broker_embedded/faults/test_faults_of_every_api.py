"""A fault of any API that is served, in every version: the error is where the API has it, and the rest is answered."""

from __future__ import annotations

import copy
import uuid
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded.faults.answers import Failing
from pyclient.broker_embedded.faults.items import Selection, items_of, mark, mentions, without_failed
from pyclient.broker_embedded.faults.shapes import SHAPES, TOP, error_codes, place_of, shape_of
from pyclient.broker_embedded.served_apis import SERVED
from pyclient.protocol import codec
from pyclient.protocol.kinds import ArrayOf, Nested
from pyclient.protocol.parts import blank, fields_of
from pyclient.protocol.versions import API_KEYS, request_class

CODE = errors.KafkaStorageError.code
TOPIC_ID = uuid.UUID(int=107)


def names(topic_id: uuid.UUID) -> str | None:
    return f"t{topic_id.int - 100}" if topic_id.int >= 100 else None


def filled(cls: type, version: int, count: int = 2, number: int = 0) -> Any:
    """Return a message with `count` elements in each list of parts, which differ in their keys."""
    made: Any = blank(cls)
    for each in fields_of(cls):
        if not each.present_in(version):
            continue
        kind = each.kind
        if isinstance(kind, ArrayOf):
            if isinstance(kind.item, Nested):
                value: Any = [filled(kind.item.cls, version, count, index) for index in range(count)]
            elif kind.item.name in ("Int32", "Int64", "Int8"):
                value = list(range(count))
            else:
                value = [f"t{index}" for index in range(count)] if kind.item.name == "String" else []
            setattr(made, each.name, value)
        elif each.name in ("name", "topic", "topic_name", "resource_name", "member_id", "transactional_id", "group_id"):
            setattr(made, each.name, f"t{number}")
        elif each.name in ("index", "partition", "partition_index", "producer_id"):
            setattr(made, each.name, number)
        elif each.name == "topic_id":
            setattr(made, each.name, uuid.UUID(int=100 + number))
        elif each.name == "resource_type":
            setattr(made, each.name, 2)
    return made


def versions() -> list[tuple[str, int]]:
    found = []
    for name in SHAPES:
        first, last = request_class(API_KEYS[name]).versions
        found += [(name, version) for version in range(first, last + 1)]
    return found


@pytest.mark.parametrize("name", SERVED)
def test_every_api_that_is_served_has_a_place_for_an_error(name: str) -> None:
    assert name in SHAPES
    for version in range(SERVED[name].first, SERVED[name].last + 1):
        assert place_of(name, version, CODE, by_topic=False, by_partition=False, whole=None) is not None


@pytest.mark.parametrize(("name", "version"), versions())
def test_a_request_that_fails_altogether_has_the_error_and_can_be_encoded(name: str, version: int) -> None:
    request = filled(request_class(API_KEYS[name]), version)
    shape = shape_of(name, version)
    for whole in (True, False, None):
        place = place_of(name, version, CODE, by_topic=False, by_partition=False, whole=whole)
        assert place is not None
        failing = Failing(shape, version, place, CODE, "a test", Selection(), names)
        items = items_of(shape, request, names)
        if place == TOP:
            answer = failing.whole(request)
        else:
            if items is not None:
                mark(items, place, Selection())
                assert without_failed(shape, request, items) is None
            done = filled(request.response, version) if items is None else None
            answer = failing.put(request, items, done, done=False)
        assert error_codes(name, version, answer) == [CODE]
        again = codec.decode(type(answer), version, codec.encode(answer, version))
        assert error_codes(name, version, again) == [CODE]


def selectable() -> list[tuple[str, int, str]]:
    """Return the APIs, versions and kinds whose requests list topics or groups, by which a fault can select."""
    found = []
    for name, version in versions():
        roles = {key.role for level in shape_of(name, version).levels if level.asked for key in level.keys}
        found += [(name, version, "topic")] * bool({"topic", "resource"} & roles) + [(name, version, "group")] * (
            "group" in roles
        )
    return found


@pytest.mark.parametrize(("name", "version", "role"), selectable())
def test_only_what_is_selected_fails_and_the_rest_is_left_to_the_handler(name: str, version: int, role: str) -> None:
    request = filled(request_class(API_KEYS[name]), version)
    shape = shape_of(name, version)
    selection = Selection(**{role: "t1"})
    assert mentions(shape, request, selection, names)
    place = place_of(name, version, CODE, by_topic=role == "topic", by_partition=False, whole=False)
    assert place is not None
    assert place != TOP
    items = items_of(shape, request, names)
    assert items is not None
    mark(items, place, selection)
    before = copy.deepcopy(request)
    rest = without_failed(shape, request, items)
    assert request == before
    assert rest is not None
    assert not mentions(shape, rest, selection, names)
    assert mentions(shape, rest, Selection(**{role: "t0"}), names)
    answer = Failing(shape, version, place, CODE, "a test", selection, names).put(request, items, None, done=False)
    assert error_codes(name, version, answer) == [CODE]
    codec.encode(answer, version)


def test_topics_are_found_by_their_ids() -> None:
    from pyclient.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

    partition = FetchPartition(partition=3, fetch_offset=0, partition_max_bytes=1)
    request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[partition])])
    shape = shape_of("Fetch", 13)
    assert mentions(shape, request, Selection(topic="t7", partitions=frozenset({3})), names)
    assert not mentions(shape, request, Selection(topic="t7", partitions=frozenset({2})), names)
    assert not mentions(shape, request, Selection(topic="t8"), names)
    assert mentions(shape, request, Selection(topic="t*"), names)


def test_two_partitions_of_one_request_are_distinguished() -> None:
    from pyclient.protocol.messages.produce import (
        PartitionProduceData,
        PartitionProduceResponse,
        ProduceRequest,
        ProduceResponse,
        TopicProduceData,
        TopicProduceResponse,
    )

    data = [PartitionProduceData(index=index, records=b"x") for index in (2, 0, 1)]
    request = ProduceRequest(acks=-1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=data)])
    shape = shape_of("Produce", 9)
    selection = Selection(topic="t", partitions=frozenset({0}))
    place = place_of("Produce", 9, CODE, by_topic=True, by_partition=True, whole=None)
    assert place == 1
    items = items_of(shape, request, names)
    assert items is not None
    mark(items, place, selection)
    rest = without_failed(shape, request, items)
    assert rest is not None
    assert [each.index for each in rest.topic_data[0].partition_data] == [2, 1]
    served = [PartitionProduceResponse(index=index, error_code=0, base_offset=5) for index in (2, 1)]
    response = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=served)])
    answer = Failing(shape, 9, place, CODE, "a test", selection, names).put(request, items, response, done=False)
    assert [(each.index, each.error_code, each.base_offset) for each in answer.responses[0].partition_responses] == [
        (2, 0, 5),
        (0, CODE, -1),
        (1, 0, 5),
    ]


def test_a_config_resource_is_a_topic_or_a_group_by_its_type() -> None:
    from pyclient.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name="a", configuration_keys=None) for kind in (2, 4, 32)
    ]
    request = DescribeConfigsRequest(resources=resources, include_synonyms=False)
    shape = shape_of("DescribeConfigs", 4)
    for selection, kind in ((Selection(topic="a"), 2), (Selection(group="a"), 32)):
        items = items_of(shape, request, names)
        assert items is not None
        mark(items, 0, selection)
        assert [item.source.resource_type for item in items if item.failed] == [kind]
