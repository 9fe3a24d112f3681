"""DescribeLogDirs (key 35): log directories of a broker and the sizes of their partitions."""

from pyclient.protocol.fields import Int16, Int32, Int64, Request, Response, api, field, part


@part
class DescribeLogDirsPartition:
    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: bool


@part
class DescribeLogDirsTopic:
    name: str
    partitions: list[DescribeLogDirsPartition]


@part
class DescribeLogDirsResult:
    error_code: Int16
    log_dir: str
    topics: list[DescribeLogDirsTopic]
    total_bytes: Int64 = field(since=4, default=-1, ignorable=True)
    usable_bytes: Int64 = field(since=4, default=-1, ignorable=True)
    is_cordoned: bool = field(since=5, default=False, ignorable=True)


@api(key=35, versions=(1, 5), flexible=2)
class DescribeLogDirsResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16 = field(since=3, default=0, ignorable=True)
    results: list[DescribeLogDirsResult]


@part
class DescribableLogDirTopic:
    topic: str
    partitions: list[Int32]


@api(key=35, versions=(1, 5), flexible=2)
class DescribeLogDirsRequest(Request[DescribeLogDirsResponse]):
    topics: list[DescribableLogDirTopic] | None
