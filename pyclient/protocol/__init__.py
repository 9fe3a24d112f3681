"""Kafka's protocol: declarations of every message, and the codec that encodes and decodes them."""
