"""Ledgers: what each server has spent, and a refusal before it would spend too much.

In slot t a server adds noise to disjoint groups of regions with epsilon_g each. A user is in one region, so the
slot costs that user max_g epsilon_g, and which group it is may change as the user moves. The only sound account is
therefore one per *server*: sum over the window of max_g epsilon_g(t) <= epsilon. Several reads of the same counts in
one slot add up. The paper's account per *region* (`accounting="per-region"`) is kept for reproduction only: a user who
moves between regions pays more than it says.

A ledger here holds the accounts of N servers as int64 arrays of nano-epsilon; a live server is N = 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpcrowd.errors import BadInput, BudgetExhausted, unknown_name
from dpcrowd.privacy.guarantee import Guarantee
from dpcrowd.privacy.units import format_epsilon

__all__ = ["Accounting", "FiniteLedger", "Ledger", "WindowLedger", "open_ledger"]

Accounting = Literal["sound", "per-region"]
Nanos = NDArray[np.int64]


class Ledger(ABC):
    """Accounts of N servers, each with a budget of `total` nano-epsilon.

    `spend(slot, charge)` takes an (N, d) array, the nano-epsilon with which each region is read (0 = not read), or an
    (N, 1) array where all regions of a server are read alike. Slots must not go backwards.
    """

    span: str  # how the budget's span is called in messages
    never: str  # what a refusal says when no budget comes back

    def __init__(self, total: int, length: int, servers: int, regions: int, accounting: Accounting) -> None:
        if accounting not in ("sound", "per-region"):
            raise unknown_name("accounting", str(accounting), ("sound", "per-region"))
        self.total = int(total)
        self.length = int(length)
        self.regions = int(regions)
        self.accounting: Accounting = accounting
        self.slot = -1
        columns = 1 if accounting == "sound" else regions
        self.spent: Nanos = np.zeros((servers, columns), dtype=np.int64)  # inside the current window, or so far
        self.ceiling: int | None = None  # what may be spent at most from now on, whatever this ledger would allow

    def remaining(self, slot: int) -> Nanos:
        """Nano-epsilon that each account may still spend in `slot`, shape (N, 1) or (N, d)."""
        self._advance(slot)
        return self._left()

    def _left(self) -> Nanos:
        # A ledger restored under a smaller epsilon may have spent more than it now may: then nothing is left.
        left: Nanos = np.maximum(self.total - self.spent, 0)
        return left if self.ceiling is None else np.minimum(left, self.ceiling)

    def spend(self, slot: int, charge: Nanos) -> Nanos:
        """Pay for one read of the counts of `slot`; returns what each account was charged.

        All accounts are checked before any is charged: a refusal changes no account.
        """
        self._advance(slot)
        self._check_charge(charge)
        if self.accounting == "sound" and charge.shape[1] > 1:
            cost = charge.max(axis=1, keepdims=True)
        else:
            cost = charge if charge.shape == self.spent.shape else np.broadcast_to(charge, self.spent.shape)
        # Compared with what is left, not added up first: a sum of int64 could wrap round and look small.
        over = cost > self._left()
        if over.any():
            self._refuse(slot, cost, over)
        self.spent = self.spent + cost
        if self.ceiling is not None:
            self.ceiling -= int(cost.max())
        self._record(slot, cost)
        return np.asarray(cost)

    @abstractmethod
    def returns_at(self, slot: int, server: int = 0, region: int = 0) -> tuple[int | None, int]:
        """The next slot after `slot` at which budget comes back to an account, and how much; (None, 0) if none does."""

    def _advance(self, slot: int) -> None:
        if slot < self.slot:
            raise BadInput(f"slot {slot} is before slot {self.slot}, which the ledger has already reached.")
        if slot > self.slot:
            self._expire(self.slot, slot)
            self.slot = slot

    @abstractmethod
    def _expire(self, old: int, new: int) -> None:
        """Give back what leaves the window when the current slot moves from `old` to `new`."""

    @abstractmethod
    def _record(self, slot: int, cost: Nanos) -> None:
        """Remember a payment, if it can expire."""

    def _check_charge(self, charge: Nanos) -> None:
        servers = len(self.spent)
        if charge.shape not in ((servers, 1), (servers, self.regions)):
            raise BadInput(
                f"a charge must have shape ({servers}, 1) or ({servers}, {self.regions}); given {charge.shape}."
            )
        if charge.dtype.kind != "i":  # a NaN would pass every comparison, an unsigned number would turn into a float
            raise BadInput(f"a charge must be whole nano-epsilon (int64); given an array of {charge.dtype}.")
        if (charge < 0).any():
            raise BadInput(f"a charge must be >= 0; given {int(charge.min())}e-9.")

    def _refuse(self, slot: int, cost: Nanos, over: NDArray[np.bool_]) -> None:
        server, column = (int(i) for i in np.argwhere(over)[0])
        requested, spent = int(cost[server, column]), int(self.spent[server, column])
        remaining = int(self._left()[server, column])
        returns, amount = self.returns_at(slot, server, column)
        whose = f"server {server}" + (f", region {column}" if self.accounting == "per-region" else "")
        later = f"{format_epsilon(amount)} comes back at slot {returns}." if returns is not None else self.never
        raise BudgetExhausted(
            f"{whose}: slot {slot} asks for ε={format_epsilon(requested)}, but {self.span.format(self.length)} spent "
            f"{format_epsilon(spent)} of {format_epsilon(self.total)} ({format_epsilon(remaining)} left). {later}",
            requested=requested,
            remaining=remaining,
            returns_at=returns,
        )

    def carry_over(self, charges: Mapping[int, int], now: int, first: int = 0) -> None:
        """Count what a server has spent before this ledger was opened: nano-epsilon by slot, up to slot `now`.

        `first` is the first slot of the present horizon, if that is finite.

        A durable account outlives configurations; a new one begins with the old debts, even those that are more
        than it may ever spend. Slots may be negative: before the epoch of this configuration.
        """
        if self.slot != -1 or self.spent.any() or len(self.spent) != 1:
            raise BadInput("only a new ledger of one server can take over what was spent before it.")
        if any(nano < 0 or slot > now for slot, nano in charges.items()):
            raise BadInput(f"what was spent before is >= 0 and of slots up to {now}.")
        for slot, nano in charges.items():
            self._carry(slot, nano, now)
        self.slot = now
        self._begin(first)

    def _begin(self, first: int) -> None:
        """A horizon begins with this slot; windows have no beginning."""
        return None

    @abstractmethod
    def _carry(self, slot: int, nano: int, now: int) -> None:
        """Count one old payment, if it still matters in slot `now`."""

    def arrays(self) -> dict[str, NDArray[np.int64]]:
        """The ledger's whole state as arrays, for saving."""
        return {"slot": np.array(self.slot), "spent": self.spent}

    def restore(self, arrays: dict[str, NDArray[np.int64]]) -> None:
        """Take over a state that `arrays` gave; one that does not fit is refused and changes nothing."""
        self._check_saved(arrays)
        self.slot = int(arrays["slot"])
        self.spent = arrays["spent"].astype(np.int64)

    def _check_saved(self, arrays: dict[str, NDArray[np.int64]]) -> None:
        mine = self.arrays()
        if arrays.keys() != mine.keys():  # e.g. a window's ledger, which has forgotten what the whole stream spent
            raise BadInput(f"the saved ledger holds {sorted(arrays)}; one of this kind holds {sorted(mine)}.")
        for name, own in mine.items():
            if arrays[name].shape != own.shape:
                raise BadInput(f"the saved ledger's '{name}' has shape {arrays[name].shape}; this one has {own.shape}.")
            if arrays[name].dtype.kind != "i" or (name != "slot" and (arrays[name] < 0).any()):
                raise BadInput(f"the saved ledger's '{name}' is not whole nano-epsilon >= 0: it is damaged.")


