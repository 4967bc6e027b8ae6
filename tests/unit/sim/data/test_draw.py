"""load, draw_run, shares and observe: names, shapes, seeds and refusals."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.sim.data import draw_run, draw_shares, load, observe


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_unknown_names_get_the_nearest() -> None:
    """Without this, a typing error would be reported as a missing file, or not at all."""
    with pytest.raises(BadInput, match=r"unknown data set 'liner'. Did you mean 'linear'.*path of a CSV"):
        load("liner")
    with pytest.raises(BadInput, match=r"unknown kind of shares 'unifrom'\. Did you mean 'uniform'"):
        draw_shares("unifrom", 3, 5, rng())
    with pytest.raises(BadInput, match="unknown observation 'papers'"):
        draw_run(load("linear", slots=5), seed=0, run=0, servers=2, observation="papers")
    with pytest.raises(BadInput, match=r"unknown kind of users 'pined'\. Did you mean 'pinned'"):
        draw_run(load("linear", slots=5), seed=0, run=0, servers=2, users="pined")


def test_a_run_depends_on_seed_and_run_only() -> None:
    """Without this, comparisons of schemes would not be paired and results not reproducible."""
    data = load("multi-linear", slots=30)
    one = draw_run(data, seed=3, run=4, servers=5)
    np.random.seed(0)  # noqa: NPY002  (global state must not matter)
    draw_run(data, seed=3, run=5, servers=5)
    again = draw_run(data, seed=3, run=4, servers=5)
    for field in ("truth", "counts", "shares"):
        assert (getattr(one, field) == getattr(again, field)).all()
    for other in (draw_run(data, seed=3, run=5, servers=5), draw_run(data, seed=4, run=4, servers=5)):
        assert (one.truth != other.truth).any()
        assert (one.shares != other.shares).any()
        assert (one.counts != other.counts).any()
    binomial = draw_run(data, seed=3, run=4, servers=5, observation="binomial")
    assert (binomial.truth == one.truth).all()
    assert (binomial.shares == one.shares).all()
    with pytest.raises(BadInput, match="seed=-1"):
        draw_run(data, seed=-1, run=0, servers=5)


def test_counts_do_not_depend_on_the_filters_q() -> None:
    """Without this, tuning Q would change the observations, and the tuner would chase its own tail."""
    plain = draw_run(load("linear", slots=50), seed=0, run=0, servers=3)
    tuned = draw_run(load("linear", slots=50, process_var=1.0), seed=0, run=0, servers=3)
    assert (plain.counts == tuned.counts).all()


def test_shapes_and_types() -> None:
    """Without this, the simulator would be handed arrays of another layout."""
    data = load("multi-linear", slots=9)
    run = draw_run(data, seed=0, run=0, servers=4)
    assert (run.truth.shape, run.counts.shape, run.shares.shape) == ((9, 6), (9, 4, 6), (4,))
    assert run.counts.dtype == run.truth.dtype == np.int64
    assert draw_run(data, seed=0, run=0, servers=4, shares="per-slot").shares.shape == (9, 4)
    assert not run.partition
    split = draw_run(data, seed=0, run=0, servers=4, shares="partition", observation="binomial")
    assert split.partition
    assert (split.counts.sum(axis=1) == split.truth).all()
    assert not draw_run(data, seed=0, run=0, servers=4, shares="partition").partition


def test_kinds_of_shares() -> None:
    """Without this, shares could leave (0, 1], vary in time when they must not, or not sum to 1."""
    uniform = draw_shares("uniform", 500, 3, rng())
    assert uniform.min() >= 0.05
    assert uniform.max() <= 1
    assert draw_shares("per-slot", 4, 3, rng()).shape == (3, 4)
    partition = draw_shares("partition", 50, 3, rng())
    assert partition.sum() == pytest.approx(1)
    assert partition.max() / partition.min() <= 20
    assert draw_shares("partition", 1, 3, rng()).tolist() == [1.0]
    assert draw_shares([0.5, 1], 2, 3, rng()).tolist() == [0.5, 1.0]
    assert draw_shares(np.full((3, 2), 0.5), 2, 3, rng()).shape == (3, 2)


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ([0.5, 0.0], r"share of server 1 is 0; allowed: above 0, at most 1"),
        ([1.5, 0.5], r"share of server 0 is 1\.5"),
        ([0.5, -0.1], r"share of server 1 is -0\.1"),
        ([0.5, float("nan")], r"share of server 1 is nan"),
        ([0.5], r"1 share given for 2 servers; give one number per server"),
        ([0.5, "many"], r"must be numbers"),
        ([[0.5, 0.5], [0.5, 2.0], [1, 1]], r"share of server 1 in slot 1 is 2"),
    ],
)
def test_bad_shares_name_the_server(shares: list[float], message: str) -> None:
    """Without this, a share outside (0, 1] would surface as an absurd estimate."""
    with pytest.raises(BadInput, match=message):
        draw_shares(shares, 2, 3, rng())


def test_no_servers() -> None:
    """Without this, zero servers would give empty arrays that fail much later."""
    with pytest.raises(BadInput, match="servers=0"):
        draw_shares("uniform", 0, 3, rng())


def test_papers_observation_is_its_formula() -> None:
    """Without this, the noise could be N(0, Q) instead of N(0, H^2 Q), or counts be negative or fractional."""
    truth = np.array([[100, 3], [50, 0]])
    shares, q = np.array([0.5, 1.0, 0.1]), np.array([400.0, 9.0])
    counts = observe("paper", truth, shares, q, rng(7))
    noise = rng(7).standard_normal((2, 3, 2))
    expected = shares[None, :, None] * truth[:, None, :] + shares[None, :, None] * np.sqrt(q) * noise
    assert counts.tolist() == np.maximum(np.rint(expected), 0).astype(int).tolist()
    assert (counts == 0).any()


def test_observing_slot_by_slot_is_the_same() -> None:
    """Without this, a simulation that draws counts slot by slot (to save memory) would differ from one at once."""
    truth = np.arange(40).reshape(20, 2) * 10
    shares = rng().uniform(0.05, 1, (20, 3))
    for kind in ("paper", "binomial"):
        whole = observe(kind, truth, shares, np.ones(2), rng(1))
        generator = rng(1)
        parts = [observe(kind, truth[t : t + 1], shares[t : t + 1], np.ones(2), generator) for t in range(20)]
        assert (np.concatenate(parts) == whole).all()


def test_binomial_with_full_share_sees_everybody() -> None:
    """Without this, Binomial(r, 1) could lose people."""
    truth = np.array([[5, 0], [7, 2**52]])
    counts = observe("binomial", truth, np.array([1.0, 1.0]), np.ones(2), rng())
    assert (counts == truth[:, None, :]).all()


def test_partition_per_slot() -> None:
    """Without this, shares that change in time could break the exact split."""
    truth = rng().integers(0, 1000, (30, 3))
    shares = rng().uniform(0.05, 1, (30, 6))
    shares /= shares.sum(axis=1, keepdims=True)
    counts = observe("binomial", truth, shares, np.ones(3), rng())
    assert (counts.sum(axis=1) == truth).all()
    assert counts.min() >= 0


@pytest.mark.parametrize(("shares", "q"), [(np.full((4, 3), 0.5), np.ones(1)), (np.full(3, 0.5), np.ones(2))])
def test_mismatched_shapes(shares: np.ndarray, q: np.ndarray) -> None:
    """Without this, wrong shapes would broadcast into wrong numbers."""
    with pytest.raises(BadInput, match="shape"):
        observe("paper", np.zeros((5, 1), dtype=np.int64), shares, q, rng())


@pytest.mark.slow
def test_heavy_libraries_stay_away() -> None:
    """Without this, loading data would pull in libraries that cost seconds to import."""
    code = (
        "import sys, dpcrowd.sim.data as d; d.draw_run(d.load('linear', slots=9), seed=0, run=0, servers=3);"
        "print(sorted({'scipy', 'pandas', 'polars', 'pyarrow', 'numba', 'urllib.request'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
