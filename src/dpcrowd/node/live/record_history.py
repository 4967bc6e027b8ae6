"""Records of other servers in the last slots, as estimates of the population, for the page that shows agreement.

In a network of relay servers exchange records, not estimates: two servers that have the same records publish the same
numbers. What can differ is what the records say. So the page draws, beside the estimate, what each other server's
records say by themselves. They are kept in memory, since the process started; their origins have noised and paid them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcrowd.node.api.page_views import RecordHistory
from dpcrowd.schemes.base import half_width
from dpcrowd.schemes.record_estimates import RecordEstimates

__all__ = ["KeptRecords"]

_MOST_NUMBERS = 2_000_000
"""Numbers that are kept of all servers together: records times regions."""
_MOST_RECORDS = 5_000
_FEWEST_RECORDS = 8

_Numbers = NDArray[np.float32]


@dataclass(frozen=True)
class _Record:
    """One record as an estimate.

    values, halves  (d + 1,) the total in front, then the regions
    share           (d,) by which its counts were divided; (1,): the same in all regions
    learned         whether that is a learned share
    """

    slot: int
    values: _Numbers
    halves: _Numbers
    share: _Numbers
    learned: bool

    def share_of(self, number: int | None) -> float | None:
        """Return the share of a region, or of the total, which has none where the shares of the regions differ."""
        if len(self.share) == 1:
            return round(float(self.share[0]), 6)
        return None if number is None else round(float(self.share[number]), 6)


class KeptRecords:
    """The last records of each other server, values and half widths by region with the total in front."""

    def __init__(self) -> None:
        self._records: dict[str, deque[_Record]] = {}

    def add(self, estimates: RecordEstimates, names: Sequence[str]) -> None:
        """Keep the records that a slot has brought; `names` are the servers by number."""
        width = estimates.value.shape[1] + 1
        size = min(max(_MOST_NUMBERS // (width * max(len(names), 1)), _FEWEST_RECORDS), _MOST_RECORDS)
        values = np.column_stack([estimates.total, estimates.value]).astype(np.float32)
        halves = half_width(np.column_stack([estimates.total_variance, estimates.variance])).astype(np.float32)
        shares = estimates.share.astype(np.float32)
        for row, (number, slot) in enumerate(zip(estimates.origin.tolist(), estimates.slot.tolist(), strict=True)):
            records = self._records.setdefault(names[number], deque(maxlen=size))
            record = _Record(slot, values[row], halves[row], shares[row], estimates.learned)
            if records and slot <= records[-1].slot:  # late, or slots have begun again: the latest arrival is right
                others = [one for one in records if one.slot != slot]
                records.clear()
                records.extend(sorted([*others, record], key=lambda one: one.slot))
            else:
                records.append(record)

    def history(self, since: int, number: int | None, regions: int, names: Sequence[str]) -> dict[str, RecordHistory]:
        """Return the records of these servers from slot `since` on: of one region, by its number, or of the total."""
        place = 0 if number is None else number + 1
        histories = {}
        for name in names:
            stored = self._records.get(name, ())
            records = [one for one in stored if one.slot >= since and len(one.values) == regions + 1]
            if records:
                histories[name] = RecordHistory(
                    slots=[one.slot for one in records],
                    value=[_number(one.values[place]) for one in records],
                    half_width=[_number(one.halves[place]) for one in records],
                    share=[one.share_of(number) for one in records],
                    learned=[one.learned for one in records],
                )
        return histories


def _number(value: np.float32) -> float | None:
    return round(float(value), 1) if np.isfinite(value) else None
