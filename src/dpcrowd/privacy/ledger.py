"""Ledgers: what each server has spent, and the refusal of a payment that would exceed its budget.

In slot t a server adds noise to disjoint groups of regions with epsilon_g each. A user is in one region, so the
slot costs that user max_g epsilon_g, and which group it is may change as the user moves. The only sound account is
therefore one per *server*: sum over the window of max_g epsilon_g(t) <= epsilon. Several reads of the same counts in
one slot add up. The paper's account per *region* (`accounting="per-region"`) exists for reproduction only: a user who
moves between regions pays more than it says.

The ledgers here hold the accounts of N simulated servers as int64 arrays of nano-epsilon, by slots. A live server
spends from its account (`account_ledger`) through the same interface, and gets the same integers on the same slots.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Nanos
from dpcrowd.errors import BadInput, BudgetExhausted, counted, unknown_name
from dpcrowd.privacy.guarantee import Guarantee
from dpcrowd.privacy.units import format_epsilon

__all__ = [
    "Accounting",
    "BatchLedger",
    "FiniteLedger",
    "Ledger",
    "WindowLedger",
    "check_charge",
    "check_order",
    "open_ledger",
]

Accounting = Literal["sound", "per-region"]


class Ledger(ABC):
    """The budget from which a scheme pays, for N servers with d regions; slots must not go backwards.

    slot  the last slot that was asked for or paid for; -1 before the first
    """

    slot: int

    @abstractmethod
    def remaining(self, slot: int) -> Nanos:
        """Return the nano-epsilon that each account may still spend in `slot`, shape (N, 1) or (N, d)."""

    @abstractmethod
    def left_in(self, slot: int) -> Nanos:
        """Return the same for a later slot, without advancing to it."""

    @abstractmethod
    def spend(self, slot: int, charge: Nanos) -> Nanos:
        """Pay for one read of the counts of `slot`; return what each account was charged.

        charge  (N, d), the nano-epsilon with which each region is read (0: not read), or (N, 1) where all regions of a
                server are read alike

        All accounts are checked before any is charged: a refusal changes no account.
        """

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[np.int64]]:
        """Return the ledger's complete state as arrays, for saving; empty if it is stored elsewhere."""

    @abstractmethod
    def restore(self, arrays: dict[str, NDArray[np.int64]]) -> None:
        """Restore a state that `arrays` returned; one that does not fit is refused and changes nothing."""


class BatchLedger(Ledger):
    """The accounts of N servers, each with a budget of `total` nano-epsilon."""

    span: tuple[str, str]  # the name of the budget's span in messages, for one slot and for several
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

    def remaining(self, slot: int) -> Nanos:
        self._advance(slot)
        return self._remaining()

    def left_in(self, slot: int) -> Nanos:
        check_order(slot, self.slot)
        return self._remaining(self._leaving(slot))

    def _remaining(self, returned: Nanos | int = 0) -> Nanos:
        """Return what each account may still spend once `returned` has come back to it."""
        # A ledger restored under a smaller epsilon may have spent more than it now may: then nothing remains.
        remaining: Nanos = np.maximum(self.total - self.spent + returned, 0)
        return remaining

    def spend(self, slot: int, charge: Nanos) -> Nanos:
        self._advance(slot)
        check_charge(charge, len(self.spent), self.regions)
        if self.accounting == "sound" and charge.shape[1] > 1:
            cost = charge.max(axis=1, keepdims=True)
        else:
            cost = charge if charge.shape == self.spent.shape else np.broadcast_to(charge, self.spent.shape)
        # Compared with what remains, not added up first: a sum of int64 could wrap around and look small.
        over = cost > self._remaining()
        if over.any():
            self._refuse(slot, cost, over)
        self.spent = self.spent + cost
        self._record(slot, cost)
        return np.asarray(cost)

    @abstractmethod
    def returns_at(self, slot: int, server: int = 0, region: int = 0) -> tuple[int | None, int]:
        """Return the next slot after `slot` in which an account gets budget back, and how much; (None, 0): never."""

    def _advance(self, slot: int) -> None:
        check_order(slot, self.slot)
        if slot > self.slot:
            self._expire(self.slot, slot)
            self.slot = slot

    @abstractmethod
    def _expire(self, old: int, new: int) -> None:
        """Give back what leaves the window when the current slot moves from `old` to `new`."""

    @abstractmethod
    def _leaving(self, slot: int) -> Nanos | int:
        """Return what will have left the window when `slot` is reached."""

    @abstractmethod
    def _record(self, slot: int, cost: Nanos) -> None:
        """Remember a payment, if it can expire."""

    def _refuse(self, slot: int, cost: Nanos, over: NDArray[np.bool_]) -> None:
        server, column = (int(i) for i in np.argwhere(over)[0])
        requested, spent = int(cost[server, column]), int(self.spent[server, column])
        remaining = int(self._remaining()[server, column])
        returns, amount = self.returns_at(slot, server, column)
        whose = f"server {server}" + (f", region {column}" if self.accounting == "per-region" else "")
        span = self.span[self.length > 1].format(self.length)
        later = f"{format_epsilon(amount)} comes back at slot {returns}." if returns is not None else self.never
        raise BudgetExhausted(
            f"{whose}: slot {slot} asks for ε={format_epsilon(requested)}, but {span} spent "
            f"{format_epsilon(spent)} of {format_epsilon(self.total)} ({format_epsilon(remaining)} left). {later}",
            requested=requested,
            remaining=remaining,
            returns_at=returns,
        )

    def arrays(self) -> dict[str, NDArray[np.int64]]:
        return {"slot": np.array(self.slot), "spent": self.spent}

    def restore(self, arrays: dict[str, NDArray[np.int64]]) -> None:
        self._check_saved(arrays)
        self.slot = int(arrays["slot"])
        self.spent = arrays["spent"].astype(np.int64)

    def _check_saved(self, arrays: dict[str, NDArray[np.int64]]) -> None:
        mine = self.arrays()
        if (
            arrays.keys() != mine.keys()
        ):  # for example a window's ledger, which does not know what the complete stream spent
            raise BadInput(f"the saved ledger holds {sorted(arrays)}; a ledger of this kind holds {sorted(mine)}.")
        for name, own in mine.items():
            if arrays[name].shape != own.shape:
                raise BadInput(f"the saved ledger's '{name}' has shape {arrays[name].shape}; this one has {own.shape}.")
            if arrays[name].dtype.kind != "i" or (name != "slot" and (arrays[name] < 0).any()):
                raise BadInput(f"the saved ledger's '{name}' is not whole nano-epsilon >= 0: it is damaged.")


