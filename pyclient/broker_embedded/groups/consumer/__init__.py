"""Consumer groups (KIP-848): the coordinator assigns, members reconcile step by step. Pure state, no I/O."""
