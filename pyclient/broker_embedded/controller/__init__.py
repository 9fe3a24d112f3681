"""The controller of a single-broker cluster: `Controller`, the metadata log and its `MetadataImage`."""
