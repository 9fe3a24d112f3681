"""One injected fault at one broker, which keeps it over the ends and starts of the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyclient.broker_embedded.controls.endpoint import NotFound
from pyclient.broker_embedded.faults.spec import FaultSpec

if TYPE_CHECKING:
    from pyclient.broker_embedded.cluster.broker import Broker


class FaultAtBroker:
    """A fault at one broker. What it counted at earlier runs of the broker is kept here."""

    def __init__(self, broker: Broker, values: dict[str, Any], *, joins: bool = False) -> None:
        """With `joins` the broker is new in its cluster, and has not started yet."""
        self.broker = broker
        self.cancelled = False
        self._values = values
        self._state = self._make(joins)
        self._hits_before = 0  # hits at earlier runs of the broker
        self._past = False  # it was over when its broker ended: the restarted one does not have it

    @property
    def held(self) -> int:
        """Return how many requests it holds now."""
        return int(self._refresh()["held"])

    def count(self) -> tuple[int, bool]:
        """Return how many requests have met it, and whether no further one will; both of the same moment."""
        over = bool(self._refresh()["over"]) or self.cancelled
        return self._hits_before + int(self._state["hits"]), over

    def wait(self, n: int, timeout: float) -> int:
        """Wait at the broker until `n` requests have met it. Return how many have. Raise `KafkaTimeout`."""
        values = {"hits": n - self._hits_before, "timeout": timeout}
        self._state = self.broker.call("GET", f"{self._path}/wait", values, timeout=timeout)
        return self._hits_before + int(self._state["hits"])

    def release(self) -> None:
        """End it and release the requests that it holds; when its broker runs again, if it is paused."""
        if self._is_known:
            self._state = self.broker.call("POST", f"{self._path}/release")
        elif not self.cancelled:
            self._state = self._state | {"over": True}
            self.broker.later(self._release_late)

    def cancel(self) -> None:
        """Remove it and release the requests that it holds. Idempotent; allowed while the broker does not run."""
        if self.cancelled:
            return
        if self._is_known:
            self._state = self.broker.call("DELETE", self._path)
        else:
            self.broker.later(self._cancel_late)
        self.cancelled = True

    def before_end(self) -> None:
        """Note the hits before the broker ends or pauses."""
        try:
            self._refresh()
        except NotFound:  # it was removed by HTTP, and does not return with the next start
            self._state = self._state | {"over": True}

    def after_start(self) -> None:
        """Continue the fault at the restarted broker."""
        state = self._state
        self._hits_before += state["hits"]
        values = dict(self._values)
        if values.get("times", 1) is not None:
            values["times"] = values.get("times", 1) - self._hits_before
        values["skip"] = max(0, values.get("skip", 0) - state["seen"])
        self._values = self._values | {"skip": values["skip"]}
        if state["over"]:
            self._past = True
            self._state = state | {"hits": 0, "held": 0}
        else:
            self._state = self.broker.call("POST", "/faults", values)

    def _make(self, joins: bool) -> dict[str, Any]:
        """Create the fault at the broker; at one that joins or is down, `after_start` does it."""
        FaultSpec.build(self._values)
        if not joins and (self.broker.state != "down" or self.broker.reachable):
            return self.broker.call("POST", "/faults", self._values)
        return {"id": None, "hits": 0, "seen": 0, "held": 0, "over": False}

    def _release_late(self) -> None:
        if self._is_known:
            self.release()

    def _cancel_late(self) -> None:
        if not self._past and self._state["id"] is not None:
            self.broker.call("DELETE", self._path)

    @property
    def _path(self) -> str:
        return f"/faults/{self._state['id']}"

    def _refresh(self) -> dict[str, Any]:
        if self._is_known:
            self._state = self.broker.call("GET", self._path)
        return self._state

    @property
    def _is_known(self) -> bool:
        """True if a broker that has the fault can be reached."""
        return not self.cancelled and not self._past and self.broker.reachable
