"""Data as Python code gives them: a name or a path, a DataFrame, an array of counts, or what was loaded before."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpcrowd.errors import BadInput
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.data.dataset import DataSet
from dpcrowd.sim.data.draw import load

__all__ = ["data_set_of"]


def data_set_of(data: Any, options: dict[str, Any]) -> DataSet:
    """Return the data set; `options` are those of `load_data`, of which an array takes the ones that are not for files.

    >>> data_set_of([[40, 7], [42, 5]], {"regions": ["hall", "garden"]}).regions
    ('hall', 'garden')
    """
    if isinstance(data, np.ndarray | list):
        if "gaps" in options:
            raise BadInput("gaps is for files of counts, whose labels tell which slots are missing; leave it out.")
        if "header" in options:
            raise BadInput("header is for files of counts; name the columns of an array with regions.")
        for name in ("slot_length", "data_dir"):
            if name in options:
                raise BadInput(f"{name} is for data from files; an array has one row per slot. Leave it out.")
        return counts_from_array(data, **options)
    if not isinstance(data, DataSet):
        return load(data, **options)
    if options:
        raise BadInput(f"{', '.join(options)} cannot change a loaded data set; pass it to load_data() instead.")
    return data
