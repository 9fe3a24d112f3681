"""At least once: process first, commit what is done, also before partitions move. A crash loses nothing."""

from collections.abc import Sequence

from pyclient import Consumer, Producer, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.consumer import RebalanceListener


class Service(RebalanceListener):
    """Processes orders and remembers how far it got: a poll returns more than one record, a crash comes at any."""

    def __init__(self, servers: str) -> None:
        self.consumer = Consumer[bytes, bytes](
            bootstrap_servers=servers, group_id="billing", enable_auto_commit=False, auto_offset_reset="earliest"
        )
        self.done: dict[TopicPartition, int] = {}  # the offset to go on from

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """They are still this member's: whoever gets them goes on right behind what is done."""
        self.commit()

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """They are somebody else's already: nothing can be committed, and its records come again there."""
        self.done.clear()

    def commit(self) -> None:
        """Commits what is done and nothing that a poll returned beyond it."""
        if self.done:
            self.consumer.commit(self.done)
            self.done = {}

    def run(self, handled: list[bytes | None], crash_after: bytes) -> None:
        """Works until nothing comes any more; dies when `crash_after` is processed and not yet remembered as done."""
        with self.consumer as consumer:
            consumer.subscribe("orders", listener=self)
            while records := consumer.poll(timeout=2, max_records=4):
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
