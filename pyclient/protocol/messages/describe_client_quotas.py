"""DescribeClientQuotas (key 48): list client quotas (KIP-546)."""

from pyclient.protocol.fields import Float64, Int8, Int16, Int32, Request, Response, api, part


@part
class EntityData:
    entity_type: str
    entity_name: str | None


@part
class ValueData:
    key: str
    value: Float64


@part
class EntryData:
    entity: list[EntityData]
    values: list[ValueData]


@api(key=48, versions=(0, 1), flexible=1)
class DescribeClientQuotasResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
    entries: list[EntryData] | None


@part
class ComponentData:
    entity_type: str
    match_type: Int8
    match: str | None


@api(key=48, versions=(0, 1), flexible=1)
class DescribeClientQuotasRequest(Request[DescribeClientQuotasResponse]):
    components: list[ComponentData]
    strict: bool
