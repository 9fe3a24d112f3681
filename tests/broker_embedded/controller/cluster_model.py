"""A controller's pure parts over an image: records take the way through their bytes, and get offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from pyclient.broker_embedded.controller import records as metadata_records
from pyclient.broker_embedded.controller.cluster_control import ClusterControl, HeartbeatReply
from pyclient.broker_embedded.controller.image import MetadataImage, PartitionImage
from pyclient.broker_embedded.controller.replication_control import IsrAnswer, ReplicationControl
from pyclient.protocol.messages.alter_partition import AlterPartitionRequestPartitionData, BrokerState
from pyclient.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from pyclient.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from pyclient.protocol.messages.metadata_log import FeatureLevelRecord, PartitionRecord, TopicRecord

TOPIC = UUID(int=1000)
CLUSTER = "cluster"
TIMEOUT = 9.0


@dataclass
class Options:
    """Options of all topics."""

    min_isr: int = 1
    unclean: bool = False

    def min_insync_replicas(self, topic: str) -> int:
        """Return min.insync.replicas."""
        return self.min_isr

    def unclean_leader_election(self, topic: str) -> bool:
        """Return unclean.leader.election.enable."""
        return self.unclean


@dataclass
class ClusterModel:
    """A metadata log without a disk: its end offset, its image and the controller's parts."""

    level: int = 30
    elr: bool = False
    options: Options = field(default_factory=Options)

    def __post_init__(self) -> None:
        self.image = MetadataImage()
        self.end_offset = 0
        self.now = 100.0
        self.replication = ReplicationControl(self.image, self.options, self.directory_of)
        self.cluster = ClusterControl(self.image, self.replication, TIMEOUT, CLUSTER)
        self.append([FeatureLevelRecord(name="metadata.version", feature_level=self.level)])
        if self.elr:
            self.append([FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)])
        self.cluster.activate(self.now)

    def append(self, records: Iterable[Any]) -> list[Any]:
        """Append records: each must survive its encoding."""
        appended = list(records)
        for record in appended:
            data = metadata_records.encode(record, self.level)
            back = metadata_records.decode(data)
            assert back is not None
            self.image.apply(back)
            self.end_offset += 1
        return appended

    def directory_of(self, broker: int) -> UUID:
        """Return the directory of a new replica."""
        return UUID(int=100 + broker)

    # ---- brokers

    def registration(self, broker: int, incarnation: int = 0, **fields: Any) -> BrokerRegistrationRequest:
        """Return the request of a broker that wants to register."""
        values: dict[str, Any] = {
            "cluster_id": CLUSTER,
            "incarnation_id": UUID(int=broker * 1000 + incarnation),
            "listeners": [Listener(name="PLAINTEXT", host="h", port=9000 + broker, security_protocol=0)],
            "features": [
                Feature(name="metadata.version", min_supported_version=7, max_supported_version=30),
                Feature(name="eligible.leader.replicas.version", min_supported_version=0, max_supported_version=1),
            ],
            "rack": None,
            "log_dirs": [self.directory_of(broker)],
        }
        return BrokerRegistrationRequest(broker_id=broker, **(values | fields))

    def register(self, broker: int, incarnation: int = 0, **fields: Any) -> int:
        """Register a broker; return its epoch."""
        done = self.cluster.register(self.registration(broker, incarnation, **fields), self.now, self.end_offset)
        self.append(done.records)
        return done.epoch

    def beat(
        self, broker: int, *, offset: int | None = None, connection: object = None, **wants: Any
    ) -> HeartbeatReply:
        """Send a broker's heartbeat; without `offset` it has read all of the log."""
        values: dict[str, Any] = {"want_fence": False, "want_shut_down": False}
        request = BrokerHeartbeatRequest(
            broker_id=broker,
            broker_epoch=self.image.brokers[broker].epoch,
            current_metadata_offset=self.end_offset - 1 if offset is None else offset,
            **(values | wants),
        )
        beat = self.cluster.heartbeat(request, self.now, self.end_offset, connection)
        self.append(beat.records)
        return beat

    def start(self, *brokers: int, racks: Mapping[int, str] | None = None) -> None:
        """Register and unfence brokers."""
        for broker in brokers:
            self.register(broker, rack=None if racks is None else racks[broker])
            self.beat(broker)

    def fence(self, broker: int) -> list[Any]:
        """Fence a broker, as when its session ends."""
        return self.append(self.cluster.fence(broker))

    # ---- partitions

    def create(self, *partitions: Sequence[int], name: str = "t", topic_id: UUID = TOPIC, **fields: Any) -> None:
        """Create a topic with these replicas."""
        self.append([TopicRecord(name=name, topic_id=topic_id)])
        for index, replicas in enumerate(partitions):
            values: dict[str, Any] = {
                "isr": list(replicas),
                "leader": replicas[0],
                "leader_epoch": 0,
                "partition_epoch": 0,
                "removing_replicas": [],
                "adding_replicas": [],
                "directories": [self.directory_of(each) for each in replicas],
            }
            self.append(
                [PartitionRecord(partition_id=index, topic_id=topic_id, replicas=list(replicas), **(values | fields))]
            )

    @property
    def partition(self) -> PartitionImage:
        """The first partition of the first topic."""
        return self.image.topics_by_id[TOPIC].partitions[0]

    def alter(self, isr: Sequence[int], *, version: int = 3, **fields: Any) -> IsrAnswer:
        """Let the leader of the first partition propose an ISR."""
        partition = self.partition
        sender = fields.pop("sender", partition.leader)
        epochs = fields.pop("epochs", {})
        values: dict[str, Any] = {
            "partition_index": 0,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "leader_recovery_state": 0,
        }
        if version < 3:
            values["new_isr"] = list(isr)
        else:
            states = [BrokerState(broker_id=each, broker_epoch=epochs.get(each, -1)) for each in isr]
            values["new_isr_with_epochs"] = states
        wanted = AlterPartitionRequestPartitionData(**(values | fields))
        answer = self.replication.alter_isr(sender, TOPIC, wanted, version=version)
        if answer.record is not None:
            self.append([answer.record])
        return answer
