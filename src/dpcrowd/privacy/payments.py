"""Payments of a ledger, in the order in which their slots closed, and what they cost the users of a guarantee together.

Every question to an account is a sum over the payments that close after some time. A horizon may hold a hundred
thousand of them, and the question is asked in every slot: so prefix sums are cached for each `UserBounds` that is asked
for, and an answer costs two binary searches. Nothing here changes: `add` returns another object, which shares the sums
of the earlier payments and holds the few newest ones beside them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, repeat
from operator import attrgetter, sub
from typing import Literal, NamedTuple

from dpcrowd.privacy.network_guarantee import UserBounds

__all__ = ["Kind", "Payment", "Payments"]

Kind = Literal["sample", "lost"]
_MOST_RECENT = 256


class Payment(NamedTuple):
    """One payment, or a loss that the operator has confirmed, which counts as one.

    number            its place among all payments on the ledger, of all networks, from 1 on
    slot              the number of the slot that was sampled; None for a loss
    regions, servers  for how many regions and servers per slot its noise was made
    """

    number: int
    network: str
    kind: Kind
    slot: int | None
    opens_ns: int
    closes_ns: int
    nano: int
    regions: int = 1
    servers: int = 1

    @property
    def bounds(self) -> UserBounds:
        """The bounds of users for which the noise was made."""
        return UserBounds(self.regions, self.servers)


class Payments:
    """An immutable collection of payments with fast sums."""

    def __init__(self, payments: Iterable[Payment] = ()) -> None:
        self._sorted = _SortedPayments(payments)
        self._recent: tuple[Payment, ...] = ()

    def add(self, payment: Payment) -> Payments:
        """Return these payments and one more."""
        more = Payments.__new__(Payments)
        more._sorted, more._recent = self._sorted, (*self._recent, payment)
        if len(more._recent) > _MOST_RECENT:
            more._sorted, more._recent = self._sorted.with_more(more._recent), ()
        return more

    def after(self, after_ns: int) -> list[Payment]:
        """Return the payments that close after a time, in the order in which they close."""
        older = self._sorted.payments[bisect_right(self._sorted.ends, after_ns) :]
        recent = [one for one in self._recent if one.closes_ns > after_ns]
        return sorted([*older, *recent], key=_order) if recent else older

    def cost(self, bounds: UserBounds, after_ns: int, kind: Kind) -> int:
        """Return what payments of a kind that close after a time cost a user within some bounds, in nano-epsilon."""
        sums = self._sorted.sums(bounds, kind)
        recent = sum(
            bounds.cost(one.nano, one.bounds) for one in self._recent if one.closes_ns > after_ns and one.kind == kind
        )
        return sums[-1] - sums[bisect_right(self._sorted.ends, after_ns)] + recent

    def overlapping(self, network: str, opens_ns: int, closes_ns: int) -> list[Payment]:
        """Return the payments of a network that overlap the time between two moments."""
        candidates = [*self._sorted.overlapping(opens_ns, closes_ns), *self._recent]
        return [
            one
            for one in candidates
            if one.network == network and one.closes_ns > opens_ns and one.opens_ns < closes_ns
        ]

    def newest(self, count: int) -> list[Payment]:
        """Return the last `count` payments that were added, in that order."""
        if count <= len(self._recent):
            return list(self._recent[len(self._recent) - count :])
        return sorted(self, key=lambda one: one.number)[-count:]

    def closed_by(self, at_ns: int) -> int:
        """Return how many payments close at a time or before it."""
        return bisect_right(self._sorted.ends, at_ns) + sum(one.closes_ns <= at_ns for one in self._recent)

    def __len__(self) -> int:
        return len(self._sorted.payments) + len(self._recent)

    def __iter__(self) -> Iterator[Payment]:
        yield from self._sorted.payments
        yield from self._recent


class _SortedPayments:
    """Payments in order, with cached prefix sums; fast enough to build from a hundred thousand at every start."""

    def __init__(self, payments: Iterable[Payment]) -> None:
        self.payments = sorted(payments, key=_order)
        self.ends = list(map(_closes, self.payments))
        self._losses = [one for one in self.payments if one.kind == "lost"]
        self._longest = max(map(sub, self.ends, map(_opens, self.payments)), default=0)
        if self._losses:  # they may last for days
            samples = (one for one in self.payments if one.kind == "sample")
            self._longest = max((one.closes_ns - one.opens_ns for one in samples), default=0)
        self._sums: dict[tuple[UserBounds, Kind], list[int]] = {}

    def with_more(self, payments: Iterable[Payment]) -> _SortedPayments:
        """Return these payments and more; if all of the new ones come later, the cached sums are only extended."""
        more = _SortedPayments(payments)
        if self.payments and _order(more.payments[0]) < _order(self.payments[-1]):
            return _SortedPayments([*self.payments, *more.payments])
        for (bounds, kind), sums in self._sums.items():
            more._sums[bounds, kind] = [*sums[:-1], *accumulate(more._costs(bounds, kind), initial=sums[-1])]
        more.payments, more.ends = [*self.payments, *more.payments], [*self.ends, *more.ends]
        more._losses = [*self._losses, *more._losses]
        more._longest = max(self._longest, more._longest)
        return more

    def sums(self, bounds: UserBounds, kind: Kind) -> list[int]:
        """Return prefix sums: entry n is what the first n payments cost, those of other kinds counted as 0."""
        sums = self._sums.get((bounds, kind))
        if sums is None:
            sums = self._sums[bounds, kind] = list(accumulate(self._costs(bounds, kind), initial=0))
        return sums

    def _costs(self, bounds: UserBounds, kind: Kind) -> Iterable[int]:
        """Return what each payment costs; 0 if it is of another kind."""
        ratios = {payer: bounds.ratio(UserBounds(*payer)) for payer in set(map(_payer, self.payments))}
        if not self._losses:
            if kind == "lost":
                return repeat(0, len(self.payments))
            if all(factor == divisor for factor, divisor in ratios.values()):
                return map(_nano, self.payments)
        costs = []
        for payment in self.payments:
            factor, divisor = ratios[payment.regions, payment.servers]
            costs.append(-(-payment.nano * factor // divisor) if payment.kind == kind else 0)
        return costs

    def overlapping(self, opens_ns: int, closes_ns: int) -> list[Payment]:
        """Return all payments that may overlap a time: samples that end soon after it, and all losses."""
        first, end = bisect_right(self.ends, opens_ns), bisect_right(self.ends, closes_ns + self._longest)
        samples = [one for one in self.payments[first:end] if one.kind == "sample"]
        return [*self._losses, *samples]


_order = attrgetter("closes_ns", "number")
_closes, _opens, _nano = attrgetter("closes_ns"), attrgetter("opens_ns"), attrgetter("nano")
_payer = attrgetter("regions", "servers")
