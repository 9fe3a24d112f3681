"""Requests of transactional producers, coordinators and their administrators, to a broker without transactional ids."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

from tests.broker_embedded.odd.data import T
from tests.broker_embedded.odd.table import ABSENT, Scenario, ask, derived


def _producers() -> Iterator[Scenario]:
    begun: dict[str, Any] = {
        "transactional_id": ABSENT,
        "transaction_timeout_ms": 1000,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    for label, fields in (
        ("an empty id", {"transactional_id": ""}),
        ("no timeout", {"transaction_timeout_ms": 0}),
        ("a negative timeout", {"transaction_timeout_ms": -1}),
        ("too long a timeout", {"transaction_timeout_ms": 900_001}),
    ):
        yield from ask(
            "InitProducerId", f"transactional, {label}", **{**begun, "transaction_timeout_ms": 1000, **fields}
        )
    for label, name in (("an unknown id", ABSENT), ("an empty id", "")):
        mine = {"transactional_id": name, "producer_id": 1, "producer_epoch": 0}
        yield from ask("EndTxn", label, committed=True, **mine)
        yield from ask("AddOffsetsToTxn", label, group_id="g", **mine)
        topics = [{"name": T, "partitions": [0]}]
        old = {f"v3_and_below_{each}": value for each, value in mine.items()}
        yield from ask("AddPartitionsToTxn", label, (0, 3), v3_and_below_topics=topics, **old)
        for verify in (True, False):
            batched = [{**mine, "verify_only": verify, "topics": topics}]
            yield from ask("AddPartitionsToTxn", f"{label}, verify {verify}", (4, 5), transactions=batched)


def _markers() -> Iterator[Scenario]:
    for label, name, index in (("an unknown topic", ABSENT, 0), ("an unknown partition", T, 9)):
        marker = {
            "producer_id": 1,
            "producer_epoch": 0,
            "transaction_result": True,
            "coordinator_epoch": 0,
            "topics": [{"name": name, "partition_indexes": [index]}],
        }
        yield from ask("WriteTxnMarkers", label, markers=[marker])


def _looks() -> Iterator[Scenario]:
    yield from ask("DescribeTransactions", "ids", transactional_ids=[ABSENT, ""])
    for label, fields in (
        ("all", {}),
        ("an unknown state", {"state_filters": ["Ongoing", "nonsense"]}),
        ("a producer", {"producer_id_filters": [1]}),
    ):
        yield from ask("ListTransactions", label, **{"duration_filter": -1, **fields})
    for label, pattern in (("a pattern", "a.*"), ("no pattern", "a(")):
        yield from ask("ListTransactions", label, (2,), duration_filter=-1, transactional_id_pattern=pattern)


SCENARIOS: Final = tuple(
    chain(
        derived("AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "WriteTxnMarkers", "TxnOffsetCommit"),
        derived("DescribeTransactions", "ListTransactions"),
        _producers(),
        _markers(),
        _looks(),
    )
)
