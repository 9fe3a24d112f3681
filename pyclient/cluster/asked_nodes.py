"""Chooses the next node for a lookup whose last response was stale."""

from __future__ import annotations

from collections.abc import Mapping


class AskedNodes:
    """The addresses of the nodes that were asked the same question, in order; no I/O.

    A node that has lost the others goes on naming leaders and coordinators that were replaced, and is often the least
    busy one: a repeated question has to go to another node.
    """

    __slots__ = ("_addresses",)

    def __init__(self) -> None:
        self._addresses: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._addresses)

    def note(self, address: str) -> None:
        """Note that the node at this address is asked, or has answered."""
        if address in self._addresses:
            self._addresses.remove(address)
        self._addresses.append(address)

    def order(self, candidates: Mapping[str, bool]) -> list[str]:
        """Return addresses in the order to ask them in; `candidates` says which are connected, the least busy first.

        Connected ones come first, among them those not asked yet, then those asked longest ago. The one that was asked
        last comes at the very end, even if no other is connected.
        """
        self._addresses = [address for address in self._addresses if address in candidates]
        turns = {address: turn for turn, address in enumerate(self._addresses)}
        last = self._addresses[-1] if self._addresses else None
        return sorted(
            candidates, key=lambda address: (address == last, not candidates[address], turns.get(address, -1))
        )
