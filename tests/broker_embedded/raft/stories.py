"""Runs a story of the metadata quorum: commands one a line, and after each what the nodes did, in etcd's manner.

nodes 1 2 3          replicas that vote, by the configuration: their set cannot change (kraft.version 0)
voters 1 2 3         replicas that vote, by the log: their set can change (kraft.version 1)
observer 4           a replica that only follows
add 1 4              ask node 1 to make the replica of node 4 a voter
remove 1 3           ask node 1 to make the voter 3 an observer
campaign 1           let node 1's wait for a leader end
elect 1              the same, and deliver everything; print only what the nodes are then
deliver [1 2]        deliver the messages under way (those from 1 to 2 only), and what follows from them, in turn
drop 1 2             lose the messages under way from 1 to 2
cut 1 2, heal        lose all further messages in both directions, or none
append 1 a b         let node 1 append records as the leader
hold 1, sync 1       keep node 1's disk from syncing, or let it finish
wait 1.5             let time pass; nothing is delivered meanwhile
crash 1, start 1     kill node 1, start it again
snapshot 1           let node 1 write a snapshot and delete the log before it
resign 1             let node 1 give up its leadership
show                 print every node; after its log the voters, if they can change
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pyclient import errors
from pyclient.broker_embedded.controller.raft.messages import (
    AddVoter,
    Answer,
    AppendVoters,
    BeginQuorumEpoch,
    EndQuorumEpoch,
    Fetch,
    FetchResponse,
    FetchSnapshot,
    FetchSnapshotResponse,
    HighWatermark,
    InstallSnapshot,
    QuorumEpochResponse,
    RemoveVoter,
    Send,
    Truncate,
    UpdateVoter,
    Vote,
    VoterChangeResponse,
    VoteResponse,
)
from pyclient.broker_embedded.controller.raft.quorum_state import RaftTimeouts
from pyclient.broker_embedded.controller.raft.roles import Follower, Prospective, Unattached
from pyclient.broker_embedded.controller.raft.voters import ReplicaKey, Voter, VoterSet
from tests.broker_embedded.raft.simulated_node import Entry, SimulatedNode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyclient.broker_embedded.controller.raft.messages import Effect, Request, Response

MOST_MESSAGES = 400
"""Messages of one `deliver`: a story that needs more goes round in circles."""


class Message:
    """A request or a response under way, as a line of the story and what its arrival does."""

    def __init__(
        self, source: int, target: int, text: str, arrive: Callable[[], None], lost: Callable[[], None]
    ) -> None:
        self.source = source
        self.target = target
        self.text = text
        self.arrive = arrive
        self.lost = lost


class Story:
    """Nodes whose messages move only when the story says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.nodes: dict[int, SimulatedNode] = {}
        self.lines: list[str] = []
        self._under_way: list[Message] = []
        self._held_requests: dict[int, list[Callable[[], None]]] = {}
        self._cut: set[tuple[int, int]] = set()
        self._held: set[int] = set()
        self._voters = VoterSet.of()
        self._first: tuple[int, ...] = ()
        self._shown: dict[int, str] = {}

    def run(self, command: str) -> list[str]:
        """Carry out one command; return the lines that it printed."""
        self.lines = []
        name, *words = command.split()
        getattr(self, f"do_{name}")(*words)
        return self.lines

    # Commands

    def do_nodes(self, *ids: str) -> None:
        self._voters = VoterSet.of(*map(int, ids))
        self._start_new([int(number) for number in ids])

    def do_voters(self, *ids: str) -> None:
        self._voters = VoterSet(Voter(ReplicaKey(int(number), UUID(int=int(number)))) for number in ids)
        self._first = tuple(map(int, ids))
        self._start_new([int(number) for number in ids])

    def do_add(self, number: str, other: str) -> None:
        self._change(number, AddVoter(Voter(self.nodes[int(other)].key), 5.0))

    def do_remove(self, number: str, other: str) -> None:
        self._change(number, RemoveVoter(self.nodes[int(other)].key, 5.0))

    def _change(self, number: str, request: AddVoter | RemoveVoter) -> None:
        def answered(response: VoterChangeResponse) -> None:
            name = errors.for_code(response.error).__name__ if response.error else "done"
            self._say(f"{number} answers: {name}{': ' if response.reason else ''}{response.reason}")

        node = self.nodes[int(number)]
        node.running.step(answered, request, self.now)
        self._settle(node)

    def do_observer(self, number: str) -> None:
        self._start_new([int(number)])

    def do_campaign(self, number: str) -> None:
        node = self.nodes[int(number)]
        role = node.running.state.role
        if isinstance(role, Follower):
            role.fetch_until = self.now
        elif isinstance(role, Unattached):
            role.election_at = self.now
        node.running.tick(self.now)
        self._settle(node)

    def do_elect(self, number: str) -> None:
        self.do_campaign(number)
        self.do_deliver()
        self.lines.clear()
        self.do_show()

    def do_deliver(self, *pair: str) -> None:
        chosen = tuple(map(int, pair))
        for _ in range(MOST_MESSAGES):
            message = next((m for m in self._under_way if not chosen or (m.source, m.target) == chosen), None)
            if message is None:
                return
            self._under_way.remove(message)
            if (message.source, message.target) in self._cut or self.nodes[message.target].raft is None:
                message.lost()
                continue
            self._say(f"{message.source}->{message.target} {message.text}")
            message.arrive()
        raise AssertionError(f"more than {MOST_MESSAGES} messages: {self.lines[-4:]}")

    def do_drop(self, source: str, target: str) -> None:
        for message in list(self._under_way):
            if (message.source, message.target) == (int(source), int(target)):
                self._under_way.remove(message)
                self._say(f"lost {source}->{target} {message.text}")
                message.lost()

    def do_cut(self, one: str, other: str) -> None:
        self._cut |= {(int(one), int(other)), (int(other), int(one))}

    def do_heal(self) -> None:
        self._cut.clear()

    def do_append(self, number: str, *values: str) -> None:
        node = self.nodes[int(number)]
        entries = tuple(Entry(node.running.state.epoch, value) for value in values)
        try:
            offset = node.running.append(entries, len(entries), self.now)
        except errors.NotController as error:
            self._say(str(error))
            return
        self._say(f"{number} appends {' '.join(values)} at {offset}")
        self._settle(node)

    def do_hold(self, number: str) -> None:
        self._held.add(int(number))

    def do_sync(self, number: str) -> None:
        self._held.discard(int(number))
        self._settle(self.nodes[int(number)])

    def do_wait(self, seconds: str) -> None:
        self.now += float(seconds)
        for node in self.nodes.values():
            if node.raft is not None:
                node.raft.tick(self.now)
                self._settle(node)

    def do_crash(self, number: str) -> None:
        node = self.nodes[int(number)]
        del node.disk.entries[max(0, node.disk.synced - node.disk.start) :]
        node.raft = None
        self._held.discard(int(number))
        for message in [each for each in self._under_way if each.source == int(number)]:
            self._under_way.remove(message)
            message.lost()
        for lost in self._held_requests.pop(int(number), []):
            lost()

    def do_start(self, number: str) -> None:
        node = self.nodes[int(number)]
        node.start(self.now)
        self._settle(node)

    def do_snapshot(self, number: str) -> None:
        node = self.nodes[int(number)]
        node.create_snapshot(delete=True)
        self._settle(node)
        self._say(f"{number} has a snapshot up to {node.running.state.log.snapshot}; its log starts there")

    def do_resign(self, number: str) -> None:
        node = self.nodes[int(number)]
        node.running.resign(self.now)
        self._settle(node)

    def do_show(self) -> None:
        for number, node in self.nodes.items():
            if node.raft is None:
                self._say(f"{number} is down")
                continue
            state = node.raft.state
            values = "".join(f" {_value(entry.value)}" for entry in node.applied)
            voters = f", voters {_listed(state.voters.newest)}" if self._first else ""
            self._say(
                f"{number} {type(state.role).__name__} epoch {state.epoch} leader {_or_none(state.leader_id)}, "
                f"log {state.log.start_offset} to {state.log.end}{voters}, committed {state.high_watermark}:{values}"
            )

    # The nodes

    def _start_new(self, numbers: list[int]) -> None:
        """Start nodes. Their first search for a leader is lost: it is the same in every story."""
        for number in numbers:
            self.nodes[number] = SimulatedNode(
                number, self._voters, RaftTimeouts(), Random(number), bootstrap=self._first
            )
        for number in numbers:
            self.nodes[number].start(self.now)
            self._settle(self.nodes[number])
        while self._under_way:
            self._under_way.pop().lost()
        self.lines.clear()

    def _settle(self, node: SimulatedNode) -> None:
        number = node.key.id
        while True:
            while effects := node.running.ready():
                for effect in effects:
                    text = _effect(effect)
                    if text:
                        self._say(f"{number} {text}")
                    node.perform(effect, self.now, lambda message: self._deliver(node, message))
            if not node.sync_due or number in self._held:
                break
            node.sync(self.now)
        shown = _role(node)
        if shown != self._shown.get(number):
            self._shown[number] = shown
            self._say(f"{number} is {shown}")

    def _deliver(self, node: SimulatedNode, message: Send | Answer) -> None:
        if isinstance(message, Answer):
            message.token(message.response)
            return
        source, target, request = node, self.nodes[message.node], message.request

        held = self._held_requests.setdefault(message.node, [])

        def fail() -> None:
            if source.raft is not None:
                source.raft.failed(target.key.id, request, self.now)
                self._settle(source)

        def responded(response: Response) -> None:
            def arrive() -> None:
                source.running.responded(target.key.id, request, response, self.now)
                self._settle(source)

            held.remove(fail)
            self._under_way.append(Message(target.key.id, source.key.id, _response(response), arrive, fail))

        def arrive() -> None:
            held.append(fail)
            target.running.step(responded, request, self.now)
            self._settle(target)

        self._under_way.append(Message(source.key.id, target.key.id, _request(request), arrive, fail))

    def _say(self, line: str) -> None:
        self.lines.append(line)


