"""The controls that show groups and topics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.controls import views
from pyclient.broker_embedded.controls.endpoint import TIMEOUT, Endpoint, NotFound, Values, optional_count_of, within

if TYPE_CHECKING:
    from pyclient.broker_embedded.controls.control_state import ControlState


async def groups(controls: ControlState, _name: str, _values: Values) -> Any:
    """`GET /groups`: the groups."""
    return {"groups": await views.groups(controls.node)}


async def group(controls: ControlState, name: str, _values: Values) -> Any:
    """`GET /groups/{}`: a group; one that does not exist is Dead."""
    return await views.group(controls.node, name)


async def wait_group(controls: ControlState, name: str, values: Values) -> Any:
    """`GET /groups/{}/wait`: the group, as soon as it matches."""
    fits = views.group_condition(values.get("state"), optional_count_of(values, "members"))
    return await _until(lambda: views.group(controls.node, name), fits, values)


async def topics(controls: ControlState, _name: str, _values: Values) -> Any:
    """`GET /topics`: the topics with their offsets."""
    return {"topics": [await views.topic(controls.node, name) for name in sorted(controls.node.image.topics)]}


async def topic(controls: ControlState, name: str, _values: Values) -> Any:
    """`GET /topics/{}`: one topic."""
    if name not in controls.node.image.topics:
        raise NotFound(f"there is no topic {name!r}")
    return await views.topic(controls.node, name)


async def wait_topic(controls: ControlState, name: str, values: Values) -> Any:
    """`GET /topics/{}/wait`: the topic, as soon as it matches."""
    fits = views.topic_condition(optional_count_of(values, "partitions"), optional_count_of(values, "records"))
    return await _until(lambda: views.topic(controls.node, name), fits, values)


async def _until(
    read: Callable[[], Awaitable[dict[str, Any]]], fits: Callable[[dict[str, Any]], bool], values: Values
) -> Any:
    """Poll `read` until its result fits."""
    seen: dict[str, Any] = {}

    async def poll_until_fits() -> dict[str, Any]:
        nonlocal seen
        while not fits(seen := await read()):  # noqa: ASYNC110 - there is no event for every change
            await asyncio.sleep(views.POLL_SECONDS)
        return seen

    return await within(poll_until_fits(), values, lambda: f"it is {views.brief(seen)}")


_GROUP_STATE: Final = {"state": "a state, or several with commas between them", "members": "how many members"}
_TOPIC_STATE: Final = {"partitions": "at least this many", "records": "at least this many in all partitions together"}

ENDPOINTS: Final = (
    Endpoint("GET", "/groups", "the groups", {}, groups),
    Endpoint("GET", "/groups/{}", "a group; one that does not exist is Dead", {}, group),
    Endpoint("GET", "/groups/{}/wait", "the group, as soon as it matches", {**_GROUP_STATE, **TIMEOUT}, wait_group),
    Endpoint("GET", "/topics", "the topics with their offsets", {}, topics),
    Endpoint("GET", "/topics/{}", "one topic", {}, topic),
    Endpoint("GET", "/topics/{}/wait", "the topic, as soon as it matches", {**_TOPIC_STATE, **TIMEOUT}, wait_topic),
)
