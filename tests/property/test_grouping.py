"""What holds for every grouping: a partition within the thresholds that depends on each server's releases alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.grouping import group_regions
from examples_support import examples

TAU1, TAU2, TAU3 = 20.0, 0.3, 8.0


@st.composite
def releases(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """history, filled and allowed of a few servers; sizes are spread, so that there are no ties."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    servers, kappa, regions = draw(st.integers(1, 6)), draw(st.integers(1, 9)), draw(st.integers(1, 8))
    trend = rng.normal(0, 1, (servers, kappa, 1))
    history = rng.uniform(-2, 25, (servers, 1, regions)) + trend + rng.normal(0, 0.7, (servers, kappa, regions))
    filled = rng.integers(kappa - 1, kappa + 2, servers)
    return history, filled, rng.random((servers, regions)) < 0.85


@given(releases())
@settings(max_examples=examples(100))
def test_every_allowed_region_is_in_one_group_within_the_thresholds(
    case: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    """A region in two groups would be paid once and read twice; one in none would never be read."""
    history, filled, allowed = case
    pivots = group_regions(history, filled, allowed, TAU1, TAU2, TAU3)
    kappa = history.shape[1]
    for n, row in enumerate(pivots):
        size = history[n].mean(axis=0)
        assert ((row == -1) == ~allowed[n]).all()
        for pivot in set(row[row >= 0].tolist()):
            members = np.flatnonzero(row == pivot)
            assert pivot in members
            if members.size == 1:
                continue
            assert filled[n] >= kappa
            assert size[members].sum() < TAU1
            assert (size[members] < TAU1).all()
            assert (size[members] - size[pivot] >= -1e-9).all()
            assert (size[members] - size[pivot] < TAU3).all()
            if kappa > 1:
                others = members[members != pivot]
                for k in others:
                    assert np.corrcoef(history[n, :, pivot], history[n, :, k])[0, 1] > TAU2 - 1e-9


@pytest.mark.slow
@given(releases(), st.integers(0, 2**32 - 1))
@settings(max_examples=examples(60))
def test_a_servers_groups_do_not_depend_on_the_other_servers(
    case: tuple[np.ndarray, np.ndarray, np.ndarray], seed: int
) -> None:
    """A batch is servers one by one: in any order, or each alone as a live server is."""
    history, filled, allowed = case
    pivots = group_regions(history, filled, allowed, TAU1, TAU2, TAU3)
    order = np.random.default_rng(seed).permutation(len(history))
    shuffled = group_regions(history[order], filled[order], allowed[order], TAU1, TAU2, TAU3)
    assert shuffled.tolist() == pivots[order].tolist()
    for n in range(len(history)):
        one = slice(n, n + 1)
        assert group_regions(history[one], filled[one], allowed[one], TAU1, TAU2, TAU3).tolist() == [pivots[n].tolist()]


@given(releases(), st.integers(0, 2**32 - 1))
@settings(max_examples=examples(60))
def test_groups_do_not_depend_on_the_numbering_of_regions(
    case: tuple[np.ndarray, np.ndarray, np.ndarray], seed: int
) -> None:
    """Without ties, renaming regions renames the groups and changes nothing else."""
    history, filled, allowed = case
    order = np.random.default_rng(seed).permutation(history.shape[2])
    pivots = group_regions(history, filled, allowed, TAU1, TAU2, TAU3)
    renamed = group_regions(history[:, :, order], filled, allowed[:, order], TAU1, TAU2, TAU3)
    back = np.append(order, -1)[renamed]
    assert back.tolist() == pivots[:, order].tolist()


@given(releases(), st.floats(0.5, 50))
@settings(max_examples=examples(40))
def test_forbidden_regions_might_as_well_not_exist(
    case: tuple[np.ndarray, np.ndarray, np.ndarray], value: float
) -> None:
    """What a region that is not sampled released before must not change how the others are grouped."""
    history, filled, allowed = case
    pivots = group_regions(history, filled, allowed, TAU1, TAU2, TAU3)
    changed = np.where(allowed[:, None, :], history, value)
    assert group_regions(changed, filled, allowed, TAU1, TAU2, TAU3).tolist() == pivots.tolist()
