"""Sums over records: compiled or not, or of regions that are read by themselves, they are the same, guard included."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.filters.groups import GroupedSums, group_sizes
from dpcrowd.filters.records import POOL, RecordSums, RecordTable, Reference, Split, record_sums, single_sums

Arguments = tuple[Any, Any, RecordTable, Reference]


def records(rng: np.random.Generator, regions: int, held: float, *, penalties: bool) -> Arguments:
    """Who of 5 receivers has which of 8 records, some of which are far off, and what they are compared with."""
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
        np.where(rng.random((receivers, origins)) < 0.2, 5.0, 1.0) if penalties else None,
        36.0,
        recent,
    )
    return indptr, indices, table, reference


@settings(max_examples=200)
@given(st.integers(0, 10**6), st.sampled_from(["paper", "binomial"]), st.integers(1, 12), st.floats(0.1, 1.0))
def test_compiled_and_plain_sums_are_the_same_bits(seed: int, observation: Any, regions: int, held: float) -> None:
    """A simulation compiles the loop and a live server does not: one bit between them, and the two systems part."""
    pytest.importorskip("numba")
    rng = np.random.default_rng(seed)
    indptr, indices, table, reference = records(rng, regions, held, penalties=bool(seed % 2))
    receivers, origins, shape = 5, 8, (5, regions)
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


@settings(max_examples=100)
@given(st.integers(0, 10**6), st.sampled_from(["paper", "binomial"]), st.floats(0.1, 1.0))
def test_regions_by_themselves_are_summed_as_the_filter_sums_them(seed: int, observation: Any, held: float) -> None:
    """A record that the guard doubts, or of a suspect, would be a full measurement once its slot has any group."""
    rng = np.random.default_rng(seed)
    indptr, indices, table, reference = records(rng, 4, held, penalties=bool(seed % 2))
    process_var = np.linspace(3.0, 40.0, 4)

    def both(one: RecordTable, by_groups: list[GroupedSums] | None) -> tuple[RecordSums, tuple[Any, Any]]:
        out = RecordSums(np.zeros((5, 4)), np.zeros((5, 4)), np.zeros((5, POOL)), np.ones(5), by_groups=by_groups)
        arguments = indptr, indices, one, reference, observation, process_var, 8
        record_sums(*arguments, "numpy", out, np.ones(5, dtype=np.bool_))
        return out, single_sums(*arguments, out.scale)

    out, (y, info) = both(table, None)
    np.testing.assert_array_equal(y, out.y)
    np.testing.assert_array_equal(info, out.info)
    assert reference.prior is not None
    assert reference.prior_var is not None
    reference = replace(reference, split=Split(reference.prior, reference.prior_var, 4.0, bounded=False))
    groups = np.where(np.arange(8)[:, None] % 2 == 0, [0, 0, 2, 3], np.arange(4))
    by_groups: list[GroupedSums] = []
    _, (y, info) = both(replace(table, groups=groups), by_groups)
    single = [np.where(group_sizes(sums.groups) == 1, (sums.y, sums.info), 0.0) for sums in by_groups]
    np.testing.assert_allclose((y, info), np.sum([np.zeros((2, 5, 4)), *single], axis=0), rtol=1e-12)
