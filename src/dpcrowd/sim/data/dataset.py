"""The interface of every data set: names, a process model for the filters, and the truth r(t) of a run.

A data set is public knowledge of the simulation. `model` is what the filters believe about the process (Eqs. state
and multistate); `change_var` is the Q_kk that the data themselves follow. The two agree unless a user gives another
`process_var`: tuning a filter must not change the data it is tried on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import PerRegion, Truth
from dpcrowd.errors import BadInput, unknown_name
from dpcrowd.filters.model import ProcessModel
from dpcrowd.schemes.tuning import Tuning

__all__ = ["DataSet", "FixedData", "checked_slots", "region_indexes"]


@dataclass(frozen=True, eq=False, kw_only=True)
class DataSet(ABC):
    """A stream of population counts per region.

    name         what the user called it
    regions      names of the d regions
    slots        T
    model        A and Q that the filters are given
    tuning       the paper's parameters for this set (or the defaults)
    notes        remarks to print with every result, such as where Q comes from
    change_var   (d,) Q_kk of the data themselves; drives the paper's observation noise H^2 Q
    slot_labels  a label for each slot (weeks, days), if the data have one
    first        where slot 0 is in the complete series, if this set is a span of it (`dpcrowd.sim.data.span`)
    """

    name: str
    regions: tuple[str, ...]
    slots: int
    model: ProcessModel
    tuning: Tuning
    notes: tuple[str, ...]
    change_var: PerRegion
    slot_labels: tuple[str, ...] | None = None
    first: int = 0

    @abstractmethod
    def truth(self, rng: np.random.Generator) -> Truth:
        """Return the population's counts of one run, int64 (slots, d). Real data are the same in every run."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FixedData(DataSet):
    """Real counts: the truth is what the file says, whatever the run."""

    counts: Truth

    def truth(self, rng: np.random.Generator) -> Truth:
        return self.counts


def checked_slots(slots: object, available: int, name: str) -> int:
    """Return how many slots to use: all that are available, or the first `slots` of them."""
    if slots is None:
        return available
    if (
        isinstance(slots, bool)
        or not isinstance(slots, int | float | np.integer | np.floating)
        or not 1 <= slots <= available
    ):
        raise BadInput(f"slots={slots} asked of {name}, which has {available}; allowed: 1 to {available}.")
    return int(slots)


def region_indexes(regions: Sequence[str], selection: Sequence[str] | None) -> list[int] | None:
    """Return the columns of the selected regions, in that order; None for all."""
    if selection is None:
        return None
    if isinstance(selection, str):
        selection = [selection]
    if not selection:
        raise BadInput("an empty list of regions was given; name at least one, or leave the list out for all.")
    index = {name: column for column, name in enumerate(regions)}
    for name in selection:
        if name not in index:
            raise unknown_name("region", name, regions)
    if len(set(selection)) < len(selection):
        twice = next(name for name in selection if list(selection).count(name) > 1)
        raise BadInput(f"region '{twice}' is named twice; name each region once.")
    return [index[name] for name in selection]
