"""DeleteTopics (key 20): delete topics by name or by id."""

from pyclient.protocol.fields import ZERO_UUID, Int16, Int32, Request, Response, Uuid, api, field, part


@part
class DeletableTopicResult:
    name: str | None = field(nullable=6)
    topic_id: Uuid = field(since=6, default=ZERO_UUID, ignorable=True)
    error_code: Int16
    error_message: str | None = field(since=5, default=None, ignorable=True)


@api(key=20, versions=(1, 6), flexible=4)
class DeleteTopicsResponse(Response):
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    responses: list[DeletableTopicResult]


@part
class DeleteTopicState:
    name: str | None = None
    topic_id: Uuid


@api(key=20, versions=(1, 6), flexible=4)
class DeleteTopicsRequest(Request[DeleteTopicsResponse]):
    """Up to v5 by name in `topic_names`, from v6 by name or id in `topics`."""

    topics: list[DeleteTopicState] = field(since=6, default=[])
    topic_names: list[str] = field(until=5, default=[], ignorable=True)
    timeout_ms: Int32
