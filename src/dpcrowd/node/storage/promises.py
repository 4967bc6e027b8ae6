"""What each network on a ledger has promised, checked in the transaction that pays.

Several networks over the same users may write one ledger. Each declares its promise, and a payment of any of them is
made only if every promise still holds with it:

    cost of all rows that can share a window with it  +  cost of this payment  <=  the promise's epsilon

`promise` says which rows these are and what a row costs, and why that is enough. The sum and the payment are one
transaction, so two networks cannot both spend the same rest.

Networks with roaming users share with nobody. What their users pay is bounded by all servers of the network together,
and one server's ledger knows nothing of the others: a user may pay a whole epsilon to the roaming network elsewhere,
and here another one to the network beside it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dpcrowd.errors import BadInput, BudgetExhausted
from dpcrowd.node.slots import SlotClock
from dpcrowd.node.storage.ahead import Fetch, set_ahead
from dpcrowd.node.storage.database import Database
from dpcrowd.node.storage.notes import add_event, utc_text
from dpcrowd.privacy.promise import Promise, UserBounds, Windows
from dpcrowd.privacy.units import LARGEST_EPSILON, NANO, format_epsilon

__all__ = ["Promises", "Room", "check_nano", "keep_windows", "payer", "sharing_problem"]

_ALL = (
    "SELECT network, nano, span_ns, since_ns, sensitivity, regions, servers, roaming, slot_ns, epoch_ns, horizon_slot "
    "FROM promise ORDER BY network"
)
_SPENT = (
    "SELECT coalesce(sum(CASE WHEN regions >= ?2 AND servers >= ?3 THEN nano ELSE 0 END), 0), "
    "coalesce(sum(regions < ?2 OR servers < ?3), 0) FROM ledger WHERE closes_ns > ?1"
)
_WITH_LESS_NOISE = (
    "SELECT nano, regions, servers, count(*) FROM ledger "
    "WHERE closes_ns > ?1 AND (regions < ?2 OR servers < ?3) GROUP BY nano, regions, servers"
)
_LOST = "SELECT 1 FROM ledger WHERE closes_ns > ? AND kind = 'lost' LIMIT 1"


@dataclass(frozen=True)
class Room:
    """What a slot may still cost, because `promise`, of which `spent` is used up, allows no more.

    weighted  whether some payments count more for the users of this promise than they cost: see `promise`
    lost      whether losses that were confirmed are why more is spent than the promise allows
    """

    nano: int
    spent: int
    promise: Promise
    weighted: bool = False
    lost: bool = False


class Promises:
    """The promises on a ledger; one network states its own."""

    def __init__(self, database: Database, reader: Database, network: str) -> None:
        self._database = database
        self._reader = reader
        self._network = network

    # ---------------------------------------------------------------------------------------------- what is promised

    def declare(
        self,
        nano: int,
        span_ns: int | None,
        *,
        bounds: UserBounds | None = None,
        roaming: bool = False,
        slots: SlotClock | None = None,
        horizon_slot: int = 0,
        at_ns: int = 0,
        text: str = "",
    ) -> bool:
        """State this network's promise, as configured now; whether a new horizon has begun with it.

        slots         when the network's slots open; without, a window may begin at any moment, which holds for all
        horizon_slot  for a finite promise (span None): the slot at which network.toml begins the horizon
        at_ns, text   for the operator's log, if a new horizon begins

        What was promised is kept: a weaker promise, more epsilon, a shorter span or fewer regions or servers per slot,
        needs a network of its own. A finite promise keeps the start of its horizon until a higher `horizon_slot`, or
        the operator of pinned users, begins another.
        """
        check_nano(nano)
        if span_ns is not None and span_ns < 1:
            raise BadInput(f"a window of {span_ns} ns; allowed: at least 1.")
        if horizon_slot < 0 or (horizon_slot and (slots is None or span_ns is not None)):
            raise BadInput(f"a horizon from slot {horizon_slot}; allowed: for a finite promise with slots, 0 or more.")
        new = Promise(self._network, nano, span_ns, 0, bounds or UserBounds(), roaming, horizon_slot=horizon_slot)
        if slots is not None:
            new = replace(new, slot_ns=slots.length_ns, epoch_ns=slots.epoch_ns)
        with self._database.transaction() as connection:
            promises = _promises(_fetch(connection))
            old = next((promise for promise in promises if promise.network == self._network), None)
            self._refuse(new, old, promises)
            new = replace(new, since_ns=_since(new, old))
            _put(connection, new)
            if old is not None and _other_slots(_fetch(connection), new, old):
                # The scheme's state counts other slots: the node has to begin anew, from the ledger.
                connection.execute("DELETE FROM state WHERE network = ?", (self._network,))
            return self._log_horizon(connection, new, old, at_ns, text)

    def _refuse(self, new: Promise, old: Promise | None, promises: Sequence[Promise]) -> None:
        problem = sharing_problem(self._network, new.roaming, promises)
        if problem:
            raise BadInput(problem)
        if old is not None and new.weaker_than(old):
            raise BadInput(
                f"network '{self._network}' promised {old} on this ledger; given {new}, which is weaker. Give the "
                "network that promises less an id of its own."
            )
        if old is not None and new.horizon_slot < old.horizon_slot:
            raise BadInput(
                f"network '{self._network}' has begun the horizon of slot {old.horizon_slot} on this ledger; given "
                f"guarantee.horizon_from_slot = {new.horizon_slot}. A horizon that has begun is not taken back: use "
                "the newest network.toml."
            )

    def _log_horizon(
        self, connection: sqlite3.Connection, new: Promise, old: Promise | None, at_ns: int, text: str
    ) -> bool:
        """Log a horizon whose start has moved, unless nothing was ever paid; whether it has begun anew."""
        if new.span_ns is not None:
            return False
        before = 0 if old is None else old.since_ns
        (payments,) = connection.execute("SELECT counter FROM account").fetchone()
        if new.since_ns < before:
            again = (
                f"the horizon of '{self._network}' is the one that all servers have, not one that began here alone: "
                f"payments since {utc_text(new.since_ns)} count again"
            )
            add_event(connection, self._network, at_ns, "horizon", again)
        elif new.since_ns > before and payments:
            add_event(connection, self._network, at_ns, "new-horizon", text)
            return True
        return False

    def all(self) -> list[Promise]:
        """Of all networks that write this ledger."""
        return _promises(self._reader.rows)

    def withdraw(self, network: str, at_ns: int, text: str) -> None:
        """The operator ends a network for good: its promise no longer binds others, its payments stay. Logged."""
        with self._database.transaction() as connection:
            if not connection.execute("DELETE FROM promise WHERE network = ?", (network,)).rowcount:
                raise BadInput(f"no network '{network}' has declared a promise on this ledger.")
            connection.execute("DELETE FROM paid_windows WHERE network = ?", (network,))
            add_event(connection, network, at_ns, "withdrawn", text)

    # ------------------------------------------------------------------------------------------------------- horizons

    def new_horizon(self, since_ns: int, at_ns: int, text: str) -> None:
        """The operator begins a new horizon, where `next_horizon` says; payments before it no longer count. Logged."""
        with self._database.transaction() as connection:
            own = self._finite(_fetch(connection))
            if own.roaming:
                raise BadInput(
                    f"network '{self._network}' has roaming users: a horizon that begins at one server alone does not "
                    "bound what they pay at all of them. Begin it for all, by a revision of network.toml with "
                    "guarantee.horizon_from_slot."
                )
            start = _next_horizon(_fetch(connection), own, since_ns, at_ns)
            _put(connection, replace(own, since_ns=start))
            # The scheme's state has spent the old horizon: the node has to begin anew, from the ledger.
            connection.execute("DELETE FROM state WHERE network = ?", (self._network,))
            add_event(connection, self._network, at_ns, "new-horizon", text)

    def next_horizon(self, since_ns: int, at_ns: int) -> int:
        """Where a horizon would begin: with the slot that is open at `since_ns`, and after all that was paid by now.

        So every payment is in one horizon: those that were made are in the old one. A slot that opened before and is
        paid later counts in the old one, too.
        """
        return _next_horizon(self._reader.rows, self._finite(self._reader.rows), since_ns, at_ns)

    def promised(self) -> int:
        """Nano-epsilon of all horizons of this network that this ledger knows, and of what others have paid into it.

        With roaming users a horizon may have cost a user all that it promised, whatever this server has paid.
        """
        ((promised,),) = self._reader.rows(
            "SELECT (SELECT coalesce(sum(nano), 0) FROM horizon WHERE network = ?1) + "
            "(SELECT coalesce(sum(nano), 0) FROM ledger WHERE network <> ?1)",
            (self._network,),
        )
        return int(promised)

    def _finite(self, fetch: Fetch) -> Promise:
        own = [promise for promise in _promises(fetch) if promise.network == self._network]
        if not own or own[0].span_ns is not None:
            raise BadInput(f"network '{self._network}' has no finite horizon: only a finite one can begin anew.")
        return own[0]

    # ------------------------------------------------------------------------------------------------------- payments

    def room(self, fetch: Fetch, opens_ns: int) -> Room:
        """What a slot may cost at most, so that the promises of all networks hold."""
        promises = _promises(fetch)
        own = self._own(promises)
        jumps = set_ahead(fetch)
        rooms = []
        for promise in promises:
            after = promise.reach(opens_ns, jumps)
            spent, weighted = _spent(fetch, promise, after)
            left = promise.bounds.affordable(max(promise.nano - spent, 0), payer(own))
            weighted = weighted or promise.bounds.cost(NANO, payer(own)) != NANO
            lost = spent > promise.nano and bool(fetch(_LOST, (after,)))
            rooms.append(Room(left, spent, promise, weighted, lost))
        return min(rooms, key=lambda room: (room.nano, room.promise.network != self._network))

    def check(self, fetch: Fetch, opens_ns: int, nano: int) -> Promise:
        """Inside the paying transaction: refuse a payment that would break a promise of any network; the own one."""
        room, own = self.room(fetch, opens_ns), self._own(_promises(fetch))
        if nano > room.nano:
            promise = room.promise
            cost = promise.bounds.cost(nano, payer(own))
            counts = f" (ε={format_epsilon(cost)} for users {promise.bounds})" if cost > nano else ""
            raise BudgetExhausted(
                f"the slot from {utc_text(opens_ns)} asks for ε={format_epsilon(nano)}{counts}, but the ledger has "
                f"spent {format_epsilon(room.spent)} of the {format_epsilon(promise.nano)} that network "
                f"'{promise.network}' promises ({format_epsilon(room.nano)} left).",
                requested=nano,
                remaining=room.nano,
                returns_at=None,
            )
        return own

    def _own(self, promises: Sequence[Promise]) -> Promise:
        for promise in promises:
            if promise.network == self._network:
                return promise
        raise BadInput(f"network '{self._network}' has declared no promise on this ledger: declare it first.")


def payer(own: Promise | None) -> UserBounds:
    """For how many regions and servers a network's noise is made; if that is not known, for one."""
    return own.bounds if own is not None and own.bounds.exact else UserBounds()


