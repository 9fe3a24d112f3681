"""`EmbeddedCluster`: a Kafka cluster inside a test or a program, in threads or in separate processes."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from typing import TYPE_CHECKING, Any, Literal

from pyclient.broker_embedded.cluster.cluster_controls import ClusterControlServer
from pyclient.broker_embedded.cluster.clusters import ServerWithClusters
from pyclient.broker_embedded.cluster.control_port import listen_for_controls
from pyclient.broker_embedded.cluster.controllers_file import read_controllers
from pyclient.broker_embedded.cluster.layout import Layout, NodePlan, rename_removed
from pyclient.broker_embedded.cluster.members import Members, close_in_finalizer, in_parallel
from pyclient.broker_embedded.cluster.node_configs import NodeConfigs
from pyclient.broker_embedded.cluster.runners import START_SECONDS
from pyclient.broker_embedded.cluster.security import ClusterSecurity
from pyclient.broker_embedded.cluster.views import names_of
from pyclient.config.addresses import DEFAULT_HOST
from pyclient.errors import ClosedError, ConfigError, ForkError
from pyclient.net.loop_thread import close_after_clients

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

    from pyclient.acls import AclBinding
    from pyclient.broker_embedded.cluster.broker import Broker
    from pyclient.broker_embedded.cluster.dynamic_quorum import VoterChanges
    from pyclient.broker_embedded.cluster.faults import Faults
    from pyclient.broker_embedded.cluster.partition_moves import PartitionMoves
    from pyclient.broker_embedded.cluster.requests import Requests
    from pyclient.broker_embedded.config.broker_config import BrokerConfig


class EmbeddedCluster:
    """A Kafka cluster to test with.

        with EmbeddedCluster() as cluster:
            producer = Producer(cluster.bootstrap_servers)

    `processes=True` runs each broker in a process of its own: for load, and for `kill()` to be a real SIGKILL. In a
    thread it shares the GIL with the program; while it runs there, Python's switch interval is lowered to 0.5 ms, so
    that a busy thread does not hold it up for 5 ms a turn.
    `as_version="3.9"` makes it look like that release to clients: it offers no newer versions of APIs.
    `profile="test"` has no rebalance delay and short sessions, `profile="kafka"` Kafka's defaults; `config` sets broker
    options on top. Without `data_dir` the data is removed with the cluster; with it, it stays, and the next cluster on
    it has the same topics and records. `config={"log.dirs": "/a,/b"}` uses several directories; the first one has the
    metadata.
    With `brokers=3` there are three, with the ids 1, 2 and 3, which replicate topics and metadata as Kafka does: each
    topic has `replication_factor` replicas (by default 3, or as many as there are brokers), and takes records with
    acks=all only while `min_insync_replicas` of them (by default one less) are in sync. The first brokers, an odd
    number of up to 5, are also the controllers; `controllers=3` makes nodes for that, with the ids from 3000. With
    `dynamic_quorum=True` controllers can be added and removed (KIP-853). `racks`
    has a rack of each broker, `node_properties` options of single nodes. Broker n has the port `port` + n - 1.
    Controls for tests: `cluster.faults` for requests, `kill`, `pause`, `restart` and `start`, of all or of one node by
    its id; `cut`, `slow` and `heal` the network between nodes, `move_leader`, `wait_isr`, `advance_time`,
    `retention_now`, `wait_group` and `wait_topic`; `cluster.requests` logs the requests of clients.
    `security="SASL_SSL"` (or `SASL_PLAINTEXT`) demands that clients authenticate themselves, by PLAIN or SCRAM, as one
    of `users` (`{"alice": "password"}`), with `users=["alice"]` by OAUTHBEARER, and `security="SSL"` with such users by
    a certificate; the cluster signs tokens and certificates itself. `client_options("alice")` returns what a client
    needs. `config={"listeners": ...}` describes several listeners. `acls=[("topic", "orders", "User:alice", "read"),
    ...]` demands rights, as in Kafka.
    With `control_port` (0: any free one) the same controls are served by HTTP at `control_url`.
    A cluster that is still open at interpreter exit is closed after the clients. A child made by `fork` can use its
    address; only the parent may start and stop it (`ForkError`).
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        replication_factor: int | None = None,
        min_insync_replicas: int | None = None,
        processes: bool = False,
        racks: Sequence[str | None] | None = None,
        controllers: int | None = None,
        dynamic_quorum: bool = False,
        profile: str = "test",
        as_version: str | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        config: Mapping[str, Any] | None = None,
        node_properties: Mapping[int, Mapping[str, Any]] | None = None,
        host: str = DEFAULT_HOST,
        port: int = 0,
        control_port: int | None = None,
        security: str = "PLAINTEXT",
        users: Mapping[str, str] | Iterable[str] | None = None,
        acls: Iterable[AclBinding | tuple[Any, ...]] | None = None,
    ) -> None:
        """Check the options; nothing runs before `start()` or `with`. Raise `ConfigError`."""
        self._layout = Layout.build(
            brokers,
            replication_factor=replication_factor,
            min_insync_replicas=min_insync_replicas,
            racks=racks,
            controllers=controllers,
            dynamic_quorum=dynamic_quorum,
            config=config,
            node_properties=node_properties,
        )
        self._processes = processes
        self._pid = os.getpid()
        self._closed = False
        self._opened = False
        self._security = ClusterSecurity(security, users, acls)
        self._configs = NodeConfigs(
            host=host, port=port, profile=profile, as_version=as_version, security=self._security
        )
        self._data_dir = os.fspath(data_dir or "")
        known = read_controllers(self._data_dir) if dynamic_quorum else {}
        if known:
            self._layout = self._layout.with_voters(list(known))
        drafts = [self._configs.draft(self._layout, node, self._data_dir) for node in self._layout.nodes]
        if self._layout.is_one_node:
            self._data_dir = drafts[0].data_dir  # log.dirs may have named it
        self._temporary = not self._data_dir
        if control_port is not None and not 0 <= control_port <= 65535:
            raise ConfigError(f"control_port is {control_port}: it must be from 0 (any free one) to 65535")
        self._control_port = control_port
        self._control: ClusterControlServer | None = None
        self._members = Members(
            self._check_open, self._configs.controller_address, ServerWithClusters, processes=processes
        )
        for node, draft in zip(self._layout.nodes, drafts, strict=True):
            self._add(node, draft)

    def __repr__(self) -> str:
        count, kind = len(self._members.brokers), "process" if self._processes else "thread"
        which = (
            f"1 broker in a {kind}" if count == 1 else f"{count} brokers in {kind}{'es' if self._processes else 's'}"
        )
        state = "closed" if self._closed else "not started" if not self._opened else self._members.addresses
        return f"<EmbeddedCluster {which}, {state}>"

    def __enter__(self) -> EmbeddedCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_members", None) and self._opened and not self._closed and self._is_mine():
            warnings.warn(f"{self!r} was never closed", ResourceWarning, stacklevel=2, source=self)
            close_in_finalizer(self.close)

    @property
    def brokers(self) -> tuple[Broker, ...]:
        """Return the brokers, each with `kill()`, `stop()`, `start()`, `restart()`, `pause()` and `resume()`."""
        return tuple(self._members.brokers)

    @property
    def nodes(self) -> tuple[Broker, ...]:
        """Return the brokers and the nodes that are controllers only."""
        return tuple(self._members.nodes)

    def node(self, node_id: int) -> Broker:
        """Return the node with an id. Raise `ConfigError` if there is none."""
        return self._members.node(node_id)

    @property
    def faults(self) -> Faults:
        """Return the fault injection: it makes requests fail, take long, get lost or wait."""
        return self._members.faults

    @property
    def requests(self) -> Requests:
        """Return the log of the clients' requests; it is off until its `start()`."""
        return self._members.requests

    def client_options(self, user: str | None = None, mechanism: str | None = None) -> dict[str, Any]:
        """Return the options of a client that authenticates itself as that user; None: of one that cannot.

        Without a `mechanism` it is SCRAM-SHA-256, or OAUTHBEARER, with a token provider, if `users` has no passwords.
        Raise `ConfigError` for a user that is not in `users`, `ClosedError` with TLS or tokens before the start.
        """
        return self._security.client_options(user, mechanism)

    @property
    def bootstrap_servers(self) -> str:
        """Return `host:port`, for any Kafka client. Raise `ClosedError` if the cluster is closed or was not started."""
        self._check_not_closed()
        return self._members.addresses

    @property
    def cluster_id(self) -> str:
        """Return the cluster's id, with which the storage of a joining node of Apache Kafka is formatted."""
        self._check_open()
        return self._configs.cluster_id

    @property
    def controller_quorum_voters(self) -> str:
        """Return the current voters as in `controller.quorum.voters`, for nodes that join; empty for a node alone."""
        self._check_open()
        return self._configs.quorum_voters(self._layout)

    @property
    def alive(self) -> bool:
        """Return True if all nodes run; False before `start()`, after `kill()`, and when a process has crashed."""
        return all(node.alive for node in self._members.nodes)

    @property
    def data_dir(self) -> str:
        """Return the directory of the cluster's files."""
        return self._data_dir

    @property
    def pid(self) -> int | None:
        """Return the id of the first broker's process; None when it runs in a thread."""
        self._check_not_closed()
        return self._members.brokers[0].pid

    @property
    def control_url(self) -> str | None:
        """Return where the controls are served by HTTP, `http://127.0.0.1:PORT`; None without `control_port`."""
        self._check_open()
        return self._members.brokers[0].control_url if self._control is None else self._control.url

    @property
    def controller_id(self) -> int | None:
        """Return the id of the active controller, in the newest epoch that a broker knows; None while none runs."""
        self._check_open()
        active = self._members.views.controller()
        return None if self._members.is_down(active) else active

    def start(self, node: int | Literal["all"] = "all", timeout: float = START_SECONDS) -> EmbeddedCluster:
        """Start the nodes that do not run, or that one, also after `kill()` or a crash: on the same data and ports.

        Return when the brokers serve and take part in the cluster, if enough controllers run for that.
        Raise `ConfigError` when an address is taken or a data directory is not a broker's, `KafkaTimeout`.
        """
        self._check_process()
        if self._closed:
            raise ClosedError("the cluster is closed: make a new one (on the same data_dir, if it had one)")
        starting = [each for each in self._chosen(node) if not each.alive]
        if not starting:
            return self
        if not self._data_dir:
            self._data_dir = tempfile.mkdtemp(prefix="pyclient-cluster-")
        close_after_clients(self)
        try:
            self._open()
            self._start_all(starting, timeout)
            self._serve_controls()
        except BaseException:
            if not any(each.alive for each in self._members.nodes):
                self._configs.close()
                self._opened = False
                self._remove_data()
            raise
        return self

    def kill(self, node: int | Literal["all"] = "all") -> None:
        """End all nodes, or one, as a crash would: SIGKILL with `processes=True`. `start()` starts them again.

        Raise `ConfigError` for None: `leader_of` and `controller_id` return it while there is none.
        """
        self._check_open()
        in_parallel([each.kill for each in self._chosen(node)])

    def stop(self, node: int) -> None:
        """Stop a node cleanly: its leaders move to other brokers first."""
        self._check_open()
        self.node(node).stop()

    def restart(self, node: int | Literal["all"] = "all") -> None:
        """Stop all nodes, or one, cleanly, if they run, and start them again on the same data and ports."""
        self._check_process()
        stopping = [each for each in self._chosen(node) if each.alive]
        for group in ([each for each in stopping if each in self._members.brokers], stopping):
            in_parallel([each.stop for each in group])
        self.start(node)

    def pause(self, node: int) -> None:
        """Freeze a node as a long garbage collection or a stalled disk would (SIGSTOP with `processes=True`)."""
        self._check_open()
        self.node(node).pause()

    def resume(self, node: int) -> None:
        """End the pause of a node."""
        self._check_open()
        self.node(node).resume()

    def add_broker(self, rack: str | None = None, timeout: float = 30.0) -> Broker:
        """Start one more broker, which gets partitions of new topics and by reassignment. Return it."""
        self._check_several("add_broker")
        layout, node = self._layout.with_broker(rack)
        broker = self._add(node, self._configs.config(layout, node))
        self._layout = layout
        try:
            self._start_all([broker], timeout)
        except BaseException:
            self._forget(broker)
            raise
        return broker

    def remove_broker(self, node: int, timeout: float = 60.0) -> None:
        """Move the partitions of a broker to the others, stop it, and remove its registration.

        A partition with replicas on all others gets one fewer. The directory is renamed to `removed-ID`, so that the
        cluster comes back without it on the same `data_dir`. Raise `ConfigError` for a controller, as the first ones
        are by default (all of three): use `controllers=3`, or `dynamic_quorum=True` and `remove_controller` first.
        """
        self._check_several("remove_broker")
        broker = self.node(node)
        self._layout.without(node)
        self._moves.drain(node, self._members.racks(without=node), timeout)
        broker.stop()
        self._forget(broker)
        self._moves.unregister(node, timeout)
        rename_removed(broker.data_dir, node)

    def add_controller(self, timeout: float = 60.0) -> Broker:
        """Start a node that is only a controller, and make it a voter when it has the metadata. Return it.

        The cluster must have been made with `dynamic_quorum=True`. Raise a `BrokerError` if it cannot be a voter.
        """
        self._check_dynamic("add_controller")
        layout, plan = self._layout.with_controller(self._data_dir)
        changes = self._voter_changes(timeout)
        node, is_asked = None, False
        try:
            address = self._configs.add_controller(plan.node_id)
            node = self._add(plan, self._configs.config(layout, plan))
            self._start_all([node], timeout)
            is_asked = True
            changes.add(plan.node_id, node.data_dir, address)
        except BaseException:
            if node is not None:
                if is_asked:  # it may be a voter, also if it has died since
                    changes.take_back(plan.node_id, node.data_dir)
                if node.alive:
                    node.kill()
                self._members.forget(node)
            self._configs.forget(plan.node_id)
            raise
        self._change_voters(layout)
        return node

    def remove_controller(self, node: int, timeout: float = 60.0) -> None:
        """Remove a controller from the voters, also the active one. Stop it unless it is a broker; its files stay.

        Raise a `BrokerError` for the last voter.
        """
        self._check_dynamic("remove_controller")
        leaving = self.node(node)
        if node not in self._layout.voters:
            raise ConfigError(f"node {node} is not a voter: the voters are {', '.join(map(str, self._layout.voters))}")
        self._voter_changes(timeout).remove(node, leaving.data_dir)
        self._change_voters(self._layout.without_voter(node))
        if leaving not in self._members.brokers:
            if leaving.alive:
                leaving.stop()
            self._forget(leaving)

    def cut(self, a: int, b: int, *, one_way: bool = False) -> None:
        """Cut the network between two nodes, or with `one_way` only from `a` to `b`. Clients reach both.

        Connections stay open and carry nothing. `heal()` ends it, and what was sent arrives then, as over TCP.
        """
        self._check_several("cut")
        self._members.links.cut(a, b, one_way=one_way)

    def slow(self, a: int, b: int, latency_ms: float, bandwidth: float | None = None) -> None:
        """Delay what two nodes send to each other by `latency_ms`; `bandwidth` limits each direction (bytes/second)."""
        self._check_several("slow")
        self._members.links.slow(a, b, latency_ms, bandwidth)

    def freeze_follower(self, topic: str, partition: int, timeout: float = 30.0) -> int:
        """Have one in-sync follower of a partition, once there is one, replicate nothing until `heal()`.

        Return its node id. It stays in the cluster, and leaves the in-sync replicas when it has missed records for
        `replica.lag.time.max.ms`. Raise `ConfigError` if there is one replica, `KafkaTimeout` after `timeout` seconds.
        """
        self._check_several("freeze_follower")
        frozen = self.node(self._members.views.in_sync_follower(topic, partition, timeout))
        frozen.call("POST", "/replication/freeze")
        return frozen.id

    def heal(self) -> None:
        """End what `cut`, `slow` and `freeze_follower` did."""
        self._check_open()
        self._members.links.heal()
        for broker in self._members.brokers:
            if broker.reachable and not self._layout.is_one_node:
                broker.call("POST", "/replication/thaw")

    def leader_of(self, topic: str, partition: int) -> int | None:
        """Return the id of a partition's leader; None while no leader runs. Raise `ConfigError` if it is unknown."""
        self._check_open()
        leader: int = self._members.views.partition(topic, partition)["leader"]
        return None if leader < 0 or self._members.is_down(leader) else leader

    def move_leader(self, topic: str, partition: int, node: int, timeout: float = 30.0) -> None:
        """Make a replica the preferred leader of a partition once it is in sync, and wait until it leads."""
        self._check_open()
        self._moves.move_leader(topic, partition, node, timeout)

    def wait_isr(self, topic: str, partition: int, size: int, timeout: float = 30.0) -> list[int]:
        """Wait until a partition has that many in-sync replicas. Return their node ids. Raise `KafkaTimeout`."""
        self._check_open()
        return self._members.views.wait_isr(topic, partition, size, timeout)

    def repair(self) -> None:
        """Undo faults: cancel injected ones, stop the request log, heal links, resume paused nodes, start those down.

        Advanced time stays advanced. The fixture `kafka_cluster` does this after each test.
        """
        self._check_open()
        for node in self._members.nodes:
            node.resume()
        self.heal()
        self.start()
        for node in self._members.nodes:
            node.call("POST", "/broker/resume")
        self._members.faults.clear()
        self._members.requests.stop()

    def close(self) -> None:
        """Stop the nodes, and remove their data unless it was given a `data_dir`. May be called twice.

        A no-op in a child made by `fork`: the parent still uses the nodes.
        """
        if self._closed or not self._is_mine():
            return
        self._closed = True
        try:
            if self._control is not None:
                self._control.close()
            for group in (
                self._members.brokers,
                [node for node in self._members.nodes if node not in self._members.brokers],
            ):
                in_parallel([node.runner.stop for node in group if node.state != "new"])
        finally:
            self._members.links.close()
            self._configs.close()
            self._remove_data()

    def advance_time(self, seconds: float) -> None:
        """Advance the brokers' clocks by `seconds`: sessions expire, records age, waiting requests are answered.

        The clients' clocks do not change, nor do connections become idle.
        Return when the timers that became due were run. The clock stays advanced when a broker is started again.
        """
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
            raise ConfigError(f"seconds is {seconds!r}: it must be a number of seconds from 0")
        self._members.views.each("POST", "/time/advance", {"seconds": seconds})

    def retention_now(self) -> int:
        """Apply retention to all logs, by time and by size, also to active segments. Return how many were deleted."""
        return sum(answer["segments_removed"] for answer in self._members.views.each("POST", "/retention").values())

    def compact_now(self, topic: str | None = None) -> int:
        """Compact the logs of compacted topics, or of one, however little is dirty. Return the number of rounds.

        Active segments are rolled first, so that every record takes part.
        """
        return sum(
            answer["rounds"] for answer in self._members.views.each("POST", "/compact", {"topic": topic}).values()
        )

    def verify_now(self, topic: str | None = None) -> list[dict[str, Any]]:
        """Check every batch of all logs, or of one topic's, against its checksum, while the brokers serve requests.

        Return what is damaged: `topic`, `partition`, `path` of the segment, `position` (bytes) of the first bad batch
        in it and `error`. The broker logs each, too.
        """
        answers = self._members.views.each("POST", "/verify", {"topic": topic}).values()
        return [damage for answer in answers for damage in answer["damaged"]]

    def wait_group(
        self,
        group: str,
        state: str | Iterable[str] | None = None,
        members: int | None = None,
        timeout: float = 30.0,
    ) -> dict[str, Any]:
        """Wait until a group is in `state` (one or several of Kafka's names) and has that many `members`.

        Without both, until it exists. Return `group`, `state`, `type`, `protocol_type` and `members` (their
        `member_id`, `instance_id`, `client_id`, `client_host`). Raise `KafkaTimeout`, with the last state, after
        `timeout` seconds.
        """
        states = state if state is None or isinstance(state, str) else ",".join(names_of("state", state))
        return self._members.views.wait_group(group, states, members, timeout)

    def wait_topic(
        self, topic: str, partitions: int | None = None, records: int | None = None, timeout: float = 30.0
    ) -> dict[str, Any]:
        """Wait until a topic exists with at least that many `partitions`, and `records` in all of them together.

        Return `topic`, `topic_id` and `partitions` (`partition`, `leader`, `leader_epoch`, `partition_epoch`,
        `replicas`, `isr`, `start_offset`, `end_offset`, `high_watermark`, `last_stable_offset`). Raise `KafkaTimeout`,
        with the last state, after `timeout` seconds.
        """
        return self._members.views.wait_topic(topic, partitions, records, timeout)

    @property
    def _moves(self) -> PartitionMoves:
        from pyclient.broker_embedded.cluster.partition_moves import PartitionMoves  # few clusters need its messages

        return PartitionMoves(self._members.views, self._members.running_config)

    def _voter_changes(self, timeout: float) -> VoterChanges:
        from pyclient.broker_embedded.cluster.dynamic_quorum import VoterChanges  # few clusters need its messages

        return VoterChanges(self._members.running_config, timeout)

    def _chosen(self, node: int | Literal["all"]) -> list[Broker]:
        return list(self._members.nodes) if node == "all" else [self.node(node)]

    def _add(self, plan: NodePlan, config: BrokerConfig) -> Broker:
        """Add a node that has not started."""
        control_port = self._control_port if self._layout.is_one_node else None
        return self._members.add(config, is_broker=plan.is_broker, control_port=control_port)

    def _forget(self, node: Broker) -> None:
        """Remove a node that has left the cluster."""
        self._members.forget(node)
        self._layout = self._layout.without(node.id)
        self._configs.forget(node.id)

    def _open(self) -> None:
        """Reserve the ports and complete the nodes' configurations, before the first start."""
        if not self._opened:
            self._configs.open(self._layout, self._data_dir)
            self._configure()
            self._opened = True

    def _configure(self) -> None:
        """Give each node the configuration with which it starts the next time."""
        for plan, node in zip(self._layout.nodes, self._members.nodes, strict=True):
            node.reconfigure(self._configs.config(self._layout, plan))

    def _change_voters(self, layout: Layout) -> None:
        """Note the voters of a dynamic quorum: nodes that start later look for these."""
        self._layout = layout
        self._configs.voters_changed(layout)
        self._configure()

    def _start_all(self, starting: list[Broker], timeout: float) -> None:
        """Start nodes, all at once, and wait until they take part; if one cannot, end those of this call again."""
        try:
            in_parallel([node.start for node in starting])
            self._wait_joined(starting, timeout)
        except BaseException:
            in_parallel([node.kill for node in starting if node.alive])
            raise

    def _serve_controls(self) -> None:
        """Serve the controls of several nodes by HTTP; one node serves its own."""
        if self._control_port is None or self._layout.is_one_node or self._control is not None:
            return
        self._control = ClusterControlServer(self, listen_for_controls(DEFAULT_HOST, self._control_port))
        self._control.start()

    def _wait_joined(self, starting: list[Broker], timeout: float) -> None:
        """Wait until the brokers see each other, unless too few controllers run to register them."""
        if self._layout.is_one_node:
            if starting[0].config.quorum.voters:  # other nodes are its controllers
                self._members.views.wait_joined([starting[0].id], timeout)
            return
        voters = [node for node in self._members.nodes if node.id in self._layout.voters]
        if 2 * sum(node.reachable for node in voters) > len(voters):
            self._members.views.wait_joined([node.id for node in starting if node in self._members.brokers], timeout)

    def _check_open(self) -> None:
        """Raise `ClosedError` after `close()`, `ForkError` in a forked child."""
        self._check_process()
        self._check_not_closed()

    def _check_several(self, call: str) -> None:
        self._check_open()
        if self._layout.is_one_node:
            raise ConfigError(f"{call}: the cluster has one node; make it with brokers=2 or more")

    def _check_dynamic(self, call: str) -> None:
        self._check_open()
        if not self._layout.dynamic:
            raise ConfigError(f"{call}: the voters are static; make the cluster with dynamic_quorum=True")

    def _check_not_closed(self) -> None:
        if self._closed:
            raise ClosedError("the cluster is closed")

    def _is_mine(self) -> bool:
        return self._pid == os.getpid()

    def _check_process(self) -> None:
        if not self._is_mine():
            raise ForkError(f"this cluster belongs to process {self._pid}; only that process may start and stop it")

    def _remove_data(self) -> None:
        if self._temporary and self._data_dir:
            shutil.rmtree(self._data_dir, ignore_errors=True)
