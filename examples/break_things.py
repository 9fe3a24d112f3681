"""Inject failures, delays, crashes and the passage of time into a broker, and see how the clients react."""

from pyclient import Consumer, Producer, errors
from pyclient.broker_embedded import EmbeddedCluster

with EmbeddedCluster() as cluster, cluster.requests.start() as requests:
    servers = cluster.bootstrap_servers
    [broker] = cluster.brokers

    with Producer(servers, retry_backoff_ms=10) as producer:
        # The next two Produce requests for this topic fail; the producer sends again.
        with cluster.faults.fail("Produce", errors.NotLeaderOrFollower, times=2, topic="orders") as fault:
            first = producer.send("orders", b"three apples").result(timeout=10)
            print("written at offset", first.offset, "after", fault.hits(), "failures")

        # The record is written, its answer is lost; the broker knows the batch when it comes again.
        with cluster.faults.disconnect("Produce", when="after"):
            print("written once, at offset", producer.send("orders", b"two pears").result(timeout=10).offset)

        # A request waits until the test has looked at what happens meanwhile.
        with cluster.faults.hold("Produce") as held:
            future = producer.send("orders", b"a plum")
            held.wait()
            print("held, so done is", future.done())
            held.release()
            print("released: offset", future.result(timeout=10).offset)

        print("asked so far:", sorted({request.api for request in requests}))

        # A crash: connections end, nothing is flushed or marked. The same port and data come back.
        broker.kill()
        future = producer.send("orders", b"a quince")
        broker.start()
        print("after the crash: offset", future.result(timeout=10).offset)

    # A member that the broker does not hear of for longer than its session is out of the group.
    with Consumer("orders", bootstrap_servers=servers, group_id="billing", enable_auto_commit=False) as consumer:
        consumer.poll(timeout=5)
        print("group:", cluster.wait_group("billing", "Stable", members=1)["state"])
        with cluster.faults.hold("Heartbeat", times=None):
            cluster.advance_time(60)
            print("a minute later:", cluster.wait_group("billing", members=0)["state"])
