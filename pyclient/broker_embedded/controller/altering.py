"""Shared steps of AlterConfigs and IncrementalAlterConfigs: find a resource, check its new options, write them."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from pyclient import errors
from pyclient.broker_embedded.config import loggers
from pyclient.broker_embedded.controller import config_changes
from pyclient.broker_embedded.controller.configs import CLUSTER
from pyclient.broker_embedded.controller.image import (
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    LOGGER_RESOURCE,
    METRICS_RESOURCE,
    TOPIC_RESOURCE,
)
from pyclient.broker_embedded.controller.topics import check_name
from pyclient.broker_embedded.failures import code_of, message_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyclient.broker_embedded.controller.config_changes import Changes
    from pyclient.broker_embedded.controller.controller import Controller
    from pyclient.broker_embedded.controller.quorum import Quorum
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.services import BrokerServices
    from pyclient.config.options import ConfigType

R = TypeVar("R")
_NODE_ID: Final = re.compile("[+-]?[0-9]{1,10}")


class Resource(NamedTuple):
    """A resource whose options may be changed; `current` are the options set on it."""

    kind: int
    name: str
    current: Mapping[str, str]
    type_of: Callable[[str], ConfigType | None]
    default_of: Callable[[str], str | None]


def alter(
    services: BrokerServices,
    asked: Iterable[tuple[int, str, Callable[[Resource], Changes]]],
    answer: Callable[..., R],
    *,
    validate_only: bool,
) -> IncrementalTask[list[R]]:
    """Change the resources (type, name, changes), each by itself; a resource that is named twice is an error.

    `answer` is the class of a resource's part in the response.
    """
    wanted = list(asked)
    times = Counter((kind, name) for kind, name, _plan in wanted)
    answers = []
    for kind, name, plan in wanted:
        code, text = 0, None
        try:
            if times[kind, name] > 1:
                raise errors.InvalidRequest("a resource may be in a request once")
            resource = _find(services, kind, name)
            changes = plan(resource)
            _check(services, resource, changes)
            if validate_only:
                pass
            elif kind == LOGGER_RESOURCE:
                loggers.change(changes)
            else:
                services.controller.alter_configs(kind, name, changes)
        except Exception as error:  # every failure becomes the result of this resource
            code, text = code_of(error, f"changing options of {name!r}"), message_of(error)
        answers.append(answer(error_code=code, error_message=text, resource_type=kind, resource_name=name))
        yield None
    return answers


def _find(services: BrokerServices, kind: int, name: str) -> Resource:
    current = services.controller.image.configs.get((kind, name), {})
    if kind == TOPIC_RESOURCE:
        if not name:
            raise errors.InvalidRequest("a topic's options are changed under its name: this one is empty")
        check_name(name)
        if name not in services.controller.image.topics:
            raise errors.UnknownTopicOrPartition(f"there is no topic {name!r}")
        effective = {entry.name: entry.value for entry in services.configs.of_topic(current)}
        return Resource(kind, name, current, config_changes.topic_type, effective.get)
    if kind == BROKER_RESOURCE:
        _check_node(services.quorum, services.node_id, services.controller, name)
        effective = {entry.name: entry.value for entry in services.configs.of_broker()}
        return Resource(kind, name, current, config_changes.broker_type, effective.get)
    if kind == GROUP_RESOURCE:
        if not name:
            raise errors.InvalidRequest("a group's options are changed under its name: this one is empty")
        effective = {entry.name: entry.value for entry in services.configs.of_group(current)}
        return Resource(kind, name, current, config_changes.group_type, effective.get)
    if kind == METRICS_RESOURCE:
        if not name:
            raise errors.InvalidRequest("Subscription name can't be empty")
        effective = {entry.name: entry.value for entry in services.configs.of_metrics(current)}
        return Resource(kind, name, current, config_changes.metrics_type, effective.get)
    if kind == LOGGER_RESOURCE:
        loggers.check_broker(name, services.node_id)
        return Resource(kind, name, loggers.levels(), loggers.no_type, loggers.levels().get)
    raise errors.InvalidRequest(f"this broker has no configuration of resources of type {kind}")


def _check_node(quorum: Quorum | None, node_id: int, controller: Controller, name: str) -> None:
    if name in (CLUSTER, str(node_id)):
        return
    image = controller.image
    if quorum is not None and name in {str(node) for node in (*image.brokers, *image.controllers)}:
        return  # this is the active controller, which decides for every node
    if not _NODE_ID.fullmatch(name):
        raise errors.InvalidRequest(f"Node id must be an integer, but it is: {name}")
    raise errors.InvalidRequest(f"Unexpected broker id, expected {node_id}, but received {name}")


def _check(services: BrokerServices, resource: Resource, changes: Changes) -> None:
    if resource.kind == LOGGER_RESOURCE:
        loggers.check(changes)
        return
    if resource.kind == BROKER_RESOURCE:
        config_changes.check_broker(changes, services.configs.current.cordoned_dirs, of_all=resource.name == CLUSTER)
        config_changes.check_limits_of_connections(
            changes, services.configs.with_changes(resource.name, changes).values
        )
        return
    if resource.kind == TOPIC_RESOURCE:
        config_changes.check_topic(changes, resource.current, services.partitions.defaults)
        return
    result = {**resource.current, **changes}
    kept = {name: value for name, value in result.items() if value is not None}
    if resource.kind == METRICS_RESOURCE:
        config_changes.check_metrics(kept)
    else:
        config_changes.check_group(kept, services.configs.current.integer)
