"""The table of client options that pyclient does not have: what to do instead, and the values that are accepted.

A value is accepted, without effect, if it describes what pyclient does anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from pyclient.config.oidc import CLIENT_CREDENTIALS, JWT_BEARER
from pyclient.config.options import FOREIGN, REFUSED, STRING, Option, table_of

_YES: Final = ("true", "1", "yes")
_NO: Final = ("false", "0", "no")
_NOTHING: Final = ("", "none", "null")


_NOT_YET: Final = "two-phase commit (KIP-939) is not supported yet"
_BY_PROVIDER: Final = (
    "give sasl_oauth_token_provider, a function that returns a token, or sasl_oauthbearer_token_endpoint_url"
)
_NO_SASL: Final = "of SASL, PLAIN, SCRAM, OAUTHBEARER and GSSAPI are supported"
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_NO_KINIT: Final = (
    "no program is run: give sasl_kerberos_keytab, or have another program, such as k5start, fill the ticket cache"
)
_KINIT_OPTIONS: Final = '-t "%{sasl.kerberos.keytab}" -k %{sasl.kerberos.principal}'
_KERBEROS_RENEWS: Final = "Kerberos' own library replaces a ticket from a keytab when half of its time is over"
_KERBEROS_HOST: Final = (
    "the service is that of the host that the broker advertises; krb5.conf says how host names become principals"
)
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer."
_TLS_CONTEXT: Final = "set it in an ssl_context of your own"
_NO_METRICS_PLUGINS: Final = "pyclient has no metrics plug-ins; client.health() returns a client's state"
_BY_CALLABLE: Final = "give a callable as keyword argument, for example pyclient.serialization.string.deserialize"
_BYTES_DESERIALIZER: Final = "org.apache.kafka.common.serialization.bytearraydeserializer"
_KILOBYTES: Final = "in bytes (1 KB is 1,024 of them)"
_NEGOTIATED: Final = "versions are agreed upon with each broker"
_LOGGING: Final = "Python's logging decides: the loggers are pyclient and what is below it"
_ERRORS: Final = "calls raise their errors, and client.health() reports the last ones"
_NUMBERS: Final = "ask client.metrics() whenever you like"
_CALLBACK: Final = "give it to the call: producer.send(..., on_delivery=...), or look at the future that send returns"
_NOT_NEEDED: Final = "there is nothing here that it would change"
_LISTENER: Final = "give it to the call: consumer.subscribe(topics, listener=RebalanceListener())"
_BY_RETRY: Final = "a failed fetch waits retry_backoff_ms, growing to retry_backoff_max_ms"


def _refused(name: str, reason: str, accepts: tuple[str, ...] = ()) -> Option:
    """Return an option of Kafka's clients. `accepts` has values as `text_of` returns them."""
    return Option(name, STRING, None, "", choices=accepts, support=REFUSED, reason=reason)


def _foreign(name: str, reason: str, accepts: tuple[str, ...] = ()) -> Option:
    """Return an option of librdkafka, kafka-python or aiokafka."""
    return Option(name, STRING, None, "", choices=accepts, support=FOREIGN, reason=reason)


