"""DescribeConfigs v1-4: the options of topics and of this broker, with their sources.

A missing or empty list of names requests all options. Broker "" requests the options set for all brokers at run time.
Unknown options are returned without their values, as they may be secrets. The levels of this broker's loggers are
resources, too (KIP-412).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient import errors
from pyclient.broker_embedded.config import loggers
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

    from pyclient.broker_embedded.controller.configs import Entry
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext
    from pyclient.broker_embedded.services import BrokerServices


@handles(DescribeConfigsRequest, versions=(1, 4))
def handle(request: DescribeConfigsRequest, context: RequestContext) -> IncrementalTask[DescribeConfigsResponse]:
    """Answer every resource; a duplicate resource is computed once."""
    results = []
    described: dict[object, list[DescribeConfigsResourceResult]] = {}
    for resource in request.resources:
        yield None
        try:
            wanted = frozenset(resource.configuration_keys or ())
            key = resource.resource_type, resource.resource_name, wanted
            configs = described.get(key)
            if configs is None:
                available = _describe(context.services, resource, request)
                configs = described[key] = [entry for entry in available if not wanted or entry.name in wanted]
        except Exception as error:  # every failure is answered with its error code
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


def _entries(services: BrokerServices, resource: DescribeConfigsResource) -> Iterable[Entry]:
    name = resource.resource_name
    if resource.resource_type == TOPIC_RESOURCE:
        check_name(name)
        if name not in services.image.topics:
            raise errors.UnknownTopicOrPartition(f"topic {name!r} does not exist")
        return services.configs.of_topic(services.image.topic_configs(name))
    if resource.resource_type == BROKER_RESOURCE:
        if name == CLUSTER:
            return services.configs.of_cluster()
        if not _is_number(name, services.node_id):
            raise errors.InvalidRequest(f"this is broker {services.node_id}: send the request to broker {name!r}")
        return services.configs.of_broker()
    if resource.resource_type == GROUP_RESOURCE:
        if not name:
            raise errors.InvalidRequest("the name of a group must not be empty")
        return services.configs.of_group(services.image.configs.get((GROUP_RESOURCE, name), {}))
    if resource.resource_type == METRICS_RESOURCE:
        if not name:
            raise errors.InvalidRequest("the name of client metrics must not be empty")
        return services.configs.of_metrics(services.image.configs.get((METRICS_RESOURCE, name), {}))
    raise errors.InvalidRequest(f"resources of type {resource.resource_type} have no options")


def _is_number(name: str, node_id: int) -> bool:
    """Return True if the name is the node id in decimal, possibly with leading zeros."""
    return name.isascii() and name.isdigit() and int(name) == node_id


def _describe(
    services: BrokerServices, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> Iterable[DescribeConfigsResourceResult]:
    if resource.resource_type != LOGGER_RESOURCE:
        return [_render(entry, request) for entry in _entries(services, resource)]
    loggers.check_broker(resource.resource_name, services.node_id)
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
