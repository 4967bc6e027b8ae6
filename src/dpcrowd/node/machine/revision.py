"""One revision of the network as a server needs it, and how its estimates pass from one revision to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dpcrowd.errors import BadInput
from dpcrowd.node.machine.view import NetworkView
from dpcrowd.privacy.account import Account
from dpcrowd.schemes.server import Server

__all__ = ["Revision", "begin_horizon", "go_on"]


@dataclass(frozen=True)
class Revision:
    """make_server: a server that knows nothing yet, as this revision describes it, and spends from an account."""

    view: NetworkView
    make_server: Callable[[Account | None], Server]


def go_on(revision: Revision, state: bytes, before: Revision | None, account: Account | None) -> tuple[Server, str]:
    """A server with a saved state, as far as that fits this revision, and a sentence on it.

    before  the revision under which the state was saved, if that is another one
    """
    server = revision.make_server(account)
    try:
        server.restore(state)
        return server, f"goes on after slot {server.slot}."
    except BadInput:
        server = revision.make_server(account)
    if before is not None:
        old = {region: place for place, region in enumerate(before.view.regions)}
        names = revision.view.regions
        try:
            server.take_over(state, before.make_server(account), [old.get(region) for region in names])
            new = len(set(names) - old.keys())
            return server, f"goes on after slot {server.slot}" + (f"; {new} new regions." if new else ".")
        except BadInput:
            server = revision.make_server(account)
    return server, "the configuration has changed: estimates begin anew, what was spent stays spent."


def begin_horizon(server: Server) -> str:
    """If its account is in another horizon than a server, let it sample for that one; then a sentence on it."""
    account = server.account
    if account is None or account.own.span_ns is not None or server.horizon == account.first_slot:
        return ""
    server.begin_horizon()
    return f" A new horizon begins with slot {account.first_slot}."