COMMON: Final[Mapping[str, Option]] = MappingProxyType(
    table_of(
        _refused(
            "sasl_login_callback_handler_class",
            _BY_PROVIDER,
            accepts=tuple(f"{_OAUTH}{where}OAuthBearerLoginCallbackHandler".casefold() for where in ("", "secured.")),
        ),
        _refused("sasl_oauthbearer_config", _BY_PROVIDER, accepts=_NOTHING),
        _refused(
            "sasl_kerberos_kinit_cmd",
            _NO_KINIT,
            accepts=("", "/usr/bin/kinit", f"kinit -r {_KINIT_OPTIONS} || kinit {_KINIT_OPTIONS}"),
        ),
        _refused("sasl_kerberos_min_time_before_relogin", _KERBEROS_RENEWS, accepts=("60000",)),
        _refused("sasl_kerberos_ticket_renew_jitter", _KERBEROS_RENEWS, accepts=("0.05",)),
        _refused("sasl_kerberos_ticket_renew_window_factor", _KERBEROS_RENEWS, accepts=("0.8",)),
        _foreign("sasl_kerberos_domain_name", _KERBEROS_HOST),
        _foreign("sasl_kerberos_name", _KERBEROS_HOST),
        _foreign("oauth_cb", _BY_PROVIDER),
        _foreign(
            "sasl_oauthbearer_grant_type",
            f"it takes client_credentials or {_JWT_BEARER}, as sasl_oauthbearer_jwt_retriever_class chooses",
        ),
        _refused("ssl_endpoint_identification_algorithm", "use ssl_check_hostname=False to accept any host name"),
        _refused("ssl_protocol", _TLS_CONTEXT, accepts=("tls", "tlsv1.3")),
        _refused("ssl_enabled_protocols", _TLS_CONTEXT, accepts=("tlsv1.2,tlsv1.3", "tlsv1.3,tlsv1.2")),
        _refused("ssl_cipher_suites", _TLS_CONTEXT),
        _refused("metric_reporters", _NO_METRICS_PLUGINS, accepts=_NOTHING),
        _refused("metrics_num_samples", _NO_METRICS_PLUGINS),
        _refused("metrics_recording_level", _NO_METRICS_PLUGINS),
        _refused("metrics_sample_window_ms", _NO_METRICS_PLUGINS),
        _refused("enable_metrics_push", "pyclient sends no telemetry, so there is nothing to turn off", accepts=_NO),
        _refused("interceptor_classes", "only producers have interceptors; wrap the call instead", accepts=_NOTHING),
        _refused(
            "client_dns_lookup",
            "every address a name resolves to is tried (Kafka's use_all_dns_ips)",
            accepts=("use_all_dns_ips",),
        ),
        _refused("socket_connection_setup_timeout_max_ms", "every attempt has socket_connection_setup_timeout_ms"),
        _refused(
            "metadata_recovery_strategy",
            "the bootstrap addresses are always tried again (Kafka's rebootstrap)",
            accepts=("rebootstrap",),
        ),
        _refused(
            "metadata_recovery_rebootstrap_trigger_ms", "the bootstrap addresses are tried as soon as no node answers"
        ),
        _refused("enable_ssl_certificate_verification", "give an ssl_context that does not verify", accepts=_YES),
        _refused("security_providers", "this is an option of the Java runtime", accepts=_NOTHING),
        _refused("config_providers", "pass values, or read them from os.environ", accepts=_NOTHING),
        _foreign("api_version", _NEGOTIATED, accepts=("", "auto", "none")),
        _foreign("api_version_auto_timeout_ms", _NEGOTIATED),
        _foreign("api_version_fallback_ms", _NEGOTIATED, accepts=("0",)),
        _foreign("api_version_request", _NEGOTIATED, accepts=_YES),
        _foreign(
            "api_version_request_timeout_ms",
            "use socket_connection_setup_timeout_ms: to agree on versions is part of it",
        ),
        _foreign("broker_address_family", "every address a name resolves to is tried", accepts=("any",)),
        _foreign("broker_version_fallback", _NEGOTIATED),
        _foreign("debug", _LOGGING, accepts=_NOTHING),
        _foreign("default_topic_config", "give its options themselves"),
        _foreign("error_cb", _ERRORS),
        _foreign("kafka_client", "a client makes its own connections"),
        _foreign("log_cb", _LOGGING),
        _foreign("log_connection_close", _LOGGING),
        _foreign("log_level", _LOGGING),
        _foreign("logger", _LOGGING),
        _foreign("loop", "an asyncio client runs on the loop that it is first used on"),
        _foreign("message_copy_max_bytes", _NOT_NEEDED),
        _foreign("reconnect_backoff_jitter_ms", "waiting times are spread by 20 % in any case"),
        _foreign("selector", _NOT_NEEDED),
        _foreign("sock_chunk_buffer_count", _NOT_NEEDED),
        _foreign("sock_chunk_bytes", _NOT_NEEDED),
        _foreign("socket_blocking_max_ms", _NOT_NEEDED),
        _foreign("socket_keepalive_enable", "it is always on", accepts=_YES),
        _foreign(
            "socket_max_fails",
            "a connection is closed when one request has waited for request_timeout_ms",
            accepts=("1",),
        ),
        _foreign("socket_nagle_disable", "Nagle's algorithm is always off", accepts=_YES),
        _foreign("socket_options", "use send_buffer_bytes and receive_buffer_bytes"),
        _foreign("socket_receive_buffer_bytes", "use receive_buffer_bytes; the system's own is -1, not 0"),
        _foreign("socket_send_buffer_bytes", "use send_buffer_bytes; the system's own is -1, not 0"),
        _foreign("socket_timeout_ms", "use request_timeout_ms"),
        _foreign("statistics_interval_ms", _NUMBERS, accepts=("0",)),
        _foreign("stats_cb", _NUMBERS),
        _foreign("throttle_cb", "throttle times are applied, and not reported"),
        _foreign("topic_blacklist", _NOT_NEEDED, accepts=_NOTHING),
        _foreign("topic_metadata_propagation_max_ms", _NOT_NEEDED),
        _foreign(
            "topic_metadata_refresh_fast_interval_ms", "missing metadata are asked for again after retry_backoff_ms"
        ),
        _foreign("topic_metadata_refresh_sparse", "only the topics in use are asked for", accepts=_YES),
    )
)
"""Options of every kind of client."""

