"""Limit the connections of an address whose clients are not known yet."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyclient.broker_embedded.network.server import BrokerConnection

log = logging.getLogger("pyclient.broker_embedded")

MOST_OF_AN_ADDRESS: Final = 100


class UnknownClients:
    """The connections on listeners with SASL or TLS that have not logged in, or not ended their TLS handshake.

    Above `MOST_OF_AN_ADDRESS` the oldest of the address is closed, not the new one: a client that logs in at once is
    served although another process of its machine opens connections and leaves them.
    """

    def __init__(self) -> None:
        self._by_address: dict[str, dict[int, BrokerConnection]] = {}

    def __repr__(self) -> str:
        return f"<UnknownClients {sum(map(len, self._by_address.values()))} of {len(self._by_address)} addresses>"

    def add(self, connection: BrokerConnection) -> None:
        """Count a new connection, and close the oldest one if there are too many."""
        if connection.is_known:
            return
        found = self._by_address.setdefault(connection.address, {})
        found[connection.number] = connection
        if len(found) <= MOST_OF_AN_ADDRESS:
            return
        for each in [each for each in found.values() if each.is_known]:
            del found[each.number]
        if len(found) > MOST_OF_AN_ADDRESS:
            oldest = found.pop(next(iter(found)))
            log.warning(
                "closing a connection of %s: the oldest of more than %d that have not authenticated themselves",
                connection.address,
                MOST_OF_AN_ADDRESS,
            )
            oldest.close()

    def forget(self, connection: BrokerConnection) -> None:
        """Forget a closed connection."""
        found = self._by_address.get(connection.address)
        if found is not None and found.pop(connection.number, None) is not None and not found:
            del self._by_address[connection.address]
