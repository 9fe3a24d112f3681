"""AlterConfigs (key 33): replace a whole configuration; IncrementalAlterConfigs is the better one."""

from pyclient.protocol.fields import Int8, Int16, Int32, Request, Response, api, part


@part
class AlterConfigsResourceResponse:
    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str


@api(key=33, versions=(0, 2), flexible=2)
class AlterConfigsResponse(Response):
    throttle_time_ms: Int32
    responses: list[AlterConfigsResourceResponse]


@part
class AlterableConfig:
    name: str
    value: str | None


@part
class AlterConfigsResource:
    resource_type: Int8
    resource_name: str
    configs: list[AlterableConfig]


@api(key=33, versions=(0, 2), flexible=2)
class AlterConfigsRequest(Request[AlterConfigsResponse]):
    resources: list[AlterConfigsResource]
    validate_only: bool
