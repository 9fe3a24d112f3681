"""The messages of the protocol: one module per API, and one per internal topic or group of files."""
