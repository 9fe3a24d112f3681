"""Every error a user can meet: one class for each of Kafka's error codes, and the client's own beside them.

KafkaError
|-- BrokerError            an error code a broker answered with; `code` and `retriable` are Kafka's
|   |-- NotLeaderOrFollower, CorruptMessage, ...
|   `-- UnknownErrorCode   a code newer than this library
`-- ClientError            found out on this side
    |-- ConfigError, ClosedError, ForkError, SerializationError
    |-- ConnectionFailed (also a ConnectionError), KafkaTimeout (also a TimeoutError)
    |-- BufferExhausted (a KafkaTimeout, also a BufferError), DeliveryTimeout (a KafkaTimeout), DeliveryFailed
    |-- NotAssigned (also a ValueError), CommitFailed, NoOffsetForPartition,
    |   LogTruncation, PollIntervalExceeded, ConcurrentUse, Wakeup
    |-- PoisonRecord: DeserializationError (also a SerializationError), CorruptBatch (also a CorruptRecord)
    `-- ProtocolError: TruncatedMessage, MalformedMessage, FieldNotInVersion, CorruptRecord
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Final


class KafkaError(Exception):
    """The root of all errors raised by this library.

    `code` is Kafka's error code (0 for errors that no broker sent); `retriable` says whether the same call may
    succeed later. `maybe_persisted` tells the outcome of a failed send: False if the record is certainly not in the
    log, True if nobody knows (its request was sent, and the answer was lost or late).
    """

    code: int = 0
    retriable: ClassVar[bool] = False
    maybe_persisted: bool = False


class BrokerError(KafkaError):
    """A broker answered with an error code.

    Where one call was about several things (an admin client's topics), `results` has what became of each: its own
    error, or None where it succeeded.
    """

    code: int = -1
    results: Mapping[str, BrokerError | None] = MappingProxyType({})


class UnknownErrorCode(BrokerError):
    """A broker answered with a code this library does not know; `code` of the instance is that code."""


class ClientError(KafkaError):
    """An error found out on this side of the connection."""


class ConfigError(ClientError, ValueError):
    """An option is unknown, impossible, or in conflict with another."""


class ClosedError(ClientError, RuntimeError):
    """The client was closed before the call."""


class ForkError(ClientError, RuntimeError):
    """The client was made in another process: after `fork()` a child makes its own."""


class SerializationError(ClientError, ValueError):
    """A key or value could not be turned into bytes, or bytes into a value."""


class ConnectionFailed(ClientError, ConnectionError):
    """A connection could not be made, or ended before the answer came."""

    retriable = True


class KafkaTimeout(ClientError, TimeoutError):
    """What was asked for did not happen in time."""

    retriable = True


class BufferExhausted(KafkaTimeout, BufferError):
    """The producer's `buffer_memory` stayed full for `max_block_ms`."""


class DeliveryTimeout(KafkaTimeout):
    """A record was not confirmed within `delivery_timeout_ms`."""


class DeliveryFailed(ClientError):
    """Records accepted by `send` failed, and nobody looked at their futures.

    `count` is how many since the last `flush`; `first_error` is the first one's error.
    """

    def __init__(self, count: int, first_error: BaseException) -> None:
        super().__init__(count, first_error)
        self.count = count
        self.first_error = first_error

    def __str__(self) -> str:
        noun = "record was" if self.count == 1 else "records were"
        return f"{self.count} {noun} not delivered; the first error: {self.first_error!r}"


class ProtocolError(ClientError):
    """Bytes from the network or the disk make no sense."""


class TruncatedMessage(ProtocolError):
    """A message ends before its last field."""


class MalformedMessage(ProtocolError):
    """A message has a length, a count or a value that cannot be, or bytes behind its last field."""


class FieldNotInVersion(ProtocolError, ValueError):
    """A field was set that the message's version cannot carry."""


class CorruptRecord(ProtocolError):
    """A record batch has a wrong CRC, length or content."""


class NotAssigned(ClientError, ValueError):
    """The call needs a partition that is assigned to this consumer, or any subscription at all."""


class CommitFailed(ClientError):
    """Offsets were not committed, because the member does not own the partitions any more.

    Records since the last commit will be read again, by their new owner. The next `poll` joins the group again.
    """


class NoOffsetForPartition(ClientError):
    """A partition has no committed offset, and `auto_offset_reset` is "none": seek, or set a policy."""


class LogTruncation(ClientError):
    """The log was truncated below the consumer's position (KIP-320), and `auto_offset_reset` is "none": seek."""


class PollIntervalExceeded(ClientError):
    """More than `max_poll_interval_ms` passed between two polls, so the member left its group and lost its partitions.

    The next `poll` joins again. Poll more often, ask for fewer records a poll, or raise `max_poll_interval_ms`.
    """

    retriable = True


class ConcurrentUse(ClientError, RuntimeError):
    """A consumer was used by two threads, or two tasks, at once; only `wakeup` may be called from another one."""


class Wakeup(ClientError):
    """Another thread called `wakeup()`; the call that waited was given up, the consumer is as it was before."""


class PoisonRecord(ClientError):
    """A fetched record, or a whole batch, cannot be read; `__cause__` says why.

    It stands at `topic`, `partition`, `offset`; `consumer.seek((topic, partition), offset=error.next_offset)` skips it.
    """

    def __init__(self, message: str, topic: str, partition: int, offset: int, next_offset: int) -> None:
        super().__init__(message, topic, partition, offset, next_offset)
        self.message = message
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset

    def __str__(self) -> str:
        return self.message


class DeserializationError(PoisonRecord, SerializationError):
    """A deserializer failed on a record's key or value."""


class CorruptBatch(PoisonRecord, CorruptRecord):
    """A fetched batch has a wrong CRC, length or content."""


class UnknownServerError(BrokerError):
    """The broker failed in a way that has no code of its own; its log says more."""

    code = -1


class OffsetOutOfRange(BrokerError):
    """The offset asked for is outside the partition's log."""

    code = 1


class CorruptMessage(BrokerError):
    """A batch's CRC or length is wrong."""

    code = 2
    retriable = True


class UnknownTopicOrPartition(BrokerError):
    """This broker does not host that topic or partition, or it does not exist."""

    code = 3
    retriable = True


class InvalidFetchSize(BrokerError):
    """The fetch size is impossible."""

    code = 4


class LeaderNotAvailable(BrokerError):
    """The partition has no leader at the moment."""

    code = 5
    retriable = True


class NotLeaderOrFollower(BrokerError):
    """The broker asked is not the leader (or, for a read, not a follower) of the partition."""

    code = 6
    retriable = True


class RequestTimedOut(BrokerError):
    """The broker could not finish within the request's timeout; the outcome may still come."""

    code = 7
    retriable = True


class BrokerNotAvailable(BrokerError):
    """The broker is not available."""

    code = 8


class ReplicaNotAvailable(BrokerError):
    """A replica the request needs is not available."""

    code = 9
    retriable = True


class MessageTooLarge(BrokerError):
    """The batch is larger than the topic's max.message.bytes."""

    code = 10


class StaleControllerEpoch(BrokerError):
    """The controller has moved on to a newer epoch."""

    code = 11


class OffsetMetadataTooLarge(BrokerError):
    """The metadata string committed with an offset is larger than the broker allows."""

    code = 12


class NetworkError(BrokerError):
    """The broker closed the connection before it answered."""

    code = 13
    retriable = True


class CoordinatorLoadInProgress(BrokerError):
    """The coordinator is still reading its state."""

    code = 14
    retriable = True


class CoordinatorNotAvailable(BrokerError):
    """No coordinator is available at the moment."""

    code = 15
    retriable = True


class NotCoordinator(BrokerError):
    """The broker asked is not the coordinator any more."""

    code = 16
    retriable = True


class InvalidTopic(BrokerError):
    """The topic name is not allowed, or the topic is internal."""

    code = 17


class RecordListTooLarge(BrokerError):
    """The batch is larger than the topic's segment.bytes."""

    code = 18


class NotEnoughReplicas(BrokerError):
    """Fewer replicas are in sync than min.insync.replicas asks for; nothing was written."""

    code = 19
    retriable = True


class NotEnoughReplicasAfterAppend(BrokerError):
    """The batch was written, but too few replicas were in sync afterwards."""

    code = 20
    retriable = True


class InvalidRequiredAcks(BrokerError):
    """acks must be 0, 1 or all."""

    code = 21


class IllegalGeneration(BrokerError):
    """The group has moved on to another generation."""

    code = 22


class InconsistentGroupProtocol(BrokerError):
    """No assignment protocol is supported by every member of the group."""

    code = 23


class InvalidGroupId(BrokerError):
    """The group id is not allowed."""

    code = 24


class UnknownMemberId(BrokerError):
    """The coordinator does not know this member."""

    code = 25


class InvalidSessionTimeout(BrokerError):
    """The session timeout is outside the range the broker allows."""

    code = 26


class RebalanceInProgress(BrokerError):
    """The group is rebalancing; the member has to join again."""

    code = 27


class InvalidCommitOffsetSize(BrokerError):
    """The offset commit is too large."""

    code = 28


class TopicAuthorizationFailed(BrokerError):
    """Not allowed to use this topic."""

    code = 29


class GroupAuthorizationFailed(BrokerError):
    """Not allowed to use this group."""

    code = 30


class ClusterAuthorizationFailed(BrokerError):
    """Not allowed to do this on the cluster."""

    code = 31


class InvalidTimestamp(BrokerError):
    """A record's timestamp is outside the range the topic allows."""

    code = 32


class UnsupportedSaslMechanism(BrokerError):
    """The broker does not offer this SASL mechanism."""

    code = 33


class IllegalSaslState(BrokerError):
    """The SASL exchange is in another state."""

    code = 34


class UnsupportedVersion(BrokerError):
    """The broker does not serve this version of the API."""

    code = 35


class TopicAlreadyExists(BrokerError):
    """A topic of that name exists."""

    code = 36


class InvalidPartitions(BrokerError):
    """The number of partitions is impossible."""

    code = 37


class InvalidReplicationFactor(BrokerError):
    """The replication factor is impossible with the brokers there are."""

    code = 38


class InvalidReplicaAssignment(BrokerError):
    """The replica assignment is impossible."""

    code = 39


class InvalidConfig(BrokerError):
    """A configuration value is not allowed."""

    code = 40


class NotController(BrokerError):
    """The broker asked is not the controller."""

    code = 41
    retriable = True


class InvalidRequest(BrokerError):
    """The request does not make sense, or a client and a broker disagree about its format."""

    code = 42


class UnsupportedForMessageFormat(BrokerError):
    """The log's message format does not support the request."""

    code = 43


class PolicyViolation(BrokerError):
    """The request breaks a policy of the cluster."""

    code = 44


class OutOfOrderSequenceNumber(BrokerError):
    """A producer's sequence number does not follow the last one."""

    code = 45


class DuplicateSequenceNumber(BrokerError):
    """The sequence number was written before."""

    code = 46


class InvalidProducerEpoch(BrokerError):
    """A newer producer with the same id has taken over."""

    code = 47


class InvalidTxnState(BrokerError):
    """The transaction is in a state that does not allow this."""

    code = 48


class InvalidProducerIdMapping(BrokerError):
    """The producer id does not belong to this transactional id."""

    code = 49


class InvalidTransactionTimeout(BrokerError):
    """The transaction timeout is larger than the broker allows."""

    code = 50


class ConcurrentTransactions(BrokerError):
    """Another operation on the transaction is still going on."""

    code = 51
    retriable = True


class TransactionCoordinatorFenced(BrokerError):
    """A newer transaction coordinator has taken over."""

    code = 52


class TransactionalIdAuthorizationFailed(BrokerError):
    """Not allowed to use this transactional id."""

    code = 53


class SecurityDisabled(BrokerError):
    """Security features are off on the broker."""

    code = 54


class OperationNotAttempted(BrokerError):
    """The broker did not attempt the operation."""

    code = 55


class KafkaStorageError(BrokerError):
    """The broker's disk failed."""

    code = 56
    retriable = True


class LogDirNotFound(BrokerError):
    """The log directory is not one of the broker's."""

    code = 57


class SaslAuthenticationFailed(BrokerError):
    """SASL authentication failed."""

    code = 58


class UnknownProducerId(BrokerError):
    """The broker has no state for this producer id."""

    code = 59


class ReassignmentInProgress(BrokerError):
    """The partition is being moved."""

    code = 60


class DelegationTokenAuthDisabled(BrokerError):
    """Delegation tokens are not enabled."""

    code = 61


class DelegationTokenNotFound(BrokerError):
    """There is no such delegation token."""

    code = 62


class DelegationTokenOwnerMismatch(BrokerError):
    """The principal may not use this delegation token."""

    code = 63


class DelegationTokenRequestNotAllowed(BrokerError):
    """Delegation tokens cannot be managed over this connection."""

    code = 64


class DelegationTokenAuthorizationFailed(BrokerError):
    """Not allowed to use this delegation token."""

    code = 65


class DelegationTokenExpired(BrokerError):
    """The delegation token has expired."""

    code = 66


class InvalidPrincipalType(BrokerError):
    """The principal type is not supported."""

    code = 67


class NonEmptyGroup(BrokerError):
    """The group still has members."""

    code = 68


class GroupIdNotFound(BrokerError):
    """There is no such group."""

    code = 69


class FetchSessionIdNotFound(BrokerError):
    """The broker does not know this fetch session."""

    code = 70
    retriable = True


class InvalidFetchSessionEpoch(BrokerError):
    """The fetch session has another epoch."""

    code = 71
    retriable = True


class ListenerNotFound(BrokerError):
    """No listener of that name has an address on the leader."""

    code = 72
    retriable = True


class TopicDeletionDisabled(BrokerError):
    """Topics cannot be deleted on this cluster."""

    code = 73


class FencedLeaderEpoch(BrokerError):
    """The request's leader epoch is older than the broker's."""

    code = 74
    retriable = True


class UnknownLeaderEpoch(BrokerError):
    """The request's leader epoch is newer than the broker's."""

    code = 75
    retriable = True


class UnsupportedCompressionType(BrokerError):
    """The broker does not support this compression."""

    code = 76


class StaleBrokerEpoch(BrokerError):
    """The broker has registered again since."""

    code = 77


class OffsetNotAvailable(BrokerError):
    """The offset is not settled yet after a change of leader."""

    code = 78
    retriable = True


class MemberIdRequired(BrokerError):
    """The member has to join again with the id it was given."""

    code = 79


class PreferredLeaderNotAvailable(BrokerError):
    """The preferred leader is not available."""

    code = 80
    retriable = True


class GroupMaxSizeReached(BrokerError):
    """The group has as many members as it may have."""

    code = 81


class FencedInstanceId(BrokerError):
    """Another member uses the same group.instance.id now."""

    code = 82


class EligibleLeadersNotAvailable(BrokerError):
    """No replica that may lead is available."""

    code = 83
    retriable = True


class ElectionNotNeeded(BrokerError):
    """The partition has the right leader already."""

    code = 84
    retriable = True


class NoReassignmentInProgress(BrokerError):
    """No reassignment of this partition is going on."""

    code = 85


class GroupSubscribedToTopic(BrokerError):
    """The group is subscribed to the topic."""

    code = 86


class InvalidRecord(BrokerError):
    """The record breaks a rule of the broker."""

    code = 87


class UnstableOffsetCommit(BrokerError):
    """An offset has a transaction that is not decided yet."""

    code = 88
    retriable = True


class ThrottlingQuotaExceeded(BrokerError):
    """The request went over a quota and has to wait."""

    code = 89
    retriable = True


class ProducerFenced(BrokerError):
    """A newer producer with the same transactional id has taken over."""

    code = 90


class ResourceNotFound(BrokerError):
    """There is no such resource."""

    code = 91


class DuplicateResource(BrokerError):
    """The same resource is named twice."""

    code = 92


class UnacceptableCredential(BrokerError):
    """The credential is not acceptable."""

    code = 93


class InconsistentVoterSet(BrokerError):
    """The voter sets differ."""

    code = 94


class InvalidUpdateVersion(BrokerError):
    """The partition's state was changed meanwhile."""

    code = 95


class FeatureUpdateFailed(BrokerError):
    """The feature's level cannot be changed."""

    code = 96


class PrincipalDeserializationFailure(BrokerError):
    """The principal could not be read from a forwarded request."""

    code = 97


class SnapshotNotFound(BrokerError):
    """The snapshot is not there."""

    code = 98


class PositionOutOfRange(BrokerError):
    """The position is outside the snapshot."""

    code = 99


class UnknownTopicId(BrokerError):
    """The cluster does not know this topic id."""

    code = 100
    retriable = True


class DuplicateBrokerRegistration(BrokerError):
    """A broker with that id is registered already."""

    code = 101


class BrokerIdNotRegistered(BrokerError):
    """The broker id is not registered."""

    code = 102


class InconsistentTopicId(BrokerError):
    """The topic id does not match the log's."""

    code = 103
    retriable = True


class InconsistentClusterId(BrokerError):
    """The cluster id does not match."""

    code = 104


class TransactionalIdNotFound(BrokerError):
    """The coordinator does not know this transactional id."""

    code = 105


class FetchSessionTopicIdError(BrokerError):
    """The topic ids do not match the fetch session."""

    code = 106
    retriable = True


class IneligibleReplica(BrokerError):
    """The replica may not enter the set of in-sync replicas."""

    code = 107


class NewLeaderElected(BrokerError):
    """The change was made and moved the leader."""

    code = 108


class OffsetMovedToTieredStorage(BrokerError):
    """The offset is in tiered storage."""

    code = 109


class FencedMemberEpoch(BrokerError):
    """The coordinator has fenced the member's epoch."""

    code = 110


class UnreleasedInstanceId(BrokerError):
    """The group.instance.id is still in use by another member."""

    code = 111


class UnsupportedAssignor(BrokerError):
    """The group does not offer this assignor."""

    code = 112


class StaleMemberEpoch(BrokerError):
    """The member's epoch is behind; try again with the new one."""

    code = 113
    retriable = True


class MismatchedEndpointType(BrokerError):
    """The request came in on the wrong kind of listener."""

    code = 114


class UnsupportedEndpointType(BrokerError):
    """The broker does not know this kind of endpoint."""

    code = 115


class UnknownControllerId(BrokerError):
    """The controller id is unknown."""

    code = 116


class UnknownSubscriptionId(BrokerError):
    """The telemetry subscription id is unknown."""

    code = 117


class TelemetryTooLarge(BrokerError):
    """The telemetry payload is too large."""

    code = 118


class InvalidRegistration(BrokerError):
    """The registration is not acceptable."""

    code = 119


class TransactionAbortable(BrokerError):
    """The transaction cannot go on and has to be aborted."""

    code = 120


class InvalidRecordState(BrokerError):
    """The record's share state does not allow this."""

    code = 121


class ShareSessionNotFound(BrokerError):
    """There is no such share session."""

    code = 122
    retriable = True


class InvalidShareSessionEpoch(BrokerError):
    """The share session has another epoch."""

    code = 123
    retriable = True


class FencedStateEpoch(BrokerError):
    """The share coordinator has fenced the state's epoch."""

    code = 124


class InvalidVoterKey(BrokerError):
    """The voter's key does not match."""

    code = 125


class DuplicateVoter(BrokerError):
    """The voter is in the set already."""

    code = 126


class VoterNotFound(BrokerError):
    """The voter is not in the set."""

    code = 127


class InvalidRegularExpression(BrokerError):
    """The regular expression is not valid."""

    code = 128


class RebootstrapRequired(BrokerError):
    """The client has to bootstrap again."""

    code = 129


class StreamsInvalidTopology(BrokerError):
    """The streams topology is not valid."""

    code = 130


class StreamsInvalidTopologyEpoch(BrokerError):
    """The streams topology's epoch is not valid."""

    code = 131


class StreamsTopologyFenced(BrokerError):
    """The streams topology is fenced."""

    code = 132


class ShareSessionLimitReached(BrokerError):
    """The broker has as many share sessions as it may have."""

    code = 133
    retriable = True


_BY_CODE: Final[dict[int, type[BrokerError]]] = {
    cls.code: cls for cls in BrokerError.__subclasses__() if cls is not UnknownErrorCode
}


def for_code(code: int) -> type[BrokerError]:
    """The class of one of Kafka's error codes; `UnknownErrorCode` for one this library does not know."""
    return _BY_CODE.get(code, UnknownErrorCode)


def from_code(code: int, message: str) -> BrokerError:
    """An error of the code's class; its text starts with what was tried."""
    cls = for_code(code)
    if cls is UnknownErrorCode:
        error = cls(f"{message}: unknown error code {code}")
        error.code = code
        return error
    return cls(message)
