"""ApiVersions v0-4: what this broker serves, from the dispatch table.

The response header is always v0. A version that is not known is answered in v0 with error 35 and the entry of
ApiVersions itself; the server does that before a handler is looked up.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.controller.controller import METADATA_VERSION, OLDEST_METADATA_VERSION
from pyclient.broker_embedded.dispatch import SERVED, handles
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
    from pyclient.broker_embedded.dispatch import RequestContext

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

_API_KEYS: Final = sorted(
    (
        ApiVersion(api_key=API_KEYS[name], min_version=served.advertised_first, max_version=served.last)
        for name, served in SERVED.items()
    ),
    key=lambda entry: entry.api_key,
)


@handles(ApiVersionsRequest, versions=(0, 4))
def handle(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    """Answer with the table; `INVALID_REQUEST` for a client that names itself impossibly (v3+)."""
    if context.version >= 3 and not _is_plausible(request):
        return ApiVersionsResponse(error_code=InvalidRequest.code, api_keys=[])
    level = context.node.image.features.get("metadata.version", METADATA_VERSION)
    return ApiVersionsResponse(
        error_code=0,
        api_keys=_API_KEYS,
        supported_features=[
            SupportedFeatureKey(
                name="metadata.version",
                min_version=OLDEST_METADATA_VERSION,
                max_version=max(METADATA_VERSION, level),  # a later Kafka may have written the log
            )
        ],
        finalized_features_epoch=context.node.metadata_offset,
        finalized_features=[
            FinalizedFeatureKey(name="metadata.version", max_version_level=level, min_version_level=level)
        ],
    )


def unsupported_version() -> ApiVersionsResponse:
    """The answer, in v0, to a version that is not known: it tells the versions of ApiVersions."""
    own = [entry for entry in _API_KEYS if entry.api_key == ApiVersionsRequest.api_key]
    return ApiVersionsResponse(error_code=UnsupportedVersion.code, api_keys=own)


def _is_plausible(request: ApiVersionsRequest) -> bool:
    names = (request.client_software_name, request.client_software_version)
    return all(_SOFTWARE.fullmatch(name) for name in names)
