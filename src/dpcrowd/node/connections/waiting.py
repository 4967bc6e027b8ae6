"""Connections that have not shown yet what they are for: a limited number, and the newest is always let in.

To turn the newest away would let whoever is first keep everybody else out. When there are too many, one of those that
wait has to leave instead: the oldest of the address that has most of them, and of those first one that has said
nothing sensible yet. So a flood from a few addresses displaces itself, and an honest connection, which needs its place
for a moment only, is done before its turn to leave has come.

Addresses that are known, those of neighbours, have places of their own: whatever the others do, they keep them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Waiting"]

C = TypeVar("C")


@dataclass
class _Entry:
    known: bool
    address: str
    since: float
    advanced: bool = False


class Waiting(Generic[C]):
    """The connections that wait, oldest first.

    most         places for all addresses that are not known
    per_address  places for each address
    known        whether an address has places of its own
    """

    def __init__(
        self, most: int, *, per_address: int | None = None, known: Callable[[str], bool] = lambda _: False
    ) -> None:
        self.most = max(most, 1)
        self.per_address = max(most if per_address is None else per_address, 1)
        self._known = known
        self._entries: dict[C, _Entry] = {}
        self._groups: dict[bool, dict[str, dict[C, _Entry]]] = {False: {}, True: {}}
        self._unknown = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, connection: C) -> bool:
        return connection in self._entries

    def enter(self, connection: C, address: str, now: float) -> C | None:
        """Give a connection a place; the connection that has lost its own for that, if any."""
        known = self._known(address)
        group = self._groups[known].get(address, {})
        displaced = None
        if len(group) >= self.per_address:
            displaced = _first_to_leave(group)
        elif not known and self._unknown >= self.most:
            displaced = _first_to_leave(max(self._groups[False].values(), key=len))
        if displaced is not None:
            self.leave(displaced)
        entry = _Entry(known, address, now)
        self._entries[connection] = entry
        self._groups[known].setdefault(address, {})[connection] = entry
        self._unknown += not known
        return displaced

    def advance(self, connection: C) -> None:
        """A connection has begun as it should: others of its address leave before it."""
        entry = self._entries.get(connection)
        if entry is not None:
            entry.advanced = True

    def leave(self, connection: C) -> bool:
        """Free a place; False if the connection had none."""
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
        """Those that have waited since before a time."""
        return [connection for connection, entry in self._entries.items() if entry.since < before]


def _first_to_leave(group: dict[C, _Entry]) -> C:
    return next((one for one, entry in group.items() if not entry.advanced), next(iter(group)))