def keep_windows(connection: sqlite3.Connection, own: Promise, opens_ns: int, length_ns: int) -> None:
    """Inside a paying transaction: windows of the slots under which something is paid bind from now on."""
    if own.span_ns is None:
        return
    used = Windows(own.span_ns, length_ns, opens_ns % length_ns)
    if used not in own.paid:
        connection.execute(
            "INSERT INTO paid_windows VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET span_ns = max(span_ns, ?4)",
            (own.network, used.slot_ns, used.offset_ns, used.span_ns),
        )


def sharing_problem(network: str, roaming: bool, promises: Sequence[Promise]) -> str:
    """Why a network cannot share the ledger on which these promises stand; empty if it can, or is alone."""
    others = [promise for promise in promises if promise.network != network]
    whose = next((promise.network for promise in others if promise.roaming), network if roaming else None)
    if not others or whose is None:
        return ""
    names = ", ".join(f"'{promise.network}'" for promise in others)
    return (
        f"network '{network}' shares its ledger with {names}, and the users of '{whose}' roam: what they pay at other "
        "servers is in other ledgers, so a shared one does not bound it. Allowed: networks of pinned users only. Give "
        f"'{whose}' a ledger of its own (ledger.shared in node.toml); if another network on this ledger has ended, "
        "'dpcrowd node withdraw' ends its promise."
    )


