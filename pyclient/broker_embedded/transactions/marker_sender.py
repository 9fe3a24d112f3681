"""Writes the markers of decided transactions to the leaders of their partitions, again until each has them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.transactions.runtime import Marker
from pyclient.broker_embedded.transactions.state import COMPLETE_COMMIT, PREPARE_COMMIT
from pyclient.errors import InvalidProducerEpoch, TransactionCoordinatorFenced, from_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyclient.broker_embedded.transactions.runtime import TransactionRuntime
    from pyclient.broker_embedded.transactions.state import TransactionMetadata
    from pyclient.types import TopicPartition

_log = logging.getLogger("pyclient.broker_embedded")

_NO_LEADER: Final = -1
RETRY_SECONDS: Final = 0.1
"""The pause before a failed write that completes a transaction is tried again."""


class MarkerSender:
    """Sends markers; retries a failed partition at its current leader for as long as the coordinator wants it."""

    def __init__(self, runtime: TransactionRuntime) -> None:
        self._runtime = runtime

    def send(
        self,
        prepared: TransactionMetadata,
        coordinator_epoch: int,
        *,
        wanted: Callable[[], bool],
        done: Callable[[TopicPartition], None],
    ) -> None:
        """Write the marker of a decided transaction to its partitions. `done` gets each one that has it.

        Also those that do not exist any more. Ends without that when `wanted` returns False.
        """
        marker = Marker(
            prepared.producer_id,
            prepared.producer_epoch,
            prepared.state in (PREPARE_COMMIT, COMPLETE_COMMIT),
            coordinator_epoch,
            prepared.client_version,
        )
        _Sending(self._runtime, prepared.transactional_id, marker, wanted, done).attempt(prepared.partitions)


class _Sending:
    """The markers of one transaction."""

    def __init__(
        self,
        runtime: TransactionRuntime,
        transactional_id: str,
        marker: Marker,
        wanted: Callable[[], bool],
        done: Callable[[TopicPartition], None],
    ) -> None:
        self._runtime = runtime
        self._transactional_id = transactional_id
        self._marker = marker
        self._wanted = wanted
        self._done = done
        self._later: set[TopicPartition] = set()
        self._has_timer = False

    def attempt(self, partitions: Iterable[TopicPartition]) -> None:
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in sorted(partitions):
            leader = self._runtime.leader_of(partition)
            if leader is None:
                self._done(partition)
            elif leader == _NO_LEADER:
                self._try_later(partition)
            else:
                by_leader.setdefault(leader, []).append(partition)
        for leader, led in by_leader.items():
            self._runtime.write_markers(leader, self._marker, led, self._answered)

    def _answered(self, partition: TopicPartition, code: int) -> None:
        if not code:
            self._done(partition)
            return
        reason = str(from_code(code, f"a marker of {self._transactional_id!r} for {partition}"))
        if code == InvalidProducerEpoch.code:  # a later epoch was here: this transaction has ended there before
            _log.warning("%s: that partition has a later epoch, so the transaction has ended there before", reason)
            self._done(partition)
        elif code == TransactionCoordinatorFenced.code:  # another node coordinates the id and completes it
            _log.warning("%s: another coordinator has taken over and completes the transaction", reason)
        else:
            self._try_later(partition)

    def _try_later(self, partition: TopicPartition) -> None:
        self._later.add(partition)
        if not self._has_timer:
            self._has_timer = True
            self._runtime.schedule(RETRY_SECONDS, self._retry)

    def _retry(self) -> None:
        self._has_timer = False
        again, self._later = self._later, set()
        if self._wanted():
            self.attempt(again)
