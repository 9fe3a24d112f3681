"""The controls of one node for tests, as requests with JSON values; HTTP and `EmbeddedCluster` both call them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from pyclient.broker_embedded.controls import contents, faults, node, requests
from pyclient.broker_embedded.controls.endpoint import Endpoint, MethodNotAllowed, NotFound, Values, WrongState
from pyclient.broker_embedded.faults.faults import Interceptor
from pyclient.broker_embedded.faults.shapes import roles_of
from pyclient.broker_embedded.faults.spec import KINDS
from pyclient.broker_embedded.served_apis import SERVED
from pyclient.config.options import nearest
from pyclient.errors import ConfigError

if TYPE_CHECKING:
    import asyncio

    from pyclient.broker_embedded.broker import BrokerNode
    from pyclient.broker_embedded.cluster.hosting import NodeHost
    from pyclient.broker_embedded.faults.request_log import RequestLog


class Controls:
    """The controls of the node in a host. They belong to its loop; they and the faults outlive the node.

    `url` is where they are served by HTTP, if they are. `existing` is the interceptor, None until it is needed.
    `resumption` is the timer that ends a pause of limited time.
    """

    def __init__(self, host: NodeHost) -> None:
        self.host = host
        self.url: str | None = None
        self.existing: Interceptor | None = None
        self.resumption: asyncio.TimerHandle | None = None
        host.on_start.append(self._attach)

    def __repr__(self) -> str:
        return f"<Controls of {self.host!r}>"

    @property
    def node(self) -> BrokerNode:
        """Return the running node. Raise `WrongState` if none runs."""
        if self.host.node is None:
            raise WrongState("the broker does not run: start it first")
        return self.host.node

    @property
    def interceptor(self) -> Interceptor:
        """Return the interceptor with the faults and the request log."""
        if self.existing is None:
            self.existing = Interceptor(self.node.services)
        return self.existing

    @property
    def log(self) -> RequestLog:
        """Return the request log. Raise `WrongState` while it is off."""
        if self.existing is None or self.existing.log is None:
            raise WrongState("the request log is off: start it first")
        return self.existing.log

    async def handle(self, method: str, path: str, values: Values) -> Any:
        """Serve a request. Return JSON values.

        Raise `ConfigError` for an invalid request, `NotFound`, `WrongState`, `KafkaTimeout`, `MethodNotAllowed`.
        """
        endpoint, name = find(method, path)
        for given in values:
            if given not in endpoint.fields:
                hint = nearest(given, endpoint.fields) or f": it takes {', '.join(endpoint.fields) or 'nothing'}"
                raise ConfigError(f"{given}: {method} {endpoint.path} has no such field{hint}")
        return await endpoint.call(self, name, values)

    def _attach(self, node: BrokerNode) -> None:
        if self.existing is not None:
            self.existing.move(node.services)


async def describe(controls: Controls, _name: str, _values: Values) -> Any:
    """`GET /`: the state of the broker, and everything that the controls offer."""
    return {
        "broker": node.state_of(controls),
        "endpoints": [
            {"method": each.method, "path": each.path, "doc": each.doc, "fields": dict(each.fields)}
            for each in ENDPOINTS
        ],
        "kinds": dict(KINDS),
        "apis": {
            name: {"versions": [served.first, served.last], "limited_by": sorted(roles_of(name))}
            for name, served in SERVED.items()
        },
    }


def find(method: str, path: str) -> tuple[Endpoint, str]:
    """Return the endpoint of a path (percent-encoded), and the value of its `{}`.

    Raise `NotFound` or `MethodNotAllowed`.
    """
    wanted = [unquote(part) for part in path.split("/") if part]
    others = []
    for endpoint in ENDPOINTS:
        parts = [part for part in endpoint.path.split("/") if part]
        if len(parts) != len(wanted) or any(a not in ("{}", b) for a, b in zip(parts, wanted, strict=True)):
            continue
        if endpoint.method == method:
            return endpoint, next((b for a, b in zip(parts, wanted, strict=True) if a == "{}"), "")
        others.append(endpoint.method)
    if others:
        raise MethodNotAllowed(f"{method} {path}: only {', '.join(others)}")
    close = nearest(path, [endpoint.path for endpoint in ENDPOINTS])
    raise NotFound(f"{path}: there is nothing{close}; GET / lists what there is")


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Endpoint("GET", "/", "the state of the broker, and this list", {}, describe),
    *node.ENDPOINTS,
    *faults.ENDPOINTS,
    *requests.ENDPOINTS,
    *contents.ENDPOINTS,
)
"""All endpoints."""
