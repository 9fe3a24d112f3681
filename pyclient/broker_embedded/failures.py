"""Error codes and messages of exceptions for responses; failures of the broker itself are logged."""

from __future__ import annotations

import logging
from typing import Final

from pyclient import errors

log = logging.getLogger("pyclient.broker_embedded")

LONGEST_TEXT: Final = 1000
"""Maximum characters of an error message in a response."""


def printable(text: str) -> str:
    """Return a client's text for a log line: truncated, and without control characters, which could forge lines."""
    shown = text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."
    return shown if shown.isprintable() else repr(shown)[1:-1]


def traceback_of(error: BaseException) -> BaseException | None:
    """Return what a log line gives as `exc_info`: None for a foreseen error, such as a disk failure; else the error."""
    return None if isinstance(error, errors.BrokerError | OSError) else error


def code_of(error: Exception, what: str) -> int:
    """Return the error code for `error`, which happened while doing `what` (a text like "Produce to orders-3").

    Handlers catch every `Exception` for it: a failure of one topic or partition must not affect the results of the
    others in the request. An unexpected error is logged with its traceback.
    """
    if isinstance(error, errors.BrokerError):
        return error.code
    if isinstance(error, errors.ProtocolError):  # bytes that are no valid record batches
        return errors.CorruptMessage.code
    if isinstance(error, OSError):
        log.error("%s failed: %s", printable(what), error)
        return errors.KafkaStorageError.code
    log.error("%s failed", printable(what), exc_info=error)
    return errors.UnknownServerError.code


def message_of(error: Exception) -> str:
    """Return the error message for the response: the text of a `BrokerError`, no details of a bug.

    It is truncated: with a name of the maximum length it would exceed a string of the protocol.
    """
    if isinstance(error, errors.BrokerError):
        text = str(error)
        return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."
    if isinstance(error, OSError):
        return f"the broker's disk failed: {error.strerror}"
    return "the broker failed; its log says more"
