"""The observer's ledger: what users really paid, computed from the charges of all servers.

A server sees only its own account. An observer who knows every charge of every server, region and slot can compute the
largest amount that any user paid, for three kinds of users:

  staying  at one server and in one region      max_{i,k}  sum_t  e_{i,k}(t)         (what a per-region ledger bounds)
  moving   at one server, between its regions   max_i      sum_t  max_k e_{i,k}(t)   (what a sound ledger bounds)
  roaming  between servers and regions                     sum_t  max_{i,k} e_{i,k}(t)

each over the worst window of w slots, or over the complete finite stream.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import Nanos
from dpcrowd.errors import BadInput
from dpcrowd.privacy.guarantee import Guarantee
from dpcrowd.privacy.units import from_nano

__all__ = ["ObserverLedger", "Paid", "worst_paid"]


@dataclass(frozen=True)
class Paid:
    """The largest nano-epsilon that any user paid; the module's docstring defines the three kinds of users."""

    staying: int
    moving: int
    roaming: int

    def epsilons(self) -> dict[str, float]:
        """Return the amounts as floats under the names that reports use; `server` is a user who stays in one place."""
        return {"server": from_nano(self.staying), "moving": from_nano(self.moving), "roaming": from_nano(self.roaming)}


def worst_paid(charges: Nanos, window: int | None) -> Paid:
    """Return the worst payments of a network from its charges, shape (slots, servers, regions).

    window  the number of slots over which payments add up; None: the complete stream
    """
    if charges.ndim != 3:
        raise BadInput(f"charges must have shape (slots, servers, regions); given {charges.shape}.")
    if window is not None and window < 1:
        raise BadInput(f"window must be at least 1 slot; given {window}.")
    if charges.size == 0:
        return Paid(0, 0, 0)
    per_server = charges.max(axis=2)
    return Paid(
        staying=_worst_window(charges.reshape(len(charges), -1), window),
        moving=_worst_window(per_server, window),
        roaming=_worst_window(per_server.max(axis=1, keepdims=True), window),
    )


def _worst_window(charges: Nanos, window: int | None) -> int:
    """Return the largest sum over `window` consecutive rows in any column of (slots, accounts)."""
    sums = np.cumsum(charges, axis=0, dtype=np.int64)
    if window is None or window >= len(sums):
        return int(sums[-1].max())
    first = sums[window - 1].max()
    later = (sums[window:] - sums[:-window]).max()
    return int(max(first, later))


class ObserverLedger:
    """Collects charges slot by slot and reports the worst payments so far.

    >>> observer = ObserverLedger(Guarantee.finite(10, epsilon=1.0), servers=1, regions=2)
    >>> observer.record(0, np.array([[300_000_000, 0]]))
    >>> observer.record(1, np.array([[0, 400_000_000]]))
    >>> observer.report().epsilons()  # who moves from the first region to the second pays both
    {'server': 0.4, 'moving': 0.7, 'roaming': 0.7}
    """

    def __init__(self, guarantee: Guarantee, servers: int, regions: int) -> None:
        self._window = guarantee.length if guarantee.kind == "window" else None
        self._shape = (servers, regions)
        self._slots: dict[int, Nanos] = {}

    def record(self, slot: int, charge: Nanos) -> None:
        """Add one read of a slot by all servers, (servers, regions) nano-epsilon; several reads of a slot add up."""
        before = self._slots.get(slot, np.zeros(self._shape, dtype=np.int64))
        self._slots[slot] = before + np.broadcast_to(charge, self._shape)

    def report(self) -> Paid:
        """Return what a staying, a moving and a roaming user paid at most."""
        if not self._slots:
            return Paid(0, 0, 0)
        first, last = min(self._slots), max(self._slots)
        charges = np.zeros((last - first + 1, *self._shape), dtype=np.int64)
        for slot, charge in self._slots.items():
            charges[slot - first] = charge
        return worst_paid(charges, self._window)
