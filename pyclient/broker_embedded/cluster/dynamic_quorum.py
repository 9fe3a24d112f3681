"""The voters of a dynamic quorum (KIP-853): the first snapshot, which names them, and changes of them."""

from __future__ import annotations

import logging
import os
import random
import uuid
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.cluster.kafka_call import call, check_code, until_done
from pyclient.broker_embedded.controller.metadata_log import TOPIC
from pyclient.broker_embedded.controller.metadata_recovery import METADATA_DIRECTORY, QUORUM_STATE
from pyclient.broker_embedded.controller.quorum_files import format_quorum
from pyclient.broker_embedded.controller.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from pyclient.broker_embedded.log.checkpoints import META_PROPERTIES, parse_identity, render_identity, uuid_from_text
from pyclient.broker_embedded.log.filesystem import RealFileSystem
from pyclient.config.addresses import parse_address
from pyclient.errors import (
    ConfigError,
    DuplicateVoter,
    KafkaError,
    VoterNotFound,
)
from pyclient.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from pyclient.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from pyclient.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyclient.broker_embedded.config.broker_config import BrokerConfig

log = logging.getLogger("pyclient.broker_embedded")

_LISTENER: Final = "CONTROLLER"
_ASK_SECONDS: Final = 5.0
"""Seconds that one AddRaftVoter waits until the change is committed."""

_TAKE_BACK_SECONDS: Final = 10.0
"""Seconds within which a controller that could not be added is removed again."""


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


def was_started(directories: Iterable[str]) -> bool:
    """Return True if a node has run on one of these data directories: before that they can be formatted again."""
    return any(os.path.exists(os.path.join(each, METADATA_DIRECTORY, QUORUM_STATE)) for each in directories)


def directory_id(directory: str) -> uuid.UUID:
    """Return the id of a node's data directory. Raise `ConfigError` if the node has never started."""
    path = os.path.join(directory, META_PROPERTIES)
    try:
        with open(path, "rb") as file:
            return uuid_from_text(parse_identity(file.read(), path)["directory.id"])
    except (OSError, KeyError, ValueError) as error:
        raise ConfigError(f"{path} has no directory.id: {error}") from None


class VoterChanges:
    """Adds and removes voters by AddRaftVoter and RemoveRaftVoter; `broker` returns a running broker's configuration.

    A request is repeated after errors that can be retried. If the response says that the voter is there or gone
    already, the voter set is compared with the requested change: the first response may have been lost, or another
    replica may have the node's id.
    """

    def __init__(self, broker: Callable[[], BrokerConfig], timeout: float) -> None:
        """`timeout` is in seconds, for each change."""
        self._broker = broker
        self._timeout = timeout

    def add(self, node_id: int, directory: str, address: str) -> None:
        """Make a controller a voter when it has caught up with the log. Raise a `BrokerError`, or `ClientError`."""
        key, (host, port) = ReplicaKey(node_id, directory_id(directory)), parse_address(address)

        def ask(seconds: float) -> None:
            request = AddRaftVoterRequest(
                cluster_id=None,
                timeout_ms=round(min(_ASK_SECONDS, seconds) * 1000),
                voter_id=node_id,
                voter_directory_id=key.directory_id,
                listeners=[Listener(name=_LISTENER, host=host, port=port)],
            )
            answer = call(self._broker(), request, seconds)
            try:
                check_code(answer.error_code, answer.error_message, f"adding controller {node_id}")
            except DuplicateVoter:
                if key not in self._voters(seconds):
                    raise

        until_done(ask, self._timeout)

    def remove(self, node_id: int, directory: str) -> None:
        """Make a voter an observer. Raise a `BrokerError`, or `ClientError`."""
        self._remove(ReplicaKey(node_id, directory_id(directory)), self._timeout)

    def take_back(self, node_id: int, directory: str) -> None:
        """Remove a controller that could not be added, in case it has become a voter; log if that fails."""
        try:
            self._remove(ReplicaKey(node_id, directory_id(directory)), min(self._timeout, _TAKE_BACK_SECONDS))
        except KafkaError as error:
            log.warning(
                "controller %d could not be added, but may have become a voter, which does not run; "
                "remove it with Admin.remove_raft_voter: %s",
                node_id,
                error,
            )

    def _remove(self, key: ReplicaKey, timeout: float) -> None:
        def ask(seconds: float) -> None:
            request = RemoveRaftVoterRequest(cluster_id=None, voter_id=key.id, voter_directory_id=key.directory_id)
            answer = call(self._broker(), request, seconds)
            try:
                check_code(answer.error_code, answer.error_message, f"removing controller {key.id}")
            except VoterNotFound:
                if key.id in {voter.id for voter in self._voters(seconds)}:
                    raise

        until_done(ask, timeout)

    def _voters(self, timeout: float) -> set[ReplicaKey]:
        """Return the voters as the active controller knows them. Raise a `BrokerError`, or `ClientError`."""
        partition = DescribeQuorumRequestPartitionData(partition_index=0)
        topic = DescribeQuorumRequestTopicData(topic_name=TOPIC, partitions=[partition])
        answer = call(self._broker(), DescribeQuorumRequest(topics=[topic]), timeout)
        check_code(answer.error_code, answer.error_message, "describing the controllers")
        described = answer.topics[0].partitions[0]
        check_code(described.error_code, described.error_message, "describing the controllers")
        return {ReplicaKey(each.replica_id, each.replica_directory_id) for each in described.current_voters}
