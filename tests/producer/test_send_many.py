"""`send_many` of both APIs against the embedded broker: whole columns arrive, and invalid rows are named."""

from __future__ import annotations

import pytest

from pyclient import errors
from pyclient.records import partition_for_key


def test_send_many_takes_whole_columns(make, topic, log):
    client = make(batch_size=2000)
    values = [b"value %d" % number for number in range(1000)]
    keys = [b"key %d" % (number % 50) if number % 10 else None for number in range(1000)]
    outcome = client.send_many(
        topic, values, keys=keys, headers=[{"n": b"%d" % number} for number in range(1000)], timestamps_ms=range(1000)
    )
    metadata = client.result(outcome)
    assert (len(metadata), outcome.delivered, outcome.failed, outcome.failures, outcome.done()) == (
        1000, 1000, 0, {}, True,
    )  # fmt: skip
    found = {(r.partition, r.offset): r for records in log().values() for r in records}
    for number, (one, offset, partition) in enumerate(zip(metadata, outcome.offsets, outcome.partitions, strict=True)):
        record = found[partition, offset]
        assert (record.key, record.value, record.headers) == (keys[number], values[number], (("n", b"%d" % number),))
        assert (one.partition, one.offset, one.timestamp_ms) == (partition, offset, number)
        assert keys[number] is None or partition == partition_for_key(keys[number], 3)
    assert client.result(outcome[-1]).timestamp_ms == 999
    assert metadata[10:12] == [metadata[10], metadata[11]]


def test_send_many_of_nothing_is_done(make, topic):
    client = make()
    outcome = client.send_many(topic, [])
    assert outcome.done() and len(client.result(outcome)) == 0


def test_send_many_sends_valid_rows_and_names_invalid_ones(make, topic, log):
    client = make(max_request_size=5000, batch_size=1000)
    values = [b"a", "b", b"c", b"d" * 6000, b"e", 5]
    outcome = client.send_many(topic, values, partition=0)
    failure = client.exception(outcome)
    assert isinstance(failure, errors.DeliveryFailed) and failure.count == 3
    assert {position: type(error) for position, error in outcome.failures.items()} == {
        1: errors.SerializationError,
        3: errors.MessageTooLarge,
        5: errors.SerializationError,
    }
    assert outcome.offsets == [0, -1, 1, -1, 2, -1]
    assert [record.value for record in log()[0]] == [b"a", b"c", b"e"]
    assert isinstance(client.exception(outcome[3]), errors.MessageTooLarge)


def test_send_many_raises_when_nothing_was_accepted(make, topic):
    client = make()
    with pytest.raises(errors.SerializationError, match="is str, not bytes"):
        client.send_many(topic, ["a", "b"])
    with pytest.raises(ValueError, match="columns of one length"):
        client.send_many(topic, [b"a"], keys=[b"a", b"b"])


@pytest.mark.parametrize("keyed", [False, True])
def test_send_many_takes_arrow_columns(make, topic, log, keyed):
    pa = pytest.importorskip("pyarrow")
    client = make(batch_size=3000)
    values = pa.array([None if number == 7 else f"value {number}" for number in range(1, 1001)]).slice(1)
    keys = pa.array([b"%d" % (number % 20) for number in range(999)], pa.large_binary()) if keyed else None
    outcome = client.send_many(topic, values, keys=keys, timestamps_ms=list(range(999)))
    client.result(outcome)
    records = [record for part in log().values() for record in part]
    assert {r.timestamp_ms: r.value for r in records} == {
        n: None if v is None else v.encode() for n, v in enumerate(values.to_pylist())
    }
    if keyed:
        assert all(
            r.key == b"%d" % (r.timestamp_ms % 20) and r.partition == partition_for_key(r.key, 3) for r in records
        )
