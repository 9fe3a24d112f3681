"""AlterClientQuotas (key 49): change client quotas (KIP-546)."""

from pyclient.protocol.fields import Float64, Int16, Int32, Request, Response, api, part


@part
class AlterClientQuotasResponseEntityData:
    entity_type: str
    entity_name: str | None


@part
class AlterClientQuotasResponseEntryData:
    error_code: Int16
    error_message: str | None
    entity: list[AlterClientQuotasResponseEntityData]


@api(key=49, versions=(0, 1), flexible=1)
class AlterClientQuotasResponse(Response):
    throttle_time_ms: Int32
    entries: list[AlterClientQuotasResponseEntryData]


@part
class AlterClientQuotasRequestEntityData:
    entity_type: str
    entity_name: str | None


@part
class OpData:
    key: str
    value: Float64
    remove: bool


@part
class AlterClientQuotasRequestEntryData:
    entity: list[AlterClientQuotasRequestEntityData]
    ops: list[OpData]


@api(key=49, versions=(0, 1), flexible=1)
class AlterClientQuotasRequest(Request[AlterClientQuotasResponse]):
    entries: list[AlterClientQuotasRequestEntryData]
    validate_only: bool
