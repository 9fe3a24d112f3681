"""The keys of tokens: from a server and from a file, when they are fetched again, and servers that fail."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from pyclient.broker_embedded.network import jwks
from pyclient.broker_embedded.network.jwks import JwksKeys, KeySetSource, NoKeys
from tests.identity_server import IdentityServer, Signer
from tests.moved_clock import MovedClock


def keys_from(url: str, clock: Any) -> JwksKeys:
    return JwksKeys(KeySetSource(url, refresh=3600, backoff=1000, longest_backoff=1500), clock)


def kids(keys: Any) -> list[str]:
    return [key.kid for key in keys]


def document(*names: str) -> dict[str, Any]:
    return {"keys": [Signer(kid=name).public for name in names]}


def test_keys_are_fetched_once_for_all_and_again_when_old() -> None:
    clock = MovedClock()

    async def scenario(server: IdentityServer) -> None:
        keys = keys_from(f"{server.url}/keys", clock)
        found = await asyncio.gather(*(keys.get() for _ in range(5)))
        assert [kids(each) for each in found] == [["first"]] * 5
        server.keys = document("second")
        clock.seconds = 3599
        assert kids(await keys.get()) == ["first"]
        assert server.keys_fetched == 1
        clock.seconds = 3601
        assert kids(await keys.get()) == ["first"], "the old ones serve until the new ones are there"
        found_later: list[str] = []
        while found_later != ["second"]:
            await asyncio.sleep(0)
            found_later = kids(await keys.get())
        assert server.keys_fetched == 2

    with IdentityServer() as server:
        asyncio.run(scenario(server))


def test_unknown_key_fetches_newer_keys_but_not_all_the_time() -> None:
    clock = MovedClock()

    async def scenario(server: IdentityServer) -> None:
        keys = keys_from(f"{server.url}/keys", clock)
        await keys.get()
        server.keys = document("second")
        with pytest.raises(NoKeys, match="a moment ago"):
            await keys.renewed()
        clock.seconds = 1501
        assert kids(await keys.renewed()) == ["second"]
        with pytest.raises(NoKeys, match="a moment ago"):
            await keys.renewed()
        assert server.keys_fetched == 2

    with IdentityServer() as server:
        asyncio.run(scenario(server))


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (500, {}, "the status of the answer is 500"),
        (302, {}, "the status of the answer is 302"),
        (200, b"<html>", "no JSON Web Key Set"),
        (200, b"x" * (1 << 20) + b"x", "more than 1048576 bytes"),
    ],
)
def test_failure_is_named_and_tried_again_after_a_pause_that_doubles(status: int, body: Any, says: str) -> None:
    clock = MovedClock()

    async def scenario(server: IdentityServer) -> None:
        keys = keys_from(f"{server.url}/keys?secret=s3cret", clock)
        good = server.keys
        server.keys_status, server.keys = status, body
        for seconds, fetched in ((0, 1), (999, 1), (1001, 2), (2400, 2), (2502, 3)):
            clock.seconds = seconds
            with pytest.raises(NoKeys, match=says) as caught:
                await keys.get()
            assert f"{server.url}/keys: " in str(caught.value)
            assert server.keys_fetched == fetched
        server.keys_status, server.keys = 200, good
        clock.seconds = 10_000
        assert kids(await keys.get()) == ["first"]

    with IdentityServer() as server:
        asyncio.run(scenario(server))


def test_former_keys_stay_in_use_while_the_server_fails(caplog: pytest.LogCaptureFixture) -> None:
    clock = MovedClock()

    async def scenario(server: IdentityServer) -> None:
        keys = keys_from(f"{server.url}/keys", clock)
        await keys.get()
        server.keys_status = 503
        clock.seconds = 4000
        while "those fetched before stay in use" not in caplog.text:
            assert kids(await keys.get()) == ["first"]
            await asyncio.sleep(0)
        assert kids(await keys.get()) == ["first"]
        assert server.keys_fetched == 2

    with caplog.at_level(logging.WARNING), IdentityServer() as server:
        asyncio.run(scenario(server))


def test_unexpected_error_is_logged_and_the_former_keys_stay_in_use(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = MovedClock()

    def broken(_content: bytes) -> Any:
        raise RuntimeError("a bug of the library")

    async def scenario(server: IdentityServer) -> None:
        keys = keys_from(f"{server.url}/keys", clock)
        await keys.get()
        monkeypatch.setattr(jwks, "key_set_of", broken)
        clock.seconds = 3601
        while "those fetched before stay in use" not in caplog.text:
            assert kids(await keys.get()) == ["first"]
            await asyncio.sleep(0)
        with pytest.raises(NoKeys, match="/keys: RuntimeError"):
            await keys.renewed()

    with IdentityServer() as server:
        asyncio.run(scenario(server))
    [logged] = [each for each in caplog.records if "failed unexpectedly" in each.message]
    assert logged.exc_info is not None


def test_refused_connection_to_the_server_is_named() -> None:
    async def scenario() -> None:
        with IdentityServer() as server:
            url = f"{server.url}/keys"
        with pytest.raises(NoKeys, match=r"127\.0\.0\.1:\d+/keys: Connection refused"):
            await keys_from(url, MovedClock()).get()

    asyncio.run(scenario())


def test_file_is_read_again_when_it_has_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "the keys.json"
    clock = MovedClock()

    def write(content: str) -> None:
        temporary = path.with_suffix(".tmp")
        temporary.write_text(content)
        os.replace(temporary, path)

    async def scenario() -> None:
        keys = keys_from(path.as_uri(), clock)
        with pytest.raises(NoKeys, match="No such file"):
            await keys.get()
        write(json.dumps(document("first")))
        clock.seconds = 2000
        assert kids(await keys.get()) == ["first"]
        write(json.dumps(document("second", "third")))
        assert kids(await keys.get()) == ["second", "third"]
        write("nothing")
        assert kids(await keys.get()) == ["second", "third"]
        assert "those fetched before stay in use" in caplog.text
        path.unlink()
        clock.seconds = 4000
        assert kids(await keys.get()) == ["second", "third"]

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
