"""Bytes between two ends: here asyncio begins.

A `Connection` pipelines requests over a `Stream` (`FrameStream` for TCP, `TlsStream`, `MemoryStream` for tests) and
completes them in order. `TcpConnector` makes streams. `LoopThread` runs a client's coroutines in a thread of its own;
`Latch` and `Flag` are waits that Ctrl-C can interrupt.
"""
