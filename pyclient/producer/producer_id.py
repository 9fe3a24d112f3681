"""ProducerIdSearch: requests the producer id of an idempotent producer (InitProducerId)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from pyclient.backoff import Backoff
from pyclient.clock import Rng
from pyclient.cluster.client import ClusterClient
from pyclient.errors import KafkaError, from_code
from pyclient.producer.idempotence import ProducerIdentity
from pyclient.producer.lock import ProducerLock
from pyclient.protocol.messages.init_producer_id import InitProducerIdRequest

logger: Final = logging.getLogger("pyclient.producer")

_NO_TRANSACTION_TIMEOUT: Final = 2**31 - 1


class ProducerIdSearch:
    """Asks any broker until one responds; calls `refused` with an error that is not retriable."""

    def __init__(
        self,
        identity: ProducerIdentity,
        cluster: ClusterClient,
        lock: ProducerLock,
        backoff: Backoff,
        rng: Rng,
        *,
        refused: Callable[[KafkaError], object],
        ended: Callable[[], object],
    ) -> None:
        self.asking = False  # a search is scheduled or runs
        self._identity = identity
        self._cluster = cluster
        self._lock = lock
        self._backoff = backoff
        self._rng = rng
        self._refused = refused
        self._ended = ended

    async def run(self) -> None:
        """Retry until the identity has an id."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT)
        attempt = 0
        try:
            while True:
                error = await self._try(request)
                if error is None:
                    return
                if not error.retriable:
                    logger.error("client %r: no producer id: %s", self._cluster.config.client_id, error)
                    self._refused(error)
                await asyncio.sleep(self._backoff.delay(attempt, self._rng))
                attempt += 1
        finally:
            self.asking = False
            self._ended()

    async def _try(self, request: InitProducerIdRequest) -> KafkaError | None:
        try:
            response = await self._cluster.request(request)
        except KafkaError as error:
            return error
        if response.error_code:
            text = "requesting a producer id, which enable_idempotence=True needs"
            return from_code(response.error_code, text)
        with self._lock:
            self._identity.obtained(response.producer_id, response.producer_epoch)
        text = "client %r: its producer id is %d, epoch %d"
        logger.info(text, self._cluster.config.client_id, response.producer_id, response.producer_epoch)
        return None
