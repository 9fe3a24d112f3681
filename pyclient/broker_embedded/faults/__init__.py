"""Fault injection for tests (`FaultSpec`, `Interceptor`), the log of requests, and answers with error codes."""
