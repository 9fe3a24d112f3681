"""What a test may do to a running node, and look at in it; in this process, over a Unix socket, or by HTTP."""
