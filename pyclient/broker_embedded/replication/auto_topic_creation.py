"""Topics that brokers create themselves in a cluster of several nodes: the active controller is asked to."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from pyclient import errors
from pyclient.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

if TYPE_CHECKING:
    from asyncio import Future

    from pyclient.broker_embedded.controller.topics import TopicPlan
    from pyclient.broker_embedded.replication.alter_partition import ToController
    from pyclient.protocol.messages.create_topics import CreateTopicsResponse

log = logging.getLogger("pyclient.broker_embedded")

_TIMEOUT: Final = 30.0


class AutoTopicCreationManager:
    """Asks for topics, each once at a time. Clients repeat their requests until the topic is in the metadata."""

    def __init__(self, to_controller: ToController) -> None:
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
