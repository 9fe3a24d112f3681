"""Send a few records and read them back."""

from pyclient import Consumer, Producer
from pyclient.broker_embedded import EmbeddedCluster

with EmbeddedCluster() as cluster:
    with Producer(cluster.bootstrap_servers, linger_ms=5) as producer:
        future = producer.send("orders", b"three apples", key=b"42", headers={"trace": b"1"})
        print("delivered:", future.result(timeout=10))
        for number in range(10):
            producer.send("orders", b"order %d" % number, key=b"%d" % number)

    options = {"group_id": "billing", "auto_offset_reset": "earliest"}
    with Consumer("orders", bootstrap_servers=cluster.bootstrap_servers, **options) as consumer:
        seen = 0
        while seen < 11:
            for record in consumer.poll(timeout=5):
                print(record.partition, record.offset, record.key, record.value, record.headers)
                seen += 1
        consumer.commit()
