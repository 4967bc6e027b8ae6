"""The durable ledger: what was paid, when, and for which noisy values.

It belongs to its folder and is keyed by UTC time, so a new epoch, slot length, epsilon, network id or restart never
refills it. Rows are added and never changed or deleted. What may be paid, promised or lost is decided by the account
(`privacy.account`). Here it is loaded, asked again inside the transaction that writes, with the rows of all other
processes in it, and what is new in it is appended: two processes cannot spend the same rest, and what was refused has
changed nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace

from dpcrowd.errors import BadInput
from dpcrowd.node.slots import SlotClock
from dpcrowd.node.storage.account_rows import append, fetcher, load
from dpcrowd.node.storage.database import Database
from dpcrowd.node.storage.failures import StorageFailed
from dpcrowd.node.storage.identity import put_back
from dpcrowd.node.storage.notes import LARGEST_COUNTER, add_event, put_complete
from dpcrowd.privacy.account import EVER, Account
from dpcrowd.privacy.allowance import Allowance
from dpcrowd.privacy.clock_jumps import ClockSteps, elapsed_start
from dpcrowd.privacy.network_guarantee import NetworkGuarantee, Slots, UserBounds
from dpcrowd.privacy.payments import Payment
from dpcrowd.privacy.units import format_epsilon, utc_text

__all__ = ["LedgerStore", "Sample"]


@dataclass(frozen=True)
class Sample:
    """What was drawn for a slot: after a crash these values are sent again, and never others."""

    counter: int
    slot: int
    nano: int
    noisy: bytes


class LedgerStore:
    """The ledger as one network sees it: it reads everybody's rows and writes its own."""

    def __init__(self, database: Database, reader: Database, network: str) -> None:
        self._database = database
        self._reader = reader
        self._network = network
        self._loaded: Account | None = None  # what was loaded last, of which only the payments are used again
        self._committed = 0  # the highest counter that this process has put on disk

    # --------------------------------------------------------------------------------------------------- the account

    def account(self, opens_ns: int, slots: Slots | None = None) -> Account:
        """What is on the disk now, with all payments that count against a slot which opens at a time, or later.

        slots  those of the own network, as configured
        """
        # By the writer's connection: readers of estimates must not delay a slot.
        account = self._loaded = load(self._database.rows, self._network, opens_ns, self._loaded)
        return replace(account, configured=slots)

    def allowance(self, opens_ns: int) -> Allowance:
        """What a slot that opens at a time may cost, so that every promise on this ledger holds, and why no more."""
        return self.account(opens_ns).allowance(opens_ns)

    def payments_since(self, at_ns: int) -> list[Payment]:
        """All payments, of all networks, for slots that closed after a time; oldest first. For times see `dated`."""
        account = self.account(EVER)
        return account.payments_after(elapsed_start(account.jumps, at_ns))

    def _load(self, connection: sqlite3.Connection, opens_ns: int) -> Account:
        return load(fetcher(connection), self._network, opens_ns, self._loaded)

    # ----------------------------------------------------------------------------------------------------- payments

    def pay(
        self, connection: sqlite3.Connection, slot: int, opens_ns: int, length_ns: int, nano: int, noisy: bytes
    ) -> tuple[int, Account]:
        """Inside a transaction: one payment with the values that it bought; the new counter, and the account then."""
        before = self._load(connection, opens_ns)
        after = before.pay(slot, opens_ns, length_ns, nano)
        append(connection, before, after)
        connection.execute("INSERT INTO noisy VALUES (?, ?)", (after.count, noisy))
        return self._count(connection, 0), after

    def committed(self, counter: int, account: Account) -> None:
        """A payment is on disk: whatever comes later has a higher counter."""
        self._committed, self._loaded = max(counter, self._committed), account

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
            raise BadInput(f"a counter of {counter}; allowed: 0 to {LARGEST_COUNTER}.")
        with self._database.transaction() as connection:
            before = self._load(connection, to_ns)
            after = before.book_loss(from_ns, to_ns, nano)
            append(connection, before, after, reason)
            new = self._count(connection, counter)
            span = f"{utc_text(from_ns)} to {utc_text(to_ns)} counts as ε={format_epsilon(nano)}"
            add_event(connection, self._network, at_ns, "loss", f"{span}: {reason}")
            if complete_until is not None:
                put_complete(connection, self._network, complete_until)
        self.committed(new, after)
        return new

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
        """State this network's promise, as configured now (`Account.declare`); whether a new horizon begins with it.

        slots  when the network's slots open
        text   for the operator's log, if a new horizon begins; it is given the account with all payments
        """
        grid = {} if slots is None else {"slot_ns": slots.length_ns, "epoch_ns": slots.epoch_ns}
        with self._database.transaction() as connection:
            before = self._load(connection, at_ns)
            after = before.declare(nano, span_ns, bounds=bounds, roaming=roaming, horizon_slot=horizon_slot, **grid)
            new, old = after.own, before.guarantee_of(self._network)
            since_ns = 0 if old is None else old.since_ns
            begun = new.span_ns is None and new.since_ns > since_ns and after.count > 0
            told = text(self._load(connection, EVER)) if begun else ""
            append(connection, before, after)
            if old is not None and self._other_slots(connection, new, old):
                # The scheme's state counts other slots: the node has to begin anew, from the ledger.
                connection.execute("DELETE FROM state WHERE network = ?", (self._network,))
            if new.span_ns is None and new.since_ns < since_ns:
                again = (
                    f"the horizon of '{self._network}' is the one that all servers have, not one that began here "
                    f"alone: payments since {utc_text(new.since_ns)} count again"
                )
                add_event(connection, self._network, at_ns, "horizon", again)
            if begun:
                add_event(connection, self._network, at_ns, "new-horizon", told)
        return begun

    def new_horizon(self, since_ns: int, at_ns: int, text: str) -> None:
        """The operator begins a new horizon, where `Account.next_horizon` says. Logged."""
        with self._database.transaction() as connection:
            before = self._load(connection, since_ns)
            append(connection, before, before.new_horizon(since_ns, at_ns))
            # The scheme's state has spent the old horizon: the node has to begin anew, from the ledger.
            connection.execute("DELETE FROM state WHERE network = ?", (self._network,))
            add_event(connection, self._network, at_ns, "new-horizon", text)

    def withdraw(self, network: str, at_ns: int, text: str) -> None:
        """The operator ends a network for good: its promise no longer binds others, its payments stay. Logged."""
        with self._database.transaction() as connection:
            before = self._load(connection, at_ns)
            append(connection, before, before.withdraw(network))
            add_event(connection, network, at_ns, "withdrawn", text)

    def _other_slots(self, connection: sqlite3.Connection, new: NetworkGuarantee, old: NetworkGuarantee) -> bool:
        """Whether slots have other numbers or times than when the network was here last."""
        if new.slot_ns == 1:
            return False
        if old.slot_ns > 1:
            return (new.slot_ns, new.epoch_ns) != (old.slot_ns, old.epoch_ns)
        last = connection.execute(  # a ledger of an earlier version: its last sample tells
            "SELECT slot, opens_ns, closes_ns FROM ledger WHERE network = ? AND kind = 'sample' "
            "ORDER BY counter DESC LIMIT 1",
            (new.network,),
        ).fetchone()
        return last is not None and last[1:] != (new.opens(last[0]), new.opens(last[0] + 1))

    # ------------------------------------------------------------------------------------------------------- clocks

    def set_clock(self, at_ns: int, moved_ns: int, steps: ClockSteps | None = None) -> ClockSteps:
        """The clock said `at_ns` and was set by `moved_ns`, ahead or (below 0) back. Logged, if it counts.

        steps  what this life has seen its clock do before; given back with this step in it
        """
        steps = steps or ClockSteps()
        if not moved_ns and not any(jump.remaining_ns for jump in self.account(at_ns).jumps):
            return steps  # nothing that the clock could tell about
        with self._database.transaction() as connection:
            before = self._load(connection, at_ns)
            after, steps = before.set_clock(steps, at_ns, moved_ns)
            append(connection, before, after)
            for jump in after.jumps[len(before.jumps) :]:
                text = f"at {utc_text(jump.at_ns)} the clock was set ahead by {jump.moved_ns / 1e9:.1f} s"
                add_event(connection, self._network, jump.at_ns + jump.moved_ns, "clock", text)
            for old, new in zip(before.jumps, after.jumps, strict=False):
                if new.returned_ns > old.returned_ns:
                    back = f"came back by {new.returned_ns / 1e9:.1f} s in all"
                    text = f"at {utc_text(at_ns)} the clock, set ahead before, {back}"
                    add_event(connection, self._network, at_ns - new.returned_ns, "clock", text)
        return steps

    # ------------------------------------------------------------------------------------------------------ reading

    def counter(self) -> int:
        """Grows with every payment of this network; its neighbours remember it, and so expose an old copy."""
        row = self._reader.row("SELECT counter FROM tally WHERE network = ?", (self._network,))
        return 0 if row is None else int(row[0])

    def payments(self) -> int:
        """How many there are, of all networks, confirmed losses among them."""
        return self._count_and_total()[0]

    def total_spent(self) -> int:
        """Nano-epsilon of all payments ever, of all networks, confirmed losses among them."""
        return self._count_and_total()[1]

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

    def _count_and_total(self) -> tuple[int, int]:
        row = self._reader.row("SELECT counter, total FROM account")
        return (0, 0) if row is None else (int(row[0]), int(row[1]))
