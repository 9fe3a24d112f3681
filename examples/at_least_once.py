"""At least once: process first, then commit, also before partitions are revoked. A crash loses no records."""

from collections.abc import Sequence

from pyclient import Consumer, Producer, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.consumer import RebalanceListener


class Service(RebalanceListener):
    """Processes orders and notes each processed offset: a poll returns several records, and any of them may crash."""

    def __init__(self, servers: str) -> None:
        self.consumer = Consumer[bytes, bytes](
            bootstrap_servers=servers, group_id="billing", enable_auto_commit=False, auto_offset_reset="earliest"
        )
        self.done: dict[TopicPartition, int] = {}  # the next offset to process

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit before the partitions move: their next owner continues with the first unprocessed record."""
        self.commit()

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Drop the progress: the partitions have another owner, which processes the uncommitted records again."""
        self.done.clear()

    def commit(self) -> None:
        """Commit the processed records, not all that a poll returned."""
        if self.done:
            self.consumer.commit(self.done)
            self.done = {}

    def run(self, handled: list[bytes | None], crash_after: bytes) -> None:
        """Process until no more records arrive; crash after `crash_after` is processed and before that is noted."""
        with self.consumer as consumer:
            consumer.subscribe("orders", listener=self)
            while records := consumer.poll(timeout=10, max_records=4):
                for record in records:
                    handled.append(record.value)
                    if record.value == crash_after:
                        raise RuntimeError("the service crashed")
                    self.done[TopicPartition(record.topic, record.partition)] = record.offset + 1
                self.commit()


with EmbeddedCluster() as cluster:
    with Producer(cluster.bootstrap_servers) as producer:
        for number in range(10):
            producer.send("orders", b"%d" % number, partition=0)

    handled: list[bytes | None] = []
    try:
        Service(cluster.bootstrap_servers).run(handled, crash_after=b"5")
    except RuntimeError as error:
        print(error, "after", handled)
    Service(cluster.bootstrap_servers).run(handled, crash_after=b"")
    print("handled:", handled)
    assert set(handled) == {b"%d" % number for number in range(10)}, "nothing is lost"
    assert handled.count(b"5") == 2, "what was processed and not committed comes again"
