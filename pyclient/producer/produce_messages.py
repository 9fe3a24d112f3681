"""Conversion of sealed batches to a Produce request, and of a Produce response to answers by partition."""

from __future__ import annotations

from pyclient.producer.config import ProducerConfig
from pyclient.producer.outcome import NO_RECORD_ERRORS, PartitionAnswer
from pyclient.producer.work import ProduceWork
from pyclient.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)


def request_of(work: ProduceWork, sealed: list[memoryview], config: ProducerConfig) -> ProduceRequest:
    """Return the request for the work's batches; `sealed` has their bytes, in the same order."""
    topics: dict[str, list[PartitionProduceData]] = {}
    for batch, records in zip(work.batches, sealed, strict=True):
        queue = batch.queue
        topics.setdefault(queue.topic.name, []).append(PartitionProduceData(index=queue.partition, records=records))
    return ProduceRequest(
        acks=config.acks,
        timeout_ms=config.request_timeout_ms,
        topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
    )


def answers_by_partition(response: ProduceResponse) -> dict[tuple[str, int], PartitionAnswer]:
    """Return a response's answers by (topic, partition); of several for one partition the first counts."""
    answers: dict[tuple[str, int], PartitionAnswer] = {}
    for topic in response.responses:
        for partition in topic.partition_responses:
            place = (topic.name, partition.index)
            if place not in answers:
                answers[place] = _answer(partition)
    return answers


def _answer(partition: PartitionProduceResponse) -> PartitionAnswer:
    if not partition.error_code:
        return PartitionAnswer(0, partition.base_offset, partition.log_append_time_ms)
    return PartitionAnswer(
        partition.error_code,
        partition.base_offset,
        partition.log_append_time_ms,
        partition.error_message,
        {record.batch_index: record.batch_index_error_message for record in partition.record_errors}
        if partition.record_errors
        else NO_RECORD_ERRORS,
    )
