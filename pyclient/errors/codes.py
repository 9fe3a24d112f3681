"""Map Kafka's error codes to classes."""

from __future__ import annotations

from typing import Final

from pyclient.errors import general, groups, quorum, records, security, topics, transactions
from pyclient.errors.base import BrokerError, UnknownErrorCode
from pyclient.errors.rights import needed_right

__all__ = ["for_code", "from_code"]

_AREAS: Final = (general, groups, quorum, records, security, topics, transactions)
_BY_CODE: Final[dict[int, type[BrokerError]]] = {
    cls.code: cls for area in _AREAS for cls in (getattr(area, name) for name in area.__all__)
}


def for_code(code: int) -> type[BrokerError]:
    """Return the class of one of Kafka's error codes; `UnknownErrorCode` for one that this library does not know."""
    return _BY_CODE.get(code, UnknownErrorCode)


def from_code(code: int, message: str, api: str = "") -> BrokerError:
    """Return an error of the code's class; its text starts with `message`.

    With the name of the request, like `Fetch`, the text of an error of authorization ends with the right that it needs.
    """
    cls = for_code(code)
    if cls is UnknownErrorCode:
        error = cls(f"{message}: unknown error code {code}")
        error.code = code
        return error
    right = needed_right(api, code)
    return cls(f"{message}; {right}" if right else message)
