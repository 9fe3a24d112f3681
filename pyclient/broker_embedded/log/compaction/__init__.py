"""Log compaction (KIP-534): of each key the last value stays, in place, under the offset that it always had."""
