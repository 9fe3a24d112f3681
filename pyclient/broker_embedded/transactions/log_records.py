"""Encode and decode the records of `__transaction_state`, in Kafka's format.

The value is version 0 until transaction.version is 1, and version 1 from then on. A record without a value is a
tombstone. Both versions are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyclient.broker_embedded.transactions.state import (
    EMPTY,
    PREPARE_EPOCH_FENCE,
    TransactionMetadata,
    TransactionState,
)
from pyclient.errors import ProtocolError
from pyclient.protocol import codec
from pyclient.protocol.messages.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from pyclient.varint import Buffer


class TransactionRecord(NamedTuple):
    """A transactional id in the log; `metadata` None is a tombstone."""

    transactional_id: str
    metadata: TransactionMetadata | None


def encode(transactional_id: str, metadata: TransactionMetadata | None, *, version: int) -> tuple[bytes, bytes | None]:
    """Return the key and value of a transactional id; `version` is the transaction.version."""
    key = codec.encode_versioned(TransactionLogKey(transactional_id=transactional_id), 0)
    if metadata is None:
        return key, None
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
        topics.setdefault(topic, []).append(partition)
    listed = [PartitionsSchema(topic=topic, partition_ids=partitions) for topic, partitions in topics.items()]
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=int(metadata.state),
        transaction_partitions=None if metadata.state is EMPTY else listed,
        transaction_last_update_timestamp_ms=metadata.last_update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
    )
    if version:  # the older format has no room for them
        value.previous_producer_id, value.next_producer_id = metadata.previous_producer_id, metadata.next_producer_id
        value.client_transaction_version = metadata.client_version
    return key, codec.encode_versioned(value, 1 if version else 0)


def decode(key: Buffer, value: Buffer | None) -> TransactionRecord | None:
    """Decode a record; return None for a kind of key that is not known.

    Raise `ProtocolError` for malformed bytes, `UnsupportedVersion` for a value of an unknown version.
    """
    if codec.peek_version(key) != TransactionLogKey.api_key:
        return None
    transactional_id = codec.decode_versioned(TransactionLogKey, key).transactional_id
    if value is None:
        return TransactionRecord(transactional_id, None)
    read = codec.decode_versioned(TransactionLogValue, value)
    if not 0 <= read.transaction_status < PREPARE_EPOCH_FENCE:
        raise ProtocolError(f"transactional id {transactional_id!r} has the unknown state {read.transaction_status}")
    metadata = TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=read.producer_id,
        previous_producer_id=read.previous_producer_id,
        next_producer_id=read.next_producer_id,
        producer_epoch=read.producer_epoch,
        timeout_ms=read.transaction_timeout_ms,
        state=TransactionState(read.transaction_status),
        partitions=frozenset(
            TopicPartition(topic.topic, partition)
            for topic in read.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        start_ms=read.transaction_start_timestamp_ms,
        last_update_ms=read.transaction_last_update_timestamp_ms,
        client_version=read.client_transaction_version,
    )
    return TransactionRecord(transactional_id, metadata)
