"""The transaction coordinator's runtime on a broker: time, producer ids, `__transaction_state`, and markers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from pyclient.broker_embedded.controller.coordinator_topic import CoordinatorTopic
from pyclient.broker_embedded.controller.topics import TRANSACTIONS_TOPIC
from pyclient.broker_embedded.failures import code_of
from pyclient.broker_embedded.transactions.config import TransactionConfig
from pyclient.broker_embedded.transactions.local_markers import MarkerServices, when_committed, write_marker
from pyclient.records import decode_key_values

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Iterable, Iterator

    from pyclient.broker_embedded.controller.configs import Configs
    from pyclient.broker_embedded.controller.controller import Controller
    from pyclient.broker_embedded.controller.producer_ids import ProducerIds
    from pyclient.broker_embedded.log.unified_log import UnifiedLog
    from pyclient.broker_embedded.scheduling.timers import Timer, Timers
    from pyclient.broker_embedded.transactions.inter_broker_requests import InterBrokerRequests
    from pyclient.broker_embedded.transactions.runtime import Marker
    from pyclient.clock import Clock
    from pyclient.types import TopicPartition

_FEATURE: Final = "transaction.version"


class TransactionServices(MarkerServices, Protocol):
    """The services of a node that the transaction coordinator takes."""

    @property
    def node_id(self) -> int:
        """The id of the node."""

    @property
    def loop(self) -> AbstractEventLoop:
        """The event loop of the node."""

    @property
    def timers(self) -> Timers:
        """The node's timers."""

    @property
    def configs(self) -> Configs:
        """The options of the node."""

    @property
    def controller(self) -> Controller:
        """Changes the metadata of a node that is alone."""

    @property
    def producer_ids(self) -> ProducerIds | None:
        """Blocks of producer ids from the active controller; None on a node that is alone."""

    @property
    def inter_broker_requests(self) -> InterBrokerRequests | None:
        """Sends the requests of transactions to other nodes; None on a node that is alone."""

    def unsynced_partitions(self, topic: str) -> tuple[UnifiedLog, int] | None:
        """Return the metadata log and the offset up to which it must be synced to keep the topic's partitions."""


class BrokerRuntime:
    """The `TransactionRuntime` of a broker."""

    def __init__(self, services: TransactionServices) -> None:
        self._services = services
        self._config = TransactionConfig.of(services.configs.current)
        self._topic = CoordinatorTopic(TRANSACTIONS_TOPIC, services)

    @property
    def clock(self) -> Clock:
        """Return the node's clock."""
        return self._services.clock

    @property
    def config(self) -> TransactionConfig:
        """Return the coordinator's options."""
        return self._config

    @property
    def transaction_version(self) -> int:
        """Return the finalised level of transaction.version."""
        return self._services.image.features.get(_FEATURE, 0)

    def schedule(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` in `delay` seconds."""
        return self._services.timers.schedule(delay, callback)

    def partition_count(self) -> int:
        """Return the number of partitions of `__transaction_state`, 0 if the topic does not exist."""
        return self._topic.partition_count()

    def append(self, partition: int, epoch: int, batch: bytes, done: Callable[[int], None]) -> None:
        """Append a batch to the log of a partition, and wait until it is committed and the topic is on the disk."""
        try:
            log, info = self._topic.append(partition, batch, epoch)
        except Exception as error:  # every failure is answered with its error code
            done(code_of(error, f"a write to {TRANSACTIONS_TOPIC}-{partition}"))
            return
        created = self._services.unsynced_partitions(TRANSACTIONS_TOPIC)
        if created is None:
            when_committed(log, info.last_offset, done)
        else:
            when_committed(*created, partial(_then, log, info.last_offset, done))

    def read_partition(self, partition: int) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Yield (key, value) of every record of a partition; nothing if it was never written."""
        for buffer, position, header in self._topic.batches(partition):
            if not header.is_control:
                for _offset, _timestamp, key, value in decode_key_values(buffer, position, header):
                    yield key, value

    def new_producer_id(self, done: Callable[[int, int], None]) -> None:
        """Call `done` with a producer id out of the controller's next block."""
        if self._services.producer_ids is not None:
            self._services.loop.create_task(_from_block(self._services.producer_ids, done))
            return
        try:
            producer_id = self._services.controller.next_producer_id()
        except Exception as error:  # every failure is answered with its error code
            done(code_of(error, "a new producer id"), -1)
            return
        done(0, producer_id)

    def leader_of(self, partition: TopicPartition) -> int | None:
        """Return the leader of a partition."""
        found = self._services.image.partition(*partition)
        return None if found is None else found.leader

    def write_markers(
        self,
        leader: int,
        marker: Marker,
        partitions: Iterable[TopicPartition],
        done: Callable[[TopicPartition, int], None],
    ) -> None:
        """Write a marker to partitions that this node leads, or have another leader write it."""
        inter_broker_requests = self._services.inter_broker_requests
        if leader != self._services.node_id and inter_broker_requests is not None:
            inter_broker_requests.write_markers(leader, marker, partitions, done)
            return
        for partition in partitions:
            write_marker(self._services, partition, marker, partial(done, partition))


def _then(log: UnifiedLog, offset: int, done: Callable[[int], None], code: int) -> None:
    if code:
        done(code)
    else:
        when_committed(log, offset, done)


async def _from_block(producer_ids: ProducerIds, done: Callable[[int, int], None]) -> None:
    """Call `done` with an id of the block that the active controller has reserved for this node."""
    try:
        producer_id = await producer_ids.next()
    except Exception as error:  # every failure is answered with its error code
        done(code_of(error, "a new producer id"), -1)
    else:
        done(0, producer_id)
