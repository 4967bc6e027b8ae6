"""Counts that are already in memory, as a data set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpcrowd.errors import BadInput
from dpcrowd.schemes.tuning import Tuning
from dpcrowd.sim.data.dataset import FixedData, checked_slots
from dpcrowd.sim.data.series import series_model

__all__ = ["counts_from_array"]


def counts_from_array(
    counts: object,
    *,
    slots: int | None = None,
    process_var: object | None = None,
    regions: Sequence[str] | None = None,
    round_counts: bool = False,
) -> FixedData:
    """A data set from counts (T,) or (T, d) in memory; `regions` names the columns.

    >>> data = counts_from_array([[40, 7], [42, 5], [39, 9]], regions=["hall", "garden"])
    >>> data.slots, data.regions, data.truth(np.random.default_rng(0))[0].tolist()
    (3, ('hall', 'garden'), [40, 7])
    """
    array = np.asarray(counts)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or not array.size or array.dtype.kind not in "iuf":
        raise BadInput(f"counts must be numbers of shape (T,) or (T, d); given {array.dtype}{array.shape}.")
    if not np.isfinite(array).all() or (array < 0).any() or (array > 2**53).any():
        raise BadInput("counts must be whole numbers from 0 to 2^53; given a negative, too large or missing one.")
    whole = np.rint(array)
    if not round_counts and (whole != array).any():
        raise BadInput("counts must be whole numbers; given fractions. Round them, or give round_counts=True.")
    names = tuple(regions) if regions is not None else tuple(f"region {k}" for k in range(array.shape[1]))
    if len(names) != array.shape[1] or len(set(names)) != len(names):
        raise BadInput(f"{len(names)} region names were given for {array.shape[1]} columns, or one of them twice.")
    length = checked_slots(slots, len(array), "the array")
    kept = whole[:length].astype(np.int64)
    model, change_var, note = series_model(kept, process_var, "the array")
    return FixedData(
        name="array",
        regions=names,
        slots=length,
        model=model,
        tuning=Tuning(),
        notes=(note,),
        change_var=change_var,
        counts=kept,
    )
