"""The account of one server: what a slot may cost, why, what is paid, what is only blocked, when budget comes back.

An account is keyed by UTC time and holds all networks that write one ledger: their guarantees, every payment that can
still bind, losses that an operator has confirmed, and jumps of the clock. It is a value: nothing here writes anything,
and every change returns another account. Storage loads an account, asks it again inside the transaction that pays, with
the payments of all other processes in it, and appends what is new, so two processes cannot spend the same remaining
budget.

Several networks over the same users may write one ledger. Each declares its guarantee, and a payment of any of them is
made only if every guarantee still holds with it:

    cost of all payments that can share a window with it  +  cost of this payment  <=  the guarantee's epsilon

`network_guarantee` says which payments these are, what each costs, and why that is enough; `clock_jumps` says what
changes when a clock was set; `allowance` explains the answer.

A network with roaming users cannot share a ledger. What its users pay is bounded by all servers of the network
together, and one server's ledger does not know the others: a user might pay a complete epsilon to the roaming network
elsewhere, and another one here to the network that shares the ledger.

If not all payments that could count against a slot are loaded, nothing may be spent in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dpcrowd.errors import BadInput, BudgetExhausted, SlotTaken
from dpcrowd.privacy.allowance import Allowance
from dpcrowd.privacy.clock_jumps import ClockSteps, Jump, date_correction, reduce_to_reading, step_ahead, step_back
from dpcrowd.privacy.network_guarantee import NetworkGuarantee, Slots, UserBounds, Windows
from dpcrowd.privacy.payments import Payment, Payments
from dpcrowd.privacy.units import check_nano, format_epsilon, utc_text

__all__ = ["EVER", "Account", "Horizon", "sharing_problem"]

EVER = -(1 << 62)
"""A time before all payments."""


class Horizon(NamedTuple):
    """A horizon that has begun on the ledger, and its epsilon. It stays when the network's guarantee is withdrawn."""

    network: str
    since_ns: int
    nano: int


