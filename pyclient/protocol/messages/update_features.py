"""UpdateFeatures (key 57): raise or lower feature levels (KIP-584)."""

from pyclient.protocol.fields import Int8, Int16, Int32, Request, Response, api, field, part


@part
class UpdatableFeatureResult:
    feature: str
    error_code: Int16
    error_message: str | None


@api(key=57, versions=(0, 2), flexible=0)
class UpdateFeaturesResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
    results: list[UpdatableFeatureResult] = field(until=1, default=[], ignorable=True)


@part
class FeatureUpdateKey:
    feature: str
    max_version_level: Int16
    allow_downgrade: bool = field(until=0, default=False)
    upgrade_type: Int8 = field(since=1, default=1)


@api(key=57, versions=(0, 2), flexible=0)
class UpdateFeaturesRequest(Request[UpdateFeaturesResponse]):
    timeout_ms: Int32 = 60000
    feature_updates: list[FeatureUpdateKey]
    validate_only: bool = field(since=1, default=False)
