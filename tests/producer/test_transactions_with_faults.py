"""Transactions on a broker that loses requests and answers, or refuses them for a while; both generations."""

from __future__ import annotations

import pytest

from pyclient import ErrorAction, GroupMetadata, TopicPartition, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.cluster.faults import Faults
from tests.producer.transactional_clients import PATIENCE, committed_offset, make, release, values_of

__all__ = ["make", "release"]


@pytest.fixture
def faults(release: tuple[str, EmbeddedCluster]) -> Faults:
    return release[1].faults


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("api", ["EndTxn", "Produce", "InitProducerId", "TxnOffsetCommit"])
def test_connection_that_breaks_changes_nothing(make, faults, topic, api, when):
    """The request, or its answer only, is lost twice; every transaction is committed once."""
    with faults.disconnect(api, times=2, when=when):
        producer = make()
        for number in range(4):
            with producer.transaction():
                producer.send(topic, b"%d" % number, partition=0)
                producer.send_offsets_to_transaction({TopicPartition(topic, 1): number}, GroupMetadata(topic))
    assert values_of(make.servers, topic, "read_committed") == [b"0", b"1", b"2", b"3"]
    assert committed_offset(make.servers, topic, TopicPartition(topic, 1)) == 3


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("EndTxn", "CONCURRENT_TRANSACTIONS"),
        ("EndTxn", "COORDINATOR_NOT_AVAILABLE"),
        ("EndTxn", "NOT_COORDINATOR"),
        ("InitProducerId", "CONCURRENT_TRANSACTIONS"),
        ("Produce", "NOT_LEADER_OR_FOLLOWER"),
        ("Produce", "CONCURRENT_TRANSACTIONS"),
        ("TxnOffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS"),
    ],
)
def test_error_that_passes_is_waited_out(make, faults, topic, api, error):
    with faults.fail(api, error, times=2):
        producer = make()
        with producer.transaction():
            producer.send(topic, b"x", partition=0)
            producer.send_offsets_to_transaction({TopicPartition(topic, 1): 1}, GroupMetadata(topic))
    assert values_of(make.servers, topic, "read_committed") == [b"x"]


def test_record_that_is_refused_costs_its_transaction_only(make, faults, topic):
    producer = make()
    producer.begin_transaction()
    with faults.fail("Produce", "INVALID_RECORD"):
        producer.send(topic, b"refused", partition=0)
        with pytest.raises(errors.InvalidRecord) as refused:
            producer.commit_transaction()
    assert refused.value.action is ErrorAction.ABORT
    with pytest.raises(errors.InvalidRecord, match="did not take the batch") as again:
        producer.send(topic, b"later")
    assert again.value.action is ErrorAction.ABORT
    producer.abort_transaction()
    with producer.transaction():
        producer.send(topic, b"next", partition=0)
    assert values_of(make.servers, topic, "read_committed") == [b"next"]
    producer.close()  # reports no failure: the commit did


def test_commit_without_an_answer_is_unknown_and_asked_for_again(make, faults, topic):
    producer = make()
    producer.begin_transaction()
    producer.send(topic, b"0", partition=0).result(PATIENCE)  # so that the commit has to send EndTxn only
    with faults.disconnect("EndTxn", times=None, when="after"):
        with pytest.raises(errors.TransactionOutcomeUnknown) as unknown:
            producer.commit_transaction(3.0)
        assert unknown.value.action is ErrorAction.RETRY
        with pytest.raises(errors.TransactionStateError, match=r"call commit_transaction\(\) again"):
            producer.abort_transaction()
    producer.commit_transaction()
    producer.begin_transaction()
    producer.send(topic, b"1", partition=0).result(PATIENCE)
    with faults.disconnect("EndTxn", times=None), pytest.raises(errors.TransactionOutcomeUnknown):
        producer.commit_transaction(3.0)
    with producer.transaction():  # which first ends the one before
        producer.send(topic, b"2", partition=0)
    assert values_of(make.servers, topic, "read_committed") == [b"0", b"1", b"2"]


def test_timeout_before_the_commit_is_asked_for_means_abort(make, faults, topic):
    producer = make()
    producer.begin_transaction()
    with faults.hold("Produce", topic=topic) as held:
        producer.send(topic, b"held", partition=0)
        held.wait()
        with pytest.raises(errors.KafkaTimeout) as late:
            producer.commit_transaction(0.3)
        assert late.value.action is ErrorAction.ABORT
    producer.abort_transaction(PATIENCE)
    with producer.transaction():
        producer.send(topic, b"next", partition=0)
    assert values_of(make.servers, topic, "read_committed") == [b"next"]


def test_exception_in_the_block_is_raised_when_the_abort_fails(make, faults, topic):
    producer = make()
    with faults.disconnect("EndTxn", times=None), pytest.raises(ValueError, match="mine"), producer.transaction(0.5):
        producer.send(topic, b"x", partition=0).result(PATIENCE)
        raise ValueError("mine")
    producer.abort_transaction()
    assert values_of(make.servers, topic, "read_committed") == []
