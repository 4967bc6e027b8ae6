"""Sums over records and scores of origins: the compiled loops give the bits of the array operations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.filters.origins import OriginScores
from dpcrowd.filters.records import POOL, Posterior, RecordSums, RecordTable, Reference, record_sums
from schemes_support import bits

RUNS, SERVERS = 2, 7


def some_records(rng: np.random.Generator, regions: int) -> tuple[Any, Any, RecordTable]:
    """Who has which records, with some origins that have none."""
    rows = [np.flatnonzero(rng.random(SERVERS) < 0.6) + run * SERVERS for run in range(RUNS) for _ in range(SERVERS)]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    count = RUNS * SERVERS
    noisy = rng.integers(-50, 500, (count, regions)).astype(np.float64)
    var = np.where(rng.random(count) < 0.7, rng.uniform(1, 50, count), 0.0)
    shares = rng.uniform(0.1, 1, (count, regions) if rng.random() < 0.3 else count)
    return indptr, np.concatenate(rows).astype(np.int64), RecordTable(noisy, var, shares)


def some_reference(rng: np.random.Generator, regions: int, guarded: bool, penalised: bool) -> Reference:
    shape = (RUNS * SERVERS, regions)

    def variances() -> Any:
        return np.where(rng.random(shape) < 0.2, np.inf, rng.uniform(1, 100, shape))

    level = Reference(rng.uniform(0, 300, shape), variances())
    if not guarded:
        return level
    recent = np.where(rng.random((shape[0], POOL)) < 0.8, rng.exponential(2.0, (shape[0], POOL)), np.nan)
    penalty = np.where(rng.random((shape[0], SERVERS)) < 0.2, 5.0, 1.0) if penalised else None
    prior = rng.uniform(0, 300, shape)
    return Reference(level.level, level.level_var, prior, variances(), penalty, 4.0, recent)


@given(seed=st.integers(0, 2**32 - 1), regions=st.sampled_from([1, 2, 9]), guarded=st.booleans())
@settings(max_examples=40, deadline=None)
def test_posteriors_are_the_same_bits_and_bits_are_lists(seed: int, regions: int, guarded: bool) -> None:
    """The compiled loop updates by itself, and takes records as bits; a live server uses arrays and lists."""
    rng = np.random.default_rng(seed)
    indptr, indices, table = some_records(rng, regions)
    reference = some_reference(rng, regions, guarded, bool(seed % 2))
    count = RUNS * SERVERS
    words = np.zeros((count, 1), dtype=np.uint64)
    for row in range(count):
        for origin in indices[indptr[row] : indptr[row + 1]]:
            words[row, 0] |= np.uint64(table.var[origin] > 0.0) << np.uint64(origin % SERVERS)
    active = rng.random(count) < 0.8
    prior, prior_var = rng.uniform(0, 300, (count, regions)), rng.uniform(1, 100, (count, regions))
    prior_var[rng.random(count) < 0.2] = np.inf
    if guarded:
        reference = replace(reference, prior=prior, prior_var=prior_var)
    results = []
    for engine, bitmap in (("numpy", None), ("numba", None), ("numba", words)):
        shapes = (count, regions), (count, regions), (count, POOL), (count,)
        out = RecordSums(*(np.full(shape, 7.0) for shape in shapes))
        posterior = Posterior(
            prior, prior_var, np.full(prior.shape, 7.0), np.full(prior.shape, 7.0), np.zeros(count, dtype=np.bool_), 2.0
        )
        record_sums(
            indptr, indices, table, reference, "paper", np.linspace(3.0, 4.0, regions), SERVERS, engine, out, active,
            posterior, bitmap,
        )  # fmt: skip
        assert (posterior.mean[~active] == 7.0).all()
        assert posterior.known[active & np.isfinite(prior_var).all(axis=1)].all()
        results.append([bits(array) for array in (out.y, out.info, posterior.mean, posterior.var, posterior.known)])
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("observation", ["paper", "binomial"])
@given(seed=st.integers(0, 2**32 - 1), regions=st.sampled_from([1, 3]), penalised=st.booleans())
@settings(max_examples=60, deadline=None)
def test_receivers_that_know_the_same_share_results_and_others_do_not(
    observation: Any, seed: int, regions: int, penalised: bool
) -> None:
    """The compiled loop takes over a result only if all that it depends on is the same, but for the sign of a zero."""
    rng = np.random.default_rng(seed)
    _, _, table = some_records(rng, regions)
    reference = some_reference(rng, regions, True, penalised)
    posterior = reference.level.copy(), rng.uniform(1, 9, reference.level.shape)
    recent, penalty = reference.recent, reference.penalty
    prior, prior_var = reference.prior, reference.prior_var
    assert recent is not None
    assert prior is not None
    assert prior_var is not None
    prior[rng.random(prior.shape) < 0.1] = -0.0
    count = RUNS * SERVERS
    there = np.zeros((count, SERVERS), dtype=np.bool_)
    shared = [reference.level, reference.level_var, prior, prior_var, *posterior]
    for run in range(RUNS):
        rows = slice(run * SERVERS, (run + 1) * SERVERS)
        there[rows] = (rng.random(SERVERS) < 0.9) & (table.var[rows] > 0.0)
        for array in (*shared, recent, penalty):
            if array is not None:
                array[rows] = array[run * SERVERS]
    factor = rng.integers(0, 9)
    for number, array in enumerate((*shared, recent, penalty)):  # one receiver per run differs in one thing
        if number == factor and array is not None:
            one = rng.integers(0, SERVERS, RUNS) + np.arange(RUNS) * SERVERS
            array[one] = np.where(array[one] == 0.0, 0.0, array[one] + 1.0)
    there[rng.integers(0, count)] &= rng.random(SERVERS) < 0.5
    words = (there.astype(np.uint64) << np.arange(SERVERS, dtype=np.uint64)).sum(axis=1, dtype=np.uint64)[:, None]
    receivers, places = np.nonzero(there)
    indptr = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    indices = places + receivers // SERVERS * SERVERS
    active, variances = rng.random(count) < 0.9, np.linspace(3.0, 4.0, regions)
    results = []
    for engine, bitmap in (("numpy", None), ("numba", None), ("numba", words)):
        shapes = (count, regions), (count, regions), (count, POOL), (count,), (count, regions), (count, regions)
        y, info, last, scale, mean, var = (np.full(shape, 7.0) for shape in shapes)
        known = np.zeros(count, dtype=np.bool_)
        record_sums(
            indptr, indices, table, reference, observation, variances, SERVERS, engine,
            RecordSums(y, info, last, scale), active, Posterior(prior, prior_var, mean, var, known, 2.0), bitmap,
        )  # fmt: skip
        scores = OriginScores.start(count, SERVERS)
        for _ in range(3):
            scores.judge(
                indptr, indices, table, reference, observation, variances, (*posterior, active), engine, bitmap
            )
        arrays = (y, info, last, scale, mean, var, known, scores.score, scores.usual, scores.suspicious)
        results.append([bits(array) for array in arrays])
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("observation", ["paper", "binomial"])
@given(seed=st.integers(0, 2**32 - 1), regions=st.sampled_from([1, 2, 9]), guarded=st.booleans(), some=st.booleans())
@settings(max_examples=40, deadline=None)
def test_sums_are_the_same_bits(observation: Any, seed: int, regions: int, guarded: bool, some: bool) -> None:
    """A simulation with Numba would differ from a live server without it; rows that are not asked for stay."""
    rng = np.random.default_rng(seed)
    indptr, indices, table = some_records(rng, regions)
    reference = some_reference(rng, regions, guarded, bool(seed % 2))
    count = RUNS * SERVERS
    active = rng.random(count) < 0.6 if some else np.ones(count, dtype=np.bool_)
    found = {}
    for engine in ("numpy", "numba"):
        shapes = (count, regions), (count, regions), (count, POOL), (count,)
        out = RecordSums(*(np.full(shape, 7.0) for shape in shapes))
        variances = np.linspace(3.0, 4.0, regions)
        record_sums(indptr, indices, table, reference, observation, variances, SERVERS, engine, out, active)
        found[engine] = out
        assert (out.y[~active] == 7.0).all()
        assert (out.scale[~active] == 7.0).all()
    for name in ("y", "info", "recent", "scale"):
        assert bits(getattr(found["numpy"], name)) == bits(getattr(found["numba"], name)), name


@pytest.mark.parametrize("observation", ["paper", "binomial"])
@given(seed=st.integers(0, 2**32 - 1), regions=st.sampled_from([1, 2, 9]))
@settings(max_examples=40, deadline=None)
def test_scores_are_the_same_bits(observation: Any, seed: int, regions: int) -> None:
    """Who is suspected must not depend on whether a loop is compiled."""
    rng = np.random.default_rng(seed)
    count = RUNS * SERVERS
    scores = {engine: OriginScores.start(count, SERVERS) for engine in ("numpy", "numba")}
    for _ in range(6):
        indptr, indices, table = some_records(rng, regions)
        reference = some_reference(rng, regions, False, False)
        posterior = rng.uniform(0, 300, (count, regions)), rng.uniform(1, 9, (count, regions)), rng.random(count) < 0.8
        for engine, one in scores.items():
            variances = np.linspace(3.0, 4.0, regions)
            one.judge(indptr, indices, table, reference, observation, variances, posterior, engine)
    assert bits(scores["numpy"].score) == bits(scores["numba"].score)
    assert bits(scores["numpy"].usual) == bits(scores["numba"].usual)
    assert (scores["numpy"].score != 1.0).any()
