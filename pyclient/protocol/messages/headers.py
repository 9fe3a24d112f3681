"""The headers of requests and responses."""

from pyclient.protocol.fields import Int16, Int32, Message, field, message


@message(versions=(1, 2), flexible=2)
class RequestHeader(Message):
    request_api_key: Int16
    request_api_version: Int16
    correlation_id: Int32
    client_id: str | None = field(flexible=False)


@message(versions=(0, 1), flexible=1)
class ResponseHeader(Message):
    correlation_id: Int32
