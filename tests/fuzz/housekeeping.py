"""Requests of the fuzzer's own, one at a time: what it needs at the start, and the removal of what it made."""

from __future__ import annotations

import socket
from typing import Any, TypeVar

from pyclient.errors import UnknownTopicOrPartition
from pyclient.protocol import framing
from pyclient.protocol.fields import Request, Response
from pyclient.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from pyclient.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from pyclient.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from pyclient.protocol.messages.delete_groups import DeleteGroupsRequest
from pyclient.protocol.messages.delete_topics import DeleteTopicsRequest
from pyclient.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from pyclient.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from pyclient.protocol.messages.list_groups import ListGroupsRequest
from pyclient.protocol.messages.metadata import MetadataRequest
from tests.fuzz.broker_process import BrokerProcess
from tests.fuzz.state import GOOD, RESERVED

R = TypeVar("R", bound=Response)

_BROKER, _GROUP = 4, 32
_SESSIONS: float = 120.0
"""Seconds that end every session: the broker's longest session timeout is shorter."""


_KEPT = frozenset({"__consumer_offsets", "__transaction_state"})
"""Topics that are not deleted, such as those of the good client; requests may have created others with such names."""
_ATTEMPTS = 20
_GONE = (0, UnknownTopicOrPartition.code)


class Caller:
    """One connection on which each request waits for its answer."""

    def __init__(self, port: int) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port), timeout=60)

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()

    def call(self, request: Request[R], version: int) -> R:
        """Send a request. Return its response."""
        self._sock.sendall(b"".join(framing.encode_request(request, version, 1, "housekeeping")))  # type: ignore[arg-type]
        size = int.from_bytes(self._receive(4), "big")
        response: type[R] = type(request).response  # type: ignore[assignment]
        return framing.decode_response(response, version, self._receive(size))[1]

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self._sock.recv(size - len(data))
            if not more:
                raise OSError("the broker closed the connection")
            data += more
        return bytes(data)


def clear(broker: BrokerProcess) -> None:
    """Remove all topics, groups, options, quotas and users but those of the good client, and let sessions expire."""
    with Caller(broker.port) as caller:
        _clear_limits(caller)
    broker.call("POST", "/time/advance", seconds=_SESSIONS)
    with Caller(broker.port) as caller:
        _delete_topics(caller)
        groups = [each.group_id for each in caller.call(ListGroupsRequest(), 0).groups]
        groups = [each for each in groups if not each.startswith(RESERVED)]
        caller.call(DeleteGroupsRequest(groups_names=groups), 0)
        for name in ("", "1"):
            _alter(caller, _BROKER, name)
        for name in groups:
            _alter(caller, _GROUP, name)
        users = caller.call(DescribeUserScramCredentialsRequest(users=None), 0).results
        deletions = [
            ScramCredentialDeletion(name=user.user, mechanism=info.mechanism)
            for user in users
            for info in user.credential_infos
        ]
        caller.call(AlterUserScramCredentialsRequest(deletions=deletions, upsertions=[]), 0)
    broker.call("POST", "/time/advance", seconds=_SESSIONS)


def partitions(port: int) -> dict[str, int]:
    """Count the partitions of every topic."""
    with Caller(port) as caller:
        topics = caller.call(MetadataRequest(topics=None), 1).topics
    return {each.name: len(each.partitions) for each in topics if each.name}


def _is_kept(topic: str) -> bool:
    return topic in _KEPT or topic.startswith(GOOD)


def _delete_topics(caller: Caller) -> None:
    """Delete topics until none is listed: requests of closed connections may still create some.

    Raise RuntimeError if the broker refuses to delete one.
    """
    for _attempt in range(_ATTEMPTS):
        topics = caller.call(MetadataRequest(topics=None), 1).topics
        names = [each.name for each in topics if each.name and not _is_kept(each.name)]
        if not names:
            return
        answer = caller.call(DeleteTopicsRequest(topic_names=names, timeout_ms=30_000), 1)
        refused = {each.name: each.error_code for each in answer.responses if each.error_code not in _GONE}
        if refused:
            raise RuntimeError(f"DeleteTopics was refused, error codes by topic: {refused}")
    raise RuntimeError(f"topics appear as fast as they are deleted: {names}")


def _clear_limits(caller: Caller) -> None:
    entries = caller.call(DescribeClientQuotasRequest(components=[], strict=False), 0).entries or []
    removed = [
        AlterClientQuotasRequestEntryData(
            entity=[
                AlterClientQuotasRequestEntityData(entity_type=each.entity_type, entity_name=each.entity_name)
                for each in entry.entity
            ],
            ops=[OpData(key=each.key, value=0.0, remove=True) for each in entry.values],
        )
        for entry in entries
    ]
    caller.call(AlterClientQuotasRequest(entries=removed, validate_only=False), 0)


def _alter(caller: Caller, resource_type: int, name: str) -> Any:
    resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=[])
    return caller.call(AlterConfigsRequest(resources=[resource], validate_only=False), 0)
