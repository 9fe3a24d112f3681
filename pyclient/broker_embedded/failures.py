"""From an exception to the error code that a client is told; with a line in the log where the broker is at fault."""

from __future__ import annotations

import logging

from pyclient import errors

log = logging.getLogger("pyclient.broker_embedded")


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
        log.error("%s failed: %s", what, error)
        return errors.KafkaStorageError.code
    log.error("%s failed", what, exc_info=error)
    return errors.UnknownServerError.code


def message_of(error: Exception) -> str:
    """What a client may read about it: the text of a `BrokerError`; nothing of the inside of a bug."""
    if isinstance(error, errors.BrokerError):
        return str(error)
    if isinstance(error, OSError):
        return f"the broker's disk failed: {error.strerror}"
    return "the broker failed; its log says more"
