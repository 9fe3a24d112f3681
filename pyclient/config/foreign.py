"""Options of other clients that pyclient has under another name, or not at all, with advice."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_KILOBYTES: Final = "in bytes (1 KB is 1,024 of them)"
_NEGOTIATED: Final = "versions are agreed upon with each broker"
_LOGGING: Final = "Python's logging decides: the loggers are pyclient and what is below it"
_ERRORS: Final = "calls raise their errors, and client.health() reports the last ones"
_NUMBERS: Final = "ask client.metrics() whenever you like"
_CALLBACK: Final = "give it to the call: producer.send(..., on_delivery=...), or look at the future that send returns"
_NOT_NEEDED: Final = "there is nothing here that it would change"
_LISTENER: Final = "give it to the call: consumer.subscribe(topics, listener=RebalanceListener())"
_BY_RETRY: Final = "a failed fetch waits retry_backoff_ms, growing to retry_backoff_max_ms"

_COMMON: Final = {
    "api_version": _NEGOTIATED,
    "api_version_auto_timeout_ms": _NEGOTIATED,
    "api_version_fallback_ms": _NEGOTIATED,
    "api_version_request": _NEGOTIATED,
    "api_version_request_timeout_ms": "use socket_connection_setup_timeout_ms: to agree on versions is part of it",
    "broker_address_family": "every address a name resolves to is tried",
    "broker_version_fallback": _NEGOTIATED,
    "debug": _LOGGING,
    "default_topic_config": "give its options themselves",
    "error_cb": _ERRORS,
    "kafka_client": "a client makes its own connections",
    "log_cb": _LOGGING,
    "log_connection_close": _LOGGING,
    "log_level": _LOGGING,
    "logger": _LOGGING,
    "loop": "an asyncio client runs on the loop that it is first used on",
    "message_copy_max_bytes": _NOT_NEEDED,
    "reconnect_backoff_jitter_ms": "waiting times are spread by 20 % in any case",
    "selector": _NOT_NEEDED,
    "sock_chunk_buffer_count": _NOT_NEEDED,
    "sock_chunk_bytes": _NOT_NEEDED,
    "socket_blocking_max_ms": _NOT_NEEDED,
    "socket_keepalive_enable": "it is always on",
    "socket_max_fails": "a connection is closed when one request has waited for request_timeout_ms",
    "socket_nagle_disable": "Nagle's algorithm is always off",
    "socket_options": "use send_buffer_bytes and receive_buffer_bytes",
    "socket_receive_buffer_bytes": "use receive_buffer_bytes; the system's own is -1, not 0",
    "socket_send_buffer_bytes": "use send_buffer_bytes; the system's own is -1, not 0",
    "socket_timeout_ms": "use request_timeout_ms",
    "statistics_interval_ms": _NUMBERS,
    "stats_cb": _NUMBERS,
    "throttle_cb": "throttle times are applied, and not reported",
    "topic_blacklist": _NOT_NEEDED,
    "topic_metadata_propagation_max_ms": _NOT_NEEDED,
    "topic_metadata_refresh_fast_interval_ms": "missing metadata are asked for again after retry_backoff_ms",
    "topic_metadata_refresh_sparse": "only the topics in use are asked for",
}

OPTIONS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "producer": {
            **_COMMON,
            "allow_auto_create_topics": "only consumers have a say; what is sent to is created if the broker does that",
            "batch_num_messages": "batches are bounded by batch_size, in bytes, and by linger_ms",
            "compression_level": "use compression_gzip_level, compression_lz4_level or compression_zstd_level",
            "delivery_report_only_error": _CALLBACK,
            "dr_cb": _CALLBACK,
            "dr_msg_cb": _CALLBACK,
            "enable_gapless_guarantee": "a failed record leaves a gap, and its future, flush() and close() report it",
            "max_batch_size": "use batch_size",
            "on_delivery": _CALLBACK,
            "queue_buffering_backpressure_threshold": "batch_size and linger_ms decide",
            "queue_buffering_max_kbytes": f"use buffer_memory, {_KILOBYTES}",
            "queuing_strategy": _NOT_NEEDED,
            "sticky_partitioning_linger_ms": "a partition without keys changes after batch_size bytes (KIP-794)",
        },
        "consumer": {
            **_COMMON,
            "auto_commit_enable": "use enable_auto_commit",
            "consume_callback_max_messages": "use max_poll_records",
            "consumer_timeout_ms": "poll(timeout=...) says how long to wait, in seconds; a for loop waits for ever",
            "coordinator_query_interval_ms": _NOT_NEEDED,
            "default_offset_commit_callback": "give it to the call: consumer.commit_async(callback)",
            "enable_auto_offset_store": "auto-commit commits what earlier polls returned; for less, set "
            "enable_auto_commit=False and call commit(offsets)",
            "enable_partition_eof": "consumer.lag() returns 0 where a partition's end is reached",
            "fetch_error_backoff_ms": _BY_RETRY,
            "fetch_queue_backoff_ms": "fetching goes on as soon as there is room below fetch_max_bytes",
            "group_protocol_type": "it is always 'consumer'",
            "max_in_flight_requests_per_connection": "only producers keep several requests in flight",
            "metrics_enabled": _NUMBERS,
            "offset_commit_cb": "give it to the call: consumer.commit_async(callback)",
            "offset_store_method": "offsets are stored at the broker, by commit() and auto-commit",
            "on_assign": _LISTENER,
            "on_commit": "give it to the call: consumer.commit_async(callback)",
            "on_lost": _LISTENER,
            "on_revoke": _LISTENER,
            "queued_max_messages_kbytes": f"use fetch_max_bytes, {_KILOBYTES}",
            "queued_min_messages": "what is fetched ahead is bounded by fetch_max_bytes, in bytes",
            "rebalance_cb": _LISTENER,
            "rebalance_timeout_ms": "use max_poll_interval_ms, which is the time a rebalance waits for a member",
            "topic": "topics are positional: Consumer('orders', ...), or call subscribe()",
            "topics": "topics are positional: Consumer('orders', ...), or call subscribe()",
        },
        "admin": _COMMON,
    }
)
"""By client kind and option name with `_` for `.`: a text that says what to do instead."""

OWN: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "producer": frozenset(
            [
                "acks",
                "batch_size",
                "buffer_memory",
                "compression_codec",
                "compression_gzip_level",
                "compression_lz4_level",
                "compression_type",
                "compression_zstd_level",
                "delivery_timeout_ms",
                "enable_idempotence",
                "interceptors",
                "key_serializer",
                "linger_ms",
                "max_block_ms",
                "max_connections_per_broker",
                "max_in_flight",
                "max_in_flight_requests",
                "max_in_flight_requests_per_connection",
                "max_request_size",
                "message_max_bytes",
                "message_send_max_retries",
                "message_timeout_ms",
                "metadata_max_idle_ms",
                "partitioner",
                "partitioner_adaptive_partitioning_enable",
                "partitioner_availability_timeout_ms",
                "partitioner_class",
                "partitioner_ignore_keys",
                "queue_buffering_max_messages",
                "queue_buffering_max_ms",
                "request_required_acks",
                "retries",
                "transaction_timeout_ms",
                "transaction_two_phase_commit_enable",
                "transactional_id",
                "value_serializer",
            ]
        ),
        "consumer": frozenset(
            [
                "allow_auto_create_topics",
                "auto_commit_interval_ms",
                "auto_offset_reset",
                "check_crcs",
                "client_rack",
                "default_api_timeout_ms",
                "enable_auto_commit",
                "exclude_internal_topics",
                "fetch_max_bytes",
                "fetch_max_wait_ms",
                "fetch_message_max_bytes",
                "fetch_min_bytes",
                "fetch_wait_max_ms",
                "group_id",
                "group_instance_id",
                "group_protocol",
                "group_remote_assignor",
                "heartbeat_interval_ms",
                "isolation_level",
                "key_deserializer",
                "max_partition_fetch_bytes",
                "max_poll_interval_ms",
                "max_poll_records",
                "partition_assignment_strategies",
                "partition_assignment_strategy",
                "session_timeout_ms",
                "value_deserializer",
            ]
        ),
        "admin": frozenset(["default_api_timeout_ms"]),
    }
)
"""By client kind: the names, aliases included, of the options that not every client has."""
