"""`as_version`: a broker emulates a release of Kafka, for ApiVersions and for clients that guess the release."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.config.broker_config import BrokerConfig
from pyclient.broker_embedded.controller.features import ELR_VERSION, FEATURES
from pyclient.broker_embedded.releases import RELEASES, release_of
from pyclient.broker_embedded.served_apis import SERVED
from pyclient.errors import ConfigError, CoordinatorNotAvailable, NotCoordinator, UnsupportedVersion
from pyclient.protocol.messages.api_versions import ApiVersionsRequest
from pyclient.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pyclient.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pyclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from pyclient.protocol.messages.metadata import MetadataRequest
from pyclient.protocol.versions import API_KEYS

ASK = ApiVersionsRequest(client_software_name="raw", client_software_version="1")

# What brokers of these releases answered, of the APIs that change between them.
MEASURED = {
    "3.9": {
        "Produce": 11,
        "Fetch": 17,
        "ListOffsets": 9,
        "Metadata": 12,
        "OffsetCommit": 9,
        "OffsetFetch": 9,
        "FindCoordinator": 6,
        "DescribeGroups": 5,
        "ListGroups": 5,
        "ApiVersions": 4,
        "InitProducerId": 5,
        "DescribeLogDirs": 4,
        "AlterPartitionReassignments": 0,
        "DescribeQuorum": 2,
        "UpdateFeatures": 1,
        "DescribeCluster": 1,
        "ConsumerGroupHeartbeat": 0,
        "ConsumerGroupDescribe": 0,
        "ListConfigResources": 0,
        "DescribeTopicPartitions": 0,
    },
    "4.3": {
        "Produce": 13,
        "Fetch": 18,
        "ListOffsets": 11,
        "Metadata": 13,
        "OffsetCommit": 10,
        "OffsetFetch": 10,
        "FindCoordinator": 6,
        "DescribeGroups": 6,
        "ListGroups": 5,
        "ApiVersions": 4,
        "InitProducerId": 5,
        "DescribeLogDirs": 5,
        "AlterPartitionReassignments": 1,
        "DescribeQuorum": 2,
        "UpdateFeatures": 2,
        "DescribeCluster": 2,
        "ConsumerGroupHeartbeat": 1,
        "ConsumerGroupDescribe": 1,
        "ListConfigResources": 1,
        "DescribeTopicPartitions": 0,
    },
}


@pytest.mark.parametrize("name", MEASURED)
def test_table_equals_measured_versions(name: str) -> None:
    versions = release_of(name).versions
    assert {api: versions[API_KEYS[api]] for api in MEASURED[name]} == MEASURED[name]


def test_version_of_api_never_decreases_between_releases() -> None:
    newest = release_of(RELEASES[-1]).versions
    assert set(newest) == {API_KEYS[name] for name in SERVED}
    assert all(newest[API_KEYS[name]] >= served.last for name, served in SERVED.items())
    for older, newer in itertools.pairwise(RELEASES):
        before, after = release_of(older).versions, release_of(newer).versions
        assert all(after[key] >= last for key, last in before.items())


def test_patch_number_of_release_is_ignored() -> None:
    assert release_of("3.9.2") == release_of("3.9")


@pytest.mark.parametrize("name", ["", "2.7", "3", "5.0", "four"])
def test_unknown_release_is_config_error(name: str) -> None:
    with pytest.raises(ConfigError, match="as_version"):
        BrokerConfig.build(data_dir="", as_version=name)


@pytest.mark.parametrize("name", ["2.8", "3.4", "3.9", "4.0", "4.3"])
def test_broker_advertises_only_versions_of_release(connect: Any, name: str) -> None:
    release = release_of(name)
    with EmbeddedCluster(as_version=name) as cluster:
        client = connect(cluster)
        response = client.call(ASK, 3)
        ranges = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
        for api, served in SERVED.items():
            key = API_KEYS[api]
            last = min(served.last, release.versions.get(key, -1))
            assert ranges.get(key) == (None if last < served.first else (served.advertised_first, last)), api
        levels = {feature.name: feature.max_version_level for feature in response.finalized_features}
        assert levels == {
            feature: level
            for feature, level in release.features.items()
            if FEATURES[feature].last and (name, feature) != ("4.0", ELR_VERSION)  # known to 4.0, and off
        }
        last = ranges[API_KEYS["Metadata"]][1]
        assert client.call(MetadataRequest(topics=[]), last).controller_id == 1
        if last < SERVED["Metadata"].last:
            client.send(MetadataRequest(topics=[]), last + 1)
            assert client.is_closed()


def test_older_release_refuses_newest_api_versions(connect: Any) -> None:
    import struct

    from pyclient.protocol import codec
    from pyclient.protocol.messages.api_versions import ApiVersionsResponse

    with EmbeddedCluster(as_version="3.5") as cluster:
        client = connect(cluster)
        client.send(ASK, 4)
        frame = client.receive_frame()
        answer = codec.decode(ApiVersionsResponse, 0, frame, 4)
        assert struct.unpack_from(">i", frame)[0] == client.correlation_id
        assert answer.error_code == UnsupportedVersion.code
        assert [(entry.api_key, entry.max_version) for entry in answer.api_keys] == [(18, 3)]
        assert client.call(ASK, 3).error_code == 0


def test_broker_in_process_emulates_release(connect: Any) -> None:
    with EmbeddedCluster(as_version="3.0", processes=True) as cluster:
        response = connect(cluster).call(ASK, 3)
        assert {entry.api_key: entry.max_version for entry in response.api_keys}[API_KEYS["Fetch"]] == 12


@pytest.mark.parametrize("name", RELEASES)
def test_kafka_python_detects_release(name: str) -> None:
    data = pytest.importorskip("kafka.protocol.broker_version_data")
    versions = release_of(name).versions
    ranges = {
        data.ApiKey(API_KEYS[api]): (served.advertised_first, min(served.last, versions[API_KEYS[api]]))
        for api, served in SERVED.items()
        if versions.get(API_KEYS[api], -1) >= served.first
    }
    guessed = data.infer_broker_version_from_api_versions({key.value: span for key, span in ranges.items()} | ranges)
    expected = tuple(map(int, name.split(".")))
    assert guessed == (expected if expected != (3, 4) else (3, 3))  # 3.4 differs from 3.3 only in APIs of brokers


@pytest.mark.parametrize(("name", "oldest"), [("3.9", 1), ("4.0", 7), ("4.3", 7)])
def test_feature_levels_are_limited_by_release(connect: Any, name: str, oldest: int) -> None:
    release = release_of(name)
    with EmbeddedCluster(as_version=name) as cluster:
        response = connect(cluster).call(ASK, 4)
        ranges = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
        expected = {feature: (0, min(level, FEATURES[feature].last)) for feature, level in release.features.items()}
        assert ranges == expected | {"metadata.version": (oldest, release.features["metadata.version"])}


def test_log_of_older_release_keeps_metadata_version(connect: Any, tmp_path: Any) -> None:
    for name, level in (("3.9", 21), (None, 21), ("4.3", 21), ("3.5", 11)):
        with EmbeddedCluster(data_dir=str(tmp_path), as_version=name) as cluster:
            response = connect(cluster).call(ASK, 3).finalized_features
            assert {each.name: each.max_version_level for each in response}["metadata.version"] == level, name
            assert "group.version" not in {each.name for each in response}


def test_consumer_groups_are_disabled_before_4_0_by_default(connect: Any) -> None:
    ask = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="", member_epoch=0, rebalance_timeout_ms=1000, subscribed_topic_names=["t"],
        topic_partitions=[],
    )  # fmt: skip
    protocols = "group.coordinator.rebalance.protocols"
    for name, options, on in (
        ("3.9", {}, False),
        ("3.9", {protocols: "classic"}, False),
        ("3.9", {protocols: "classic,consumer"}, True),
        ("4.0", {}, True),
        ("4.0", {protocols: "classic"}, False),
    ):
        with EmbeddedCluster(as_version=name, config=options) as cluster:
            client = connect(cluster)
            code = client.call(ask, 0).error_code
            while code == CoordinatorNotAvailable.code or code == NotCoordinator.code:
                client.call(FindCoordinatorRequest(key="g"), 0)
                code = client.call(ask, 0).error_code
            about = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
            described = client.call(about, 0).groups[0].error_code
            expected = 0 if on else UnsupportedVersion.code
            assert (code, described) == (expected, expected), (name, options)
