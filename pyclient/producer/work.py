"""ProduceWork, a request to send, and Settlement, a batch's outcome: the results of the sender's decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyclient.errors import KafkaError
from pyclient.producer.batch import ProducerBatch
from pyclient.producer.delivery import Delivery


@dataclass(slots=True)
class ProduceWork:
    """The batches of one Produce request to broker `node` on its connection `link`, at most one of each partition."""

    node: int
    batches: list[ProducerBatch]
    size: int
    link: int = 0

    def __repr__(self) -> str:
        return f"<ProduceWork node={self.node} {', '.join(repr(batch) for batch in self.batches)}>"


@dataclass(slots=True)
class Settlement:
    """A batch's outcome, decided under the producer's lock; `tell` is called outside the lock."""

    delivery: Delivery
    count: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    error: KafkaError | None = None
    record_errors: Mapping[int, BaseException] | None = None

    def __post_init__(self) -> None:
        self.delivery.desk.untold[self.delivery] = None

    def tell(self) -> bool:
        """Complete the batch's futures; return False if they were completed before."""
        try:
            if self.error is not None:
                return self.delivery.fail(self.count, self.error, self.record_errors)
            return self.delivery.deliver(self.count, self.base_offset, self.log_append_time_ms)
        finally:
            self.delivery.desk.told(self.delivery)
