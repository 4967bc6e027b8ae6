"""Sums over records: the compiled loop and the array operations are the same bits, guard included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.filters.records import POOL, RecordSums, RecordTable, Reference, record_sums


@settings(max_examples=200)
@given(st.integers(0, 10**6), st.sampled_from(["paper", "binomial"]), st.integers(1, 12), st.floats(0.1, 1.0))
def test_compiled_and_plain_sums_are_the_same_bits(seed: int, observation: Any, regions: int, held: float) -> None:
    """A simulation compiles the loop and a live server does not: one bit between them, and the two systems part."""
    pytest.importorskip("numba")
    rng = np.random.default_rng(seed)
    receivers, origins = 5, 8
    rows = [np.flatnonzero(rng.random(origins) < held) for _ in range(receivers)]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    indices = np.concatenate(rows).astype(np.int64)
    wild = np.where(rng.random((origins, 1)) < 0.3, rng.choice([-1.0, 100.0, 0.0], (origins, 1)), 1.0)
    table = RecordTable(
        np.rint(rng.uniform(20, 500, (origins, regions)) * wild),
        np.where(rng.random(origins) < 0.8, rng.uniform(1, 50, origins), 0.0),
        rng.uniform(0.1, 1, origins),
    )
    shape = (receivers, regions)
    recent = np.where(rng.random((receivers, POOL)) < rng.random(), rng.uniform(0, 80, (receivers, POOL)), np.nan)
    reference = Reference(
        rng.uniform(0, 300, shape),
        np.where(rng.random(shape) < 0.2, np.inf, 1.0),
        rng.uniform(-50, 300, shape),
        np.where(rng.random((receivers, 1)) < 0.2, np.inf, rng.uniform(1, 100, shape)),
        np.where(rng.random((receivers, origins)) < 0.2, 5.0, 1.0) if seed % 2 else None,
        36.0,
        recent,
    )
    active = rng.random(receivers) < 0.8
    sums = []
    for engine in ("numpy", "numba"):
        out = RecordSums(np.full(shape, 7.0), np.full(shape, 7.0), np.full((receivers, POOL), 7.0), np.ones(receivers))
        arguments = indptr, indices, table, reference, observation, np.linspace(3.0, 40.0, regions), origins
        record_sums(*arguments, engine, out, active)
        sums.append(out)
    for name in ("y", "info", "recent", "scale"):
        np.testing.assert_array_equal(getattr(sums[0], name), getattr(sums[1], name), err_msg=name)
        assert (getattr(sums[0], name)[~active] == (1.0 if name == "scale" else 7.0)).all()
