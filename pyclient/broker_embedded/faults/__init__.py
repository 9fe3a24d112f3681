"""Fault injection for tests, the log of requests, and answers that carry an error.

A `FaultSpec` selects requests and says what happens to them; the `Interceptor` applies those that match, `RequestLog`
remembers what came. `shapes.py` knows where each API's answer carries its errors, from which `error_answers.py` and the
faults build one.
"""
