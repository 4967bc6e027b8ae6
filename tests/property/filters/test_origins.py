"""Scores of origins: the compiled loops, over lists and over bits, against array operations, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.filters.origins import OriginScores
from dpcrowd.filters.records import RecordTable, Reference


@given(
    seed=st.integers(0, 2**32 - 1),
    runs=st.integers(1, 4),
    servers=st.integers(1, 70),
    regions=st.integers(1, 3),
    alone=st.booleans(),
    observation=st.sampled_from(["paper", "binomial"]),
    persistence=st.sampled_from([0.0, 0.3, 1.0]),
)
@settings(max_examples=60, deadline=None)
@pytest.mark.slow
def test_loops_and_arrays_judge_alike(
    seed: int, runs: int, servers: int, regions: int, alone: bool, observation: Any, persistence: float
) -> None:
    """A score that differs in one bit lets a simulation and its servers release different estimates.

    alone  one receiver has the records of its network, as a server on its own does
    """
    rng = np.random.default_rng(seed)
    runs = 1 if alone else runs
    receivers, origins = 1 if alone else runs * servers, runs * servers
    has = (rng.random((receivers, servers)) < rng.uniform(0.0, 0.5)) & (rng.random(servers) < 0.7)
    table = RecordTable(
        np.rint(rng.normal(300.0, 200.0, (origins, regions))),
        np.where(rng.random(origins) < 0.8, rng.uniform(1.0, 50.0, origins), 0.0),
        rng.uniform(0.05, 1.0, origins),
    )
    first = np.arange(receivers)[:, None] // servers * servers
    has &= table.var[first + np.arange(servers)] > 0.0
    indptr = np.concatenate([[0], np.cumsum(has.sum(axis=1))]).astype(np.uint32)
    indices = np.broadcast_to(first + np.arange(servers), has.shape)[has].astype(np.uint32)
    padded = np.zeros((receivers, -(-servers // 64) * 64), dtype=np.bool_)
    padded[:, :servers] = has
    words = np.packbits(padded, axis=1, bitorder="little").view("<u8")
    level_var = np.where(rng.random((receivers, regions)) < 0.3, np.inf, 1.0)
    reference = Reference(rng.uniform(0.0, 900.0, (receivers, regions)), level_var)
    posterior = (
        rng.normal(500.0, 100.0, (receivers, regions)),
        rng.uniform(1.0, 900.0, (receivers, regions)),
        rng.random(receivers) < 0.8,
    )
    before = rng.uniform(0.0, 5.0, (receivers, servers))
    usual = rng.uniform(0.5, 3.0, receivers)
    results = []
    for engine, bits in (("numpy", None), ("numba", None), ("numba", words)):
        scores = OriginScores(before.copy(), usual.copy(), (before > 3.5).any(axis=1))
        process_var = np.full(regions, 40.0)
        scores.judge(
            indptr, indices, table, reference, observation, process_var, posterior, engine, bits, persistence  # type: ignore[arg-type]
        )  # fmt: skip
        results.append(tuple(part.tobytes() for part in (scores.score, scores.usual, scores.suspicious)))
    assert results[0] == results[1], "lists"
    assert results[0] == results[2], "bits"
