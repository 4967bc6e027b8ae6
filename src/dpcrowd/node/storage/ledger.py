"""The durable ledger: what was paid, when, and for which noisy values.

The ledger belongs to its folder and is keyed by UTC time, so a new epoch, slot length, epsilon, network id or restart
never refills it. Rows are added and never changed or deleted. The account (`privacy.account`) decides what may be paid,
declared or lost. This module loads it, asks it again inside the transaction that writes, with the rows of all other
processes in it, and appends what is new: two processes cannot spend the same remaining budget, and a refusal changes
nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace

from dpcrowd.errors import BadInput
from dpcrowd.node.slots import SlotClock
from dpcrowd.node.storage.account_rows import append, fetcher, load
from dpcrowd.node.storage.database import Database
from dpcrowd.node.storage.failures import RESTORE, StorageError
from dpcrowd.node.storage.identity import put_back
from dpcrowd.node.storage.notes import LARGEST_COUNTER, add_event, put_complete
from dpcrowd.node.storage.records import forget_records
from dpcrowd.privacy.account import EVER, Account
from dpcrowd.privacy.allowance import Allowance
from dpcrowd.privacy.clock_jumps import ClockSteps, elapsed_start
from dpcrowd.privacy.network_guarantee import NetworkGuarantee, Slots, UserBounds
from dpcrowd.privacy.payments import Payment
from dpcrowd.privacy.units import format_epsilon, utc_text

__all__ = ["LedgerStore", "StoredSample"]


@dataclass(frozen=True)
class StoredSample:
    """What was drawn for a slot: after a crash the same values are sent again, never new ones."""

    counter: int
    slot: int
    nano: int
    noisy: bytes


class LedgerStore:
    """The stored ledger as one network sees it: it reads the rows of all networks and writes its own."""

    def __init__(self, database: Database, reader: Database, network: str) -> None:
        self._database = database
        self._reader = reader
        self._network = network
        self._cached: Account | None = None  # the account that was loaded last; only its payments are reused
        self._highest = 0  # the highest counter that this process has stored

    # --------------------------------------------------------------------------------------------------- the account

    def account(self, opens_ns: int, slots: Slots | None = None) -> Account:
        """Load the account, with all payments that count against slots opening at `opens_ns` or later.

        slots  the slots of the own network, as configured
        """
        # This uses the writer's connection: readers of estimates must not delay a slot.
        account = self._cached = load(self._database.rows, self._network, opens_ns, self._cached)
        return replace(account, configured=slots)

    def allowance(self, opens_ns: int) -> Allowance:
        """Return what the slot opening at `opens_ns` may cost so that every guarantee on this ledger holds."""
        return self.account(opens_ns).allowance(opens_ns)

    def payments_since(self, at_ns: int) -> list[Payment]:
        """Return the payments of all networks for slots that closed after a time, see `Account.payments_after`."""
        account = self.account(EVER)
        return account.payments_after(elapsed_start(account.jumps, at_ns))

    def _load(self, connection: sqlite3.Connection, opens_ns: int) -> Account:
        return load(fetcher(connection), self._network, opens_ns, self._cached)

    # ----------------------------------------------------------------------------------------------------- payments

    def pay(
        self, connection: sqlite3.Connection, slot: int, opens_ns: int, length_ns: int, nano: int, noisy: bytes
    ) -> tuple[int, Account]:
        """Add a payment and the values that it bought, inside a transaction; return the new counter and account."""
        before = self._load(connection, opens_ns)
        after = before.pay(slot, opens_ns, length_ns, nano)
        append(connection, before, after)
        connection.execute("INSERT INTO noisy VALUES (?, ?)", (after.count, noisy))
        return self._next_counter(connection, 0), after

    def committed(self, counter: int, account: Account) -> None:
        """Note that a payment is stored: every later one has a higher counter."""
        self._highest, self._cached = max(counter, self._highest), account

    def book_loss(
        self,
        from_ns: int,
        to_ns: int,
        nano: int,
        reason: str,
        *,
        at_ns: int,
        counter: int = 0,
        complete_until: int | None = None,
    ) -> int:
        """Book the operator's decision that payments between two times are lost; return the new counter.

        The lost payments count as `nano` together, and no slot of that time is drawn again. Loss, counter, log entry
        and `complete_until` are stored in one transaction: if only some of them were, the node would ask the operator
        again, and the second answer would block the budget twice.

        counter         the highest one that a neighbour remembers; the ledger continues above it
        complete_until  the last slot up to which the ledger is complete once the loss is booked
        """
        if not 0 <= counter <= LARGEST_COUNTER:
            raise BadInput(f"the counter that a neighbour remembers is {counter}; allowed: 0 to {LARGEST_COUNTER}.")
        with self._database.transaction() as connection:
            before = self._load(connection, to_ns)
            after = before.book_loss(from_ns, to_ns, nano)
            append(connection, before, after, reason)
            new = self._next_counter(connection, counter)
            span = f"{utc_text(from_ns)} to {utc_text(to_ns)} counts as ε={format_epsilon(nano)}"
            add_event(connection, self._network, at_ns, "loss", f"{span}: {reason}")
            if complete_until is not None:
                put_complete(connection, self._network, complete_until)
        self.committed(new, after)
        return new

    def _next_counter(self, connection: sqlite3.Connection, at_least: int) -> int:
        """Count one more payment of this network; return its counter, which is above `at_least`."""
        connection.execute(
            "INSERT INTO tally VALUES (?, ? + 1) ON CONFLICT DO UPDATE SET counter = max(counter, ?) + 1",
            (self._network, at_least, at_least),
        )
        (counter,) = connection.execute("SELECT counter FROM tally WHERE network = ?", (self._network,)).fetchone()
        if counter <= self._highest:
            path = self._database.path
            raise put_back("replaced", f"{path} has fewer payments than before: it was overwritten by an older copy")
        return int(counter)

    # ----------------------------------------------------------------------------------------------------- promises

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
        text: Callable[[Account], str] = lambda account: "",
    ) -> bool:
        """Declare this network's guarantee, as configured now (`Account.declare`); return whether a new horizon begins.

        slots  when the network's slots open
        text   makes the entry of the operator's log, if a new horizon begins, from the account with all payments
        """
        grid = {} if slots is None else {"slot_ns": slots.length_ns, "epoch_ns": slots.epoch_ns}
        with self._database.transaction() as connection:
            before = self._load(connection, at_ns)
            after = before.declare(nano, span_ns, bounds=bounds, roaming=roaming, horizon_slot=horizon_slot, **grid)
            new, old = after.own, before.guarantee_of(self._network)
            since_ns = 0 if old is None else old.since_ns
            begins = new.span_ns is None and new.since_ns > since_ns and after.count > 0
            entry = text(self._load(connection, EVER)) if begins else ""
            append(connection, before, after)
            if old is not None and self._slots_changed(connection, new, old):
                # The scheme's state refers to other slots: the node has to start afresh, from the ledger.
                connection.execute("DELETE FROM state WHERE network = ?", (self._network,))
                forget_records(connection, self._network)
            if new.span_ns is None and new.since_ns < since_ns:
                reason = (
                    f"the horizon of '{self._network}' is the one of all servers, not one that began only here: "
                    f"payments since {utc_text(new.since_ns)} count again"
                )
                add_event(connection, self._network, at_ns, "horizon", reason)
            if begins:
                add_event(connection, self._network, at_ns, "new-horizon", entry)
        return begins

    def new_horizon(self, since_ns: int, at_ns: int, text: str) -> None:
        """Begin a new horizon at `Account.next_horizon_start`, as the operator decided, and log it."""
        with self._database.transaction() as connection:
            before = self._load(connection, since_ns)
            append(connection, before, before.new_horizon(since_ns, at_ns))
            # The scheme's state has spent the old horizon: the node has to start afresh, from the ledger.
            connection.execute("DELETE FROM state WHERE network = ?", (self._network,))
            add_event(connection, self._network, at_ns, "new-horizon", text)

    def withdraw(self, network: str, at_ns: int, text: str) -> None:
        """End a network for good, as the operator decided, and log it; its payments stay."""
        with self._database.transaction() as connection:
            before = self._load(connection, at_ns)
            append(connection, before, before.withdraw(network))
            add_event(connection, network, at_ns, "withdrawn", text)

    def _slots_changed(self, connection: sqlite3.Connection, new: NetworkGuarantee, old: NetworkGuarantee) -> bool:
        """Whether slots have other numbers or times than when the network last declared its guarantee."""
        if new.slot_ns == 1:
            return False
        if old.slot_ns > 1:
            return (new.slot_ns, new.epoch_ns) != (old.slot_ns, old.epoch_ns)
        last = connection.execute(  # in a ledger of an earlier version only the last sample shows it
            "SELECT slot, opens_ns, closes_ns FROM ledger WHERE network = ? AND kind = 'sample' "
            "ORDER BY counter DESC LIMIT 1",
            (new.network,),
        ).fetchone()
        return last is not None and last[1:] != (new.opens(last[0]), new.opens(last[0] + 1))

    # ------------------------------------------------------------------------------------------------------- clocks

    def set_clock(self, at_ns: int, moved_ns: int, steps: ClockSteps | None = None) -> ClockSteps:
        """Record that the clock read `at_ns` and was set by `moved_ns`: ahead, or back if below 0; log it if it counts.

        steps  the steps of the clock that this run has seen so far; returned with this one added
        """
        steps = steps or ClockSteps()
        if not moved_ns and not any(jump.remaining_ns for jump in self.account(at_ns).jumps):
            return steps  # no jump that a reading of the clock could reduce
        with self._database.transaction() as connection:
            before = self._load(connection, at_ns)
            after, steps = before.set_clock(steps, at_ns, moved_ns)
            append(connection, before, after)
            for jump in after.jumps[len(before.jumps) :]:
                text = f"at {utc_text(jump.at_ns)} the clock was set ahead by {jump.moved_ns / 1e9:.1f} s"
                add_event(connection, self._network, jump.at_ns + jump.moved_ns, "clock", text)
            for old, new in zip(before.jumps, after.jumps, strict=False):
                if new.returned_ns > old.returned_ns:
                    total = f"{new.returned_ns / 1e9:.1f} s in all"
                    text = f"at {utc_text(at_ns)} the clock, which had been set ahead, was set back by {total}"
                    add_event(connection, self._network, at_ns - new.returned_ns, "clock", text)
        return steps

    # ------------------------------------------------------------------------------------------------------ reading

    def counter(self) -> int:
        """Return the counter of this network's payments; neighbours remember it, and so expose an old copy."""
        row = self._reader.row("SELECT counter FROM tally WHERE network = ?", (self._network,))
        return 0 if row is None else int(row[0])

    def payments(self) -> int:
        """Return the number of payments of all networks, confirmed losses included."""
        return self._count_and_total()[0]

    def total_spent(self) -> int:
        """Return the nano-epsilon of all payments ever made, by all networks, confirmed losses included."""
        return self._count_and_total()[1]

    def sample(self, opens_ns: int) -> StoredSample | None:
        """Return what this network drew for the slot opening at `opens_ns`; None if nothing, or no longer stored."""
        row = self._reader.row(
            "SELECT counter, slot, nano, noisy FROM ledger JOIN noisy USING (counter) "
            "WHERE network = ? AND kind = 'sample' AND opens_ns = ?",
            (self._network, opens_ns),
        )
        return None if row is None else StoredSample(*row)

    def check(self) -> None:
        """Refuse a ledger whose payments do not add up to its account: nothing may be spent from it."""
        row = self._reader.row(
            "SELECT account.counter = sums.last AND account.total = sums.total FROM account, "
            "(SELECT coalesce(max(counter), 0) AS last, coalesce(sum(nano), 0) AS total FROM ledger) AS sums"
        )
        if row != (1,):
            reason = f"{self._reader.path}: the payments do not add up to the account"
            raise StorageError("corrupt", reason, RESTORE)

    def _count_and_total(self) -> tuple[int, int]:
        row = self._reader.row("SELECT counter, total FROM account")
        return (0, 0) if row is None else (int(row[0]), int(row[1]))
