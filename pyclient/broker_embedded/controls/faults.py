"""The controls of faults for the next requests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.controls.endpoint import TIMEOUT, Endpoint, NotFound, Values, count_of, within
from pyclient.broker_embedded.faults.spec import FIELDS, FaultSpec
from pyclient.errors import ConfigError

if TYPE_CHECKING:
    from pyclient.broker_embedded.controls.control_state import ControlState
    from pyclient.broker_embedded.faults.faults import LiveFault

_LONGEST_NUMBER: Final = 20
_NOT_TEXTS: Final = frozenset({"error", "seconds", "times", "skip", "partition", "node", "whole"})


async def faults(controls: ControlState, _name: str, _values: Values) -> Any:
    """`GET /faults`: the faults that were not cancelled."""
    found = [] if controls.existing is None else controls.existing.faults
    return {"faults": [fault.describe() for fault in found]}


async def add_fault(controls: ControlState, _name: str, values: Values) -> Any:
    """`POST /faults`: the next requests that match are failed, delayed, ...."""
    given = {name: _plain(name, value) for name, value in values.items()}
    own, node = controls.host.config.integer("node.id"), given.pop("node", None)
    if node not in (None, own):
        raise ConfigError(f"node is {node!r}: this is broker {own}, which can only make its own faults")
    return controls.interceptor.add(FaultSpec.build(given)).describe()


async def clear_faults(controls: ControlState, _name: str, _values: Values) -> Any:
    """`DELETE /faults`: cancel all."""
    return {"cancelled": 0 if controls.existing is None else controls.existing.clear()}


async def fault(controls: ControlState, name: str, _values: Values) -> Any:
    """`GET /faults/{}`: a fault, with how many requests it has met."""
    return _fault(controls, name).describe()


async def wait_fault(controls: ControlState, name: str, values: Values) -> Any:
    """`GET /faults/{}/wait`: the fault, as soon as it has met enough requests."""
    fault, count = _fault(controls, name), count_of(values, "hits", 1)
    await within(fault.reached(count), values, lambda: f"{count} hits are waited for: {fault!r}")
    return fault.describe()


async def release_fault(controls: ControlState, name: str, _values: Values) -> Any:
    """`POST /faults/{}/release`: end it and continue the requests it holds."""
    fault = _fault(controls, name)
    controls.interceptor.end(fault)
    return fault.describe()


async def cancel_fault(controls: ControlState, name: str, _values: Values) -> Any:
    """`DELETE /faults/{}`: end and remove it; the requests it holds continue."""
    fault = _fault(controls, name)
    controls.interceptor.cancel(fault)
    return fault.describe()


def _plain(name: str, value: Any) -> Any:
    """Return a field's value; a query has all values as texts."""
    if not isinstance(value, str) or name not in _NOT_TEXTS:
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _fault(controls: ControlState, name: str) -> LiveFault:
    is_number = name.isdecimal() and len(name) < _LONGEST_NUMBER
    found = controls.existing.get(int(name)) if controls.existing is not None and is_number else None
    if found is None:
        raise NotFound(f"there is no fault {name:.100} (any more)")
    return found


ENDPOINTS: Final = (
    Endpoint("GET", "/faults", "the faults that were not cancelled", {}, faults),
    Endpoint("POST", "/faults", "the next requests that match are failed, delayed, ...", FIELDS, add_fault),
    Endpoint("DELETE", "/faults", "cancel all", {}, clear_faults),
    Endpoint("GET", "/faults/{}", "a fault, with how many requests it has met", {}, fault),
    Endpoint(
        "GET",
        "/faults/{}/wait",
        "the fault, as soon as it has met enough requests",
        {"hits": "1", **TIMEOUT},
        wait_fault,
    ),
    Endpoint("POST", "/faults/{}/release", "end it; the requests it holds continue", {}, release_fault),
    Endpoint("DELETE", "/faults/{}", "end and remove it; the requests it holds continue", {}, cancel_fault),
)
