"""ControllerRegistration (key 70): register a controller's listeners and features."""

from pyclient.protocol.fields import Int16, Int32, Request, Response, UInt16, Uuid, api, part


@api(key=70, versions=(0, 0), flexible=0)
class ControllerRegistrationResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None


@part
class Listener:
    name: str
    host: str
    port: UInt16
    security_protocol: Int16


@part
class Feature:
    name: str
    min_supported_version: Int16
    max_supported_version: Int16


@api(key=70, versions=(0, 0), flexible=0)
class ControllerRegistrationRequest(Request[ControllerRegistrationResponse]):
    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: bool
    listeners: list[Listener]
    features: list[Feature]
