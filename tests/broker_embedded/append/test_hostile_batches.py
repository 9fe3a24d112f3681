"""Answers to hostile batches equal those of Kafka 4.3.1, or refuse batches that would stop consumers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from pyclient import Consumer, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.errors import InvalidRecord, UnknownServerError, UnsupportedCompressionType
from tests.broker_embedded.append.cases import CASES, TOPICS
from tests.broker_embedded.append.replay import Answer, read_answers, replay

RECORDED: Final = read_answers()

_LENGTHS: Final = (
    "length negative", "length 0", "length too short by one", "length too long by one",
    "length too short in the middle", "length 2147483647",
)  # fmt: skip
STRICTER: Final = {
    "offset deltas": "confluent-kafka reads the batch for ever or skips records, and so would our own consumer",
    "key length -2": "confluent-kafka stops there without an error",
    "value length -2": "as for keys",
    "header value length -2": "as for keys",
    "with high bits": "bits that do not fit are dropped by Kafka: another number than was sent",
    "header key not UTF-8": "a str in Python: confluent-kafka raises UnicodeDecodeError for it",
    "a byte more": "what follows the compressed data: confluent-kafka refuses it but with gzip",
    "noise behind": "as a byte more",
    "lz4 data: twice": "as a byte more",
    "two members": "confluent-kafka reads the first one alone, and skips the batch without an error",
    "a frame to skip": "as a byte more",
    "the header again": "confluent-kafka refuses it",
    "a wrong checksum of the content": "confluent-kafka refuses it, Java's clients do not look",
    "a batch and a": "bytes after the batch are dropped by Kafka",
}
"""Batches that Kafka stores and this broker refuses with INVALID_RECORD: part of the case's name, and reason."""


def is_stricter(name: str) -> bool:
    """Return True if only this broker refuses the batch; Kafka does not check lengths of compressed records."""
    codec, _, what = name.partition(": ")
    of_compressed = codec in ("gzip", "snappy", "lz4", "zstd") and what in _LENGTHS
    return of_compressed or any(part in name for part in STRICTER)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """Yield a broker with Kafka's defaults to which all cases were sent."""
    with EmbeddedCluster(profile="kafka") as running:
        yield running


@pytest.fixture(scope="module")
def answers(cluster: EmbeddedCluster) -> dict[str, Answer]:
    """Return the broker's answers."""
    return dict(replay(cluster.bootstrap_servers, CASES))


def test_every_case_is_recorded_under_unique_name() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert set(names) == RECORDED.keys()


def test_answers_equal_those_of_kafka_or_are_stricter(answers: dict[str, Answer]) -> None:
    wrong = {}
    for name, kafkas in RECORDED.items():
        ours = answers[name]
        if kafkas.code == UnknownServerError.code:
            expected = ours.code in (InvalidRecord.code, UnsupportedCompressionType.code) and not ours.records
        elif is_stricter(name) and (kafkas.code == 0 or "compacted" in name):
            expected = ours.code == InvalidRecord.code and not ours.records
        else:
            expected = ours._replace(says_why=kafkas.says_why) == kafkas
        if not expected or (ours.code and not ours.says_why and kafkas.says_why):
            wrong[name] = (kafkas, ours)
    assert wrong == {}


def test_every_stricter_answer_occurs() -> None:
    stored = [name for name, kafkas in RECORDED.items() if kafkas.code == 0]
    for part in STRICTER:
        assert any(part in name for name in stored), part


def test_refusal_has_reason(answers: dict[str, Answer]) -> None:
    versions = {case.name: case.version for case in CASES}
    silent = [name for name, each in answers.items() if each.code and not each.says_why and versions[name] >= 8]
    assert silent == []


@pytest.mark.parametrize("topic", TOPICS)
def test_accepted_batches_are_readable(cluster: EmbeddedCluster, answers: dict[str, Answer], topic: str) -> None:
    taken = {answers[case.name].stored for case in CASES if case.topic == topic}
    partition = TopicPartition(topic, 0)
    read: list[Any] = []
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < end:
            read += consumer.poll(timeout=10)
    assert [each.offset for each in read] == list(range(end))
    assert (end > 0) == (taken != {None})
