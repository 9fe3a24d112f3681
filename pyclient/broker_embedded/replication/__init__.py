"""The partitions of a node, their replication, and the answers that wait for their logs.

`Partitions` finds the log of a partition and checks the leader epoch. `FetchPurgatory` holds fetches until there is
enough to return, `FetchSessions` the partitions of clients between their fetches. `durability.py` holds answers until
what they need is on the disk (`Durable`, declared where a handler is declared), `unopened_logs.py` holds requests until
the logs of their partitions are open.

On a node with other nodes, `ReplicaManager` leads and follows the partitions with several replicas as the metadata say:
`HostedPartitions` decides, and `Partition` about in-sync replicas and the high watermark; `AlterPartitionManager`
proposes changes of the in-sync replicas to the controller. A `ReplicaFetcher` for each leading node copies its
partitions: `FetcherState` decides when and what to fetch, `following.py` what to do with an answer.

What decides does no I/O: `receive(event, now)` returns effects, which another class carries out in their order. The
same holds for the decisions about fetches that wait (`DelayedFetch`, for `FetchPurgatory`) and about answers to
acks=all (`DelayedProduce`).
"""
