"""Kafka's protocol: declarations of every message, and the codec that turns them into bytes and back."""
