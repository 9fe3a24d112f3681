"""The cluster's metadata: what it is, how it changes, and where it is kept.

`Controller` checks changes of topics and partitions and appends them to the `MetadataLog`, from which a start replays
them into the `MetadataImage` that all parts read; a `MetadataDelta` is what some records changed. In a cluster of
several nodes `cluster_control.py` decides about brokers (registration, heartbeats, fencing, shutdown) and
`replication_control.py` about partitions (ISRs, elections, reassignments); `partition_elections.py`, `reassignment.py`
and `placement.py` are their parts. `config_changes.py`, `client_quotas.py`, `scram.py` and `features.py` do the same
for options, quotas, users and feature levels. `metadata_recovery.py` reads the log after a crash. raft/ is the core of
the quorum, which `Quorum` drives in a node that has other voters: `quorum_files.py` opens its log, `quorum_messages.py`
converts its messages, `quorum_network.py` sends them, `quorum_requests.py` and `voter_requests.py` answer those of
others, `voter_records.py` has the voters in the log. `snapshots.py` writes the image to files that replace the log
before their end, `quorum_snapshots.py` exchanges these between nodes.
"""