_PRODUCER: Final = table_of(
    _refused("transaction_two_phase_commit_enable", _NOT_YET, accepts=_NO),
    _refused("interceptor_classes", "give objects as keyword argument: interceptors=[...]", accepts=_NOTHING),
    _refused(
        "partitioner_class",
        "give a callable as keyword argument: partitioner=lambda topic, key, count: ...",
        accepts=(
            *_NOTHING,
            "org.apache.kafka.clients.producer.internals.defaultpartitioner",
        ),
    ),
    _refused("queue_buffering_max_messages", "records are bounded by their bytes: use buffer_memory"),
    _foreign(
        "allow_auto_create_topics",
        "only consumers have a say; what is sent to is created if the broker does that",
        accepts=_YES,
    ),
    _foreign("batch_num_messages", "batches are bounded by batch_size, in bytes, and by linger_ms"),
    _foreign(
        "compression_level",
        "use compression_gzip_level, compression_lz4_level or compression_zstd_level",
        accepts=("-1",),
    ),
    _foreign("delivery_report_only_error", _CALLBACK, accepts=_NO),
    _foreign("dr_cb", _CALLBACK),
    _foreign("dr_msg_cb", _CALLBACK),
    _foreign(
        "enable_gapless_guarantee",
        "a failed record leaves a gap, and its future, flush() and close() report it",
        accepts=_NO,
    ),
    _foreign("max_batch_size", "use batch_size"),
    _foreign("on_delivery", _CALLBACK),
    _foreign("queue_buffering_backpressure_threshold", "batch_size and linger_ms decide"),
    _foreign("queue_buffering_max_kbytes", f"use buffer_memory, {_KILOBYTES}"),
    _foreign("queuing_strategy", _NOT_NEEDED, accepts=("fifo",)),
    _foreign("sticky_partitioning_linger_ms", "a partition without keys changes after batch_size bytes (KIP-794)"),
)

