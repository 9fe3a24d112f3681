"""The transaction coordinator's broker options, under Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from pyclient.config.broker import default_of

if TYPE_CHECKING:
    from pyclient.broker_embedded.config.broker_config import BrokerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """Limits and times of the coordinator; a field is Kafka's broker option with `_` for `.`."""

    transaction_max_timeout_ms: int = default_of("transaction.max.timeout.ms")
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = default_of(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = default_of(
        "transaction.remove.expired.transaction.cleanup.interval.ms"
    )
    transactional_id_expiration_ms: int = default_of("transactional.id.expiration.ms")
    request_timeout_ms: int = default_of("request.timeout.ms")

    @classmethod
    def of(cls, config: BrokerConfig) -> TransactionConfig:
        """Return the coordinator's options out of the broker's."""
        return cls(**{field.name: config.integer(field.name.replace("_", ".")) for field in fields(cls)})
