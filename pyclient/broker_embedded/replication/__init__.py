"""The partitions that a node leads, and the answers that wait for their logs.

`Partitions` finds the log of a partition and checks the leader epoch. `FetchPurgatory` holds fetches until there is
enough to return, `FetchSessions` the partitions of clients between their fetches. `durability.py` holds answers until
what they need is on the disk (`Durable`, declared where a handler is declared), `log_openings.py` holds requests until
the logs of their partitions are open.
"""
