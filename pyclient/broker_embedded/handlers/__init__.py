"""The APIs, one module each, named like the API.

The function `handle` of a module takes the decoded request and a `RequestContext` and returns the response; for a
request of many items it is a generator that pauses. The services of the node are in `context.services`. `@handles`
(dispatch.py) says which request and versions it serves, what has to be on the disk before the answer leaves, and
which logs have to be open before it runs.
"""
