"""Guarantee 21: any number of threads and tasks use one producer concurrently, and close it meanwhile."""

from __future__ import annotations

import asyncio
import threading

from pyclient import AsyncProducer, Producer, errors
from tests.producer.log import read_log


def test_sixteen_threads_that_send_flush_and_close_lose_nothing(cluster, topic, switching):
    """Guarantee 21: 16 threads, a thread switch every microsecond, and a close in the middle: a `send` either raises
    ClosedError or its record is delivered, each thread's records in their order."""
    delivered = 0
    for round_ in range(5):
        producer, accepted, wrong = Producer(cluster.bootstrap_servers, batch_size=400), {}, []
        enough = threading.Event()

        def work(number, producer=producer, accepted=accepted, wrong=wrong, enough=enough, round_=round_):
            mine = accepted.setdefault(number, [])
            try:
                for n in range(1_000_000):
                    mine.append(producer.send(topic, b"%d %d %d" % (round_, number, n), partition=number % 3))
                    if n % 40 == number:
                        producer.flush(20)
                    if n == 60:
                        enough.set()
            except errors.ClosedError:
                pass
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        assert enough.wait(60)
        closers = [threading.Thread(target=producer.close, args=(60,)) for _ in range(2)]
        for thread in [*closers]:
            thread.start()
        for thread in [*closers, *threads]:
            thread.join(60)
            assert not thread.is_alive()
        assert wrong == []
        for futures in accepted.values():
            offsets = [future.result(0).offset for future in futures]
            assert offsets == sorted(set(offsets))
            delivered += len(offsets)
    assert sum(map(len, read_log(cluster.bootstrap_servers, topic).values())) == delivered


def test_sixteen_tasks_that_send_flush_and_close_lose_nothing(cluster, topic):
    """Guarantee 21, on an event loop."""

    async def one_round(number):
        producer, accepted = AsyncProducer(cluster.bootstrap_servers, batch_size=400), []
        enough = asyncio.Event()

        async def work(task):
            try:
                for n in range(1_000_000):
                    accepted.append(await producer.send(topic, b"%d %d %d" % (number, task, n)))
                    if n % 40 == task:
                        await producer.flush(20)
                    if n == 60:
                        enough.set()
            except errors.ClosedError:
                pass

        tasks = [asyncio.create_task(work(task)) for task in range(16)]
        await enough.wait()
        await asyncio.gather(producer.close(60), producer.close(60))
        await asyncio.gather(*tasks)
        return [await future for future in accepted]

    async def main():
        return sum([len(await one_round(number)) for number in range(5)])

    delivered = asyncio.run(main())
    assert sum(map(len, read_log(cluster.bootstrap_servers, topic).values())) == delivered
