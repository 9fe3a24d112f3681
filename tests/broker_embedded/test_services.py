"""The short repr of `BrokerServices` and `NodeEnvironment`: a full one would show the whole node."""

from __future__ import annotations

from pyclient.broker_embedded import EmbeddedCluster
from tests.broker_embedded.nodes import node_of


def test_services_and_environment_describe_themselves_in_a_line(broker: EmbeddedCluster) -> None:
    node = node_of(broker)
    assert repr(node.services) == f"<BrokerServices node 1 {node.image!r}>"
    assert repr(node.env) == f"<NodeEnvironment node 1 {node.image!r}>"
