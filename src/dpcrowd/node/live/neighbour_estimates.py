"""What neighbours estimated, as their messages said, for the page that compares it with the own estimate.

A message with a sample has the sender's prior: its estimate before it fused the slot. Only messages that were used are
kept, in memory, of the last slots. All of it was noised and paid for by its sender.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.node.api.page_views import NeighbourHistory
from dpcrowd.node.wire import MessageRefused, peek, prior_of

__all__ = ["NeighbourEstimates"]

_MOST_NUMBERS = 500_000
"""Numbers that are kept per neighbour: slots times regions."""
_MOST_SLOTS = 10_000
_MOST_WAITING = 4


class NeighbourEstimates:
    """The priors of neighbours by slot; used from one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[int, bytes]] = {}  # by name and slot: messages whose slot is not released yet
        self._slots: dict[str, deque[tuple[int, Floats]]] = {}

    def arrived(self, sender: str, payload: bytes) -> None:
        """Keep a message until its slot is released; by then it is known whether it was used."""
        try:
            slot, _ = peek(payload)
        except MessageRefused:
            return
        waiting = self._waiting.setdefault(sender, {})
        if len(waiting) < _MOST_WAITING:
            waiting.setdefault(slot, payload)

    def released(self, slot: int, senders: Sequence[str], regions: int) -> None:
        """Keep what those whose messages were fused have estimated; forget the other messages of the slot."""
        for name in senders:
            payload = self._waiting.get(name, {}).get(slot)
            prior = None if payload is None else prior_of(payload)
            if prior is not None and len(prior) == regions:
                size = min(_MOST_NUMBERS // max(regions, 1) + 1, _MOST_SLOTS)
                priors = self._slots.setdefault(name, deque(maxlen=size))
                if not priors or slot > priors[-1][0]:
                    priors.append((slot, prior))
        for waiting in self._waiting.values():
            for other in [other for other in waiting if not slot < other <= slot + _MOST_WAITING]:
                del waiting[other]

    def history(self, slots: int, region: str | None, regions: Sequence[str], names: Sequence[str]) -> NeighbourHistory:
        """Return the priors of these neighbours in at most the last `slots` slots, of a region or in total."""
        number = None if region is None else regions.index(region)
        columns = {
            name: {
                slot: _value(prior, number) for slot, prior in self._slots.get(name, ()) if len(prior) == len(regions)
            }
            for name in names
        }
        all_slots = sorted({slot for column in columns.values() for slot in column})[-slots:]
        return NeighbourHistory(
            region=region,
            slots=all_slots,
            neighbours={name: [column.get(slot) for slot in all_slots] for name, column in columns.items()},
        )


def _value(prior: Floats, number: int | None) -> float | None:
    value = float(np.sum(prior) if number is None else prior[number])
    return round(value, 3) if np.isfinite(value) else None
