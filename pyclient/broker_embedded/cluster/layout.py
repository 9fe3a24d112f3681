"""The nodes of a cluster: their ids, roles, directories and options, from what the user asks for."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyclient.broker_embedded.log.checkpoints import META_PROPERTIES, parse_identity
from pyclient.config.broker import SERVED_OPTIONS
from pyclient.errors import ConfigError

BROKER: Final = "broker"
CONTROLLER: Final = "controller"

FIRST_CONTROLLER: Final = 3000
"""The id of the first node that is a controller only; those of brokers count from 1."""

_MOST_VOTERS: Final = 5
_REPLICAS: Final = 3
_DIRECTORY: Final = "node-"
_BOOTSTRAP: Final = "controller.quorum.bootstrap.servers"
_VOTERS: Final = "controller.quorum.voters"
_OWN: Final = ("broker.id", "broker.rack", "controller.listener.names", _BOOTSTRAP, _VOTERS, "log.dir")
_DIRECTORIES: Final = "log.dirs"
_ALSO_OWN: Final = (_DIRECTORIES, "node.id", "process.roles")
_FACTOR: Final = "default.replication.factor"
_MINIMUM: Final = "min.insync.replicas"
_TRANSACTIONS: Final = ("transaction.state.log.min.isr", "transaction.state.log.replication.factor")
_FACTORS: Final = (_FACTOR, "offsets.topic.replication.factor", _TRANSACTIONS[1])


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node. `directory` is the name of its data directory in the cluster's; empty: it is the cluster's."""

    node_id: int
    roles: tuple[str, ...]
    directory: str
    rack: str | None = None

    @property
    def is_broker(self) -> bool:
        """Return True if it serves clients."""
        return BROKER in self.roles

    @property
    def is_controller(self) -> bool:
        """Return True if it has, or had, a vote in the quorum."""
        return CONTROLLER in self.roles


