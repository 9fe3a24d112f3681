"""Brokers as a test or a program sees them.

`EmbeddedCluster` starts brokers and stops them; each `Broker` runs in a thread (`ThreadRunner`) or in a process of its
own (`ProcessRunner`), around a `NodeHost` with its event loop. `Faults` and `Requests` are the injected faults and the
log of requests. `foreground.py` is `pyclient broker`.
"""