def _role(node: SimulatedNode) -> str:
    state = node.running.state
    role = state.role
    text = f"{type(role).__name__} in epoch {role.epoch}"
    if isinstance(role, Follower):
        text += f" of {role.leader_id}"
    elif isinstance(role, Prospective | Unattached) and role.leader_id is not None:
        text += f", last heard of leader {role.leader_id}"
    return text


def _value(value: Any) -> str:
    if isinstance(value, VoterSet):
        return f"[{_listed(value)}]"
    return "-" if value is None else str(value)


def _listed(voters: VoterSet) -> str:
    return " ".join(map(str, voters.ids))


def _or_none(leader: int | None) -> str:
    return "none" if leader is None else str(leader)


def _effect(effect: Effect) -> str:
    match effect:
        case HighWatermark(offset):
            return f"commits up to {offset}"
        case AppendVoters(offset, _epoch, voters):
            return f"appends the voters {_listed(voters)} at {offset}"
        case Truncate(offset):
            return f"truncates to {offset}"
        case InstallSnapshot(snapshot):
            return f"installs the snapshot {snapshot}"
        case _:
            return ""


def _request(request: Request) -> str:
    match request:
        case Vote():
            kind = "PreVote" if request.pre_vote else "Vote"
            return f"{kind} epoch {request.epoch} log {request.last}"
        case BeginQuorumEpoch():
            return f"BeginQuorumEpoch epoch {request.epoch}"
        case EndQuorumEpoch():
            names = " ".join(str(key) for key in request.preferred)
            return f"EndQuorumEpoch epoch {request.epoch} successors {names}"
        case Fetch():
            return f"Fetch epoch {request.epoch} from {request.offset}/{request.last_epoch}"
        case FetchSnapshot():
            return f"FetchSnapshot {request.snapshot} from byte {request.position}"
        case UpdateVoter():
            return f"UpdateRaftVoter epoch {request.epoch}"


