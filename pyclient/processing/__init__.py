"""Exactly once from topics to topics: read, process, write and commit the offsets in one transaction.

`process_transactionally` is generated from `async_process_transactionally`. `Ending` ends their loops by an event or a
signal.
"""

from pyclient.processing.async_processing import async_process_transactionally
from pyclient.processing.processing import process_transactionally

__all__ = ["async_process_transactionally", "process_transactionally"]