class FiniteLedger(Ledger):
    """One budget for the whole horizon; nothing comes back, and nothing may be sampled after its end."""

    span = "the horizon of {} slots has"
    never = "No budget comes back within this horizon."

    def __init__(self, total: int, length: int, servers: int, regions: int, accounting: Accounting) -> None:
        super().__init__(total, length, servers, regions, accounting)
        self.first = 0

    def remaining(self, slot: int) -> Nanos:
        left = super().remaining(slot)
        return left if slot < self.first + self.length else np.zeros_like(left)

    def spend(self, slot: int, charge: Nanos) -> Nanos:
        if slot >= self.first + self.length and charge.any():
            raise BudgetExhausted(
                f"slot {slot} is after the end of the horizon of {self.length} slots: sampling has stopped.",
                requested=int(charge.max()),
                remaining=0,
                returns_at=None,
            )
        return super().spend(slot, charge)

    def returns_at(self, slot: int, server: int = 0, region: int = 0) -> tuple[int | None, int]:
        return None, 0

    def _expire(self, old: int, new: int) -> None:
        return None

    def _record(self, slot: int, cost: Nanos) -> None:
        return None

    def _carry(self, slot: int, nano: int, now: int) -> None:
        self.spent += nano

    def _begin(self, first: int) -> None:
        self.first = first

    def arrays(self) -> dict[str, NDArray[np.int64]]:
        return {**super().arrays(), "first": np.array(self.first)}

    def restore(self, arrays: dict[str, NDArray[np.int64]]) -> None:
        super().restore(arrays)
        self.first = int(arrays["first"])


