"""BrokerRegistration (key 62): register a broker with the cluster (KIP-631)."""

from pyclient.protocol.fields import Int16, Int32, Int64, Request, Response, UInt16, Uuid, api, field, part


@api(key=62, versions=(0, 4), flexible=0)
class BrokerRegistrationResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    broker_epoch: Int64 = -1


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


@api(key=62, versions=(0, 4), flexible=0)
class BrokerRegistrationRequest(Request[BrokerRegistrationResponse]):
    broker_id: Int32
    cluster_id: str
    incarnation_id: Uuid
    listeners: list[Listener]
    features: list[Feature]
    rack: str | None
    is_migrating_zk_broker: bool = field(since=1, default=False)
    log_dirs: list[Uuid] = field(since=2, default=[], ignorable=True)
    previous_broker_epoch: Int64 = field(since=3, default=-1, ignorable=True)
