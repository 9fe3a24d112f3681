"""ListConfigResources (key 74): names of the resources that have a configuration, by type."""

from pyclient.protocol.fields import Int8, Int16, Int32, Request, Response, api, field, part


@part
class ConfigResource:
    resource_name: str
    resource_type: Int8 = field(since=1, default=16, ignorable=True)


@api(key=74, versions=(0, 1), flexible=0)
class ListConfigResourcesResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    config_resources: list[ConfigResource]


@api(key=74, versions=(0, 1), flexible=0)
class ListConfigResourcesRequest(Request[ListConfigResourcesResponse]):
    resource_types: list[Int8] = field(since=1, default=[])
