"""The environment of a node's parts: id, time, random numbers, files, options and metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

    from pyclient.broker_embedded.config.broker_config import BrokerConfig
    from pyclient.broker_embedded.controller.configs import Configs
    from pyclient.broker_embedded.controller.image import BrokerImage, MetadataImage
    from pyclient.broker_embedded.log.filesystem import FileSystem
    from pyclient.broker_embedded.scheduling.timers import ShiftedClock, Timer, Timers
    from pyclient.clock import Rng


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class NodeEnvironment:
    """The dependencies of a node's parts, which a test can replace."""

    node_id: int
    loop: AbstractEventLoop
    clock: ShiftedClock
    timers: Timers
    rng: Rng
    fs: FileSystem
    configs: Configs
    image: MetadataImage
    """The committed metadata."""

    def __repr__(self) -> str:
        return f"<NodeEnvironment node {self.node_id} {self.image!r}>"

    @property
    def config(self) -> BrokerConfig:
        """Return the options in force: another object after each change at run time."""
        return self.configs.current

    def schedule(self, delay: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` on the loop in `delay` seconds of the node's time."""
        return self.timers.schedule(delay, callback)

    def place_of(self, broker: BrokerImage) -> tuple[str, int]:
        """Return host and port at which this node reaches another broker."""
        return broker.endpoint(self.config.listeners.inter_broker) or broker.endpoints[0][1:]

    @property
    def broker_epoch(self) -> int:
        """Return the epoch of this node's registration; -1 if the metadata have none."""
        broker = self.image.brokers.get(self.node_id)
        return -1 if broker is None else broker.epoch
