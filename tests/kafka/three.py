"""Three nodes that a test may pause, kill, stop and restart: of Apache Kafka, or of ours with the same settings."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded import EmbeddedCluster
from tests.kafka.needs import skip_without_kafka
from tests.kafka.runner import RealKafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

OURS: Final = "ours"
KINDS: Final = ("kafka", OURS)
"""The broker that a test's three nodes run."""

_NODES: Final = (1, 2, 3)
_RACK: Final = "broker.rack"


_QUICK: Final[set[object]] = set()


def some_seconds_on_ours(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test of three nodes that belongs to the slow tests when they are ours; the others take longer."""
    _QUICK.add(test)
    return test


def takes_seconds_on_ours(test: object) -> bool:
    """Return True if a test is marked by `some_seconds_on_ours`."""
    return test in _QUICK


class OurThree:
    """Three processes of our broker with the methods of `RealKafka`."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        rack = settings.get(_RACK)
        self._cluster = EmbeddedCluster(
            brokers=len(_NODES),
            processes=True,
            racks=None if rack is None else [rack.replace("{node}", str(node)) for node in _NODES],
            config={name: value for name, value in settings.items() if name != _RACK},
        )

    def __enter__(self) -> OurThree:
        self._cluster.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes."""
        return self._cluster.bootstrap_servers

    def runs(self, node: int) -> bool:
        """Return True if the node was neither killed nor stopped."""
        return self._cluster.node(node).alive

    def pause(self, node: int) -> None:
        """Freeze a node (SIGSTOP)."""
        self._cluster.pause(node)

    def resume(self, node: int) -> None:
        """Resume a paused node."""
        self._cluster.resume(node)

    def kill(self, node: int) -> None:
        """Kill a node (SIGKILL)."""
        self._cluster.kill(node)

    def stop(self, node: int) -> None:
        """Shut a node down cleanly."""
        self._cluster.stop(node)

    def restart(self, node: int) -> None:
        """Start a killed or stopped node, and wait until it serves."""
        self._cluster.start(node)


Three = RealKafka | OurThree


@contextmanager
def three_nodes_of(kind: str, settings: Mapping[str, str]) -> Iterator[Three]:
    """Three nodes of that kind, with these settings."""
    if kind == OURS:
        with OurThree(settings) as ours:
            yield ours
        return
    skip_without_kafka()
    with RealKafka(nodes=len(_NODES), heap="512M", settings=settings) as kafka:
        yield kafka
