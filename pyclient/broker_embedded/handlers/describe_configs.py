"""DescribeConfigs v1-4: the options of topics and of this broker, with who set them.

No list of names, or an empty one, asks for all options. Broker "" asks for what was set for all brokers at run time.
Options that this broker does not know are told without their values, as they may be secrets. A
broker tells the levels of its own loggers, too (KIP-412).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient import errors
from pyclient.broker_embedded import loggers
from pyclient.broker_embedded.controller.configs import CLUSTER, Source
from pyclient.broker_embedded.controller.image import (
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    LOGGER_RESOURCE,
    METRICS_RESOURCE,
    TOPIC_RESOURCE,
)
from pyclient.broker_embedded.controller.topics import check_name
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of, message_of
from pyclient.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyclient.broker_embedded.broker import BrokerNode
    from pyclient.broker_embedded.controller.configs import Entry
    from pyclient.broker_embedded.dispatch import RequestContext
    from pyclient.broker_embedded.log.steps import Steps


@handles(DescribeConfigsRequest, versions=(1, 4))
def handle(request: DescribeConfigsRequest, context: RequestContext) -> Steps[DescribeConfigsResponse]:
    """Answer every resource; the same one is described once, however often it is named."""
    results = []
    described: dict[object, list[DescribeConfigsResourceResult]] = {}
    for resource in request.resources:
        yield None
        try:
            wanted = frozenset(resource.configuration_keys or ())
            key = resource.resource_type, resource.resource_name, wanted
            configs = described.get(key)
            if configs is None:
                told = _told(context.node, resource, request)
                configs = described[key] = [entry for entry in told if not wanted or entry.name in wanted]
        except Exception as error:  # whatever it is, it becomes this answer
            results.append(_failed(resource, error))
        else:
            results.append(
                DescribeConfigsResult(
                    error_code=0,
                    error_message=None,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    configs=configs,
                )
            )
    return DescribeConfigsResponse(throttle_time_ms=0, results=results)


def _entries(node: BrokerNode, resource: DescribeConfigsResource) -> Iterable[Entry]:
    name = resource.resource_name
    if resource.resource_type == TOPIC_RESOURCE:
        check_name(name)
        if name not in node.image.topics:
            raise errors.UnknownTopicOrPartition(f"there is no topic {name!r}")
        return node.configs.of_topic(node.image.topic_configs(name))
    if resource.resource_type == BROKER_RESOURCE:
        if name == CLUSTER:
            return node.configs.of_cluster()
        if not _is_number(name, node.node_id):
            raise errors.InvalidRequest(f"this is broker {node.node_id}: ask broker {name!r} itself")
        return node.configs.of_broker()
    if resource.resource_type == GROUP_RESOURCE:
        if not name:
            raise errors.InvalidRequest("a group's options are asked for under its name: this one is empty")
        return node.configs.of_group(node.image.configs.get((GROUP_RESOURCE, name), {}))
    if resource.resource_type == METRICS_RESOURCE:
        if not name:
            raise errors.InvalidRequest("options of client metrics are asked for under their name: this one is empty")
        return node.configs.of_metrics(node.image.configs.get((METRICS_RESOURCE, name), {}))
    raise errors.InvalidRequest(f"this broker has no configuration of resources of type {resource.resource_type}")


def _is_number(name: str, node_id: int) -> bool:
    """Whether a name is the node's number, however it is written."""
    return name.isascii() and name.isdigit() and int(name) == node_id


def _told(
    node: BrokerNode, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> Iterable[DescribeConfigsResourceResult]:
    if resource.resource_type != LOGGER_RESOURCE:
        return [_render(entry, request) for entry in _entries(node, resource)]
    loggers.check_broker(resource.resource_name, node.node_id)
    return [
        DescribeConfigsResourceResult(
            name=name,
            value=loggers.level_of(logger),
            read_only=False,
            config_source=Source.LOGGER,
            is_sensitive=False,
            synonyms=[],
        )
        for name, logger in loggers.loggers().items()
    ]


def _render(entry: Entry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=name, value=value, source=source)
            for name, value, source in (entry.synonyms if request.include_synonyms else ())
        ],
        config_type=entry.type,
        documentation=entry.doc if request.include_documentation else None,
    )


def _failed(resource: DescribeConfigsResource, error: Exception) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code_of(error, f"DescribeConfigs of {resource.resource_name}"),
        error_message=message_of(error),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )
