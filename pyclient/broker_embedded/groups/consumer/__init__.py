"""Consumer groups of KIP-848: the coordinator assigns, members follow step by step. Pure state, without I/O."""
