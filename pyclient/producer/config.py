"""A producer's options."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pyclient import serialization
from pyclient.config import INT_MAX, ClientConfig, ClientOptions, option, read_int
from pyclient.producer.checks import Serializer
from pyclient.producer.interceptors import Interceptor, interceptors_of
from pyclient.producer.partitioner import Partitioner

Acks = Literal["all", 1, 0, -1, "-1", "1", "0"]
CompressionType = Literal["none", "gzip", "snappy", "lz4", "zstd"]

ACKS_ALL: Final = -1
MAX_IN_FLIGHT_IDEMPOTENT: Final = 5  # brokers remember the last five batches of a producer (KIP-98)


def _acks(value: Any) -> int:
    text = str(value).strip().casefold()
    if isinstance(value, bool) or text not in ("all", "-1", "0", "1"):
        raise ValueError(f"{value!r} is not one of them")
    return ACKS_ALL if text in ("all", "-1") else int(text)


def _transactional_id(value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or not value):
        raise ValueError(f"{value!r} is not a name, or empty")
    return value


def _gzip_level(value: Any) -> int | None:
    level = read_int(value)
    if not (level == -1 or 1 <= level <= 9):
        raise ValueError
    return None if level == -1 else level


def _partitioner(value: Any) -> Any:
    return None if value == "murmur2_random" else _callable(value)  # librdkafka's name of the default


def _callable(value: Any) -> Any:
    if not callable(value):
        raise ValueError(f"{value!r} cannot be called")
    return value


def _serializer(value: Any) -> Any:
    if value == "org.apache.kafka.common.serialization.ByteArraySerializer":
        return None
    return _callable(getattr(value, "serialize", value))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """Options of `Producer` and `AsyncProducer`. Names, units and defaults are Kafka's, with `_` for `.`."""

    acks: int = option(
        ACKS_ALL,
        doc="Replicas that must have a record before it counts as delivered: 'all' in sync, the leader (1), or none "
        "(0). 'all' is the default since KIP-679.",
        convert=_acks,
        allowed="'all' (or -1), 1 or 0",
        aliases=("request_required_acks",),
    )
    enable_idempotence: bool | None = option(
        None,
        doc="Retries neither duplicate nor reorder records (KIP-98). On by default (KIP-679), unless acks "
        "or retries are set to what rules it out.",
    )
    transactional_id: str | None = option(
        None,
        doc="Names this producer for its transactions (KIP-98), also after a restart. `init_transactions` shuts out "
        "earlier producers with that name. With it, records are sent in transactions only.",
        convert=_transactional_id,
        allowed="a text that is not empty",
    )
    transaction_timeout_ms: int = option(
        60_000,
        doc="How long a transaction may take before its coordinator aborts it; at most the brokers' "
        "transaction.max.timeout.ms.",
        minimum=1,
        maximum=INT_MAX,
    )
    batch_size: int = option(
        16_384, doc="Bytes of one partition's batch; 0 sends every record alone.", minimum=0, maximum=INT_MAX
    )
    linger_ms: float = option(
        5.0,
        doc="How long a batch waits for more records before it is sent though not full.",
        minimum=0,
        aliases=("queue_buffering_max_ms",),
    )
    buffer_memory: int = option(
        33_554_432, doc="Bytes that unconfirmed batches may take together; beyond it `send` waits.", minimum=1
    )
    max_block_ms: int = option(
        60_000, doc="How long `send` waits for metadata and for buffer space, together.", minimum=0
    )
    max_request_size: int = option(
        1_048_576,
        doc="Bytes: of the largest record, as it is with its batch's header before compression, and of all batches in "
        "one request. A larger record is a `MessageTooLarge` of `send`.",
        minimum=1,
        maximum=INT_MAX,
        aliases=("message_max_bytes",),
    )
    compression_type: CompressionType = option(
        "none",
        doc="How batches are compressed.",
        aliases=("compression_codec",),
    )
    compression_gzip_level: int | None = option(
        None,
        doc="gzip's level, 1 to 9 (KIP-390); -1 is gzip's own choice.",
        convert=_gzip_level,
        allowed="a whole number from 1 to 9, or -1",
    )
    compression_lz4_level: int | None = option(None, doc="lz4's level, 1 to 17 (KIP-390).", minimum=1, maximum=17)
    compression_zstd_level: int | None = option(
        None, doc="zstd's level, -131072 to 22 (KIP-390).", minimum=-131_072, maximum=22
    )
    retries: int = option(
        INT_MAX,
        doc="How often a batch is sent again; delivery_timeout_ms is the bound that counts.",
        minimum=0,
        maximum=INT_MAX,
        aliases=("message_send_max_retries",),
    )
    delivery_timeout_ms: int = option(
        120_000,
        doc="From `send` to the outcome, at most: after it a record's future fails, even one under way (KIP-91). "
        "Counted from the first record of its batch, as in Java: one that joins later fails that much sooner, by up to "
        "linger_ms, and another twentieth of this time while the broker takes nothing.",
        minimum=1,
        maximum=INT_MAX,
        aliases=("message_timeout_ms",),
    )
    max_in_flight_requests_per_connection: int = option(
        5,
        doc="How many requests may wait for their answers on one connection; at most 5 with idempotence.",
        minimum=1,
        maximum=INT_MAX,
        aliases=("max_in_flight", "max_in_flight_requests"),
    )
    max_connections_per_broker: int = option(
        3,
        doc="While more is ready than may be under way, partitions are spread over up to so many connections to their "
        "broker, which handles one connection's requests one at a time; each partition keeps to one. 1 with acks=0.",
        minimum=1,
        maximum=64,
    )
    partitioner: Partitioner | None = option(
        None,
        doc="partitioner(topic, key, partition_count) -> partition, instead of murmur2 for keys and sticky without "
        "(KIP-480, KIP-794).",
        convert=_partitioner,
        allowed="a callable",
    )
    partitioner_ignore_keys: bool = option(False, doc="Spread records with keys like those without (KIP-794).")
    partitioner_adaptive_partitioning_enable: bool = option(
        True, doc="Give less to partitions whose queue is long, as their broker is slow (KIP-794)."
    )
    partitioner_availability_timeout_ms: int = option(
        0, doc="Leave out partitions whose broker took nothing for so long; 0 leaves out none (KIP-794).", minimum=0
    )
    metadata_max_idle_ms: int = option(
        300_000, doc="A topic not sent to for so long is asked about no more (KIP-526).", minimum=5_000
    )
    key_serializer: Serializer | None = option(
        None,
        doc="Turns keys into bytes, all but None: a callable or an object with a method `serialize`, where "
        "Kafka's key.serializer names a class.",
        convert=_serializer,
        allowed="a callable that returns bytes",
    )
    value_serializer: Serializer | None = option(
        None,
        doc="Turns values into bytes, as key_serializer does keys; None stays a tombstone.",
        convert=_serializer,
        allowed="a callable that returns bytes",
    )
    interceptors: tuple[Interceptor, ...] = option(
        (),
        doc="See and may change every record before it is sent, and are called with its outcome (KIP-42); see "
        "`ProducerInterceptor`.",
        convert=interceptors_of,
        allowed="objects with on_send(record) or on_acknowledgement(metadata, error, headers), or an on_send alone",
    )

    def __post_init__(self) -> None:
        """Check every option, then those that depend on each other."""
        ClientConfig.__post_init__(self)
        idempotent = self.enable_idempotence is not False and self._idempotence_conflict() is None
        object.__setattr__(self, "enable_idempotence", idempotent)

    def conflicts(self) -> Iterable[str]:
        """Yield the conflicts between options."""
        yield from ClientConfig.conflicts(self)
        conflict = self._idempotence_conflict()
        in_flight = self.max_in_flight_requests_per_connection
        if in_flight > MAX_IN_FLIGHT_IDEMPOTENT and self.enable_idempotence is not False and conflict is None:
            yield (  # an error rather than a silent end of idempotence
                f"max_in_flight_requests_per_connection={in_flight} is not possible: with idempotence brokers remember "
                f"{MAX_IN_FLIGHT_IDEMPOTENT} batches; use at most as many, or enable_idempotence=False"
            )
        if self.transactional_id is not None and (self.enable_idempotence is False or conflict):
            against = conflict or "enable_idempotence=False"
            yield f"transactional_id={self.transactional_id!r} is not possible with {against}: it needs idempotence"
        elif self.enable_idempotence and conflict:
            yield f"enable_idempotence=True is not possible with {conflict}: change one of them"
        least = self.linger_ms + self.request_timeout_ms
        if self.delivery_timeout_ms < least:
            yield (
                f"delivery_timeout_ms={self.delivery_timeout_ms} is not possible: it must be at least linger_ms + "
                f"request_timeout_ms = {least:g}, or no request could be waited for; lower request_timeout_ms with it"
            )

    def _idempotence_conflict(self) -> str | None:
        if self.acks != ACKS_ALL:
            return f"acks={self.acks}, it needs acks='all'"
        if self.retries == 0:
            return "retries=0, it works by retrying"
        return None

    @property
    def idempotent(self) -> bool:
        """True if batches carry a producer id and sequence numbers."""
        return bool(self.enable_idempotence)

    @property
    def serializes(self) -> bool:
        """True if there is a serializer for keys or values."""
        return self.key_serializer is not None or self.value_serializer is not None

    @property
    def partitions_by_key(self) -> bool:
        """True if the partition is chosen by the key's hash, and for records without a key is the sticky one."""
        return self.partitioner is None and not self.partitioner_ignore_keys

    @property
    def plain(self) -> bool:
        """True if records are sent as given: without serializer, custom partitioner and interceptors."""
        return self.partitions_by_key and not self.serializes and not self.interceptors

    @property
    def compression_level(self) -> int | None:
        """The level of the chosen compression; None for its default."""
        levels = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(self.compression_type)


class ProducerOptions(ClientOptions, total=False):
    """The keyword arguments of a producer; `ProducerConfig` documents them."""

    acks: Acks
    enable_idempotence: bool | None
    transactional_id: str | None
    transaction_timeout_ms: int
    batch_size: int
    linger_ms: float
    buffer_memory: int
    max_block_ms: int
    max_request_size: int
    compression_type: CompressionType
    compression_gzip_level: int | None
    compression_lz4_level: int | None
    compression_zstd_level: int | None
    retries: int
    delivery_timeout_ms: int
    max_in_flight_requests_per_connection: int
    max_connections_per_broker: int
    partitioner: Partitioner | None
    partitioner_ignore_keys: bool
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    metadata_max_idle_ms: int
    key_serializer: Serializer | serialization.Serializer | None
    value_serializer: Serializer | serialization.Serializer | None
    interceptors: Sequence[Interceptor] | Interceptor
