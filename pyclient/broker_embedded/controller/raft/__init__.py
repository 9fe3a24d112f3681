"""The Raft core of the metadata quorum: pure state machines, without I/O, clock or threads.

`RaftReplica` (raft.py) takes requests, responses and time, and returns effects. Its parts: `Elections` (votes and
epochs), `Leading` (appends, fetches, the high watermark), `Following` (fetches, truncation, snapshots) and
`VoterChanges` (voters added and removed, KIP-853), on a shared `QuorumState` whose `role` is one of the classes in
roles.py. `ReplicaLog` is the core's view of the log, `VoterSet` and `VoterSetHistory` are the voters, `ElectionState`
survives a restart. The caller does the I/O: it carries out the effects of messages.py in their order. `Quorum` is
that caller; a node that is alone needs no election, and does without it.
"""