@dataclass(frozen=True, slots=True)
class Layout:
    """The nodes of a cluster and the options that they share."""

    nodes: tuple[NodePlan, ...]
    voters: tuple[int, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """The options of single nodes by their ids; their `log.dirs` are added to the node's own directory."""
    dynamic: bool = False
    """True if the metadata log has the voters (KIP-853); `voters` are then the current ones."""

    @property
    def is_one_node(self) -> bool:
        """Return True for a cluster of one node, which needs no listener for controllers."""
        return len(self.nodes) == 1

    @classmethod
    def build(
        cls,
        brokers: int,
        *,
        replication_factor: int | None = None,
        min_insync_replicas: int | None = None,
        racks: Sequence[str | None] | None = None,
        controllers: int | None = None,
        dynamic_quorum: bool = False,
        config: Mapping[str, Any] | None = None,
        node_properties: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> Layout:
        """Check what the user asks for. Raises `ConfigError` with the first thing that cannot be.

        Without `controllers` the first brokers are controllers, too: an odd number of them, at most 5. By default a
        topic has 3 replicas, or as many as there are brokers, and needs all but one of them to take records.
        """
        brokers = _count("brokers", brokers)
        given = dict(config or {})
        names = _racks(racks, brokers)
        if controllers is None:
            voters = tuple(range(1, min(brokers - 1 + brokers % 2, _MOST_VOTERS) + 1))
        else:
            if _count("controllers", controllers) % 2 == 0:
                raise ConfigError(
                    f"controllers is {controllers}: an even number of voters survives no more failures than one voter "
                    f"less; use {controllers - 1} or {controllers + 1}"
                )
            voters = tuple(range(FIRST_CONTROLLER, FIRST_CONTROLLER + controllers))
        one = brokers == 1 and controllers is None
        if one and dynamic_quorum:
            raise ConfigError("dynamic_quorum: a node that is alone has no voters: use brokers=3 or controllers=1")
        if not one:
            _check_own(given)
        nodes = [_broker(index + 1, index + 1 in voters, names[index], alone=one) for index in range(brokers)]
        if controllers is not None:
            nodes += [_controller(node_id) for node_id in voters]
        shared = _replication(brokers, replication_factor, min_insync_replicas, given)
        settings = {**given, **shared}
        own = _checked_properties(node_properties or {}, nodes)
        for node_id, properties in own.items():
            where = f"node_properties[{node_id}]: "
            _check_factors(properties, brokers, where)
            _check_minima({**settings, **properties}, where=where)
        return cls(tuple(nodes), voters, settings, own, dynamic_quorum)

    def with_broker(self, rack: str | None = None) -> tuple[Layout, NodePlan]:
        """Return the layout with one more broker, and that broker."""
        node = _broker(max(each.node_id for each in self.nodes if each.is_broker) + 1, False, rack, alone=False)
        return replace(self, nodes=(*self.nodes, node)), node

    def with_voters(self, ids: Sequence[int]) -> Layout:
        """Return the layout with these voters: nodes that are controllers only are added or left out."""
        brokers = [
            replace(node, roles=(BROKER, CONTROLLER) if node.node_id in ids else (BROKER,))
            for node in self.nodes
            if node.is_broker
        ]
        others = [_controller(node_id) for node_id in ids if node_id not in {node.node_id for node in brokers}]
        return replace(self, nodes=(*brokers, *others), voters=tuple(ids))

    def with_controller(self, data_dir: str) -> tuple[Layout, NodePlan]:
        """Return the layout with one more controller, and that controller. Its id has no directory yet."""
        known = [FIRST_CONTROLLER - 1, *(each.node_id for each in self.nodes), *_directories(data_dir)]
        node = _controller(max(known) + 1)
        return replace(self, nodes=(*self.nodes, node), voters=(*self.voters, node.node_id)), node

    def without_voter(self, node_id: int) -> Layout:
        """Return the layout in which a node is not a voter."""
        return replace(self, voters=tuple(each for each in self.voters if each != node_id))

    def without(self, node_id: int) -> Layout:
        """Return the layout without a broker. Raises `ConfigError` for a voter, and for the last broker."""
        if node_id in self.voters:
            raise ConfigError(
                f"node {node_id} is also a controller, a voter of the quorum, and only other brokers can be removed: "
                f"{self._help_with_voter(node_id)}"
            )
        if not any(node.is_broker for node in self.nodes if node.node_id != node_id):
            raise ConfigError(f"node {node_id} is the only broker")
        return replace(self, nodes=tuple(node for node in self.nodes if node.node_id != node_id))

    def _help_with_voter(self, node_id: int) -> str:
        """Return what to do instead of removing a voter."""
        if self.dynamic:
            return f"call remove_controller({node_id}) first"
        return (
            "make the cluster with controllers=3 (controllers in nodes of their own), so that each broker can be "
            f"removed; or with dynamic_quorum=True, and call remove_controller({node_id}) first"
        )

    def options(self, node: NodePlan, addresses: Mapping[int, str], data_dir: str = "") -> dict[str, Any]:
        """Return a node's options. `addresses` are the `host:port` of the voters' controller listeners.

        Without them, those of the quorum are left out. `data_dir` is the cluster's, empty if it is not known yet.
        """
        own: dict[str, Any] = {} if node.rack is None else {"broker.rack": node.rack}
        if not self.is_one_node:
            own["node.id"] = node.node_id
        if not self.is_one_node and addresses:
            own["process.roles"] = ",".join(node.roles)
            own["controller.listener.names"] = "CONTROLLER"
            own[_BOOTSTRAP if self.dynamic else _VOTERS] = ",".join(
                f"{voter}@{addresses[voter]}" for voter in self._known_to(node)
            )
        properties = dict(self.own.get(node.node_id, {}))
        if _DIRECTORIES in properties:
            more = str(properties.pop(_DIRECTORIES))
            own |= {_DIRECTORIES: f"{os.path.abspath(self.path(node, data_dir))},{more}"} if data_dir else {}
        return {**self.settings, **properties, **own}

    def _known_to(self, node: NodePlan) -> Sequence[int]:
        """Return the controllers that a node finds in its options: the voters, and itself if it was one."""
        if not self.dynamic:
            return self.voters
        return sorted({*self.voters, node.node_id} if node.is_controller else self.voters)

    def path(self, node: NodePlan, data_dir: str) -> str:
        """Return a node's data directory in the cluster's."""
        return os.path.join(data_dir, node.directory) if node.directory else data_dir

    def has_data(self, data_dir: str) -> bool:
        """Return True if a node was started in the cluster's directory."""
        return bool(_directories(data_dir))

    def check_directory(self, data_dir: str) -> str | None:
        """Return the id of the cluster that a data directory belongs to; None if it is new.

        Raises `ConfigError` if it is not one of a cluster with these nodes.
        """
        found = _directories(data_dir)
        if self.is_one_node:
            if found:
                raise ConfigError(f"{data_dir} has the data of a cluster of the nodes {_listed(found)}: {_HELP}")
            return None
        if os.path.exists(os.path.join(data_dir, META_PROPERTIES)):
            raise ConfigError(f"{data_dir} has the data of a cluster of one node: {_HELP}")
        strange = set(found) - {node.node_id for node in self.nodes}
        if self.dynamic:  # the files of a controller that was removed stay
            strange = {node_id for node_id in strange if node_id < FIRST_CONTROLLER}
        if strange:
            raise ConfigError(f"{data_dir} has the data of a cluster of the nodes {_listed(found)}: {_HELP}")
        ids: dict[str, int] = {}
        for node_id in found:
            path = os.path.join(data_dir, f"{_DIRECTORY}{node_id}", META_PROPERTIES)
            if os.path.exists(path):
                with open(path, "rb") as file:
                    cluster_id = parse_identity(file.read(), path).get("cluster.id")
                if cluster_id is not None:
                    ids.setdefault(cluster_id, node_id)
        if len(ids) > 1:
            which = ", ".join(f"node {node_id} of {cluster_id}" for cluster_id, node_id in ids.items())
            raise ConfigError(f"{data_dir} has directories of several clusters: {which}")
        return next(iter(ids), None)


def rename_removed(directory: str, node_id: int) -> None:
    """Rename the directory of a broker that was removed: the cluster's next start ignores it."""
    first = os.path.join(os.path.dirname(directory), f"removed-{node_id}")
    target, number = first, 2
    while os.path.exists(target):
        target, number = f"{first}-{number}", number + 1
    if os.path.isdir(directory):
        os.rename(directory, target)


_ARGUMENTS: Final = {_FACTOR: "replication_factor", _MINIMUM: "min_insync_replicas"}
_HELP: Final = "start as many brokers and controllers on it as before, or use another directory"


def _broker(node_id: int, votes: bool, rack: str | None, *, alone: bool) -> NodePlan:
    roles = (BROKER, CONTROLLER) if votes else (BROKER,)
    return NodePlan(node_id, roles, "" if alone else f"{_DIRECTORY}{node_id}", rack)


def _controller(node_id: int) -> NodePlan:
    return NodePlan(node_id, (CONTROLLER,), f"{_DIRECTORY}{node_id}")


def _count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name} is {value!r}: it must be a whole number from 1")
    return value


def _racks(racks: Sequence[str | None] | None, brokers: int) -> list[str | None]:
    if racks is None:
        return [None] * brokers
    if isinstance(racks, str) or len(racks) != brokers:
        raise ConfigError(f"racks is {racks!r}: it must be a list of as many names as there are brokers ({brokers})")
    return list(racks)


def _checked_properties(
    properties: Mapping[int, Mapping[str, Any]], nodes: Sequence[NodePlan]
) -> Mapping[int, Mapping[str, Any]]:
    """Raise `ConfigError` for nodes that do not exist, and for options that the cluster sets for each node."""
    known = [node.node_id for node in nodes]
    for node_id, own in properties.items():
        if node_id not in known:
            raise ConfigError(f"node_properties has a node {node_id!r}: the cluster has {_listed(known)}")
        _check_own({name: value for name, value in own.items() if name not in (_DIRECTORIES, "broker.rack")})
    return {node_id: dict(own) for node_id, own in properties.items()}


def _check_own(given: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for options that a cluster of several nodes sets for each node."""
    for name in (*_OWN, *_ALSO_OWN):
        if name in given:
            raise ConfigError(f"{name}: in a cluster of several nodes each has its own; it cannot be given here")


def _replication(brokers: int, factor: int | None, minimum: int | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for the number of replicas that `given` does not have."""
    replicas = min(_REPLICAS, brokers) if factor is None else _count("replication_factor", factor)
    if replicas > brokers:
        raise ConfigError(f"replication_factor is {factor}: it must not be above the number of brokers ({brokers})")
    arguments = {name: value for name, value in ((_FACTOR, factor), (_MINIMUM, minimum)) if value is not None}
    for name, value in arguments.items():
        if name in given and str(given[name]).strip() != str(value):
            raise ConfigError(f"{name} is {given[name]} in config and {value} as an argument: give one of them")
    _check_factors(given, brokers)
    factors: dict[str, Any] = dict.fromkeys(_FACTORS, replicas)
    needed = _count("min_insync_replicas", minimum) if minimum is not None else 0
    minima = {
        _MINIMUM: needed or max(1, _number(given.get(_FACTOR), replicas) - 1),
        _TRANSACTIONS[0]: min(needed or max(1, replicas - 1), _number(given.get(_TRANSACTIONS[1]), replicas)),
    }
    # A broker alone takes a minimum above its one replica, as Kafka's does: its topics need no more than they have.
    alone = brokers == 1 and minimum is None
    _check_minima({**({} if alone else {**factors, **minima}), **given}, arguments)
    made = {} if brokers == 1 else factors | minima
    return {name: value for name, value in made.items() if name not in given and name in SERVED_OPTIONS}


def _check_factors(options: Mapping[str, Any], brokers: int, where: str = "") -> None:
    """Raise `ConfigError` if topics are to have more replicas than there are brokers, unless there is only one."""
    for name in _FACTORS:
        if 1 < brokers < _number(options.get(name), 0):
            raise ConfigError(
                f"{where}{name} is {options[name]}: it must not be above the number of brokers ({brokers})"
            )


def _check_minima(options: Mapping[str, Any], arguments: Collection[str] = (), where: str = "") -> None:
    """Raise `ConfigError` if topics are to have fewer replicas than have to be in sync."""
    for least, most in ((_MINIMUM, _FACTOR), _TRANSACTIONS):
        needed, replicas = _number(options.get(least), 0), _number(options.get(most), 0)
        if replicas and needed > replicas:
            names = [_ARGUMENTS[name] if name in arguments else name for name in (least, most)]
            raise ConfigError(
                f"{where}{names[0]} is {needed}, above {names[1]}, which is {replicas}: "
                f"a topic would never have as many replicas in sync"
            )


def _number(value: object, default: int) -> int:
    """Return an option's number; `default` if there is none, or none that the option's own check lets pass."""
    text = str(value).strip()
    return int(text) if text.isascii() and text.isdigit() else default


def _directories(data_dir: str) -> list[int]:
    """Return the ids of the nodes with a directory in the cluster's, in order."""
    names = os.listdir(data_dir) if os.path.isdir(data_dir) else []
    texts = [name.removeprefix(_DIRECTORY) for name in names if name.startswith(_DIRECTORY)]
    return sorted(int(text) for text in texts if text.isascii() and text.isdigit())


def _listed(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))
