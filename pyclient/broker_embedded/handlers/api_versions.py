"""ApiVersions v0-4: the APIs in the dispatch table, limited to those of the release that the broker emulates.

The response header is always v0. An unknown version is answered in v0 with error 35 and the entry of ApiVersions; the
server does that before it looks up the handler.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.controller.features import FEATURES, METADATA_VERSION, supported
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.releases import release_of
from pyclient.broker_embedded.served_apis import OF_CONTROLLERS, ListenerType, served_on
from pyclient.errors import InvalidRequest, UnsupportedVersion
from pyclient.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from pyclient.protocol.versions import API_KEYS

if TYPE_CHECKING:
    from pyclient.broker_embedded.releases import Release
    from pyclient.broker_embedded.request_context import RequestContext

_FEATURES_FROM_0: Final = 4  # older clients take a minimum of 0 for an error (KIP-1022)
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@cache
def _api_keys(release: str | None, listener: ListenerType = ListenerType.CLIENT) -> list[ApiVersion]:
    capped = None if release is None else release_of(release).versions
    found = []
    for name, served in served_on(listener).items():
        key = API_KEYS[name]
        last = served.last if capped is None else min(served.last, capped.get(key, -1))
        if last >= served.first:
            found.append(ApiVersion(api_key=key, min_version=served.advertised_first, max_version=last))
    return sorted(found, key=lambda entry: entry.api_key)


@handles(ApiVersionsRequest, versions=(0, 4))
def handle(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    """Answer with the table; INVALID_REQUEST for a malformed client software name or version (v3+)."""
    if context.version >= 3 and not _is_plausible(request):
        return ApiVersionsResponse(error_code=InvalidRequest.code, api_keys=[])
    listener = context.connection.listener
    release = None if listener in OF_CONTROLLERS else context.services.release
    levels = context.services.image.features
    ranges = {name: supported(name, levels.get(name, 0)) for name in FEATURES}
    if release is not None:
        most = release.features
        levels = {name: min(level, most[name]) for name, level in levels.items() if name in most}
        ranges = {name: (first, min(last, most[name])) for name, (first, last) in ranges.items() if name in most}
        if METADATA_VERSION in ranges:
            ranges[METADATA_VERSION] = release.oldest_metadata, ranges[METADATA_VERSION][1]
    return ApiVersionsResponse(
        error_code=0,
        api_keys=_api_keys(None if release is None else release.name, listener),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=first, max_version=last)
            for name, (first, last) in ranges.items()
            if first > 0 or context.version >= _FEATURES_FROM_0
        ],
        finalized_features_epoch=context.services.metadata_offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in levels.items()
            if name in ranges
        ],
    )


def unsupported_version(release: Release | None = None) -> ApiVersionsResponse:
    """Return the v0 answer to an unknown version, which has the versions of ApiVersions."""
    own = [
        entry
        for entry in _api_keys(None if release is None else release.name)
        if entry.api_key == ApiVersionsRequest.api_key
    ]
    return ApiVersionsResponse(error_code=UnsupportedVersion.code, api_keys=own)


def _is_plausible(request: ApiVersionsRequest) -> bool:
    names = (request.client_software_name, request.client_software_version)
    return all(_SOFTWARE.fullmatch(name) for name in names)
