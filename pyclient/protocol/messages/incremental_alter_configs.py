"""IncrementalAlterConfigs (key 44): set, delete, append to or subtract from single configuration values (KIP-339)."""

from pyclient.protocol.fields import Int8, Int16, Int32, Request, Response, api, part


@part
class AlterConfigsResourceResponse:
    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str


@api(key=44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsResponse(Response):
    throttle_time_ms: Int32
    responses: list[AlterConfigsResourceResponse]


@part
class AlterableConfig:
    name: str
    config_operation: Int8
    value: str | None


@part
class AlterConfigsResource:
    resource_type: Int8
    resource_name: str
    configs: list[AlterableConfig]


@api(key=44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsRequest(Request[IncrementalAlterConfigsResponse]):
    resources: list[AlterConfigsResource]
    validate_only: bool
