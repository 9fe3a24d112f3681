"""Check keys, values and headers: the rare cases and the errors, shared by both implementations."""

from __future__ import annotations

from typing import Any


def as_bytes(data: Any, name: str) -> bytes:
    """Return the content of a bytes-like object. Raise `TypeError`, which names `name`, for any other type."""
    if type(data) is bytes:
        return data
    try:
        return memoryview(data).tobytes()
    except TypeError:
        raise TypeError(f"a {name} must be bytes, a bytes-like object or None, not {type(data).__name__}") from None


def header_pair(pair: Any) -> tuple[str, Any]:
    """Return the name and the unchecked value of one header. Raise `TypeError` if it is not such a pair."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[0], str):
        raise TypeError(f"a header must be a pair of a str and bytes or None, not {pair!r:.80}")
    return pair[0], pair[1]


def rows_outside(start: int, stop: int, available: int) -> ValueError:
    """Return the error for a range of rows that the columns do not have."""
    return ValueError(f"rows {start} to {stop} are not in columns of {available} rows")


def no_such_row(row: int, count: int) -> ValueError:
    """Return the error for a row that the columns do not have."""
    return ValueError(f"row {row} is not in columns of {count} rows")
