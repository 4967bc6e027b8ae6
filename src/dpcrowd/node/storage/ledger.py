"""The durable ledger: what was paid, when, and for which noisy values.

It belongs to its folder and is keyed by UTC time, so a new epoch, slot length, epsilon, network id or restart never
refills it. Rows are added and never changed or deleted, and no slot is drawn twice. The scheme's own ledger decides
what a slot may cost; the promises that are checked here are the last fence, and the one that survives a crash.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from dpcrowd.errors import BadInput
from dpcrowd.node.storage.ahead import set_ahead
from dpcrowd.node.storage.database import Database
from dpcrowd.node.storage.failures import SlotTaken, StorageFailed
from dpcrowd.node.storage.identity import put_back
from dpcrowd.node.storage.notes import LARGEST_COUNTER, add_event, utc_text
from dpcrowd.node.storage.promises import Promises, Room, check_nano, keep_windows, payer
from dpcrowd.privacy.clock_jumps import Jump, elapsed_start, younger
from dpcrowd.privacy.promise import Promise, UserBounds
from dpcrowd.privacy.units import format_epsilon

__all__ = ["Entry", "Ledger", "Sample"]


_TAKEN = "SELECT kind FROM ledger WHERE closes_ns > ? AND opens_ns < ? AND network = ? ORDER BY kind LIMIT 1"


@dataclass(frozen=True)
class Entry:
    """One payment, or a loss that the operator confirmed, which counts as one.

    regions, servers  for how many of them per slot its noise was made
    """

    counter: int
    network: str
    kind: Literal["sample", "lost"]
    slot: int | None
    opens_ns: int
    length_ns: int
    nano: int
    reason: str
    regions: int = 1
    servers: int = 1

    @property
    def bounds(self) -> UserBounds:
        return UserBounds(self.regions, self.servers)

    @property
    def closes_ns(self) -> int:
        return self.opens_ns + self.length_ns


@dataclass(frozen=True)
class Sample:
    """What was drawn for a slot: after a crash these values are sent again, and never others."""

    counter: int
    slot: int
    nano: int
    noisy: bytes


class Ledger:
    """The ledger as one network sees it: it reads everybody's rows and writes its own."""

    def __init__(self, database: Database, reader: Database, network: str) -> None:
        self._database = database
        self._reader = reader
        self._network = network
        self.promises = Promises(database, reader, network)
        self._committed = 0  # the highest counter that this process has put on disk

    # ------------------------------------------------------------------------------------------------- payments

    def pay(
        self, connection: sqlite3.Connection, slot: int, opens_ns: int, length_ns: int, nano: int, noisy: bytes
    ) -> int:
        """Inside a transaction: one payment with the values that it bought; the new counter."""
        check_nano(nano)
        if length_ns < 1:
            raise BadInput(f"a slot of {length_ns} ns; allowed: at least 1.")
        closes_ns = opens_ns + length_ns
        self._refuse_second_draw(connection, slot, opens_ns, closes_ns)
        own = self.promises.check(lambda sql, values=(): connection.execute(sql, values).fetchall(), opens_ns, nano)
        keep_windows(connection, own, opens_ns, length_ns)
        row = self._add(connection, "sample", slot, opens_ns, closes_ns, nano, "", payer(own))
        connection.execute("INSERT INTO noisy VALUES (?, ?)", (row, noisy))
        return self._count(connection, 0)

    def room(self, opens_ns: int) -> Room:
        """What a slot that opens at a time may cost at most, so that every promise on this ledger holds."""
        # By the writer's connection: readers of estimates must not delay a slot.
        return self.promises.room(self._database.rows, opens_ns)

    def mark_lost(self, from_ns: int, to_ns: int, nano: int, reason: str, *, at_ns: int, counter: int = 0) -> int:
        """The operator confirms that payments between two times are lost: they count as `nano`, none is drawn again.

        `counter` is the highest that a neighbour remembers: the ledger goes on above it. Logged; the new counter.
        """
        check_nano(nano)
        if to_ns <= from_ns:
            raise BadInput(f"a loss from {utc_text(from_ns)} to {utc_text(to_ns)}; allowed: an end after the start.")
        if not 0 <= counter <= LARGEST_COUNTER:
            raise BadInput(f"a counter of {counter}; allowed: 0 to {LARGEST_COUNTER}.")
        own = next((promise for promise in self.promises.all() if promise.network == self._network), None)
        with self._database.transaction() as connection:
            self._add(connection, "lost", None, from_ns, to_ns, nano, reason, payer(own))
            new = self._count(connection, counter)
            span = f"{utc_text(from_ns)} to {utc_text(to_ns)} counts as ε={format_epsilon(nano)}"
            add_event(connection, self._network, at_ns, "loss", f"{span}: {reason}")
        self.committed(new)
        return new

    def _add(
        self,
        connection: sqlite3.Connection,
        kind: str,
        slot: int | None,
        opens_ns: int,
        closes_ns: int,
        nano: int,
        reason: str,
        bounds: UserBounds,
    ) -> int:
        """One more row of all networks' account; its number."""
        connection.execute("UPDATE account SET counter = counter + 1, total = total + ?", (nano,))
        (row,) = connection.execute("SELECT counter FROM account").fetchone()
        connection.execute(
            "INSERT INTO ledger (counter, network, kind, slot, opens_ns, closes_ns, nano, reason, regions, servers) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (row, self._network, kind, slot, opens_ns, closes_ns, nano, reason, bounds.regions, bounds.servers),
        )
        return int(row)

    def _count(self, connection: sqlite3.Connection, at_least: int) -> int:
        """One more payment of this network; its new counter."""
        connection.execute(
            "INSERT INTO tally VALUES (?, ? + 1) ON CONFLICT DO UPDATE SET counter = max(counter, ?) + 1",
            (self._network, at_least, at_least),
        )
        (counter,) = connection.execute("SELECT counter FROM tally WHERE network = ?", (self._network,)).fetchone()
        if counter <= self._committed:
            path = self._database.path
            raise put_back("replaced", f"{path} has fewer payments than before: it was overwritten by an older one")
        return int(counter)

    def committed(self, counter: int) -> None:
        """A payment is on disk: whatever comes later has a higher counter."""
        self._committed = max(counter, self._committed)

    def _refuse_second_draw(self, connection: sqlite3.Connection, slot: int, opens_ns: int, closes_ns: int) -> None:
        # Any overlap counts: with a new epoch the same minutes may have another slot number and another start.
        taken = connection.execute(_TAKEN, (opens_ns, closes_ns, self._network)).fetchone()
        if taken is not None:
            how = "lies in a time that was declared lost" if taken[0] == "lost" else "was drawn before"
            raise SlotTaken(f"slot {slot}, open from {utc_text(opens_ns)}, {how}: no slot is drawn a second time.")

    def taken(self, opens_ns: int, closes_ns: int) -> bool:
        """Whether this network has paid for any part of a time, or declared it lost: it cannot pay for that again."""
        return bool(self._database.rows(_TAKEN, (opens_ns, closes_ns, self._network)))

    # -------------------------------------------------------------------------------------------------- reading

    def counter(self) -> int:
        """Grows with every payment of this network; its neighbours remember it, and so expose an old copy."""
        row = self._reader.row("SELECT counter FROM tally WHERE network = ?", (self._network,))
        return 0 if row is None else int(row[0])

    def payments(self) -> int:
        """How many there are, of all networks, confirmed losses among them."""
        return self._account()[0]

    def total_spent(self) -> int:
        """Nano-epsilon of all payments ever, of all networks."""
        return self._account()[1]

    def spent_since(self, at_ns: int) -> list[Entry]:
        """All payments, of all networks, for slots that closed after a time; oldest first.

        Times are as they would have been by the present clock: what was paid before the clock was set ahead is younger
        than its date says, see `ahead`.
        """
        jumps = set_ahead(self._reader.rows)
        return self._entries(elapsed_start(jumps, at_ns), jumps)

    def dated_after(self, at_ns: int) -> list[Entry]:
        """All payments, of all networks, for slots that closed after a date, such as the start of a horizon."""
        return self._entries(at_ns, set_ahead(self._reader.rows))

    def counted(self, promise: Promise, opens_ns: int) -> list[Entry]:
        """The payments that count against a promise in a slot that opens at a time; times as in `spent_since`.

        What each of them costs the users of the promise is `promise.bounds.cost(entry.nano, entry.bounds)`.
        """
        jumps = set_ahead(self._reader.rows)
        return self._entries(promise.reach(opens_ns, jumps), jumps)

    def _entries(self, after_ns: int, jumps: Sequence[Jump]) -> list[Entry]:
        rows = self._reader.rows(
            "SELECT counter, network, kind, slot, opens_ns, closes_ns - opens_ns, nano, reason, regions, servers "
            "FROM ledger WHERE closes_ns > ? ORDER BY closes_ns, counter",
            (after_ns,),
        )
        entries = [Entry(*row) for row in rows]
        return (
            [replace(one, opens_ns=one.opens_ns + younger(jumps, one.counter)) for one in entries] if jumps else entries
        )

    def sample(self, opens_ns: int) -> Sample | None:
        """What this network drew for the slot that opens at a time; None if nothing, or no longer kept."""
        row = self._reader.row(
            "SELECT counter, slot, nano, noisy FROM ledger JOIN noisy USING (counter) "
            "WHERE network = ? AND kind = 'sample' AND opens_ns = ?",
            (self._network, opens_ns),
        )
        return None if row is None else Sample(*row)

    def check(self) -> None:
        """Refuse a ledger whose rows do not add up to its account: it must not be spent from."""
        row = self._reader.row(
            "SELECT account.counter = found.last AND account.total = found.total FROM account, "
            "(SELECT coalesce(max(counter), 0) AS last, coalesce(sum(nano), 0) AS total FROM ledger) AS found"
        )
        if row != (1,):
            raise StorageFailed(
                "corrupt",
                f"{self._reader.path}: the payments do not add up to the account",
                "stop the node, keep the folder for inspection and restore the last backup into an empty folder",
            )

    def _account(self) -> tuple[int, int]:
        row = self._reader.row("SELECT counter, total FROM account")
        return (0, 0) if row is None else (int(row[0]), int(row[1]))
