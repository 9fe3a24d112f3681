"""A closed client, method by method: its state is still available, everything else raises `ClosedError`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any
from uuid import UUID

import pytest

from pyclient import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, GroupMetadata, Producer, TopicPartition
from pyclient.acls import AclFilter
from pyclient.admin import NewTopic, ProducerDescription
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.errors import ClosedError

PLACE = TopicPartition("orders", 0)
GOES_ON = {"close", "closed", "health", "metrics", "wakeup"}
NOT_FOR_USERS = {"after_fork"}

PRODUCER: dict[str, tuple[Any, ...]] = {
    "abort_transaction": (),
    "begin_transaction": (),
    "commit_transaction": (),
    "flush": (),
    "init_transactions": (),
    "partitions_for": ("orders",),
    "purge": (),
    "send": ("orders", b"value"),
    "send_many": ("orders", [b"value"]),
    "send_offsets_to_transaction": ({PLACE: 0}, GroupMetadata("billing")),
    "transaction": (),
}
CONSUMER: dict[str, tuple[Any, ...]] = {
    "assign": (PLACE,),
    "assignment": (),
    "beginning_offsets": (PLACE,),
    "commit": (),
    "commit_async": (),
    "committed": (),
    "end_offsets": (PLACE,),
    "group_metadata": (),
    "lag": (),
    "offsets_for_times": ({PLACE: 0},),
    "partitions_for": ("orders",),
    "pause": (PLACE,),
    "paused": (),
    "poll": (0,),
    "position": (PLACE,),
    "resume": (),
    "seek": (PLACE, 0),
    "seek_to_beginning": (),
    "seek_to_end": (),
    "subscribe": ("orders",),
    "subscription": (),
    "unsubscribe": (),
}
ADMIN: dict[str, tuple[Any, ...]] = {
    "abort_transaction": (PLACE, ProducerDescription(1, 0, -1, 0, -1, None)),
    "add_raft_voter": (9, UUID(int=9), {"CONTROLLER": "127.0.0.1:1"}),
    "alter_group_offsets": ("billing", {PLACE: 0}),
    "create_acls": ([("topic", "orders", "User:alice", "read")],),
    "create_delegation_token": (),
    "create_partitions": ({"orders": 2},),
    "create_topics": ([NewTopic("new")],),
    "delete_acls": ([AclFilter()],),
    "delete_groups": (["billing"],),
    "delete_topics": (["orders"],),
    "describe_acls": (),
    "describe_delegation_tokens": (),
    "describe_groups": (["billing"],),
    "describe_metadata_quorum": (),
    "describe_producers": ([PLACE],),
    "describe_topics": (["orders"],),
    "describe_transactions": (["payments"],),
    "expire_delegation_token": (b"hmac",),
    "fence_producers": (["payments"],),
    "list_group_offsets": ("billing",),
    "list_groups": (),
    "list_topics": (),
    "list_transactions": (),
    "remove_raft_voter": (9, UUID(int=9)),
    "renew_delegation_token": (b"hmac",),
}
TABLES: dict[type[Any], dict[str, tuple[Any, ...]]] = {
    Producer: PRODUCER,
    AsyncProducer: PRODUCER | {"start": ()},
    Consumer: CONSUMER,
    AsyncConsumer: CONSUMER,
    Admin: ADMIN,
    AsyncAdmin: ADMIN,
}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedCluster() as cluster:
        yield cluster.bootstrap_servers


def make(cls: type[Any], servers: str) -> Any:
    if issubclass(cls, (Consumer, AsyncConsumer)):
        return cls("orders", bootstrap_servers=servers, group_id="billing", enable_auto_commit=False)
    return cls(servers)


async def finished(result: Any) -> Any:
    if isinstance(result, AbstractContextManager):
        return result.__enter__()
    if isinstance(result, AbstractAsyncContextManager):
        return await result.__aenter__()
    return await result if isinstance(result, Coroutine) else result


async def use(client: Any) -> None:
    """Use the client, so that it has connections to close."""
    if isinstance(client, (Producer, AsyncProducer)):
        future = await finished(client.send("orders", b"value"))
        await future
    elif isinstance(client, (Consumer, AsyncConsumer)):
        await finished(client.poll(0.0))
    else:
        await finished(client.list_topics())


def public_names(cls: type[Any]) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")} - NOT_FOR_USERS


@pytest.mark.parametrize("cls", TABLES, ids=lambda cls: cls.__name__)
def test_every_public_method_is_listed(cls: type[Any]) -> None:
    assert public_names(cls) - GOES_ON == set(TABLES[cls])


@pytest.mark.parametrize("used", [True, False], ids=["used", "new"])
@pytest.mark.parametrize("cls", TABLES, ids=lambda cls: cls.__name__)
def test_closed_client_raises_and_still_has_health(cls: type[Any], used: bool, servers: str) -> None:
    async def scenario() -> None:
        client = make(cls, servers)
        if used:
            await use(client)
        await finished(client.close())
        await finished(client.close())
        for name, arguments in TABLES[cls].items():
            with pytest.raises(ClosedError, match="is closed"):
                await finished(getattr(client, name)(*arguments))
                pytest.fail(f"{name} went on")
        for name in public_names(cls) & GOES_ON - {"closed"}:
            await finished(getattr(client, name)())
        if hasattr(cls, "closed"):
            assert client.closed
        assert "closed" in repr(client)

    asyncio.run(scenario())


@pytest.mark.parametrize("cls", TABLES, ids=lambda cls: cls.__name__)
def test_with_block_and_iteration_need_open_client(cls: type[Any], servers: str) -> None:
    async def scenario() -> None:
        client = make(cls, servers)
        await finished(client.close())
        with pytest.raises(ClosedError):
            await finished(client.__aenter__() if hasattr(cls, "__aenter__") else client.__enter__())
        if issubclass(cls, Consumer):
            with pytest.raises(ClosedError):
                next(iter(client))
        if issubclass(cls, AsyncConsumer):
            with pytest.raises(ClosedError):
                await anext(aiter(client))

    asyncio.run(scenario())
