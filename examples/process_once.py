"""Each record takes effect once: the result and the offset are stored in one transaction of the service's own database.

Nothing is committed to Kafka. A consumer that gets a partition reads its position from the database, so a crash at any
point neither loses a record nor counts one twice.
"""

import sqlite3
from collections.abc import Sequence

from pyclient import Consumer, Producer, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.consumer import RebalanceListener


class Ledger:
    """Balances, and the next offset of each partition."""

    def __init__(self) -> None:
        self.database = sqlite3.connect(":memory:")
        self.database.execute("CREATE TABLE balance (account TEXT PRIMARY KEY, amount INTEGER)")
        self.database.execute(
            "CREATE TABLE progress (topic TEXT, partition INTEGER, next INTEGER, UNIQUE (topic, partition))"
        )

    def next_offset(self, partition: TopicPartition) -> int:
        """Return the offset of the first record that is not booked."""
        query = "SELECT next FROM progress WHERE topic = ? AND partition = ?"
        row = self.database.execute(query, partition).fetchone()
        return 0 if row is None else int(row[0])

    def book(self, account: str, amount: int, partition: TopicPartition, offset: int, *, crash: bool) -> None:
        """Store the booking and the next offset in one transaction."""
        with self.database:
            self.database.execute(
                "INSERT INTO balance VALUES (?, ?) ON CONFLICT DO UPDATE SET amount = amount + excluded.amount",
                (account, amount),
            )
            if crash:
                raise RuntimeError("the service crashed between the booking and its offset")
            self.database.execute("INSERT OR REPLACE INTO progress VALUES (?, ?, ?)", (*partition, offset + 1))


class GoOnWhereTheLedgerIs(RebalanceListener):
    """Seeks assigned partitions to the position in the database, not to what the group has committed."""

    def __init__(self, consumer: Consumer[bytes, bytes], ledger: Ledger) -> None:
        self.consumer, self.ledger = consumer, ledger

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self.consumer.seek(partition, offset=self.ledger.next_offset(partition))


def work(servers: str, ledger: Ledger, crash_at: int) -> None:
    """Run the service once; it crashes while it books `crash_at`."""
    with Consumer[bytes, bytes](bootstrap_servers=servers, group_id="ledger", enable_auto_commit=False) as consumer:
        consumer.subscribe("payments", listener=GoOnWhereTheLedgerIs(consumer, ledger))
        while records := consumer.poll(timeout=10):
            for record in records:
                assert record.key is not None and record.value is not None
                place = TopicPartition(record.topic, record.partition)
                amount = int(record.value)
                ledger.book(record.key.decode(), amount, place, record.offset, crash=amount == crash_at)


with EmbeddedCluster() as cluster:
    with Producer(cluster.bootstrap_servers) as producer:
        for amount in range(1, 11):
            producer.send("payments", b"%d" % amount, key=b"alice" if amount % 2 else b"bob")

    ledger = Ledger()
    try:
        work(cluster.bootstrap_servers, ledger, crash_at=6)
    except RuntimeError as error:
        print(error)
    work(cluster.bootstrap_servers, ledger, crash_at=0)
    balances = dict(ledger.database.execute("SELECT account, amount FROM balance"))
    ledger.database.close()
    print("balances:", balances)
    assert balances == {"alice": 1 + 3 + 5 + 7 + 9, "bob": 2 + 4 + 6 + 8 + 10}
