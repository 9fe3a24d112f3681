"""Unsupported options that are accepted with certain values, since those describe what pyclient does anyway."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

_YES: Final = ("true", "1", "yes")
_NO: Final = ("false", "0", "no")
_NOTHING: Final = ("", "none", "null")

_COMMON: Final[Mapping[str, tuple[str, ...]]] = {
    "api_version": ("", "auto", "none"),
    "api_version_fallback_ms": ("0",),
    "api_version_request": _YES,
    "broker_address_family": ("any",),
    "client_dns_lookup": ("use_all_dns_ips",),
    "config_providers": _NOTHING,
    "debug": _NOTHING,
    "enable_metrics_push": _NO,
    "enable_ssl_certificate_verification": _YES,
    "interceptor_classes": _NOTHING,
    "metadata_recovery_strategy": ("rebootstrap",),
    "metric_reporters": _NOTHING,
    "security_providers": _NOTHING,
    "socket_keepalive_enable": _YES,
    "socket_max_fails": ("1",),
    "socket_nagle_disable": _YES,
    "ssl_enabled_protocols": ("tlsv1.2,tlsv1.3", "tlsv1.3,tlsv1.2"),
    "ssl_protocol": ("tls", "tlsv1.3"),  # the highest version, as Java reads it together with ssl.enabled.protocols
    "statistics_interval_ms": ("0",),
    "topic_blacklist": _NOTHING,
    "topic_metadata_refresh_sparse": _YES,
}

_OWN: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "producer": {
        "allow_auto_create_topics": _YES,
        "compression_level": ("-1",),
        "delivery_report_only_error": _NO,
        "enable_gapless_guarantee": _NO,
        "partitioner_class": (
            *_NOTHING,
            "org.apache.kafka.clients.producer.internals.defaultpartitioner",
        ),
        "queuing_strategy": ("fifo",),
        "transaction_two_phase_commit_enable": _NO,
        "transactional_id": _NOTHING,
    },
    "consumer": {
        "enable_auto_offset_store": _YES,
        "enable_partition_eof": _NO,
        "group_protocol_type": ("consumer",),
        "metrics_enabled": _YES,
        "key_deserializer": ("org.apache.kafka.common.serialization.bytearraydeserializer",),
        "offset_store_method": ("broker",),
        "value_deserializer": ("org.apache.kafka.common.serialization.bytearraydeserializer",),
    },
    "admin": {},
}

EQUIVALENT: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = MappingProxyType(
    {kind: {**_COMMON, **own} for kind, own in _OWN.items()}
)
"""By client kind and option name with `_` for `.`: the values, as returned by `text_of`, that are ignored."""

TRANSLATED: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = MappingProxyType(
    {
        "ssl_endpoint_identification_algorithm": (
            "ssl_check_hostname",
            {"https": True, **dict.fromkeys(_NOTHING, False)},
        ),
    }
)
"""Option -> the equivalent option here, and its value for each value as returned by `text_of`."""


def text_of(value: Any) -> str:
    """Return a value as it would be written in a Java properties file, in lower case."""
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return ",".join(text_of(item) for item in value)
    return str(value).strip().casefold().replace(", ", ",")
