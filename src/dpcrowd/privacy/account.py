"""The account of one server: what a slot may cost, why, what is paid, what is only blocked, when budget comes back.

It is keyed by UTC time and holds all networks that write one ledger: their promises, every payment that can still bind,
losses that an operator has confirmed, and jumps of the clock. It is a value: nothing in here writes anything, and what
happens to an account gives another one. Whoever stores accounts loads one, asks it again inside the transaction that
pays, with the payments of all other processes in it, and appends what is new: so two cannot spend the same rest.

Several networks over the same users may write one ledger. Each declares its promise, and a payment of any of them is
made only if every promise still holds with it:

    cost of all payments that can share a window with it  +  cost of this payment  <=  the promise's epsilon

`promise` says which payments these are and what each costs, and why that is enough; `clock_jumps`, what changes when a
clock was set.

Networks with roaming users share with nobody. What their users pay is bounded by all servers of the network together,
and one server's ledger knows nothing of the others: a user may pay a whole epsilon to the roaming network elsewhere,
and here another one to the network beside it.

Where not all payments are known that could count against a slot, because older ones were not loaded, nothing may be
spent in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dpcrowd.errors import BadInput, BudgetExhausted, SlotTaken
from dpcrowd.privacy.allowance import Allowance
from dpcrowd.privacy.clock_jumps import ClockSteps, Jump, came_back, set_ahead, set_back, younger
from dpcrowd.privacy.network_guarantee import NetworkGuarantee, Slots, UserBounds, Windows
from dpcrowd.privacy.payments import Payment, Payments
from dpcrowd.privacy.units import check_nano, format_epsilon, utc_text

__all__ = ["EVER", "Account", "Horizon", "sharing_problem"]

EVER = -(1 << 62)
"""A time before all payments."""


class Horizon(NamedTuple):
    """One that has begun on the ledger, and what was promised for it. It outlives a promise that is withdrawn."""

    network: str
    since_ns: int
    nano: int


@dataclass(frozen=True, eq=False)
class Account:
    """All that counts on a ledger, as the server of one network sees it.

    network   the own one: it pays, and states its own promise
    promises  of all networks, in order of their names
    payments  all that close after `known_ns`
    jumps     all that were kept, the oldest first
    count     payments ever made, of all networks
    total     nano-epsilon of all of them, confirmed losses among them
    lost      nano-epsilon of all losses that were ever confirmed: blocked, and perhaps never paid
    given     the own network's slots, as configured; None: as they were declared
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
        """What the own network has promised."""
        guarantee = self.guarantee_of(self.network)
        if guarantee is None:
            raise BadInput(f"network '{self.network}' has declared no promise on this ledger: declare it first.")
        return guarantee

    @property
    def slots(self) -> Slots:
        """Those of the own network."""
        return self.configured or Slots(self.own.epoch_ns, self.own.slot_ns)

    @property
    def first_slot(self) -> int:
        """The first slot of the present horizon; 0 for windows."""
        return 0 if self.own.span_ns is not None else max(self.slots.slot_of(self.own.since_ns), 0)

    def guarantee_of(self, network: str) -> NetworkGuarantee | None:
        return next((guarantee for guarantee in self.guarantees if guarantee.network == network), None)

    def reach(self, opens_ns: int) -> int:
        """Payments that close after this time may count against a slot that opens at `opens_ns`."""
        return min([opens_ns, *(guarantee.reach(opens_ns, self.jumps) for guarantee in self.guarantees)])

    def allowance(self, opens_ns: int) -> Allowance:
        """What a slot that opens at a time may cost at most, so that the promises of all networks hold."""
        own = self.own
        known = self.reach(opens_ns) >= self.complete_after_ns
        bound: tuple[int, bool, int, int, NetworkGuarantee] | None = None
        for guarantee in self.guarantees:
            after = guarantee.reach(opens_ns, self.jumps)
            counted = self._cost(guarantee.bounds, after)
            left = guarantee.bounds.affordable(max(guarantee.nano - counted, 0), own.payer) if known else 0
            this = left, guarantee is not own, counted, after, guarantee
            if bound is None or this[:2] < bound[:2]:
                bound = this
        assert bound is not None
        left, _, counted, after, guarantee = bound
        return Allowance(0 if self.is_over(opens_ns) else left, guarantee, counted, after, opens_ns, self)

    def is_over(self, opens_ns: int) -> bool:
        """Whether a slot opens after the end of the own horizon."""
        slots = self.slots
        if self.own.span_ns is not None or slots.count is None:
            return False
        return slots.slot_of(opens_ns) >= self.first_slot + slots.count

    def draw_conflict(self, opens_ns: int, closes_ns: int) -> str:
        """Why the own network cannot draw for a time: any part of it was drawn, or declared lost. Empty if it can."""
        # Any overlap counts: with a new epoch the same minutes may have another slot number and another start.
        kinds = {one.kind for one in self.payments.overlapping(self.network, opens_ns, closes_ns)}
        if not kinds:
            return ""
        return "lies in a time that was declared lost" if "lost" in kinds else "was drawn before"

    def counted_payments(self, guarantee: NetworkGuarantee, opens_ns: int) -> list[Payment]:
        """The payments that count against a promise in a slot that opens at a time; see `dated`.

        What each of them costs the users of the promise is `promise.bounds.cost(payment.nano, payment.bounds)`.
        """
        return self.payments_after(guarantee.reach(opens_ns, self.jumps))

    def payments_after(self, after_ns: int) -> list[Payment]:
        """The payments for slots that closed after a time by the clock of their day, in order.

        Times are as they would have been by the present clock: what was paid before the clock was set ahead is younger
        than its date says, see `clock_jumps`.
        """
        found = self.payments.after(after_ns)
        if not any(jump.left_ns for jump in self.jumps):
            return found
        moved = [(one, younger(self.jumps, one.number)) for one in found]
        return [one._replace(opens_ns=one.opens_ns + by, closes_ns=one.closes_ns + by) for one, by in moved]

    def total_promised(self) -> int:
        """Nano-epsilon of all horizons of the own network, and of what others have paid. Needs all payments.

        With roaming users a horizon may have cost a user all that it promised, whatever this server has paid.
        """
        others = sum(one.nano for one in self.payments if one.network != self.network)
        return others + sum(horizon.nano for horizon in self.horizons if horizon.network == self.network)

    def next_horizon_start(self, since_ns: int, at_ns: int) -> int:
        """Where a horizon would begin: with the slot that is open at `since_ns`, and after all that was paid by now.

        So every payment is in one horizon: those that were made are in the old one. A slot that opened before and is
        paid later counts in the old one, too.
        """
        own = self._finite()
        start = max(own.since_ns, own.slot_start(since_ns))
        # What is dated after the present was paid by a clock that was ahead; waiting for that date could take years.
        paid = [one for one in self.payments.after(start) if one.network == own.network and one.opens_ns <= at_ns]
        return max([start, *(own.slot_start(one.closes_ns, after=True) for one in paid)])

    def _cost(self, bounds: UserBounds, after_ns: int) -> int:
        return self.payments.cost(bounds, after_ns, "sample") + self.payments.cost(bounds, after_ns, "lost")

    # ---------------------------------------------------------------------------------------------------- payments

    def pay(self, slot: int, opens_ns: int, length_ns: int, nano: int) -> Account:
        """One payment of the own network, for a slot; refused if it was drawn before, or would break a promise."""
        check_nano(nano)
        if length_ns < 1:
            raise BadInput(f"a slot of {length_ns} ns; allowed: at least 1.")
        if draw_conflict := self.draw_conflict(opens_ns, opens_ns + length_ns):
            raise SlotTaken(
                f"slot {slot}, open from {utc_text(opens_ns)}, {draw_conflict}: no slot is drawn a second time."
            )
        allowance = self.allowance(opens_ns)
        if nano > allowance.nano:
            raise self._exhausted(allowance, nano)
        own = self.own
        bounds = own.payer
        new = Payment(self.count + 1, self.network, "sample", slot, opens_ns, opens_ns + length_ns, nano)
        new = new._replace(regions=bounds.regions, servers=bounds.servers)
        return self._replaced(_with_windows(own, opens_ns, length_ns)).add(new)

    def book_loss(self, from_ns: int, to_ns: int, nano: int) -> Account:
        """The operator confirms that payments between two times are lost: they count as `nano`, none is drawn again."""
        check_nano(nano)
        if to_ns <= from_ns:
            raise BadInput(f"a loss from {utc_text(from_ns)} to {utc_text(to_ns)}; allowed: an end after the start.")
        own = self.guarantee_of(self.network)
        bounds = UserBounds() if own is None else own.payer
        new = Payment(self.count + 1, self.network, "lost", None, from_ns, to_ns, nano)
        return self.add(new._replace(regions=bounds.regions, servers=bounds.servers))

    def add(self, payment: Payment) -> Account:
        """What was paid is paid, whatever it breaks."""
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
        """State the own network's promise, as configured now.

        slot_ns, epoch_ns  the network's slots; without, a window may begin at any moment, which holds for all
        horizon_slot       for a finite promise (span None): the slot at which network.toml begins the horizon

        What was promised is kept: a weaker promise, more epsilon, a shorter span or fewer regions or servers per slot,
        needs a network of its own. A finite promise keeps the start of its horizon until a higher `horizon_slot`, or
        the operator of pinned users, begins another.
        """
        check_nano(nano)
        if span_ns is not None and span_ns < 1:
            raise BadInput(f"a window of {span_ns} ns; allowed: at least 1.")
        if horizon_slot < 0 or (horizon_slot and (slot_ns == 1 or span_ns is not None)):
            raise BadInput(f"a horizon from slot {horizon_slot}; allowed: for a finite promise with slots, 0 or more.")
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
                f"guarantee.horizon_from_slot = {new.horizon_slot}. A horizon that has begun is not taken back: use "
                "the newest network.toml."
            )
        return self._begin(replace(new.following(old), paid=() if old is None else old.paid))

    def new_horizon(self, since_ns: int, at_ns: int) -> Account:
        """The operator begins a new horizon, where `next_horizon` says; payments before it no longer count."""
        own = self._finite()
        if own.roaming:
            raise BadInput(
                f"network '{self.network}' has roaming users: a horizon that begins at one server alone does not "
                "bound what they pay at all of them. Begin it for all, by a revision of network.toml with "
                "guarantee.horizon_from_slot."
            )
        return self._begin(replace(own, since_ns=self.next_horizon_start(since_ns, at_ns)))

    def withdraw(self, network: str) -> Account:
        """The operator ends a network for good: its promise no longer binds others, its payments stay."""
        if self.guarantee_of(network) is None:
            raise BadInput(f"no network '{network}' has declared a promise on this ledger.")
        return replace(self, guarantees=tuple(one for one in self.guarantees if one.network != network))

    def _finite(self) -> NetworkGuarantee:
        own = self.guarantee_of(self.network)
        if own is None or own.span_ns is not None:
            raise BadInput(f"network '{self.network}' has no finite horizon: only a finite one can begin anew.")
        return own

    def _begin(self, guarantee: NetworkGuarantee) -> Account:
        """With a promise of the own network in the place of the one before it, and with its horizon."""
        if guarantee.span_ns is not None:
            return self._replaced(guarantee)
        begun = Horizon(guarantee.network, guarantee.since_ns, guarantee.nano)
        if all(one[:2] != begun[:2] for one in self.horizons):
            return replace(self, horizons=tuple(sorted((*self.horizons, begun))))._replaced(guarantee)
        return self._replaced(guarantee)

    def _replaced(self, guarantee: NetworkGuarantee) -> Account:
        starts = [one.since_ns for one in self.horizons if one.network == guarantee.network]
        guarantee = replace(guarantee, earlier=tuple(sorted(start for start in starts if start < guarantee.since_ns)))
        others = [one for one in self.guarantees if one.network != guarantee.network]
        return replace(self, guarantees=tuple(sorted((*others, guarantee), key=lambda one: one.network)))

    # ------------------------------------------------------------------------------------------------------- clocks

    def set_clock(self, steps: ClockSteps, at_ns: int, moved_ns: int) -> tuple[Account, ClockSteps]:
        """The clock of the own server said `at_ns` and was set by `moved_ns`, ahead or (below 0) back; 0: it says so.

        steps  what this life of the server has seen its clock do before; given back with this step in it
        """
        if moved_ns > 0:
            alone = all(guarantee.network == self.network for guarantee in self.guarantees)
            ahead = set_ahead(self.jumps, steps, self.network, self.count, at_ns, moved_ns, alone=alone)
            return replace(self, jumps=ahead[0]), ahead[1]
        jumps, steps = set_back(self.jumps, steps, -moved_ns)
        return replace(self, jumps=came_back(jumps, at_ns + moved_ns)), steps


