"""One revision of the network as a server needs it, and how its estimates pass from one revision to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dpcrowd.errors import BadInput
from dpcrowd.node.machine.view import NetworkView
from dpcrowd.schemes.server import Server

__all__ = ["Debts", "Revision", "go_on", "settle"]


@dataclass(frozen=True)
class Revision:
    """make_server: a server that knows nothing yet, as this revision describes it."""

    view: NetworkView
    make_server: Callable[[], Server]


@dataclass(frozen=True)
class Debts:
    """What the durable ledger holds against a server's window or horizon.

    owed   nano-epsilon by slot
    first  the first slot of the present horizon, if that is finite
    """

    owed: Mapping[int, int] = field(default_factory=dict)
    first: int = 0


def go_on(revision: Revision, state: bytes, before: Revision | None) -> tuple[Server, str]:
    """A server with a saved state, as far as that fits this revision, and a sentence on it.

    before  the revision under which the state was saved, if that is another one
    """
    server = revision.make_server()
    try:
        server.restore(state)
        return server, f"goes on after slot {server.slot}."
    except BadInput:
        server = revision.make_server()
    if before is not None:
        old = {region: place for place, region in enumerate(before.view.regions)}
        names = revision.view.regions
        try:
            server.take_over(state, before.make_server(), [old.get(region) for region in names])
            new = len(set(names) - old.keys())
            return server, f"goes on after slot {server.slot}" + (f"; {new} new regions." if new else ".")
        except BadInput:
            server = revision.make_server()
    return server, "the configuration has changed: estimates begin anew, what was spent stays spent."


def settle(server: Server, debts: Debts, until: int) -> str:
    """Let a server's account know what is owed by slots up to `until`; a sentence if a horizon begins with that."""
    if server.slot == -1:
        server.carry_over(debts.owed, until, debts.first)
    elif server.horizon not in (None, debts.first):  # the state is of a horizon that has ended
        server.begin_horizon(debts.owed, debts.first)
        return f" A new horizon begins with slot {debts.first}."
    return ""
