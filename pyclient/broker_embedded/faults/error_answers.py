"""Error responses for requests that fail in the broker, for APIs with error codes.

A `BrokerError` gives its code; everything else is UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.failures import message_of
from pyclient.broker_embedded.faults.answers import Failing
from pyclient.broker_embedded.faults.items import Selection, items_of, mark
from pyclient.broker_embedded.faults.shapes import TOP, place_of, shape_of
from pyclient.errors import BrokerError, UnknownServerError

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from pyclient.protocol.fields import Request, Response

TEXT: Final = "the broker failed; its log says more"


def failed_answer(
    name: str,
    request: Request[Any],
    version: int,
    topic_name: Callable[[UUID], str | None],
    error: BaseException,
) -> Response | None:
    """Return the answer with the error in its outermost error code; None if there is no place for one.

    The connection is closed then: an answer without an error would report success.
    """
    if getattr(request, "acks", None) == 0:
        return None
    code, text = (error.code, message_of(error)) if isinstance(error, BrokerError) else (UnknownServerError.code, TEXT)
    place = place_of(name, version, code, by_topic=False, by_partition=False, whole=True)
    if place is None:
        return None
    shape, everything = shape_of(name, version), Selection()
    failing = Failing(shape, version, place, code, text, everything, topic_name)
    if place == TOP:
        return failing.whole(request)
    items = items_of(shape, request, topic_name)
    if not items or not mark(items, place, everything):
        return None
    return failing.put(request, items, None, done=False)
