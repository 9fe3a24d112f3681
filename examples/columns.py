"""A whole column at once: `send_many` on the way in, Arrow on the way out."""

from pyclient import Consumer, Producer, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster

with EmbeddedCluster() as cluster:
    servers = cluster.bootstrap_servers
    with Producer(servers, compression_type="lz4", linger_ms=5) as producer:
        outcome = producer.send_many("measurements", [b"%d" % number for number in range(100_000)], partition=0)
        outcome.result(timeout=30)
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("measurements", 0)])
        rows = 0
        while rows < 100_000:
            table = consumer.poll(timeout=10, max_records=50_000).to_arrow()
            rows += table.num_rows
            print(table.schema.names if rows == table.num_rows else "...", table.num_rows, "rows")
