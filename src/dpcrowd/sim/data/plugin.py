"""Data sets of other packages (`dpcrowd.plugins`): a function that returns a data set, or counts as an array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpcrowd.errors import BadInput, DpcrowdError, counted
from dpcrowd.filters.model import ProcessModel
from dpcrowd.plugins import Plugin
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.data.dataset import DataSet, FixedData, checked_slots, region_indexes
from dpcrowd.sim.data.series import GIVEN_BY_HAND, believed
from dpcrowd.sim.data.span import cut

__all__ = ["plugin_data"]


def plugin_data(
    plugin: Plugin,
    *,
    slots: int | None = None,
    process_var: object | None = None,
    regions: Sequence[str] | None = None,
) -> DataSet:
    """Call the package's function and check what it returns.

    The function is called without arguments, or with `slots` if it takes that and a number of slots was asked for.
    Series are shortened here otherwise; a set that is drawn anew in each run has to take `slots` itself.
    """
    passed = {} if slots is None or not plugin.accepts("slots") else {"slots": slots}
    data = _checked(plugin, plugin.call(**passed))
    if regions is not None:
        data = _with_regions(plugin, data, regions)
    if slots is not None and data.slots != slots:
        if not isinstance(data, FixedData):
            raise BadInput(
                f"the data set '{plugin.name}' of the package {plugin.package} has only {counted(data.slots, 'slot')}, "
                "and its length cannot be changed; leave slots out."
            )
        data = cut(data, 0, checked_slots(slots, data.slots, f"'{plugin.name}'"))
    if process_var is not None:
        data = replace(data, model=believed(data.model, process_var), notes=(*data.notes, GIVEN_BY_HAND))
    return data


def _checked(plugin: Plugin, value: Any) -> DataSet:
    if not isinstance(value, DataSet):
        try:
            value = counts_from_array(value)
        except (DpcrowdError, TypeError, ValueError) as error:
            raise plugin.broken(f"it returned neither a dpcrowd.DataSet nor counts ({error})") from error
    data: DataSet = replace(value, name=plugin.name)
    truth = data.truth(np.random.default_rng(0))
    shape = (data.slots, len(data.regions))
    if truth.shape != shape or truth.dtype != np.int64 or (truth < 0).any():
        raise plugin.broken(f"its truth must be int64 counts >= 0 of shape {shape}; given {truth.dtype}{truth.shape}")
    if data.model.regions != len(data.regions) or data.change_var.shape != (len(data.regions),):
        raise plugin.broken(f"its model and change_var must be of {len(data.regions)} regions")
    source = f"the data set '{plugin.name}' comes from the package {plugin.package}."
    return replace(data, notes=(*data.notes, source))


def _with_regions(plugin: Plugin, data: DataSet, regions: Sequence[str]) -> DataSet:
    columns = region_indexes(data.regions, regions)
    if not isinstance(data, FixedData) or data.model.transition.ndim == 2:
        raise BadInput(
            f"regions of the data set '{plugin.name}' of the package {plugin.package} cannot be chosen: only those of "
            "a fixed series can, whose people do not move between regions in its model."
        )
    assert columns is not None
    transition = data.model.transition
    return replace(
        data,
        regions=tuple(data.regions[k] for k in columns),
        counts=data.counts[:, columns],
        change_var=data.change_var[columns],
        model=ProcessModel.of(transition[columns] if transition.ndim else transition, data.model.diagonal_var[columns]),
    )
