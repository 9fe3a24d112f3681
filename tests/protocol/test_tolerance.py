"""Requests with known client bugs that Kafka accepts nevertheless."""

from __future__ import annotations

from pyclient.protocol import codec
from pyclient.protocol.messages.metadata import MetadataRequest


def test_metadata_request_of_librdkafka_with_extra_bytes_is_accepted():
    """librdkafka 2.16.1 encodes the null array of v12 with four bytes instead of one."""
    request = codec.decode(MetadataRequest, 12, bytes.fromhex("00000000010000"))
    assert request.topics is None
    assert request.allow_auto_topic_creation is False
