"""Lists of origins, as compiled loops take them."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.filters.records import lists_of_one_type


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint32, np.uint64])
def test_lists_of_every_type_become_lists_of_one_type(kind: type[np.integer]) -> None:
    """A loop is compiled again for each other type: seconds in every process that meets it first."""
    indptr, indices = lists_of_one_type(np.array([0, 2, 3], dtype=kind), np.array([1, 0, 2], dtype=kind))
    assert indptr.dtype == indices.dtype == np.uint32
    assert (indptr.tolist(), indices.tolist()) == ([0, 2, 3], [1, 0, 2])
