"""The voters of a dynamic quorum (KIP-853): the first snapshot, which names them, and changes of them."""

from __future__ import annotations

import os
import random
import time
import uuid
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.cluster.faults import LOOK_AGAIN
from pyclient.broker_embedded.cluster.kafka_call import call
from pyclient.broker_embedded.controller.quorum_files import format_quorum
from pyclient.broker_embedded.controller.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from pyclient.broker_embedded.log.checkpoints import META_PROPERTIES, parse_identity, render_identity, uuid_from_text
from pyclient.broker_embedded.log.filesystem import RealFileSystem
from pyclient.config.addresses import parse_address
from pyclient.errors import (
    ClientError,
    ConfigError,
    DuplicateVoter,
    RequestTimedOut,
    VoterNotFound,
    for_code,
    from_code,
)
from pyclient.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from pyclient.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LISTENER: Final = "CONTROLLER"
_ASK_SECONDS: Final = 5.0
"""How long one AddRaftVoter waits until the new voter has the log."""


def format_controllers(cluster_id: str, directories: Mapping[int, str], addresses: Mapping[int, str]) -> None:
    """Write the identity and the first snapshot of new controllers, which are the first voters."""
    keys = {node_id: ReplicaKey(node_id, uuid.UUID(int=random.getrandbits(128), version=4)) for node_id in directories}
    voters = VoterSet(
        Voter(keys[node_id], (Endpoint(_LISTENER, *parse_address(addresses[node_id])),)) for node_id in directories
    )
    for node_id, directory in directories.items():
        os.makedirs(directory, exist_ok=True)
        identity = render_identity(cluster_id=cluster_id, node_id=node_id, directory_id=keys[node_id].directory_id)
        fs = RealFileSystem(durable=False)
        fs.replace(os.path.join(directory, META_PROPERTIES), identity)
        format_quorum(fs, directory, voters)


def directory_id(directory: str) -> uuid.UUID:
    """Return the id of a node's data directory. Raise `ConfigError` if the node has never started."""
    path = os.path.join(directory, META_PROPERTIES)
    try:
        with open(path, "rb") as file:
            return uuid_from_text(parse_identity(file.read(), path)["directory.id"])
    except (OSError, KeyError, ValueError) as error:
        raise ConfigError(f"{path} has no directory.id: {error}") from None


class VoterChanges:
    """Adds and removes voters by AddRaftVoter and RemoveRaftVoter requests.

    `address` returns the `host:port` of a running broker.
    """

    def __init__(self, address: Callable[[], str], timeout: float) -> None:
        self._address = address
        self._timeout = timeout

    def add(self, node_id: int, directory: str, address: str) -> None:
        """Make a controller a voter when it has caught up with the log. Raises a `BrokerError`, or `ClientError`."""
        host, port = parse_address(address)

        def ask(broker: str) -> tuple[int, str | None]:
            request = AddRaftVoterRequest(
                cluster_id=None,
                timeout_ms=round(_ASK_SECONDS * 1000),
                voter_id=node_id,
                voter_directory_id=directory_id(directory),
                listeners=[Listener(name=_LISTENER, host=host, port=port)],
            )
            answer = call(broker, request, self._timeout)
            return answer.error_code, answer.error_message

        self._until_done(ask, f"adding controller {node_id}", DuplicateVoter.code)

    def remove(self, node_id: int, directory: str) -> None:
        """Make a voter an observer. Raises a `BrokerError`, or `ClientError`."""

        def ask(broker: str) -> tuple[int, str | None]:
            request = RemoveRaftVoterRequest(
                cluster_id=None, voter_id=node_id, voter_directory_id=directory_id(directory)
            )
            answer = call(broker, request, self._timeout)
            return answer.error_code, answer.error_message

        self._until_done(ask, f"removing controller {node_id}", VoterNotFound.code)

    def _until_done(self, ask: Callable[[str], tuple[int, str | None]], what: str, done: int) -> None:
        """Repeat a request until it succeeds, fails for good, or the time is over.

        For a repeated request the error code `done` means that an earlier one has succeeded.
        """
        end, is_repeated = time.monotonic() + self._timeout, False
        while True:
            lost: ClientError | None = None
            code, message = RequestTimedOut.code, None
            try:
                code, message = ask(self._address())
            except ClientError as error:
                lost = error
            if not lost and (code == 0 or (is_repeated and code == done)):
                return
            if (not lost and not for_code(code).retriable) or time.monotonic() >= end:
                raise lost or from_code(code, f"{what}: {message}" if message else what)
            is_repeated = True
            time.sleep(LOOK_AGAIN)  # there is no event for a controller that has caught up, or was elected
