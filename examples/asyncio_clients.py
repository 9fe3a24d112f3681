"""Send and read records with the asyncio clients, which use no threads."""

import asyncio

from pyclient import AsyncConsumer, AsyncProducer
from pyclient.broker_embedded import EmbeddedCluster


async def main(servers: str) -> None:
    async with AsyncProducer(servers) as producer:
        futures = [await producer.send("events", b"event %d" % number) for number in range(100)]
        print("last one at", await futures[-1])
    async with AsyncConsumer(
        "events", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest"
    ) as consumer:
        seen = 0
        async for record in consumer:
            seen += 1
            if seen == 100:
                print("last one was", record.value)
                break


with EmbeddedCluster() as cluster:
    asyncio.run(main(cluster.bootstrap_servers))
