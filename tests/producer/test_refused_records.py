"""A broker refuses a batch because of some of its records (KIP-467): those are blamed, the others can be sent again."""

from __future__ import annotations

import pytest

from pyclient import Admin, NewTopic, errors


def test_only_records_without_a_key_are_blamed_on_a_compacted_topic(make, topic, cluster, log):
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, 1, 1, configs={"cleanup.policy": "compact"})])
    client = make(linger_ms=60_000)
    keys = [b"a", None, b"b", None]
    futures = [client.send(topic, b"value", key=key) for key in keys]
    with pytest.raises(errors.DeliveryFailed, match="4 records were not delivered"):
        client.flush()
    found = [client.exception(future) for future in futures]
    assert {type(error) for error in found} == {errors.InvalidRecord}
    assert not any(error.maybe_persisted for error in found)
    assert ["refused this record: a record without a key" in str(error) for error in found] == [
        key is None for key in keys
    ]
    assert ["other records can be sent again" in str(error) for error in found] == [key is not None for key in keys]
    again = [client.send(topic, b"value", key=key) for key in keys if key is not None]
    client.flush()
    assert [client.result(future).offset for future in again] == [0, 1]
    assert [record.key for record in log()[0]] == [b"a", b"b"]


def test_error_of_a_record_above_the_topics_limit_names_the_limit(make, topic, cluster):
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, 1, 1, configs={"max.message.bytes": "500"})])
    client = make()
    error = client.exception(client.send(topic, b"x" * 600))
    assert isinstance(error, errors.MessageTooLarge)
    assert "raise the topic's max.message.bytes" in str(error)