def sharing_problem(network: str, roaming: bool, guarantees: Sequence[NetworkGuarantee]) -> str:
    """Why a network cannot share the ledger on which these promises stand; empty if it can, or is alone."""
    others = [guarantee for guarantee in guarantees if guarantee.network != network]
    whose = next((guarantee.network for guarantee in others if guarantee.roaming), network if roaming else None)
    if not others or whose is None:
        return ""
    names = ", ".join(f"'{guarantee.network}'" for guarantee in others)
    return (
        f"network '{network}' shares its ledger with {names}, and the users of '{whose}' roam: what they pay at other "
        "servers is in other ledgers, so a shared one does not bound it. Allowed: networks of pinned users only. Give "
        f"'{whose}' a ledger of its own (ledger.shared in node.toml); if another network on this ledger has ended, "
        "'dpcrowd node withdraw' ends its promise."
    )


def _with_windows(own: NetworkGuarantee, opens_ns: int, length_ns: int) -> NetworkGuarantee:
    """Windows of the slots under which something is paid bind from now on."""
    if own.span_ns is None:
        return own
    used = Windows(own.span_ns, length_ns, opens_ns % length_ns)
    if used in own.paid:
        return own
    same = [one.span_ns for one in own.paid if (one.slot_ns, one.offset_ns) == (used.slot_ns, used.offset_ns)]
    others = [one for one in own.paid if (one.slot_ns, one.offset_ns) != (used.slot_ns, used.offset_ns)]
    return replace(own, paid=(*others, replace(used, span_ns=max([used.span_ns, *same]))))
