"""One chaos run: a cluster of three processes, clients at work, faults one after the other, and what came of it."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from pyclient import Admin, NewTopic
from pyclient.broker_embedded import EmbeddedCluster
from tests.chaos.checkers import Limits, check, harmless_faults, lost_by_librdkafka, lost_by_one
from tests.chaos.client_proxy import APART, CLIENTS, ClientProxies
from tests.chaos.cluster_state import state_of
from tests.chaos.duplicates import NOT_IDEMPOTENT, duplicates, duplicates_by_new_epochs
from tests.chaos.group_checkers import outdated_commits
from tests.chaos.history import (
    COMMITTED,
    COMPACTED,
    FAIL,
    IDEMPOTENT,
    INFO,
    OK,
    ONE,
    PLAIN,
    UNCOMMITTED,
    Commit,
    FoundTopic,
    History,
)
from tests.chaos.killed_clients import FENCED, FREEZE, KILL, KilledClient
from tests.chaos.logs import batches_of, logs_in, records_of
from tests.chaos.nemeses import ALL_FAULTS, FAULTS, Nemesis, plan
from tests.chaos.observer import Observer
from tests.chaos.progress_checkers import QUIET_SECONDS, usage
from tests.chaos.report import HEADER, figures
from tests.chaos.slow_disks import slow_disks
from tests.chaos.their_wide_workload import TheirAltering, TheirMember, TheirTransacting
from tests.chaos.watching import Watching
from tests.chaos.wide_workload import (
    EAGER,
    TRANSACTION_SECONDS,
    TRANSACTIONAL_GROUP,
    GroupMember,
    Transacting,
)
from tests.chaos.workload import (
    DELIVERY_SECONDS,
    RATE,
    Notes,
    OurReader,
    OurSender,
    Sending,
    TheirReader,
    TheirSender,
    Worker,
)

TOPIC: Final = "busy"
EAGER_GROUP: Final = "group-eager"
GROUPS: Final = ("group-classic", "group-consumer", EAGER_GROUP)
TRANSACTIONAL_ID: Final = "ours-transactional"
CONTROL: Final = "one-ack"
ACKS_1: Final = "acks-1"
CONTROLS: Final = (ACKS_1,)
CONTROL_FAULTS: Final = ("kill leader of slow followers",)
PARTITIONS: Final = 4
RECOVERY_SECONDS: Final = 20.0
LIMITS: Final = Limits(DELIVERY_SECONDS, RECOVERY_SECONDS, min_isr=2, progress=100, progress_seconds=8.0)
_DRAIN_SECONDS: Final = 200.0
_BEFORE_SECONDS: Final = 4.0  # without faults, at first: what comes in then is to be reached again
_QUIET_AFTER: Final = 10  # faults, a longer time without one comes
_WORK_SECONDS: Final = 60.0
_KILLED_RATE: Final = 8.0
_SHOWN: Final = 5  # of each list in the report


@dataclass
class Result:
    """The result of a run: its history, the violations by checker, and what failed in clients and cluster."""

    seed: int
    history: History
    violations: dict[str, list[str]]
    failures: list[str]
    faults: list[str]
    seconds: float
    control: str | None = None
    state: list[str] = field(default_factory=list)
    """The state of the cluster if it did not begin to work or did not heal."""
    names: list[str] = field(default_factory=list)
    """The faults among which the run had the choice."""

    @property
    def missing(self) -> list[str]:
        """The faults that the run could have had, and that did not come."""
        return sorted({*self.names}.difference(self.faults))

    @property
    def acknowledged(self) -> int:
        return sum(send.outcome == OK and send.kind != ONE for send in self.history.sends)

    @property
    def lost_by_one(self) -> int:
        return len(lost_by_one(self.history))

    def report(self) -> str:
        """Return a table of the run."""
        history = self.history
        repeated = len(list(duplicates(history, NOT_IDEMPOTENT)))
        lines = [
            f"seed {self.seed}, {self.seconds:.0f} s, {len(self.faults)} faults",
            f"{len(self.missing)} of {len(self.names)} kinds of faults did not come: {', '.join(self.missing) or '-'}",
            f"acknowledged {self.acknowledged}, of {len(history.sends)} sends; reads {len(history.reads)}",
            f"lost {len(self.violations.get('lost', []))}, duplicated {len(self.violations.get('duplicated', []))}, "
            f"lost with acks=1 {self.lost_by_one}{' (expected: it is the control)' if self.control else ''}",
            f"duplicated by producers that are not idempotent {repeated} (allowed)",
            *_by_librdkafka(history),
            *_further(history),
            *usage(history),
            HEADER,
            *(each.row() for each in figures(history, RECOVERY_SECONDS)),
        ]
        for name, found in self.violations.items():
            lines.append(f"VIOLATED {name}: {len(found)}")
            lines += [f"  {each}" for each in found[:_SHOWN]]
        lines += [f"FAILED {each}" for each in self.failures[:10]]
        lines += [f"STATE {each}" for each in self.state]
        return "\n".join(lines)


def _by_librdkafka(history: History) -> Iterator[str]:
    """Yield what clients of confluent-kafka logged about resets of their positions, and about new epochs with the last
    fault that began before."""
    if history.stuck_members:
        yield f"members of librdkafka that were stuck, and were replaced: {len(history.stuck_members)}"
    if history.position_resets:
        yield f"positions set to the beginning by librdkafka itself: {len(history.position_resets)}"
    if implied := lost_by_librdkafka(history):
        yield f"acknowledged by librdkafka without an answer, and lost: {len(implied)}"
        yield from (f"  {each}" for each in implied[:_SHOWN])
    if history.epoch_bumps:
        by_design = len(list(duplicates_by_new_epochs(history)))
        yield f"duplicated by a new epoch of librdkafka, by its design: {by_design}"
        yield f"new epochs of librdkafka: {len(history.epoch_bumps)}, after {len(history.refusals)} refused batches"
        for bump in history.epoch_bumps[:_SHOWN]:
            before = [each for each in history.faults if each.began < bump.at]
            when = f"{bump.at - before[-1].began:.1f} s after {before[-1].name}" if before else "before all faults"
            yield f"  {bump.producer}: producer {bump.producer_id}, epoch {bump.epoch}, {when}: {bump.reason}"
        yield from (f"  {each.producer}: {each.text}" for each in history.refusals[:_SHOWN])


def _further(history: History) -> Iterator[str]:
    """Yield what only a wide run does."""
    if history.client_faults:
        names = Counter(each.name for each in history.client_faults)
        unknown = sum(each.unknown for each in history.client_faults)
        ends = f"clients killed: {names[KILL]}, frozen: {names[FREEZE]}, fenced by a former life: {names[FENCED]}"
        yield f"{ends}; sends and commits without an outcome: {unknown}"
    if history.transactions:
        ends = Counter(each.outcome for each in history.transactions)
        reading = Counter(each.transaction for each in history.reads if each.transaction is not None)
        yield (
            f"transactions: {ends[OK]} committed, {ends[FAIL]} aborted, {ends[INFO]} unknown; "
            f"{reading.total()} records read in {len(reading)} of them"
        )
    if history.topic_changes:
        ends = Counter(each.outcome for each in history.topic_changes)
        left = len(history.found_topics)
        yield f"changes of topics: {ends[OK]} acknowledged, {ends[INFO]} unknown; topics at the end: {left}"
    for group in sorted({each.group for each in history.commits}):
        ends = Counter(each.outcome for each in history.commits if each.group == group)
        looks = sum(each.group == group for each in history.committed)
        yield f"{group}: {ends[OK]} offsets committed, {ends[INFO]} unknown; committed offsets read {looks} times"
    if outdated := list(outdated_commits(history)):
        yield f"outdated offsets from group coordinators that were replaced, and did not know it: {len(outdated)}"
        yield from (f"  {each}" for each in outdated[:_SHOWN])


def run(
    seed: int,
    seconds: float,
    names: list[str] | None = None,
    fault_seconds: float = 4.0,
    control: str | None = None,
    *,
    wide: bool = False,
    each_once: bool = False,
    kill_clients: bool = False,
) -> Result:
    """Run a cluster with faults for about that long, then let it heal, read everything, and check the history.

    With `each_once` it goes on until each of the faults has come once, also if that takes longer. With `kill_clients` a
    wide run has clients in processes that are killed, too.

    Clients connect through proxies, which some faults cut. A wide run has more readers and groups.
    With the control `ACKS_1` the leaders of a producer with acks=1 are killed, whose records must be lost then.
    """
    notes, began = Notes(), time.monotonic()
    names = [*CONTROL_FAULTS] if control is not None else names or sorted(ALL_FAULTS if wide else FAULTS)
    struck: list[str] = []
    with tempfile.TemporaryDirectory(prefix="pyclient-chaos-") as data_dir:
        with slow_disks() as disks, _cluster(data_dir) as (cluster, proxies):
            servers = cluster.bootstrap_servers
            with Admin(servers) as admin:
                admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3), NewTopic(CONTROL, PARTITIONS, 3)])
            observer = Observer(notes, cluster, TOPIC, PARTITIONS, (*GROUPS, TRANSACTIONAL_GROUP))
            addresses = {name: each.addresses for name, each in proxies.items()}
            if control is not None:
                workers = _control_workers(notes, addresses[CLIENTS], cluster, seed)
            elif not wide:
                workers = [*_plain_workers(notes, addresses[CLIENTS], cluster, seed), observer]
            else:
                workers = [*_wide_workers(notes, addresses, cluster, seed, kill_clients), observer]
            nemesis = Nemesis(cluster, notes, TOPIC if control is None else CONTROL, PARTITIONS, seed, proxies, disks)
            nemesis.targets.groups, nemesis.targets.transactional_ids = GROUPS, [TRANSACTIONAL_ID]
            nemesis.wait_in_sync()
            for worker in workers:
                worker.start()
            try:
                _wait_for_work(workers, notes, began)  # faults must meet a cluster at work
                time.sleep(_BEFORE_SECONDS)  # what is sent now is compared with what is sent after faults
                for name in _planned(seed, names, began + seconds, each_once):
                    struck.append(name)
                    _strike(nemesis, name, fault_seconds, is_quiet_after=not len(struck) % _QUIET_AFTER)
                nemesis.wait_in_sync()
                _wait_for_work(workers, notes, time.monotonic())  # the last records, after everything is healed
            except Exception as error:  # a finding: the cluster does not heal
                notes.fail(f"the cluster in {struck[-1:]}", error)
                notes.state = list(state_of(cluster, (TOPIC, "__consumer_offsets"), GROUPS))
            _end(workers, notes)
            if control is None:
                _settle(notes, observer, servers)
            _drain(notes, servers)
            _look_at_replicas(notes, nemesis, workers)
        _note_logs(notes, Path(data_dir))
    notes.history.commits.sort(key=_effect)  # those of other processes came later than they were noted
    violations = _violations(notes.history, control)
    lasted = time.monotonic() - began
    return Result(seed, notes.history, violations, notes.failures, struck, lasted, control, notes.state, names)


def _strike(nemesis: Nemesis, name: str, seconds: float, *, is_quiet_after: bool) -> None:
    """Strike, and leave the cluster without a fault for a while."""
    nemesis.strike(name, seconds)
    # without faults, also while replicas catch up
    time.sleep(QUIET_SECONDS + 0.5 if is_quiet_after else nemesis.random.random() * 3)


def _planned(seed: int, names: Sequence[str], end: float, each_once: bool) -> Iterator[str]:
    """Yield the faults of the plan until the end, and with `each_once` until each of them has come once."""
    for count, name in enumerate(plan(seed, 10_000, [*names])):
        if time.monotonic() > end and not (each_once and count < len(names)):
            return
        yield name


def _effect(commit: Commit) -> float:
    """Return the time by which a commit was done; one with an unknown outcome may be done as soon as it began."""
    return commit.at if commit.outcome == OK or commit.began is None else commit.began


def _violations(history: History, control: str | None) -> dict[str, list[str]]:
    """Return what the checkers find. A control in which nothing was lost is a violation, too."""
    violations = check(history, LIMITS)
    if control is not None and (found := list(harmless_faults(history))):
        violations["control"] = found
    return violations


@contextmanager
def _cluster(data_dir: str) -> Iterator[tuple[EmbeddedCluster, dict[str, ClientProxies]]]:
    """Start the cluster of a run. Nodes reach each other through proxies, and so do clients the further listeners."""
    ids = (1, 2, 3)
    proxies = {name: ClientProxies(ids) for name in (CLIENTS, APART)}
    try:
        advertised = {}
        for node_id in ids:
            places = [f"{name}://{each.of[node_id].address}" for name, each in proxies.items()]
            advertised[node_id] = {"advertised.listeners": ",".join(places)}
        with EmbeddedCluster(
            3, processes=True, data_dir=data_dir, config=SETTINGS, node_properties=advertised
        ) as cluster:
            for node_id in ids:
                for listener in cluster.node(node_id).config.listeners.clients:
                    if listener.name in proxies:
                        proxies[listener.name].of[node_id].target = listener.host, listener.port
            for a, b in combinations(ids, 2):
                cluster.slow(a, b, latency_ms=0)  # from now on they reach each other over proxies of this process
            yield cluster, proxies
    finally:
        for each in proxies.values():
            each.close()


def _wide_workers(
    notes: Notes, addresses: Mapping[str, str], cluster: EmbeddedCluster, seed: int, kill_clients: bool
) -> list[Worker]:
    servers = addresses[CLIENTS]
    workers = [
        *_workers(notes, servers, cluster, seed),
        OurReader("ours-uncommitted", notes, servers, {TOPIC: PARTITIONS}, UNCOMMITTED),
        OurReader("ours-returning", notes, servers, {TOPIC: PARTITIONS}, COMMITTED, seed + 6),
        Transacting(TRANSACTIONAL_ID, notes, servers, TOPIC, PARTITIONS, seed + 4),
        TheirTransacting("theirs-transactional", notes, servers, TOPIC, PARTITIONS, seed + 5),
        TheirAltering("theirs-altering", notes, servers),
        *(
            worker
            for name, protocol in zip(GROUPS, ("classic", "consumer"), strict=False)
            for worker in _members(notes, addresses, name, protocol, seed)
        ),
        *_eager_members(notes, servers, seed),
        *_killed_senders(notes, servers, seed),
    ]
    return [each for each in workers if kill_clients or not isinstance(each, KilledClient)]


def _killed_senders(notes: Notes, servers: str, seed: int) -> list[Worker]:
    """Return idempotent producers that are killed. They have few of all records: the rate of all is judged, too."""
    return [
        KilledClient(
            f"{whose}-killed",
            notes,
            kind,
            seed + number,
            servers=servers,
            topic=TOPIC,
            partitions=PARTITIONS,
            kind=IDEMPOTENT,
            seed=seed + number,
            rate=_KILLED_RATE,
        )
        for number, (whose, kind) in enumerate((("ours", "OurSender"), ("theirs", "TheirSender")), 20)
    ]


def _members(notes: Notes, addresses: Mapping[str, str], group: str, protocol: str, seed: int) -> list[Worker]:
    """Return the members of a group: one of ours is static, one leaves and comes again, one is killed."""
    servers = addresses[CLIENTS]
    return [
        GroupMember(f"{protocol}-static", notes, servers, TOPIC, group, protocol, instance="static"),
        GroupMember(f"{protocol}-apart", notes, addresses[APART], TOPIC, group, protocol, seed=seed + 7),
        TheirMember(f"theirs-{protocol}", notes, servers, TOPIC, group, protocol),
        KilledClient(
            f"{protocol}-killed",
            notes,
            "GroupMember",
            seed + 8,
            servers=servers,
            topic=TOPIC,
            group=group,
            protocol=protocol,
            instance="killed" if protocol == "classic" else None,
        ),
    ]


def _eager_members(notes: Notes, servers: str, seed: int) -> list[Worker]:
    """Return the members of a classic group that give up all their partitions in each rebalance; one is killed."""
    options: dict[str, Any] = {"servers": servers, "topic": TOPIC, "group": EAGER_GROUP}
    options |= {"protocol": "classic", "assignor": EAGER}
    return [
        GroupMember("eager", notes, **options),
        TheirMember("theirs-eager", notes, **options),
        KilledClient("theirs-eager-killed", notes, "TheirMember", seed + 9, **options),
    ]


def _settle(notes: Notes, observer: Observer, servers: str) -> None:
    """Wait until no transaction is open, which a checker finds if it stays so; then note the topics."""
    try:
        observer.settle(2 * TRANSACTION_SECONDS + 10)
    except Exception as error:  # a finding: the ends cannot be asked for
        notes.fail("the observer at the end", error)
    _note_topics(notes, servers)


def _note_topics(notes: Notes, servers: str) -> None:
    try:
        with Admin(servers) as admin:
            found = admin.describe_topics(admin.list_topics())
        notes.add(*(FoundTopic(name, len(each.partitions)) for name, each in found.items()))
    except Exception as error:  # a finding: the cluster does not say which topics it has
        notes.fail("the topics at the end", error)


def _look_at_replicas(notes: Notes, nemesis: Nemesis, workers: list[Worker]) -> None:
    """Note what all nodes say of all topics whose logs are compared, when all replicas of these are in sync."""
    topics = [TOPIC, CONTROL, *COMPACTED]
    try:
        with Admin(nemesis.cluster.bootstrap_servers) as admin:
            topics = sorted({*topics}.intersection(admin.list_topics(include_internal=True)))
        nemesis.targets.wait_in_sync(topics)
        for each in workers:
            if isinstance(each, Watching):
                each.look(topics)
    except Exception as error:  # a finding: replicas do not catch up
        notes.fail("the replicas at the end", error)


def _note_logs(notes: Notes, data_dir: Path) -> None:
    """Note the logs that the nodes have left."""
    for directory in data_dir.glob("node-*"):
        node_id = int(directory.name.removeprefix("node-"))
        notes.add(*batches_of(directory, node_id, (TOPIC, CONTROL)))
        notes.add(*records_of(directory, node_id, [*COMPACTED]))
        notes.add(*logs_in(directory, node_id, (TOPIC, CONTROL, *COMPACTED)))


SETTINGS: Final = {
    "listeners": f"PLAINTEXT://127.0.0.1:0,{CLIENTS}://127.0.0.1:0,{APART}://127.0.0.1:0",
    "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{CLIENTS}:PLAINTEXT,{APART}:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "log.roll.ms": 20_000,
    "log.flush.offset.checkpoint.interval.ms": 5_000,
    "offsets.topic.num.partitions": 2,
    "replica.lag.time.max.ms": 2_000,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.min.session.timeout.ms": 6_000,
    "group.consumer.session.timeout.ms": 6_000,
    "transaction.state.log.num.partitions": 3,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
}


def _workers(notes: Notes, servers: str, cluster: EmbeddedCluster, seed: int) -> list[Worker]:
    topics = {TOPIC: PARTITIONS}
    return [
        OurSender("ours-idempotent", notes, servers, TOPIC, PARTITIONS, IDEMPOTENT, seed),
        OurSender("ours-plain", notes, servers, TOPIC, PARTITIONS, PLAIN, seed + 1),
        TheirSender("theirs-idempotent", notes, servers, TOPIC, PARTITIONS, IDEMPOTENT, seed + 2),
        OurSender("ours-one", notes, servers, CONTROL, PARTITIONS, ONE, seed + 3),
        OurReader("ours-reading", notes, servers, topics, COMMITTED),
        TheirReader("theirs-reading", notes, servers, topics),
        Watching(notes, cluster, topics),
    ]


def _plain_workers(notes: Notes, servers: str, cluster: EmbeddedCluster, seed: int) -> list[Worker]:
    return [
        *_workers(notes, servers, cluster, seed),
        Transacting(TRANSACTIONAL_ID, notes, servers, TOPIC, PARTITIONS, seed + 4),
        TheirTransacting("theirs-transactional", notes, servers, TOPIC, PARTITIONS, seed + 5),
        GroupMember("member-classic", notes, servers, TOPIC, GROUPS[0], "classic"),
        TheirMember("theirs-classic", notes, servers, TOPIC, GROUPS[0], "classic"),
        GroupMember("member-consumer-1", notes, servers, TOPIC, GROUPS[1], "consumer"),
        GroupMember("member-consumer-2", notes, servers, TOPIC, GROUPS[1], "consumer"),
    ]


def _control_workers(notes: Notes, servers: str, cluster: EmbeddedCluster, seed: int) -> list[Worker]:
    """Return two producers on the same partitions, of which only that with acks=1 may lose records."""
    topics = {CONTROL: PARTITIONS}
    one = OurSender("ours-one", notes, servers, CONTROL, PARTITIONS, ONE, seed + 1, 5 * RATE)
    return [
        OurSender("ours-idempotent", notes, servers, CONTROL, PARTITIONS, IDEMPOTENT, seed),
        one,
        OurReader("ours-reading", notes, servers, topics, COMMITTED),
        Watching(notes, cluster, topics),
    ]


def _wait_for_work(workers: list[Worker], notes: Notes, since: float) -> None:
    """Wait until each producer has an acknowledged record, and each consumer a record, later than `since`."""
    wanted = {worker.name for worker in workers if not isinstance(worker, (Watching, Observer, TheirAltering))}
    deadline = time.monotonic() + _WORK_SECONDS
    while True:
        at_work = {
            send.value.producer for send in list(notes.history.sends) if send.outcome == OK and send.began > since
        }
        at_work |= {read.consumer for read in list(notes.history.reads) if read.at > since}
        at_work = {name.partition(".")[0] for name in at_work}  # of a client that is killed, any life counts
        if wanted <= at_work:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"no records of {sorted(wanted - at_work)} within {_WORK_SECONDS:g} s")
        time.sleep(0.05)  # between two looks


def _end(workers: list[Worker], notes: Notes) -> None:
    """Stop the producers, and the others when all sends have an outcome."""
    senders = [worker for worker in workers if isinstance(worker, Sending) or _is_killed_sender(worker)]
    for group in (senders, [worker for worker in workers if worker not in senders]):
        for worker in group:
            worker.stop()
        for worker in group:
            worker.join(DELIVERY_SECONDS + 30)


def _is_killed_sender(worker: Worker) -> bool:
    return isinstance(worker, KilledClient) and worker.is_sender


def _drain(notes: Notes, servers: str) -> None:
    try:
        OurReader("drain", notes, servers, {TOPIC: PARTITIONS, CONTROL: PARTITIONS}, COMMITTED).drain(_DRAIN_SECONDS)
    except Exception as error:  # a finding: not everything can be read
        notes.fail("drain", error)
