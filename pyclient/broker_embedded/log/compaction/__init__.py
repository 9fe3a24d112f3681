"""Log compaction (KIP-534): of each key the last value stays, in place, under the offset that it always had.

`LogCleaner` chooses the log, `LogToClean` says what of it may be compacted, and a `Cleaner` does one round: it collects
keys in an `OffsetMap` and rewrites segments with what a `BatchFilter` keeps.
"""
