"""Many transactional ids at work at once, and a transaction of a million records."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from pyclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.network.node_channels import NodeChannel, NodeChannels
from pyclient.protocol.messages.end_txn import EndTxnRequest
from pyclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from pyclient.protocol.messages.init_producer_id import InitProducerIdRequest
from pyclient.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pyclient.records import build_batch
from tests.broker_embedded.transactions.memory_node import Node, begun, state
from tests.reading import read_all
from tests.waiting import until

IDS: Final = 1_000
CONNECTIONS: Final = 100
SECONDS: Final = 120.0
PARTITIONS: Final = 10
RECORDS: Final = 1_000_000
PARTITION: Final = TopicPartition("t", 0)
MEBIBYTE: Final = 1 << 20


def calls_for(ids: int) -> int:
    """Return how many functions are called for the transactions of that many ids, open at once, and a failover."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    node = Node()
    sys.setprofile(count)
    try:
        producers = {name: begun(node, name) for name in map(str, range(ids))}
        node.pass_time(0.5)
        node.restart()
        for number, (name, producer) in enumerate(producers.items()):
            node.coordinator.end(name, *producer, commit=number % 2 == 0, client_version=2)
        node.pass_time(10)
    finally:
        sys.setprofile(None)
    assert {state(node, name) for name in producers} == {"CompleteCommit", "CompleteAbort"}
    return calls


def test_coordinator_work_is_linear_in_the_number_of_ids() -> None:
    few, many = calls_for(50), calls_for(400)
    assert many < 8.5 * few


class Writer:
    """A transactional producer that shares its connection with others."""

    def __init__(self, channel: NodeChannel, number: int) -> None:
        self.name = f"id-{number}"
        self._channel = channel
        self._partition = number % PARTITIONS
        self._producer = -1, -1

    async def ask(self, request: Any) -> Any:
        return await self._channel.send(request, SECONDS)

    async def begin(self) -> None:
        """Get a producer id, and write a record in a transaction."""
        answer = await self.ask(InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=600_000))
        assert answer.error_code == 0
        self._producer = answer.producer_id, answer.producer_epoch
        batch = build_batch(
            [(None, self.name.encode())],
            timestamp_ms=1,
            producer_id=answer.producer_id,
            producer_epoch=answer.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        data = [PartitionProduceData(index=self._partition, records=batch)]
        topic = TopicProduceData(name="t", topic_id=self.topic_id, partition_data=data)
        request = ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=60_000, topic_data=[topic])
        written = await self.ask(request)
        assert written.responses[0].partition_responses[0].error_code == 0

    topic_id: Any = None

    async def end(self, *, commit: bool) -> None:
        producer_id, epoch = self._producer
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )
        assert (await self.ask(request)).error_code == 0


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_thousand_ids_have_open_transactions_at_once() -> None:
    with EmbeddedCluster(processes=True) as cluster, Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])
        Writer.topic_id = admin.describe_topics(["t"])["t"].topic_id
        host, port = cluster.bootstrap_servers.split(":")

        async def work() -> None:
            channels = NodeChannels(asyncio.get_running_loop(), "test")
            several = [channels.to(number, host, int(port)) for number in range(CONNECTIONS)]
            writers = [Writer(several[number % CONNECTIONS], number) for number in range(IDS)]
            found = await writers[0].ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["id-0"]))
            assert found.coordinators[0].error_code == 0
            await asyncio.gather(*(writer.begin() for writer in writers))
            states = await asyncio.to_thread(admin.list_transactions)
            assert [each.state for each in states] == ["Ongoing"] * IDS
            await asyncio.gather(*(writer.end(commit=number % 4 != 0) for number, writer in enumerate(writers)))
            channels.close()

        asyncio.run(work())
        until(lambda: {each.state for each in admin.list_transactions()} == {"CompleteCommit", "CompleteAbort"})
        committed = read_all(cluster.bootstrap_servers, "t", PARTITIONS, isolation_level="read_committed")
        assert {record.value for record in committed} == {b"id-%d" % number for number in range(IDS) if number % 4}


def peak_of(pid: int) -> int:
    """Return the most memory that a process has had, in bytes, and begin to measure again."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    peak = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return peak


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="measures memory as Linux shows it")
def test_million_records_are_one_transaction() -> None:
    with EmbeddedCluster(processes=True) as cluster, Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("t", 1, 1)])
        assert cluster.pid is not None
        servers, values = cluster.bootstrap_servers, [b"%063d." % number for number in range(RECORDS)]
        options: Any = {"bootstrap_servers": servers, "auto_offset_reset": "earliest"}
        with (
            Producer(servers, transactional_id="x", transaction_timeout_ms=600_000, linger_ms=5) as producer,
            Consumer[bytes, bytes](**options, isolation_level="read_committed") as reader,
        ):
            producer.init_transactions()
            reader.assign([PARTITION])
            before = peak_of(cluster.pid)

            def write() -> None:
                producer.begin_transaction()
                producer.send_many("t", values, partition=0)
                producer.flush()
                assert reader.end_offsets([PARTITION])[PARTITION] <= begins, "nothing is committed"

            begins = 0
            write()
            producer.abort_transaction()
            begins = RECORDS + 1
            until(lambda: reader.end_offsets([PARTITION])[PARTITION] == begins)
            write()
            assert not reader.poll(0.2)
            producer.commit_transaction()
            until(lambda: reader.end_offsets([PARTITION])[PARTITION] == 2 * begins)
            count = 0
            while reader.position(PARTITION) < 2 * begins:
                records = reader.poll(1.0)
                assert [record.value for record in records] == values[count : count + len(records)]
                count += len(records)
        assert count == RECORDS
        assert peak_of(cluster.pid) - before < 64 * MEBIBYTE
