"""A user's program with mistakes, each in a line that ends with `# wrong`: read by mypy and pyright, never run."""

import pyclient
import pyclient.broker_embedded
from pyclient import Admin, AsyncConsumer, AsyncProducer, Consumer, NewTopic, Producer, TopicPartition


def note(number: int) -> None:
    print(number)


def names() -> None:
    pyclient.Produser("h:1")  # wrong
    pyclient.broker_embedded.EmbededCluster()  # wrong


def produce() -> None:
    Producer("h:1", linger=5)  # wrong
    Producer("h:1", acks="most")  # wrong
    Producer("h:1", batch_size="big")  # wrong
    Producer("h:1", compression_type="lz5")  # wrong
    Producer("h:1", security_protocol="TLS")  # wrong
    Producer("h:1", value_serializer=len)  # wrong
    Producer(9092)  # wrong
    with Producer("h:1") as producer:
        producer.sent("orders", b"1")  # wrong
        producer.send(b"orders", b"1")  # wrong
        producer.send("orders", b"1", headers="trace")  # wrong
        producer.send("orders", b"1", partition="0")  # wrong
        producer.send("orders", b"1", on_delivery=note)  # wrong
        print(producer.send("orders", b"1").result().offfset)  # wrong
        print(producer.send("orders", b"1").offset)  # wrong
        producer.send("orders", b"1").result(timeout="10")  # wrong
        producer.flush("soon")  # wrong
        producer.send_many("orders", b"1", key=b"k")  # wrong


def consume() -> None:
    Consumer("orders", bootstrap_servers="h:1", group="billing")  # wrong
    Consumer("orders", bootstrap_servers="h:1", auto_offset_reset="earlist")  # wrong
    Consumer("orders", bootstrap_servers="h:1", isolation_level="serializable")  # wrong
    Consumer("orders", bootstrap_servers="h:1", group_protocol="KIP-848")  # wrong
    Consumer("orders", bootstrap_servers="h:1", partition_assignment_strategy="stick")  # wrong
    Consumer("orders", bootstrap_servers="h:1", value_deserializer=str.upper)  # wrong
    with Consumer("orders", bootstrap_servers="h:1", value_deserializer=int) as consumer:
        consumer.poll(max_records="5")  # wrong
        consumer.commit({"orders": 5})  # wrong
        consumer.seek("orders", 5)  # wrong
        consumer.assign([TopicPartition("orders", "0")])  # wrong
        consumer.subscribe(5)  # wrong
        for record in consumer:
            print(record.offsets)  # wrong
            print(record.value.upper())  # wrong
            print(record.value + 1)  # wrong


async def async_clients() -> None:
    with AsyncProducer("h:1"):  # wrong
        pass
    async with AsyncProducer("h:1") as producer:
        producer.send("orders", b"1").result()  # wrong
    async with AsyncConsumer("orders", bootstrap_servers="h:1") as consumer:
        for record in consumer:  # wrong
            print(record)


def administer() -> None:
    NewTopic("orders", partitions="3")  # wrong
    with Admin("h:1") as admin:
        admin.create_topics("orders")  # wrong
        admin.create_topics([NewTopic("orders")], 30)  # wrong
        admin.delete_topic("orders")  # wrong
