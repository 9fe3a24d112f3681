"""Controls of a running node for tests and operators, outside of Kafka's protocol.

`Controls` is the table of endpoints (faults, requests, time, contents, verification). They are called through a
`Channel`: in this process (`ThreadChannel`), over a Unix socket from the process that started the node
(`SocketChannel`), or by HTTP (`ControlServer`).
"""
