"""DescribeConfigs (key 32): read the configuration of topics, brokers and groups."""

from pyclient.protocol.fields import Int8, Int16, Int32, Request, Response, api, field, part


@part
class DescribeConfigsSynonym:
    name: str
    value: str | None
    source: Int8


@part
class DescribeConfigsResourceResult:
    name: str
    value: str | None
    read_only: bool
    config_source: Int8 = field(default=-1, ignorable=True)
    is_sensitive: bool
    synonyms: list[DescribeConfigsSynonym] = field(default=[], ignorable=True)
    config_type: Int8 = field(since=3, default=0, ignorable=True)
    documentation: str | None = field(since=3, default="", ignorable=True)


@part
class DescribeConfigsResult:
    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str
    configs: list[DescribeConfigsResourceResult]


@api(key=32, versions=(1, 4), flexible=4)
class DescribeConfigsResponse(Response):
    throttle_time_ms: Int32
    results: list[DescribeConfigsResult]


@part
class DescribeConfigsResource:
    resource_type: Int8
    resource_name: str
    configuration_keys: list[str] | None


@api(key=32, versions=(1, 4), flexible=4)
class DescribeConfigsRequest(Request[DescribeConfigsResponse]):
    resources: list[DescribeConfigsResource]
    include_synonyms: bool = False
    include_documentation: bool = field(since=3, default=False)
