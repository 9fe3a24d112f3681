"""Every message of the protocol: one module per API, and one per kind of log record."""