def check_nano(nano: int) -> None:
    """Refuse an amount that is no payment: a draw that costs nothing would be a hole."""
    if not 1 <= nano <= LARGEST_EPSILON * NANO:
        raise BadInput(f"an amount of {nano}e-9 ε; allowed: whole numbers from 1e-9 to {LARGEST_EPSILON}.")


def _fetch(connection: sqlite3.Connection) -> Fetch:
    return lambda sql, values=(): connection.execute(sql, values).fetchall()


def _promises(fetch: Fetch) -> list[Promise]:
    paid: dict[str, tuple[Windows, ...]] = {}
    for network, slot_ns, offset_ns, span_ns in fetch("SELECT * FROM paid_windows"):
        paid[network] = (*paid.get(network, ()), Windows(span_ns, slot_ns, offset_ns))
    earlier: dict[str, tuple[int, ...]] = {}
    for network, since_ns in fetch("SELECT network, since_ns FROM horizon ORDER BY since_ns"):
        earlier[network] = (*earlier.get(network, ()), since_ns)
    found = []
    for network, nano, span_ns, since_ns, product, regions, servers, roaming, *slots in fetch(_ALL):
        exact = regions is not None or product == 1
        bounds = UserBounds(regions or product, servers or product, exact)
        before = tuple(start for start in earlier.get(network, ()) if start < since_ns)
        promise = Promise(network, nano, span_ns, since_ns, bounds, bool(roaming), *slots)
        found.append(replace(promise, paid=paid.get(network, ()), earlier=before))
    return found