class WindowLedger(Ledger):
    """A budget for every window of w consecutive slots; what a slot cost comes back w slots later."""

    span = "the last {} slots have"
    never = "Nothing will come back, since nothing was spent: no slot can pay more than the whole budget."

    def __init__(self, total: int, length: int, servers: int, regions: int, accounting: Accounting) -> None:
        super().__init__(total, length, servers, regions, accounting)
        self.history: Nanos = np.zeros((length, *self.spent.shape), dtype=np.int64)  # row t mod w: slot t

    def returns_at(self, slot: int, server: int = 0, region: int = 0) -> tuple[int | None, int]:
        self._advance(slot)
        for later in range(slot + 1, slot + self.length + 1):
            amount = int(self.history[later % self.length, server, region])
            if amount > 0:
                return later, amount
        return None, 0

    def _expire(self, old: int, new: int) -> None:
        if new - old >= self.length:
            self.history[:] = 0
            self.spent = np.zeros_like(self.spent)
            return
        for slot in range(old + 1, new + 1):
            row = self.history[slot % self.length]
            self.spent = self.spent - row
            row[:] = 0

    def _record(self, slot: int, cost: Nanos) -> None:
        self.history[slot % self.length] += cost

    def _carry(self, slot: int, nano: int, now: int) -> None:
        if slot > now - self.length:
            self.history[slot % self.length] += nano
            self.spent += nano

    def arrays(self) -> dict[str, NDArray[np.int64]]:
        return {**super().arrays(), "history": self.history.copy()}  # rows are written in place

    def restore(self, arrays: dict[str, NDArray[np.int64]]) -> None:
        super().restore(arrays)
        self.history = arrays["history"].astype(np.int64)

    def _check_saved(self, arrays: dict[str, NDArray[np.int64]]) -> None:
        super()._check_saved(arrays)
        if (arrays["history"].sum(axis=0) != arrays["spent"]).any():
            raise BadInput("the saved ledger's slots do not add up to what it has spent: it is damaged.")


def open_ledger(guarantee: Guarantee, servers: int, regions: int, accounting: Accounting = "sound") -> Ledger:
    """An empty ledger for `servers` servers under a guarantee.

    >>> ledger = open_ledger(Guarantee.window(3, epsilon=1.0), servers=1, regions=1)
    >>> ledger.spend(0, np.array([[700_000_000]]))
    array([[700000000]])
    >>> ledger.spend(1, np.array([[700_000_000]]))
    Traceback (most recent call last):
        ...
    dpcrowd.errors.BudgetExhausted: server 0: slot 1 asks for ε=0.7, but the last 3 slots have spent 0.7 of 1 ...
    >>> ledger.remaining(3)  # slot 0 has left the window
    array([[1000000000]])
    """
    kind = FiniteLedger if guarantee.kind == "finite" else WindowLedger
    return kind(guarantee.total, guarantee.length, servers, regions, accounting)
