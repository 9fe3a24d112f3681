"""The listening socket, its connections, and the limits on what clients may use.

`Listener` accepts, `BrokerConnection` reads requests and writes answers in order. `ConnectionQuotas` limits
connections, `UnauthenticatedClients` those of an address before authentication, `FileDescriptors` keeps descriptors in
reserve, `ByteQuotas` and `MutationQuotas` delay clients above a quota. `NodeChannels` are the connections from this
node to others of its cluster. `AnswerCache` keeps encoded Metadata answers; `ProduceTemplates` serves requests with one
batch faster.
"""
