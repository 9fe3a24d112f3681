"""What every client knows of its cluster, and how it reaches it.

`ClusterClient` sends requests to nodes, to the leader of a partition or to a coordinator, and retries what may be
retried. `MetadataUpdater` keeps the `ClusterMetadata` fresh, `ConnectionPool` the `NodeConnection`s, `Coordinators`
where groups are coordinated.
"""
