"""The partitions' logs on the disk, in Kafka's file format.

`LogManager` opens, moves and deletes the logs of a node's `DataDirectories`. A `UnifiedLog` is one partition: appends,
reads, truncation and retention; it is built from a `LocalLog` (its `LogSegments`), a `ProducerStateManager` (idempotent
producers) and a `LeaderEpochFileCache`. `LogLoader` recovers a log after a crash, `log_validator.py` checks what
producers send, `log_reader.py` finds offsets and timestamps, compaction/ rewrites segments (`LogCleaner`).

Long work is an `IncrementalTask` (short steps on the loop), blocking calls run on the one `DiskThread`; all files are
reached through the `FileSystem` interface.
"""
