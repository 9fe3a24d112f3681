"""Codes about topics, their partitions and leaders, and configurations."""

from __future__ import annotations

from pyclient.errors.base import BrokerError

__all__ = [
    "DuplicateResource",
    "ElectionNotNeeded",
    "EligibleLeadersNotAvailable",
    "FencedLeaderEpoch",
    "InconsistentTopicId",
    "IneligibleReplica",
    "InvalidConfig",
    "InvalidPartitions",
    "InvalidReplicaAssignment",
    "InvalidReplicationFactor",
    "InvalidTopic",
    "InvalidUpdateVersion",
    "LeaderNotAvailable",
    "NewLeaderElected",
    "NoReassignmentInProgress",
    "NotLeaderOrFollower",
    "PolicyViolation",
    "PreferredLeaderNotAvailable",
    "ReassignmentInProgress",
    "ReplicaNotAvailable",
    "ResourceNotFound",
    "TopicAlreadyExists",
    "TopicDeletionDisabled",
    "UnknownLeaderEpoch",
    "UnknownTopicId",
    "UnknownTopicOrPartition",
]


class UnknownTopicOrPartition(BrokerError):
    """This broker does not host that topic or partition, or it does not exist."""

    code = 3
    retriable = True


class LeaderNotAvailable(BrokerError):
    """The partition has no leader at the moment."""

    code = 5
    retriable = True


class NotLeaderOrFollower(BrokerError):
    """The broker asked is not the leader (or, for a read, not a follower) of the partition."""

    code = 6
    retriable = True


class ReplicaNotAvailable(BrokerError):
    """A replica the request needs is not available."""

    code = 9
    retriable = True


class InvalidTopic(BrokerError):
    """The topic name is not allowed, or the topic is internal."""

    code = 17


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


class PolicyViolation(BrokerError):
    """The request breaks a policy of the cluster."""

    code = 44


class ReassignmentInProgress(BrokerError):
    """The partition is being moved."""

    code = 60


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


class PreferredLeaderNotAvailable(BrokerError):
    """The preferred leader is not available."""

    code = 80
    retriable = True


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


class ResourceNotFound(BrokerError):
    """There is no such resource."""

    code = 91


class DuplicateResource(BrokerError):
    """The same resource is named twice."""

    code = 92


class InvalidUpdateVersion(BrokerError):
    """The partition's state was changed meanwhile."""

    code = 95


class UnknownTopicId(BrokerError):
    """The cluster does not know this topic id."""

    code = 100
    retriable = True


class InconsistentTopicId(BrokerError):
    """The topic id does not match the log's."""

    code = 103
    retriable = True


class IneligibleReplica(BrokerError):
    """The replica may not enter the set of in-sync replicas."""

    code = 107


class NewLeaderElected(BrokerError):
    """The change was made and moved the leader."""

    code = 108
