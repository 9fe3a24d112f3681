"""The controls of the request log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.controls.endpoint import TIMEOUT, Endpoint, Values, count_of, within
from pyclient.broker_embedded.faults.request_log import DEFAULT_LIMIT, FILTERS, RequestFilter, RequestLog, names_of
from pyclient.errors import ConfigError

if TYPE_CHECKING:
    from pyclient.broker_embedded.controls.control_state import ControlState

_LONGEST_LOG: Final = 1_000_000


async def start_log(controls: ControlState, _name: str, values: Values) -> Any:
    """`POST /requests/start`: log requests from now on."""
    limit = count_of(values, "limit", DEFAULT_LIMIT)
    if not 1 <= limit <= _LONGEST_LOG:
        raise ConfigError(f"limit is {limit}: it must be from 1 to {_LONGEST_LOG}")
    if controls.interceptor.log is None or controls.interceptor.log.limit != limit:
        controls.interceptor.log = RequestLog(controls.node.loop, controls.node.clock, limit)
    controls.interceptor.attach()
    return {"limit": limit}


async def stop_log(controls: ControlState, _name: str, _values: Values) -> Any:
    """`POST /requests/stop`: stop logging."""
    if controls.existing is not None:
        controls.existing.log = None
        controls.existing.attach()
    return {}


async def requests(controls: ControlState, _name: str, values: Values) -> Any:
    """`GET /requests`: the requests that were logged, the oldest first."""
    return {"requests": names_of(controls.log.find(RequestFilter(values)))}


async def wait_request(controls: ControlState, _name: str, values: Values) -> Any:
    """`GET /requests/wait`: the requests that were logged, as soon as there are enough."""
    wanted = RequestFilter({name: value for name, value in values.items() if name in FILTERS})
    log, count = controls.log, count_of(values, "count", 1)
    reached = log.reached(wanted, count)
    found = await within(
        reached, values, lambda: f"{count} requests ({wanted}) are waited for, {len(log.find(wanted))} came"
    )
    return {"requests": names_of(found)}


async def clear_log(controls: ControlState, _name: str, _values: Values) -> Any:
    """`DELETE /requests`: clear the log."""
    controls.log.clear()
    return {}


ENDPOINTS: Final = (
    Endpoint("POST", "/requests/start", "log requests from now on", {"limit": "how many are kept"}, start_log),
    Endpoint("POST", "/requests/stop", "stop logging", {}, stop_log),
    Endpoint("GET", "/requests", "the requests that were logged, the oldest first", FILTERS, requests),
    Endpoint(
        "GET",
        "/requests/wait",
        "the requests that were logged, as soon as there are enough",
        {**FILTERS, "count": "how many; default 1", **TIMEOUT},
        wait_request,
    ),
    Endpoint("DELETE", "/requests", "clear the log", {}, clear_log),
)