_CONSUMER: Final = table_of(
    _refused("key_deserializer", _BY_CALLABLE, accepts=(_BYTES_DESERIALIZER,)),
    _refused("value_deserializer", _BY_CALLABLE, accepts=(_BYTES_DESERIALIZER,)),
    _foreign("auto_commit_enable", "use enable_auto_commit"),
    _foreign("consume_callback_max_messages", "use max_poll_records"),
    _foreign("consumer_timeout_ms", "poll(timeout=...) says how long to wait, in seconds; a for loop waits for ever"),
    _foreign("coordinator_query_interval_ms", _NOT_NEEDED),
    _foreign("default_offset_commit_callback", "give it to the call: consumer.commit_async(callback)"),
    _foreign(
        "enable_auto_offset_store",
        "auto-commit commits what earlier polls returned; for less, set "
        "enable_auto_commit=False and call commit(offsets)",
        accepts=_YES,
    ),
    _foreign("enable_partition_eof", "consumer.lag() returns 0 where a partition's end is reached", accepts=_NO),
    _foreign("fetch_error_backoff_ms", _BY_RETRY),
    _foreign("fetch_queue_backoff_ms", "fetching goes on as soon as there is room below fetch_max_bytes"),
    _foreign("group_protocol_type", "it is always 'consumer'", accepts=("consumer",)),
    _foreign("max_in_flight_requests_per_connection", "only producers keep several requests in flight"),
    _foreign("metrics_enabled", _NUMBERS, accepts=_YES),
    _foreign("offset_commit_cb", "give it to the call: consumer.commit_async(callback)"),
    _foreign(
        "offset_store_method", "offsets are stored at the broker, by commit() and auto-commit", accepts=("broker",)
    ),
    _foreign("on_assign", _LISTENER),
    _foreign("on_commit", "give it to the call: consumer.commit_async(callback)"),
    _foreign("on_lost", _LISTENER),
    _foreign("on_revoke", _LISTENER),
    _foreign("queued_max_messages_kbytes", f"use fetch_max_bytes, {_KILOBYTES}"),
    _foreign("queued_min_messages", "what is fetched ahead is bounded by fetch_max_bytes, in bytes"),
    _foreign("rebalance_cb", _LISTENER),
    _foreign("rebalance_timeout_ms", "use max_poll_interval_ms, which is the time a rebalance waits for a member"),
    _foreign("topic", "topics are positional: Consumer('orders', ...), or call subscribe()"),
    _foreign("topics", "topics are positional: Consumer('orders', ...), or call subscribe()"),
)

UNSUPPORTED: Final[Mapping[str, Mapping[str, Option]]] = MappingProxyType(
    {"producer": {**COMMON, **_PRODUCER}, "consumer": {**COMMON, **_CONSUMER}, "admin": COMMON}
)
"""By client kind and option name with `_` for `.`."""

TRANSLATED: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = MappingProxyType(
    {
        "ssl_endpoint_identification_algorithm": (
            "ssl_check_hostname",
            {"https": True, **dict.fromkeys(_NOTHING, False)},
        ),
        "sasl_oauthbearer_grant_type": (
            "sasl_oauthbearer_jwt_retriever_class",
            {"client_credentials": CLIENT_CREDENTIALS, _JWT_BEARER: JWT_BEARER},
        ),
    }
)
"""Option -> the equivalent option here, and its value for each value as returned by `text_of`."""

_OWN: Final = {
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
            "partitioner_ignore_keys",
            "queue_buffering_max_ms",
            "request_required_acks",
            "retries",
            "transaction_timeout_ms",
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
            "max_partition_fetch_bytes",
            "max_poll_interval_ms",
            "max_poll_records",
            "partition_assignment_strategies",
            "partition_assignment_strategy",
            "session_timeout_ms",
        ]
    ),
    "admin": frozenset(["default_api_timeout_ms"]),
}

OWN: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        kind: names.union(
            name for name, option in UNSUPPORTED[kind].items() if option.support is REFUSED and name not in COMMON
        )
        for kind, names in _OWN.items()
    }
)
"""By client kind: the names, aliases included, of the options that not every client has, refused ones, too."""


def unsupported_by(kind: str) -> Mapping[str, Option]:
    """Return the options that one kind of client does not have."""
    return UNSUPPORTED.get(kind, COMMON)


def refusal(kind: str, name: str) -> str | None:
    """Return why that kind of client refuses an option, with its support; None if there is no such option."""
    option = unsupported_by(kind).get(name)
    if option is None:
        return f"not supported: {_NO_SASL}" if name.startswith("sasl_") else None
    return f"{'not supported' if option.support is REFUSED else option.support.value}: {option.reason}"


def text_of(value: Any) -> str:
    """Return a value as it would be written in a Java properties file, in lower case."""
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return ",".join(text_of(item) for item in value)
    return str(value).strip().casefold().replace(", ", ",")
