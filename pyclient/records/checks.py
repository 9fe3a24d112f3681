"""What a key, a value and a header may be: the rare cases and the refusals, the same for both twins."""

from __future__ import annotations

from typing import Any


def as_bytes(data: Any, what: str) -> bytes:
    """The content of a bytes-like object. Raises `TypeError` that names `what` for anything else."""
    if type(data) is bytes:
        return data
    try:
        return memoryview(data).tobytes()
    except TypeError:
        raise TypeError(f"a {what} must be bytes, a bytes-like object or None, not {type(data).__name__}") from None


def header_pair(pair: Any) -> tuple[str, Any]:
    """The name and value of one header, the value unchecked. Raises `TypeError` for what is no such pair."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[0], str):
        raise TypeError(f"a header must be a pair of a str and bytes or None, not {pair!r:.80}")
    return pair[0], pair[1]


def rows_outside(start: int, stop: int, available: int) -> ValueError:
    """The error for rows that the columns do not have."""
    return ValueError(f"rows {start} to {stop} are not in columns of {available} rows")


def no_such_row(row: int, count: int) -> ValueError:
    """The error for one row that the columns do not have."""
    return ValueError(f"row {row} is not in columns of {count} rows")