def _put(connection: sqlite3.Connection, promise: Promise) -> None:
    bounds = promise.bounds
    connection.execute(
        "INSERT OR REPLACE INTO promise (network, nano, span_ns, since_ns, sensitivity, regions, servers, roaming, "
        "slot_ns, epoch_ns, horizon_slot) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            promise.network,
            promise.nano,
            promise.span_ns,
            promise.since_ns,
            bounds.sensitivity,
            bounds.regions if bounds.exact else None,
            bounds.servers if bounds.exact else None,
            promise.roaming,
            promise.slot_ns,
            promise.epoch_ns,
            promise.horizon_slot,
        ),
    )
    if promise.span_ns is None:
        connection.execute(
            "INSERT OR IGNORE INTO horizon VALUES (?, ?, ?)", (promise.network, promise.since_ns, promise.nano)
        )


def _other_slots(fetch: Fetch, new: Promise, old: Promise) -> bool:
    """Whether slots have other numbers or times than when the network was here last."""
    if new.slot_ns == 1:
        return False
    if old.slot_ns > 1:
        return (new.slot_ns, new.epoch_ns) != (old.slot_ns, old.epoch_ns)
    last = fetch(  # a ledger of an earlier version: its last sample tells
        "SELECT slot, opens_ns, closes_ns FROM ledger WHERE network = ? AND kind = 'sample' "
        "ORDER BY counter DESC LIMIT 1",
        (new.network,),
    )
    opens_ns = [new.epoch_ns + slot * new.slot_ns for slot, _, _ in last]
    return [(opens, closes) for _, opens, closes in last] != [(opens, opens + new.slot_ns) for opens in opens_ns]


def _since(new: Promise, old: Promise | None) -> int:
    """Where the horizon begins; a new epoch alone begins none."""
    if new.span_ns is not None:
        return 0
    configured = new.epoch_ns + new.horizon_slot * new.slot_ns if new.horizon_slot else 0
    if old is None or old.span_ns is not None:
        return configured
    if new.horizon_slot > old.horizon_slot:
        return configured if new.roaming else max(old.since_ns, configured)
    # Roaming users need the horizon that all servers have: not one that the operator of this one began.
    return min(old.since_ns, configured) if new.roaming else old.since_ns


def _next_horizon(fetch: Fetch, own: Promise, since_ns: int, at_ns: int) -> int:
    # What is dated after the present was paid by a clock that was ahead; waiting for that date could take years.
    ((last,),) = fetch(
        "SELECT coalesce(max(closes_ns), 0) FROM ledger WHERE network = ? AND opens_ns <= ?", (own.network, at_ns)
    )
    return max(own.since_ns, own.slot_start(since_ns), own.slot_start(last, after=True))


def _spent(fetch: Fetch, promise: Promise, after_ns: int) -> tuple[int, bool]:
    """What the rows that close after a time cost the users of a promise, and whether that is more than was paid."""
    bounds = (after_ns, promise.bounds.regions, promise.bounds.servers)
    ((spent, others),) = fetch(_SPENT, bounds)
    if others:  # in Python: the products may be beyond SQLite's integers
        for nano, regions, servers, count in fetch(_WITH_LESS_NOISE, bounds):
            spent += promise.bounds.cost(nano, UserBounds(regions, servers)) * count
    return int(spent), bool(others)
