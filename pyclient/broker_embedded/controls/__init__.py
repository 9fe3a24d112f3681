"""The controls of a running node for tests: in this process, over a Unix socket, or by HTTP."""
