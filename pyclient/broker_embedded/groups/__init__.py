"""The group coordinator: consumer groups and their committed offsets, stored in `__consumer_offsets`.

`coordinator.GroupCoordinator` serves the handlers. `registry.GroupRegistry` loads and writes the groups,
`classic.step` is the classic protocol, `consumer_groups.ConsumerGroups` runs the consumer protocol (KIP-848,
`consumer/`), and `offset_metadata_manager.OffsetMetadataManager` manages the committed offsets.
"""