def _response(response: Response) -> str:
    text = f"{_name(response)} "
    if response.error:
        name = errors.for_code(response.error).__name__
        return f"{text}{name}, epoch {response.epoch} leader {_or_none(response.leader_id)}"
    match response:
        case VoteResponse():
            return text + ("granted" if response.granted else "rejected")
        case QuorumEpochResponse():
            return text + "taken"
        case FetchResponse():
            if response.diverging is not None:
                return f"{text}diverging at {response.diverging}"
            if response.snapshot is not None:
                return f"{text}snapshot {response.snapshot}"
            records = sum(batch.end_offset - batch.base_offset for batch in response.batches)
            return f"{text}{records} records, committed {response.high_watermark}"
        case FetchSnapshotResponse():
            return f"{text}{len(response.data)} of {response.size} bytes"
        case VoterChangeResponse():
            return text


def _name(response: Any) -> str:
    return {"QuorumEpochResponse": "QuorumEpoch"}.get(
        type(response).__name__, type(response).__name__[: -len("Response")]
    )


def run_story(path: Path) -> str:
    """Run a story file; return it with the output that its commands give now."""
    story = Story()
    written: list[str] = []
    for line in path.read_text().splitlines():
        if line.startswith("> ") or line == ">":
            continue
        written.append(line)
        if line and not line.startswith("#"):
            written.extend(f"> {each}" for each in story.run(line))
    return "\n".join(written) + "\n"