class FiniteLedger(BatchLedger):
    """One budget for the complete horizon; nothing comes back, and nothing may be sampled after its end."""

    span = "the horizon of 1 slot has", "the horizon of {} slots has"
    never = "No budget comes back within this horizon."

    def __init__(self, total: int, length: int, servers: int, regions: int, accounting: Accounting) -> None:
        super().__init__(total, length, servers, regions, accounting)
        self.first = 0  # a state saved by version 0.1 may belong to a later horizon

    def remaining(self, slot: int) -> Nanos:
        remaining = super().remaining(slot)
        return remaining if slot < self.first + self.length else np.zeros_like(remaining)

    def left_in(self, slot: int) -> Nanos:
        remaining = super().left_in(slot)
        return np.zeros_like(remaining) if slot >= self.first + self.length else remaining

    def spend(self, slot: int, charge: Nanos) -> Nanos:
        if slot >= self.first + self.length and charge.any():
            raise BudgetExhausted(
                f"slot {slot} is after the end of the horizon of {counted(self.length, 'slot')}: sampling has stopped.",
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

    def _leaving(self, slot: int) -> int:
        return 0

    def arrays(self) -> dict[str, NDArray[np.int64]]:
        return {**super().arrays(), "first": np.array(self.first)}

    def restore(self, arrays: dict[str, NDArray[np.int64]]) -> None:
        super().restore(arrays)
        self.first = int(arrays["first"])


class WindowLedger(BatchLedger):
    """A budget for every window of w consecutive slots; what a slot cost comes back w slots later."""

    span = "the last slot has", "the last {} slots have"
    never = "Nothing will come back, since nothing was spent: no slot can pay more than the complete budget."

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

    def _leaving(self, slot: int) -> Nanos:
        last = min(slot, self.slot + self.length)
        rows = [later % self.length for later in range(self.slot + 1, last + 1)]
        return np.asarray(self.history[rows].sum(axis=0))

    def arrays(self) -> dict[str, NDArray[np.int64]]:
        return {**super().arrays(), "history": self.history.copy()}  # rows are written in place

    def restore(self, arrays: dict[str, NDArray[np.int64]]) -> None:
        super().restore(arrays)
        self.history = arrays["history"].astype(np.int64)

    def _check_saved(self, arrays: dict[str, NDArray[np.int64]]) -> None:
        super()._check_saved(arrays)
        if (arrays["history"].sum(axis=0) != arrays["spent"]).any():
            raise BadInput("the saved ledger's slots do not add up to what it has spent: it is damaged.")


def check_charge(charge: Nanos, servers: int, regions: int) -> None:
    """Refuse an array that is not a charge of this many servers and regions."""
    if charge.shape not in ((servers, 1), (servers, regions)):
        raise BadInput(f"a charge must have shape ({servers}, 1) or ({servers}, {regions}); given {charge.shape}.")
    if charge.dtype.kind != "i":  # a NaN would pass every comparison, an unsigned number would turn into a float
        raise BadInput(f"a charge must be whole nano-epsilon (int64); given an array of {charge.dtype}.")
    if (charge < 0).any():
        raise BadInput(f"a charge must be >= 0; given {int(charge.min())}e-9.")


def check_order(slot: int, last: int) -> None:
    """Refuse a slot before the last one that the ledger has reached."""
    if slot < last:
        raise BadInput(f"slot {slot} is before slot {last}, which the ledger has already reached.")


def open_ledger(guarantee: Guarantee, servers: int, regions: int, accounting: Accounting = "sound") -> BatchLedger:
    """Return an empty ledger for `servers` servers under a guarantee.

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
