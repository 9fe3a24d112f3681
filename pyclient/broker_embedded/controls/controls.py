"""The controls of one node for tests, as requests with JSON values; HTTP and `EmbeddedCluster` both call them."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

from pyclient.broker_embedded.controls import contents, faults, node, requests
from pyclient.broker_embedded.controls.control_state import ControlState
from pyclient.broker_embedded.controls.endpoint import Endpoint, MethodNotAllowed, NotFound, Values
from pyclient.broker_embedded.faults.shapes import roles_of
from pyclient.broker_embedded.faults.spec import KINDS
from pyclient.broker_embedded.served_apis import SERVED
from pyclient.config.options import nearest
from pyclient.errors import ConfigError


class Controls(ControlState):
    """The controls of the node in a host. They belong to its loop."""

    def __repr__(self) -> str:
        return f"<Controls of {self.host!r}>"

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


async def describe(controls: ControlState, _name: str, _values: Values) -> Any:
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


def find(method: str, path: str) -> tuple[Endpoint[ControlState], str]:
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


ENDPOINTS: Final[tuple[Endpoint[ControlState], ...]] = (
    Endpoint("GET", "/", "the state of the broker, and this list", {}, describe),
    *node.ENDPOINTS,
    *faults.ENDPOINTS,
    *requests.ENDPOINTS,
    *contents.ENDPOINTS,
)
"""All endpoints."""
