"""Consumer groups (KIP-848): the coordinator assigns, members reconcile step by step. Pure state, no I/O.

`ConsumerGroup` is a group's state, built from its records. A `Plan` has the changes that one member's request causes:
`assignors.py` computes the target, `reconcile.py` moves the member towards it. `classic_members.py` is the online
migration.
"""