@dataclass(frozen=True, eq=False)
class Account:
    """Everything that counts on a ledger, as the server of one network sees it.

    network            the account's own network, which pays and declares its own guarantee
    guarantees         the guarantees of all networks, in order of their names
    payments           all payments that close after `complete_after_ns`
    jumps              all jumps of the clock that are recorded, oldest first
    horizons           all finite horizons that have begun, of all networks
    count              number of payments ever made, by all networks
    total              nano-epsilon of all these payments, confirmed losses included
    lost               nano-epsilon of all losses ever confirmed: blocked, and perhaps never paid
    complete_after_ns  no payment that closes after this time is missing
    configured         the own network's slots, as configured; None: as they were declared
    """

    network: str
    guarantees: tuple[NetworkGuarantee, ...] = ()
    payments: Payments = field(default_factory=Payments)
    jumps: tuple[Jump, ...] = ()
    horizons: tuple[Horizon, ...] = ()
    count: int = 0
    total: int = 0
    lost: int = 0
    complete_after_ns: int = EVER
    configured: Slots | None = None

    # -------------------------------------------------------------------------------------------------- questions

    @property
    def own(self) -> NetworkGuarantee:
        """The guarantee of the account's own network."""
        guarantee = self.guarantee_of(self.network)
        if guarantee is None:
            raise BadInput(f"network '{self.network}' has declared no guarantee on this ledger; declare it first.")
        return guarantee

    @property
    def slots(self) -> Slots:
        """The slots of the own network."""
        return self.configured or Slots(self.own.epoch_ns, self.own.slot_ns)

    @property
    def first_slot(self) -> int:
        """The first slot of the present horizon; 0 for windows."""
        return 0 if self.own.span_ns is not None else max(self.slots.slot_of(self.own.since_ns), 0)

    def guarantee_of(self, network: str) -> NetworkGuarantee | None:
        """Return what a network has declared; None if it has declared nothing."""
        return next((guarantee for guarantee in self.guarantees if guarantee.network == network), None)

    def reach(self, opens_ns: int) -> int:
        """Return the time after which payments have to close to count against a slot that opens at `opens_ns`."""
        return min([opens_ns, *(guarantee.reach(opens_ns, self.jumps) for guarantee in self.guarantees)])

    def allowance(self, opens_ns: int) -> Allowance:
        """Return what the slot that opens at `opens_ns` may cost, so that the guarantees of all networks hold."""
        own = self.own
        is_complete = self.reach(opens_ns) >= self.complete_after_ns
        tightest: tuple[int, bool, int, int, NetworkGuarantee] | None = None
        for guarantee in self.guarantees:
            after = guarantee.reach(opens_ns, self.jumps)
            counted = self._cost(guarantee.bounds, after)
            nano = guarantee.bounds.affordable(max(guarantee.nano - counted, 0), own.payer) if is_complete else 0
            candidate = nano, guarantee is not own, counted, after, guarantee
            if tightest is None or candidate[:2] < tightest[:2]:
                tightest = candidate
        assert tightest is not None
        nano, _, counted, after, guarantee = tightest
        return Allowance(0 if self.is_over(opens_ns) else nano, guarantee, counted, after, opens_ns, self)

    def is_over(self, opens_ns: int) -> bool:
        """Whether a slot opens after the end of the own network's horizon."""
        slots = self.slots
        if self.own.span_ns is not None or slots.count is None:
            return False
        return slots.slot_of(opens_ns) >= self.first_slot + slots.count

    def draw_conflict(self, opens_ns: int, closes_ns: int) -> str:
        """Say why the own network cannot draw for a time: some of it was drawn, or declared lost. Empty if it can."""
        # Any overlap counts: with a new epoch the same minutes may have another slot number and another start.
        kinds = {one.kind for one in self.payments.overlapping(self.network, opens_ns, closes_ns)}
        if not kinds:
            return ""
        return "lies in a time that was declared lost" if "lost" in kinds else "was drawn before"

    def counted_payments(self, guarantee: NetworkGuarantee, opens_ns: int) -> list[Payment]:
        """Return the payments that count against a guarantee in the slot opening at `opens_ns`; see `payments_after`.

        Each of them costs the users of the guarantee `guarantee.bounds.cost(payment.nano, payment.bounds)`.
        """
        return self.payments_after(guarantee.reach(opens_ns, self.jumps))

    def payments_after(self, after_ns: int) -> list[Payment]:
        """Return the payments for slots that closed after a time, by the clock that dated them, in order.

        The times in the result are those of the present clock: a payment made before the clock was set ahead is younger
        than its date says, see `clock_jumps`.
        """
        payments = self.payments.after(after_ns)
        if not any(jump.remaining_ns for jump in self.jumps):
            return payments
        corrections = [(one, date_correction(self.jumps, one.number)) for one in payments]
        return [one._replace(opens_ns=one.opens_ns + by, closes_ns=one.closes_ns + by) for one, by in corrections]

    def total_promised(self) -> int:
        """Return the nano-epsilon of all horizons of the own network, plus what other networks have paid.

        The account has to hold all payments. A horizon of roaming users may have cost a user everything that it
        promised, whatever this server has paid.
        """
        others = sum(one.nano for one in self.payments if one.network != self.network)
        return others + sum(horizon.nano for horizon in self.horizons if horizon.network == self.network)

    def next_horizon_start(self, since_ns: int, at_ns: int) -> int:
        """Return where a new horizon would begin: with the slot open at `since_ns`, but after everything paid so far.

        Every payment thus belongs to one horizon, and past payments belong to the old one. A slot that opened before
        and is paid later counts in the old one, too.
        """
        own = self._finite()
        start = max(own.since_ns, own.slot_start(since_ns))
        # A payment dated in the future was made by a clock that was ahead; waiting for that date could take years.
        payments = [one for one in self.payments.after(start) if one.network == own.network and one.opens_ns <= at_ns]
        return max([start, *(own.slot_start(one.closes_ns, after=True) for one in payments)])

    def _cost(self, bounds: UserBounds, after_ns: int) -> int:
        return self.payments.cost(bounds, after_ns, "sample") + self.payments.cost(bounds, after_ns, "lost")

    # ---------------------------------------------------------------------------------------------------- payments

    def pay(self, slot: int, opens_ns: int, length_ns: int, nano: int) -> Account:
        """Pay for a slot; refuse one that was drawn before, and a payment that would break a guarantee."""
        check_nano(nano)
        if length_ns < 1:
            raise BadInput(f"slot {slot} has a length of {length_ns} ns; allowed: at least 1 ns.")
        if conflict := self.draw_conflict(opens_ns, opens_ns + length_ns):
            raise SlotTaken(f"slot {slot}, open from {utc_text(opens_ns)}, {conflict}: no slot is drawn a second time.")
        allowance = self.allowance(opens_ns)
        if nano > allowance.nano:
            raise self._exhausted(allowance, nano)
        own = self.own
        bounds = own.payer
        new = Payment(self.count + 1, self.network, "sample", slot, opens_ns, opens_ns + length_ns, nano)
        new = new._replace(regions=bounds.regions, servers=bounds.servers)
        return self._replaced(_with_windows(own, opens_ns, length_ns)).add(new)

    def book_loss(self, from_ns: int, to_ns: int, nano: int) -> Account:
        """Book payments between two times as lost: they count as `nano`, and that time is never drawn again."""
        check_nano(nano)
        if to_ns <= from_ns:
            raise BadInput(
                f"a loss from {utc_text(from_ns)} to {utc_text(to_ns)} is empty; give an end after the start."
            )
        own = self.guarantee_of(self.network)
        bounds = UserBounds() if own is None else own.payer
        new = Payment(self.count + 1, self.network, "lost", None, from_ns, to_ns, nano)
        return self.add(new._replace(regions=bounds.regions, servers=bounds.servers))

    def add(self, payment: Payment) -> Account:
        """Add a payment that has been made, whatever guarantee it breaks."""
        return replace(
            self,
            payments=self.payments.add(payment),
            count=max(self.count, payment.number),
            total=self.total + payment.nano,
            lost=self.lost + (payment.nano if payment.kind == "lost" else 0),
        )

    def _exhausted(self, allowance: Allowance, nano: int) -> BudgetExhausted:
        guarantee, opens_ns = allowance.guarantee, allowance.opens_ns
        if allowance.is_over:
            text = f"the slot from {utc_text(opens_ns)} asks for ε={format_epsilon(nano)}, but {allowance.shortage}"
            return BudgetExhausted(text, requested=nano, remaining=0, returns_at=None)
        cost = guarantee.bounds.cost(nano, self.own.payer)
        counts = f" (ε={format_epsilon(cost)} for users {guarantee.bounds})" if cost > nano else ""
        return BudgetExhausted(
            f"the slot from {utc_text(opens_ns)} asks for ε={format_epsilon(nano)}{counts}, but the ledger has "
            f"spent {format_epsilon(allowance.counted)} of the {format_epsilon(guarantee.nano)} that network "
            f"'{guarantee.network}' promises ({format_epsilon(allowance.nano)} left).",
            requested=nano,
            remaining=allowance.nano,
            returns_at=allowance.binding.returns[0],
        )

    # ---------------------------------------------------------------------------------------------------- promises

    def declare(
        self,
        nano: int,
        span_ns: int | None,
        *,
        bounds: UserBounds | None = None,
        roaming: bool = False,
        slot_ns: int = 1,
        epoch_ns: int = 0,
        horizon_slot: int = 0,
    ) -> Account:
        """Declare the own network's guarantee, as it is configured now.

        slot_ns, epoch_ns  the network's slots; without them a window may begin at any moment, which covers all cases
        horizon_slot       for a finite guarantee (span None): the slot at which network.toml begins the horizon

        What was promised stays promised: a weaker guarantee (more epsilon, a shorter span, or fewer regions or servers
        per slot) needs a network of its own. A finite guarantee keeps the start of its horizon until a higher
        `horizon_slot`, or the operator of a network with pinned users, begins another.
        """
        check_nano(nano)
        if span_ns is not None and span_ns < 1:
            raise BadInput(f"a guarantee over a window of {span_ns} ns; allowed: at least 1 ns.")
        if horizon_slot < 0 or (horizon_slot and (slot_ns == 1 or span_ns is not None)):
            raise BadInput(
                f"a horizon from slot {horizon_slot}; allowed: 0 or more, for a finite guarantee whose slots are given."
            )
        grid = slot_ns, epoch_ns, horizon_slot
        new = NetworkGuarantee(self.network, nano, span_ns, 0, bounds or UserBounds(), roaming, *grid)
        old = self.guarantee_of(self.network)
        if problem := sharing_problem(self.network, new.roaming, self.guarantees):
            raise BadInput(problem)
        if old is not None and new.weaker_than(old):
            raise BadInput(
                f"network '{self.network}' promised {old} on this ledger; given {new}, which is weaker. Give the "
                "network that promises less an id of its own."
            )
        if old is not None and new.horizon_slot < old.horizon_slot:
            raise BadInput(
                f"network '{self.network}' has begun the horizon of slot {old.horizon_slot} on this ledger; given "
                f"guarantee.horizon_from_slot = {new.horizon_slot}. A horizon that has begun cannot be undone: use the "
                "newest network.toml."
            )
        return self._begin(replace(new.continuing(old), paid=() if old is None else old.paid))

    def new_horizon(self, since_ns: int, at_ns: int) -> Account:
        """Begin a new horizon at `next_horizon_start`, as the operator decides; earlier payments no longer count."""
        own = self._finite()
        if own.roaming:
            raise BadInput(
                f"network '{self.network}' has roaming users: a horizon that begins at one server only does not bound "
                "what they pay at all servers together. Begin it at all servers, by a revision of network.toml with "
                "guarantee.horizon_from_slot."
            )
        return self._begin(replace(own, since_ns=self.next_horizon_start(since_ns, at_ns)))

    def withdraw(self, network: str) -> Account:
        """End a network for good: its guarantee no longer binds the other networks, its payments stay."""
        if self.guarantee_of(network) is None:
            raise BadInput(
                f"network '{network}' has declared no guarantee on this ledger, so there is nothing to withdraw."
            )
        return replace(self, guarantees=tuple(one for one in self.guarantees if one.network != network))

    def _finite(self) -> NetworkGuarantee:
        own = self.guarantee_of(self.network)
        if own is None or own.span_ns is not None:
            raise BadInput(f"network '{self.network}' has no finite horizon; only a finite horizon can be begun anew.")
        return own

    def _begin(self, guarantee: NetworkGuarantee) -> Account:
        """Replace the own network's guarantee, and record its horizon if it is a new one."""
        if guarantee.span_ns is not None:
            return self._replaced(guarantee)
        horizon = Horizon(guarantee.network, guarantee.since_ns, guarantee.nano)
        if all(one[:2] != horizon[:2] for one in self.horizons):
            return replace(self, horizons=tuple(sorted((*self.horizons, horizon))))._replaced(guarantee)
        return self._replaced(guarantee)

    def _replaced(self, guarantee: NetworkGuarantee) -> Account:
        starts = [one.since_ns for one in self.horizons if one.network == guarantee.network]
        guarantee = replace(guarantee, earlier=tuple(sorted(start for start in starts if start < guarantee.since_ns)))
        others = [one for one in self.guarantees if one.network != guarantee.network]
        return replace(self, guarantees=tuple(sorted((*others, guarantee), key=lambda one: one.network)))

    # ------------------------------------------------------------------------------------------------------- clocks

    def set_clock(self, steps: ClockSteps, at_ns: int, moved_ns: int) -> tuple[Account, ClockSteps]:
        """Record that the server's clock read `at_ns` and was set by `moved_ns`: ahead, or back if below 0.

        With 0 the clock was not set; its reading alone may show that an earlier jump is undone.

        steps  the steps of the clock that this life of the server has seen so far; returned with this one added
        """
        if moved_ns > 0:
            alone = all(guarantee.network == self.network for guarantee in self.guarantees)
            jumps, steps = step_ahead(self.jumps, steps, self.network, self.count, at_ns, moved_ns, alone=alone)
            return replace(self, jumps=jumps), steps
        jumps, steps = step_back(self.jumps, steps, -moved_ns)
        return replace(self, jumps=reduce_to_reading(jumps, at_ns + moved_ns)), steps


