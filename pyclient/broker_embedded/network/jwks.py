"""The keys that identity servers sign tokens with: fetched when they are needed, kept, and fetched again when old."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pyclient.broker_embedded.network.jwt_validation import key_set_of
from pyclient.net.http_request import Unreachable, path_of, request, shown
from pyclient.net.tasks import in_daemon_thread, shared

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

    from pyclient.broker_embedded.config.listeners import ListenerConfig
    from pyclient.clock import Clock

log = logging.getLogger("pyclient.broker_embedded")

_SECONDS: Final = 10.0


class NoKeys(Exception):
    """The keys are not available; the text says why."""


@dataclass(frozen=True, slots=True)
class KeySetSource:
    """The URL of the keys, the seconds between two fetches, and the backoff after a failure."""

    url: str
    refresh: float
    backoff: float
    longest_backoff: float

    @classmethod
    def of(cls, listener: ListenerConfig) -> KeySetSource:
        """Return what the options of a listener describe."""

        def seconds(name: str) -> float:
            return int(listener.of_mechanism("OAUTHBEARER", f"sasl.oauthbearer.jwks.endpoint.{name}") or 0) / 1000

        url = str(listener.of_mechanism("OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url"))
        return cls(url, seconds("refresh.ms"), seconds("retry.backoff.ms"), seconds("retry.backoff.max.ms"))


class JwksKeys:
    """The keys of one URL. A file is read again when it has changed."""

    def __init__(self, place: KeySetSource, clock: Clock) -> None:
        self._place = place
        self._clock = clock
        self._path = path_of(place.url) if urlsplit(place.url).scheme == "file" else None
        self._keys: KeySet | None = None
        self._state: tuple[int, int] | None = None
        self._fetching: asyncio.Task[KeySet] | None = None
        self._fetched_at = 0.0
        self._not_before = 0.0
        self._backoff = 0.0
        self._failure = ""

    def __repr__(self) -> str:
        return f"<JwksKeys {shown(self._place.url)} {'fetched' if self._keys is not None else 'not fetched'}>"

    async def get(self) -> KeySet:
        """Return the keys: the old ones while newer ones are fetched. Raise `NoKeys` if there are none."""
        now, is_file = self._clock.monotonic(), self._path is not None
        if self._keys is None:
            return await self._fetched(now)
        is_old = self._file_state() != self._state if is_file else now - self._fetched_at >= self._place.refresh
        if is_old and now >= self._not_before:
            if not is_file:
                self._begin().add_done_callback(_seen)
                return self._keys
            with suppress(NoKeys):  # it was logged
                return await self._fetched(now)
        return self._keys

    async def renewed(self) -> KeySet:
        """Fetch and return newer keys, for a token with an unknown key. Raise `NoKeys` if they were just fetched.

        Invalid tokens must not cause a fetch each: there is one in `retry.backoff.max.ms` at most.
        """
        now = self._clock.monotonic()
        if self._path is not None or now - self._fetched_at < self._place.longest_backoff:
            raise NoKeys("the keys were fetched a moment ago")
        return await self._fetched(now)

    async def _fetched(self, now: float) -> KeySet:
        if now < self._not_before and self._fetching is None:
            raise NoKeys(self._failure)
        return await shared(self._begin())

    def _begin(self) -> asyncio.Task[KeySet]:
        """Fetch the keys, or return the task that does so already."""
        if self._fetching is None:
            self._fetching = asyncio.ensure_future(self._fetch())
        return self._fetching

    async def _fetch(self) -> KeySet:
        url, state = self._place.url, self._file_state()
        try:
            async with asyncio.timeout(_SECONDS):
                answer = await in_daemon_thread("pyclient-jwks", lambda: request(url, timeout=_SECONDS))
            if answer.status != 200:
                raise ValueError(f"the status of the answer is {answer.status}")
            keys = key_set_of(answer.body)
        except TimeoutError:
            raise self._failed(f"{shown(url)}: no answer within {_SECONDS:g} s") from None
        except Unreachable as error:
            raise self._failed(str(error)) from None
        except ValueError as error:
            raise self._failed(f"{shown(url)}: {error}") from None
        except Exception as error:  # a bug, here or in the library: logins fail or use the former keys
            log.exception("SASL OAUTHBEARER: fetching the keys from %s failed unexpectedly", shown(url))
            raise self._failed(f"{shown(url)}: {type(error).__name__}") from error
        finally:
            self._fetching = None
        log.info("the keys of OAUTHBEARER were fetched from %s", shown(url))
        self._keys, self._state = keys, state
        self._fetched_at, self._not_before, self._backoff = self._clock.monotonic(), 0.0, 0.0
        return keys

    def _failed(self, reason: str) -> NoKeys:
        """Return the error, and fetch nothing during the backoff, which doubles each time."""
        place = self._place
        self._failure = f"the keys cannot be fetched: {reason}"
        self._backoff = min(place.longest_backoff, self._backoff * 2 or place.backoff)
        self._not_before = self._clock.monotonic() + self._backoff
        kept = "; those fetched before stay in use" if self._keys is not None else ""
        log.warning("SASL OAUTHBEARER: %s%s", self._failure, kept)
        return NoKeys(self._failure)

    def _file_state(self) -> tuple[int, int] | None:
        if self._path is None:
            return None
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino


def _seen(task: asyncio.Task[KeySet]) -> None:
    if not task.cancelled():
        task.exception()
