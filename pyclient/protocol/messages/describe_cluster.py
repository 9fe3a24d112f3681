"""DescribeCluster (key 60): cluster id, controller and brokers or controllers."""

from pyclient.protocol.fields import Int8, Int16, Int32, Request, Response, api, field, part


@part
class DescribeClusterBroker:
    broker_id: Int32
    host: str
    port: Int32
    rack: str | None = None
    is_fenced: bool = field(since=2, default=False)


@api(key=60, versions=(0, 2), flexible=0)
class DescribeClusterResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = None
    endpoint_type: Int8 = field(since=1, default=1)
    cluster_id: str
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = -2147483648


@api(key=60, versions=(0, 2), flexible=0)
class DescribeClusterRequest(Request[DescribeClusterResponse]):
    include_cluster_authorized_operations: bool
    endpoint_type: Int8 = field(since=1, default=1)
    include_fenced_brokers: bool = field(since=2, default=False)
