"""The metadata of a client's cluster, its connections and its requests.

`ClusterClient` sends requests to nodes, to the leader of a partition or to a coordinator, and retries what may be
retried. `MetadataUpdater` keeps the `ClusterMetadata` fresh, `ConnectionPool` the `NodeConnection`s, `Coordinators`
the nodes that coordinate groups and transactions.
"""
