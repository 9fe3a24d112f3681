"""Objects in, objects out: serializers are plain functions."""

from pyclient import Consumer, Producer, serialization
from pyclient.broker_embedded import EmbeddedCluster

with EmbeddedCluster() as cluster:
    servers = cluster.bootstrap_servers
    with Producer(
        servers, key_serializer=serialization.string.serialize, value_serializer=serialization.json.serialize
    ) as producer:
        producer.send("users", {"name": "Ada", "age": 36}, key="ada")
    with Consumer(
        "users",
        bootstrap_servers=servers,
        group_id="readers",
        auto_offset_reset="earliest",
        key_deserializer=serialization.string.deserialize,
        value_deserializer=serialization.json.deserialize,
    ) as consumer:
        for record in consumer.poll(timeout=10):
            print(record.key, record.value["age"])
