"""The cluster's metadata: what it is, how it changes, and where it is kept.

`Controller` checks changes of topics and partitions and appends them to the `MetadataLog`, from which a start replays
them into the `MetadataImage` that everybody reads; a `MetadataDelta` is what some records changed.
`config_changes.py`, `client_quotas.py`, `scram.py` and `features.py` do the same for options, quotas, users and feature
levels. `metadata_recovery.py` reads the log after a crash. raft/ is the core of the quorum.
"""
