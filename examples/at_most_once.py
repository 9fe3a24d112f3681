"""At most once: commit first, process then. A crash in between loses records and repeats none (say, for metrics)."""

from pyclient import Consumer, Producer
from pyclient.broker_embedded import EmbeddedCluster


def work(servers: str, handled: list[bytes | None], crash_at: bytes) -> None:
    """Run the service once; it crashes while it processes `crash_at`."""
    with Consumer[bytes, bytes](
        "readings", bootstrap_servers=servers, group_id="gauge", enable_auto_commit=False, auto_offset_reset="earliest"
    ) as consumer:
        while records := consumer.poll(timeout=10, max_records=4):
            consumer.commit()  # before the work: what is processed from here on is never read again
            for record in records:
                if record.value == crash_at:
                    raise RuntimeError("the service crashed")
                handled.append(record.value)


with EmbeddedCluster() as cluster:
    with Producer(cluster.bootstrap_servers) as producer:
        for number in range(10):
            producer.send("readings", b"%d" % number, partition=0)

    handled: list[bytes | None] = []
    try:
        work(cluster.bootstrap_servers, handled, crash_at=b"5")
    except RuntimeError as error:
        print(error, "after", handled)
    work(cluster.bootstrap_servers, handled, crash_at=b"")
    print("handled:", handled)
    assert len(handled) == len(set(handled)) == 7, "5, 6 and 7 were committed with the poll that died, and are lost"
