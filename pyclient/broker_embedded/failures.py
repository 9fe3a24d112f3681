"""From an exception to the error code that a client is told; with a line in the log where the broker is at fault."""

from __future__ import annotations

import logging
from typing import Final

from pyclient import errors

log = logging.getLogger("pyclient.broker_embedded")

LONGEST_TEXT: Final = 1000
"""Characters of an error's text in an answer."""


def printable(text: str) -> str:
    """A text of a client for a log line: without control characters, which would forge lines, and not too long."""
    shown = text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."
    return shown if shown.isprintable() else repr(shown)[1:-1]


def code_of(error: Exception, what: str) -> int:
    """The error code for `error`, which happened while doing `what` (a text like "Produce to orders-3").

    Handlers catch every `Exception` for it: what goes wrong with one topic or partition, foreseen or not, must not keep
    the others in the request from their answers. What was not foreseen is logged with its traceback.
    """
    if isinstance(error, errors.BrokerError):
        return error.code
    if isinstance(error, errors.ProtocolError):  # bytes of a client that make no sense as record batches
        return errors.CorruptMessage.code
    if isinstance(error, OSError):
        log.error("%s failed: %s", printable(what), error)
        return errors.KafkaStorageError.code
    log.error("%s failed", printable(what), exc_info=error)
    return errors.UnknownServerError.code


def message_of(error: Exception) -> str:
    """What a client may read about it: the text of a `BrokerError`; nothing of the inside of a bug.

    Names in it may be as long as the longest string of the protocol, so it could not be encoded whole.
    """
    if isinstance(error, errors.BrokerError):
        text = str(error)
        return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."
    if isinstance(error, OSError):
        return f"the broker's disk failed: {error.strerror}"
    return "the broker failed; its log says more"
