"""An admin client's options."""

from __future__ import annotations

from dataclasses import dataclass

from pyclient.config import ClientConfig, ClientOptions, option


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(ClientConfig):
    """Options of `Admin` and `AsyncAdmin`. Names, units and defaults are Kafka's, with `_` for `.`."""

    default_api_timeout_ms: int = option(60_000, doc="The timeout of calls without a timeout argument.", minimum=1)


class AdminOptions(ClientOptions, total=False):
    """The keyword arguments that `Admin` and `AsyncAdmin` take; `AdminConfig` documents them."""

    default_api_timeout_ms: int
