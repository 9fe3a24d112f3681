"""The state of a cluster that fails to start or to heal: topics, groups, and the requests about groups."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.cluster.broker import Broker
from pyclient.broker_embedded.cluster.kafka_call import call
from pyclient.errors import KafkaError
from pyclient.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest

_LOG_SECONDS: Final = 3.0  # several heartbeats of each member
_CALL_SECONDS: Final = 5.0
_LAST: Final = 3  # requests that are shown, of each kind
_KEYS: Final = ("partition", "leader", "leader_epoch", "isr", "high_watermark", "end_offset")


def state_of(cluster: EmbeddedCluster, topics: Iterable[str], groups: Iterable[str]) -> Iterator[str]:
    """Yield lines about topics and groups. The requests to each node are logged for some seconds."""
    names, ids = list(topics), list(groups)
    nodes = [node for node in cluster.brokers if node.reachable]
    for node in nodes:
        yield f"node {node.id}: {_asked(node, 'GET', '/broker')}"
        yield from _topics(node, names)
        for group in ids:
            yield from _group(node, group)
    logged = [node for node in nodes if "error" not in _asked(node, "POST", "/requests/start")]
    time.sleep(_LOG_SECONDS)  # no state is waited for: what comes in this time is shown
    for node in logged:
        for group in ids:
            yield from _requests(node, group)
        _asked(node, "POST", "/requests/stop")


def _topics(node: Broker, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        answer = _asked(node, "GET", f"/topics/{name}")
        if "error" in answer:
            yield f"node {node.id}, topic {name}: {answer['error']}"
        for each in answer.get("partitions", ()):
            yield f"node {node.id}, topic {name}: " + ", ".join(f"{key} {each[key]}" for key in _KEYS)


def _group(node: Broker, group: str) -> Iterator[str]:
    """Yield a group as the node knows it; only its coordinator does, and only the consumer protocol has epochs."""
    about = _asked(node, "GET", f"/groups/{group}")
    yield f"node {node.id}, group {group}: {about}"
    request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    try:
        found = call(node.config, request, _CALL_SECONDS).groups[0]
    except KafkaError as error:
        yield f"node {node.id}, group {group}: {error!r}"
        return
    if found.error_code == 0:
        yield f"  {found.group_state}, epoch {found.group_epoch}, of the assignment {found.assignment_epoch}"
    yield from (f"  {member!r}" for member in found.members)


def _requests(node: Broker, group: str) -> Iterator[str]:
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for each in _asked(node, "GET", "/requests", {"group": group}).get("requests", ()):
        found.setdefault((each["client_id"], each["api"]), []).append(each)
    for (client, api), requests in sorted(found.items()):
        ends = ", ".join(f"{each['duration_ms']} ms {each['errors'] or 'ok'}" for each in requests[-_LAST:])
        yield f"node {node.id}, group {group}, {client}: {len(requests)} {api}, at last {ends}"


def _asked(node: Broker, method: str, path: str, values: dict[str, Any] | None = None) -> dict[str, Any]:
    """Call the controls of a node, which may be gone by now."""
    try:
        return node.call(method, path, values)
    except KafkaError as error:
        return {"error": repr(error)}
