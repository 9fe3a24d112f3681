"""ApiVersions (key 18): which versions of which APIs the broker serves."""

from pyclient.protocol.fields import Int16, Int32, Int64, Request, Response, api, field, part


@part
class ApiVersion:
    api_key: Int16
    min_version: Int16
    max_version: Int16


@part
class SupportedFeatureKey:
    name: str
    min_version: Int16
    max_version: Int16


@part
class FinalizedFeatureKey:
    name: str
    max_version_level: Int16
    min_version_level: Int16


@api(key=18, versions=(0, 4), flexible=3)
class ApiVersionsResponse(Response):
    """Its header never has tagged fields. v3 adds features; v4 also lists features whose lowest level is 0."""

    error_code: Int16
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = field(since=1, default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = field(since=3, default=[], tag=0, ignorable=True)
    finalized_features_epoch: Int64 = field(since=3, default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field(since=3, default=[], tag=2, ignorable=True)
    zk_migration_ready: bool = field(since=3, default=False, tag=3, ignorable=True)


@api(key=18, versions=(0, 4), flexible=3)
class ApiVersionsRequest(Request[ApiVersionsResponse]):
    """v3 adds the client's name and version (KIP-511)."""

    client_software_name: str = field(since=3, default="", ignorable=True)
    client_software_version: str = field(since=3, default="", ignorable=True)
