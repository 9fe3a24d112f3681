"""Exactly once from topics to topics: read, process, write and commit the offsets in one transaction."""

from pyclient.processing.async_processing import async_process_transactionally
from pyclient.processing.processing import process_transactionally

__all__ = ["async_process_transactionally", "process_transactionally"]
