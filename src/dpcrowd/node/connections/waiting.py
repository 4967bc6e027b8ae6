"""Connections that have not sent a request or a certificate yet: their number is limited, and the newest is accepted.

If the newest were refused, the first ones could keep all others out. If there are too many, one of those that wait is
ended instead: the oldest of the address that has most of them, and first one that has not begun a handshake. So a flood
from a few addresses displaces itself, and an honest connection, which needs its place only for a moment, has left it
before it would be displaced.

Known addresses, those of neighbours, have places of their own, which others cannot take.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["WaitingConnections"]

C = TypeVar("C")


@dataclass
class _Place:
    """The place of one connection."""

    known: bool
    address: str
    since: float
    advanced: bool = False


class WaitingConnections(Generic[C]):
    """The connections that wait, oldest first.

    most         number of places for all addresses that are not known
    per_address  number of places per address
    is_known     returns whether an address has places of its own
    """

    def __init__(
        self, most: int, *, per_address: int | None = None, is_known: Callable[[str], bool] = lambda _: False
    ) -> None:
        self.most = max(most, 1)
        self.per_address = max(most if per_address is None else per_address, 1)
        self._is_known = is_known
        self._entries: dict[C, _Place] = {}
        self._groups: dict[bool, dict[str, dict[C, _Place]]] = {False: {}, True: {}}
        self._unknown = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, connection: C) -> bool:
        return connection in self._entries

    def enter(self, connection: C, address: str, now: float) -> C | None:
        """Give a connection a place; return the connection that it has displaced, if any."""
        known = self._is_known(address)
        group = self._groups[known].get(address, {})
        displaced = None
        if len(group) >= self.per_address:
            displaced = _next_displaced(group)
        elif not known and self._unknown >= self.most:
            displaced = _next_displaced(max(self._groups[False].values(), key=len))
        if displaced is not None:
            self.leave(displaced)
        entry = _Place(known, address, now)
        self._entries[connection] = entry
        self._groups[known].setdefault(address, {})[connection] = entry
        self._unknown += not known
        return displaced

    def advance(self, connection: C) -> None:
        """Note that a connection has begun its handshake: others of its address are displaced before it."""
        entry = self._entries.get(connection)
        if entry is not None:
            entry.advanced = True

    def leave(self, connection: C) -> bool:
        """Free the place of a connection; return False if it had none."""
        entry = self._entries.pop(connection, None)
        if entry is None:
            return False
        groups = self._groups[entry.known]
        del groups[entry.address][connection]
        if not groups[entry.address]:
            del groups[entry.address]
        self._unknown -= not entry.known
        return True

    def overdue(self, before: float) -> list[C]:
        """Return the connections that have waited since before a time."""
        return [connection for connection, entry in self._entries.items() if entry.since < before]


def _next_displaced(group: dict[C, _Place]) -> C:
    return next((one for one, entry in group.items() if not entry.advanced), next(iter(group)))
