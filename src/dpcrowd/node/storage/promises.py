"""What each network on a ledger has promised, checked in the transaction that pays.

Several networks over the same users may write one ledger. Each declares its promise, and a payment of any of them is
made only if every promise still holds with it:

    sum of nano over all rows that can share a window with it  +  this payment  <=  the promise's epsilon

The sum and the payment are one transaction, so two networks cannot both spend the same rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpcrowd.errors import BadInput, BudgetExhausted
from dpcrowd.node.storage.ahead import Fetch, elapsed_start, set_ahead
from dpcrowd.node.storage.database import Database
from dpcrowd.node.storage.notes import add_event, utc_text
from dpcrowd.privacy.units import LARGEST_EPSILON, NANO, format_epsilon

__all__ = ["Promise", "Promises", "Room", "check_nano"]

_ALL = "SELECT network, nano, span_ns, since_ns, sensitivity, roaming FROM promise ORDER BY network"

_LOST = "SELECT 1 FROM ledger WHERE closes_ns > ? AND kind = 'lost' LIMIT 1"


@dataclass(frozen=True)
class Promise:
    """At most `nano` in any window of `span_ns`; None: in all the time since `since_ns`, the start of the horizon.

    sensitivity  in how many regions and servers of a slot a user may be
    roaming      whether users may change servers
    """

    network: str
    nano: int
    span_ns: int | None
    since_ns: int
    sensitivity: int = 1
    roaming: bool = False

    def reach(self, opens_ns: int, closes_ns: int, *, own: bool) -> int:
        """Rows that close after this time may share a window with a slot.

        Windows begin and end where the promise's own slots do; another network's slot may lie across such a place, and
        then counts in windows that end as early as it opens. Rows that are dated later than the slot count as well,
        however far ahead: they were paid by a clock that was wrong, perhaps a moment ago.
        """
        if self.span_ns is None:
            return self.since_ns
        return (closes_ns if own else opens_ns) - self.span_ns

    def weaker_than(self, old: Promise) -> bool:
        """Whether users who were promised `old` would be promised less."""
        if self.nano > old.nano or self.sensitivity < old.sensitivity or (old.roaming and not self.roaming):
            return True
        return self.span_ns is not None and (old.span_ns is None or self.span_ns < old.span_ns)

    def __str__(self) -> str:
        over = "over its whole horizon" if self.span_ns is None else f"in any {self.span_ns / 1e9:g} s"
        users = "roaming" if self.roaming else "pinned"
        return f"ε={format_epsilon(self.nano)} {over} for {users} users in up to {self.sensitivity} places a slot"


@dataclass(frozen=True)
class Room:
    """What a slot may still cost, because `promise`, of which `spent` is used up, allows no more.

    lost  whether losses that were confirmed are why more is spent than the promise allows
    """

    nano: int
    spent: int
    promise: Promise
    lost: bool = False


class Promises:
    """The promises on a ledger; one network states its own."""

    def __init__(self, database: Database, reader: Database, network: str) -> None:
        self._database = database
        self._reader = reader
        self._network = network

    def declare(self, nano: int, span_ns: int | None, *, sensitivity: int = 1, roaming: bool = False) -> None:
        """State this network's promise, as configured now; a finite one (span None) keeps the start of its horizon.

        What was promised is kept: a weaker promise, more epsilon, a shorter span or users in fewer places, needs a
        network of its own.
        """
        check_nano(nano)
        if span_ns is not None and span_ns < 1:
            raise BadInput(f"a window of {span_ns} ns; allowed: at least 1.")
        new = Promise(self._network, nano, span_ns, 0, sensitivity, roaming)
        for old in self.all():
            if old.network == self._network and new.weaker_than(old):
                raise BadInput(
                    f"network '{self._network}' promised {old} on this ledger; given {new}, which is weaker. Give the "
                    "network that promises less an id of its own."
                )
        self._database.write(
            "INSERT INTO promise (network, nano, span_ns, sensitivity, roaming) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (network) DO UPDATE SET nano = excluded.nano, span_ns = excluded.span_ns, "
            "sensitivity = excluded.sensitivity, roaming = excluded.roaming",
            (self._network, nano, span_ns, sensitivity, roaming),
        )

    def all(self) -> list[Promise]:
        """Of all networks that write this ledger."""
        return _promises(self._reader.rows)

    def new_horizon(self, since_ns: int, at_ns: int, text: str) -> None:
        """The operator begins a new horizon: payments of slots that closed by `since_ns` no longer count. Logged."""
        with self._database.transaction() as connection:
            changed = connection.execute(
                "UPDATE promise SET since_ns = max(since_ns, ?) WHERE network = ? AND span_ns IS NULL",
                (since_ns, self._network),
            ).rowcount
            if not changed:
                raise BadInput(f"network '{self._network}' has no finite horizon: only a finite one can begin anew.")
            # The scheme's state has spent the old horizon: the node has to begin anew, from the ledger.
            connection.execute("DELETE FROM state WHERE network = ?", (self._network,))
            add_event(connection, self._network, at_ns, "new-horizon", text)

    def withdraw(self, network: str, at_ns: int, text: str) -> None:
        """The operator ends a network for good: its promise no longer binds others, its payments stay. Logged."""
        with self._database.transaction() as connection:
            if not connection.execute("DELETE FROM promise WHERE network = ?", (network,)).rowcount:
                raise BadInput(f"no network '{network}' has declared a promise on this ledger.")
            add_event(connection, network, at_ns, "withdrawn", text)

    def room(self, fetch: Fetch, opens_ns: int, closes_ns: int) -> Room:
        """What a slot may cost at most, so that the promises of all networks hold."""
        promises = _promises(fetch)
        if all(promise.network != self._network for promise in promises):
            raise BadInput(f"network '{self._network}' has declared no promise on this ledger: declare it first.")
        moved = set_ahead(fetch)
        rooms = []
        for promise in promises:
            after = promise.reach(opens_ns, closes_ns, own=promise.network == self._network)
            if promise.span_ns is not None:
                after = elapsed_start(moved, after)
            ((spent,),) = fetch("SELECT coalesce(sum(nano), 0) FROM ledger WHERE closes_ns > ?", (after,))
            lost = spent > promise.nano and bool(fetch(_LOST, (after,)))
            rooms.append(Room(max(promise.nano - spent, 0), spent, promise, lost))
        return min(rooms, key=lambda room: (room.nano, room.promise.network != self._network))

    def check(self, fetch: Fetch, opens_ns: int, closes_ns: int, nano: int) -> None:
        """Inside the paying transaction: refuse a payment that would break a promise of any network."""
        room = self.room(fetch, opens_ns, closes_ns)
        if nano > room.nano:
            promise = room.promise
            raise BudgetExhausted(
                f"the slot from {utc_text(opens_ns)} asks for ε={format_epsilon(nano)}, but the ledger has spent "
                f"{format_epsilon(room.spent)} of the {format_epsilon(promise.nano)} that network "
                f"'{promise.network}' promises ({format_epsilon(room.nano)} left).",
                requested=nano,
                remaining=room.nano,
                returns_at=None,
            )


def _promises(fetch: Fetch) -> list[Promise]:
    return [Promise(row[0], row[1], row[2], row[3], row[4], bool(row[5])) for row in fetch(_ALL)]


def check_nano(nano: int) -> None:
    """Refuse an amount that is no payment: a draw that costs nothing would be a hole."""
    if not 1 <= nano <= LARGEST_EPSILON * NANO:
        raise BadInput(f"an amount of {nano}e-9 ε; allowed: whole numbers from 1e-9 to {LARGEST_EPSILON}.")
