"""Kafka's protocol: declarations of every message (messages/), and the codec that encodes and decodes them.

A class with `@api` or `@message` (fields.py) declares a message in all versions. `codec.py` compiles the `Layout` of
a version into flat functions on first use (`encoding.py`, `decoding.py`). `framing.py` adds the headers, and
`versions.py` has the table of APIs and negotiates versions.
"""
