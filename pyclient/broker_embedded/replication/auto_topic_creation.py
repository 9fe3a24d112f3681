"""Topics that brokers create themselves: internal ones, and those of Metadata requests.

In a cluster of several nodes the active controller is asked to create them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from pyclient import errors
from pyclient.broker_embedded.controller.topics import TRANSACTIONS_TOPIC, TopicPlan
from pyclient.broker_embedded.log.incremental_task import run_here
from pyclient.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

if TYPE_CHECKING:
    from asyncio import Future

    from pyclient.broker_embedded.config.broker_config import BrokerConfig
    from pyclient.broker_embedded.controller.configs import Configs
    from pyclient.broker_embedded.controller.controller import Controller
    from pyclient.broker_embedded.controller.image import MetadataImage, TopicImage
    from pyclient.broker_embedded.replication.alter_partition import ControllerChannel
    from pyclient.protocol.messages.create_topics import CreateTopicsResponse

log = logging.getLogger("pyclient.broker_embedded")

_TIMEOUT: Final = 30.0


class AutoTopicCreationManager:
    """Asks for topics, each once at a time. Clients repeat their requests until the topic is in the metadata."""

    def __init__(self, to_controller: ControllerChannel) -> None:
        self._to_controller = to_controller
        self._asked: set[str] = set()

    def __repr__(self) -> str:
        return f"<AutoTopicCreationManager asked={sorted(self._asked)}>"

    def create(self, plan: TopicPlan) -> None:
        """Ask for a topic, unless that is on its way."""
        if plan.name in self._asked:
            return
        self._asked.add(plan.name)
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in plan.configs.items()]
        topic = CreatableTopic(
            name=plan.name,
            num_partitions=plan.partitions,
            replication_factor=plan.replication_factor,
            assignments=[],
            configs=configs,
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=round(_TIMEOUT * 1000))
        self._to_controller.send(request, _TIMEOUT).add_done_callback(lambda done: self._answered(plan.name, done))

    def _answered(self, name: str, done: Future[CreateTopicsResponse]) -> None:
        self._asked.discard(name)
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            log.warning("topic %s was not created: %s", name, error)
            return
        for topic in done.result().topics:
            if topic.error_code == errors.TopicAlreadyExists.code:
                continue
            if topic.error_code:
                log.warning("topic %s was not created: %s", name, topic.error_message)
            else:
                log.info("topic %s was created", name)


class _Replicas(Protocol):
    @property
    def auto_creation(self) -> AutoTopicCreationManager:
        """Asks the active controller for topics."""


class TopicServices(Protocol):
    """The services of a node that the creation of an internal topic takes."""

    @property
    def image(self) -> MetadataImage:
        """The committed metadata."""

    @property
    def configs(self) -> Configs:
        """The options of the node."""

    @property
    def controller(self) -> Controller:
        """Changes the metadata of a node that is alone."""

    @property
    def replicas(self) -> _Replicas | None:
        """The replicated partitions; None on a node that is alone."""


def ensure_internal_topic(name: str, services: TopicServices) -> TopicImage:
    """Return the internal topic. Create it with the broker's own options if it does not exist.

    In a cluster of several nodes the controller is asked to; `CoordinatorNotAvailable` is raised until it has.
    """
    topic = services.image.topics.get(name)
    if topic is not None:
        return topic
    plan = _internal_topic(name, services.configs.current)
    if services.replicas is not None:
        services.replicas.auto_creation.create(plan)
        raise errors.CoordinatorNotAvailable(f"{name} does not exist yet")
    run_here(services.controller.create_topic(plan))
    return services.image.topics[name]


def _internal_topic(name: str, config: BrokerConfig) -> TopicPlan:
    integer = config.integer
    if name == TRANSACTIONS_TOPIC:
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(integer("transaction.state.log.min.isr")),
            "segment.bytes": str(integer("transaction.state.log.segment.bytes")),
            "unclean.leader.election.enable": "false",
        }
        partitions = integer("transaction.state.log.num.partitions")
        factor = integer("transaction.state.log.replication.factor")
    else:
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(integer("offsets.topic.segment.bytes")),
        }
        partitions = integer("offsets.topic.num.partitions")
        factor = integer("offsets.topic.replication.factor")
    return TopicPlan(name, partitions, factor, configs=configs)