def sharing_problem(network: str, roaming: bool, guarantees: Sequence[NetworkGuarantee]) -> str:
    """Say why a network cannot share the ledger with these guarantees; empty if it can, or has the ledger alone."""
    others = [guarantee for guarantee in guarantees if guarantee.network != network]
    roamer = next((guarantee.network for guarantee in others if guarantee.roaming), network if roaming else None)
    if not others or roamer is None:
        return ""
    names = ", ".join(f"'{guarantee.network}'" for guarantee in others)
    return (
        f"network '{network}' shares its ledger with {names}, and the users of '{roamer}' roam: what they pay at other "
        "servers is in other ledgers, so a shared one does not bound it. Allowed: networks of pinned users only. Give "
        f"'{roamer}' a ledger of its own (ledger.shared in node.toml); if another network on this ledger has ended, "
        "'dpcrowd node withdraw' ends its promise."
    )


def _with_windows(own: NetworkGuarantee, opens_ns: int, length_ns: int) -> NetworkGuarantee:
    """Add the windows of the slot that is paid for: they bind the network from now on."""
    if own.span_ns is None:
        return own
    used = Windows(own.span_ns, length_ns, opens_ns % length_ns)
    if used in own.paid:
        return own
    same = [one.span_ns for one in own.paid if (one.slot_ns, one.offset_ns) == (used.slot_ns, used.offset_ns)]
    others = [one for one in own.paid if (one.slot_ns, one.offset_ns) != (used.slot_ns, used.offset_ns)]
    return replace(own, paid=(*others, replace(used, span_ns=max([used.span_ns, *same]))))
