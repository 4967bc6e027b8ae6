"""Payments of a ledger, in the order in which their slots closed, and what they cost the users of a promise together.

Every question to an account is a sum over the payments that close after some time. A horizon may hold a hundred
thousand of them, and it is asked in every slot: so the sums are kept by prefix, for each bounds of users that somebody
asks for, and a question costs two binary searches. Nothing here ever changes: `add` gives another object, which shares
the sums of those before it and has the few newest payments beside them.
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
    """One payment, or a loss that the operator confirmed, which counts as one.

    number            its place among all payments on the ledger, of all networks, from 1 on
    regions, servers  for how many of them per slot its noise was made
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
        return UserBounds(self.regions, self.servers)


class Payments:
    """All payments that close after some time; a value."""

    def __init__(self, payments: Iterable[Payment] = ()) -> None:
        self._sorted = _Sorted(payments)
        self._recent: tuple[Payment, ...] = ()

    def add(self, payment: Payment) -> Payments:
        """The same, and one more."""
        more = Payments.__new__(Payments)
        more._sorted, more._recent = self._sorted, (*self._recent, payment)
        if len(more._recent) > _MOST_RECENT:
            more._sorted, more._recent = self._sorted.with_more(more._recent), ()
        return more

    def after(self, after_ns: int) -> list[Payment]:
        """Those that close after a time, in the order of their ends."""
        found = self._sorted.payments[bisect_right(self._sorted.ends, after_ns) :]
        recent = [one for one in self._recent if one.closes_ns > after_ns]
        return sorted([*found, *recent], key=_order) if recent else found

    def cost(self, bounds: UserBounds, after_ns: int, kind: Kind) -> int:
        """What those of a kind that close after a time cost a user within some bounds, in nano-epsilon."""
        sums = self._sorted.sums(bounds, kind)
        recent = sum(
            bounds.cost(one.nano, one.bounds) for one in self._recent if one.closes_ns > after_ns and one.kind == kind
        )
        return sums[-1] - sums[bisect_right(self._sorted.ends, after_ns)] + recent

    def overlapping(self, network: str, opens_ns: int, closes_ns: int) -> list[Payment]:
        """Those of a network that lie, in part at least, between two times."""
        candidates = [*self._sorted.overlapping(opens_ns, closes_ns), *self._recent]
        return [
            one
            for one in candidates
            if one.network == network and one.closes_ns > opens_ns and one.opens_ns < closes_ns
        ]

    def newest(self, count: int) -> list[Payment]:
        """The last ones that were added, so many of them, in that order."""
        if count <= len(self._recent):
            return list(self._recent[len(self._recent) - count :])
        return sorted(self, key=lambda one: one.number)[-count:]

    def closed_by(self, at_ns: int) -> int:
        """How many close at a time, or before."""
        return bisect_right(self._sorted.ends, at_ns) + sum(one.closes_ns <= at_ns for one in self._recent)

    def __len__(self) -> int:
        return len(self._sorted.payments) + len(self._recent)

    def __iter__(self) -> Iterator[Payment]:
        yield from self._sorted.payments
        yield from self._recent


class _Sorted:
    """Payments in order; what is worked out once is kept. Written for a hundred thousand of them at every start."""

    def __init__(self, payments: Iterable[Payment]) -> None:
        self.payments = sorted(payments, key=_order)
        self.ends = list(map(_closes, self.payments))
        self._losses = [one for one in self.payments if one.kind == "lost"]
        self._longest = max(map(sub, self.ends, map(_opens, self.payments)), default=0)
        if self._losses:  # they may last for days
            samples = (one for one in self.payments if one.kind == "sample")
            self._longest = max((one.closes_ns - one.opens_ns for one in samples), default=0)
        self._sums: dict[tuple[UserBounds, Kind], list[int]] = {}

    def with_more(self, payments: Iterable[Payment]) -> _Sorted:
        """These, and more; where all of those come after these, the sums are only made longer."""
        more = _Sorted(payments)
        if self.payments and _order(more.payments[0]) < _order(self.payments[-1]):
            return _Sorted([*self.payments, *more.payments])
        for (bounds, kind), sums in self._sums.items():
            more._sums[bounds, kind] = [*sums[:-1], *accumulate(more._costs(bounds, kind), initial=sums[-1])]
        more.payments, more.ends = [*self.payments, *more.payments], [*self.ends, *more.ends]
        more._losses = [*self._losses, *more._losses]
        more._longest = max(self._longest, more._longest)
        return more

    def sums(self, bounds: UserBounds, kind: Kind) -> list[int]:
        """Place n: what the first n payments cost, those of other kinds nothing."""
        known = self._sums.get((bounds, kind))
        if known is None:
            known = self._sums[bounds, kind] = list(accumulate(self._costs(bounds, kind), initial=0))
        return known

    def _costs(self, bounds: UserBounds, kind: Kind) -> Iterable[int]:
        """What each payment costs; nothing, if it is of another kind."""
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
        """All that may overlap a time: samples that end soon after it, and all losses."""
        first, end = bisect_right(self.ends, opens_ns), bisect_right(self.ends, closes_ns + self._longest)
        samples = [one for one in self.payments[first:end] if one.kind == "sample"]
        return [*self._losses, *samples]


_order = attrgetter("closes_ns", "number")
_closes, _opens, _nano = attrgetter("closes_ns"), attrgetter("opens_ns"), attrgetter("nano")
_payer = attrgetter("regions", "servers")
