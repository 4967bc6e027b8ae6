"""Compiled fusion of few speakers against the array operations that it stands for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpcrowd.arrays import Floats
from dpcrowd.filters import fuse
from dpcrowd.network.graph import Graph
from dpcrowd.network.hearing import Hearing, flooded_hearing, one_hop_hearing
from dpcrowd.network.random_graph import RandomGraph
from dpcrowd.schemes.filtering import absorb_few, few_speak
from dpcrowd.schemes.messages import InfoMessages

pytest.importorskip("numba", reason="the extra 'fast' is not installed: there are no compiled loops to test")

SERVERS = 60


def messages(rng: np.random.Generator, regions: int, share: float) -> tuple[InfoMessages, Floats, Floats]:
    """Messages of which a share speaks, and everybody's priors, some unknown and some exact."""
    shape = (SERVERS, regions)
    speaks = rng.random(SERVERS) < share
    prior, prior_var = rng.normal(0.0, 1e4, shape), rng.exponential(1e5, shape)
    prior_var[rng.random(shape) < 0.3] = np.inf
    prior_var[rng.random(shape) < 0.05] = 0.0
    known = np.isfinite(prior_var)
    due = speaks[:, None] & (rng.random(shape) < 0.8)
    weight = np.where(due, rng.exponential(1e-5, shape), 0.0)
    sent = InfoMessages(speaks, weight * rng.normal(0.0, 1e4, shape), weight, prior, known)
    return sent, prior, prior_var


def network(rng: np.random.Generator, gain: Floats | float = 0.02) -> Hearing:
    return one_hop_hearing(RandomGraph(SERVERS, 0.1).draw(rng), gain, "numba")


def by_arrays(prior: Floats, prior_var: Floats, sent: InfoMessages, hearing: Hearing) -> tuple[Floats, Floats]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return fuse(prior, prior_var, *sent.split(hearing.sums(sent.table())), hearing.gain)


@pytest.mark.parametrize("regions", [1, 5])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 1.0])
def test_adding_to_the_hearers_gives_the_same_bits_as_reading_what_is_heard(regions: int, share: float) -> None:
    """A sum in another order, a speaker left out or a fused multiply-add would change the last bits of every run."""
    rng = np.random.default_rng(1)
    for gain in (0.02, rng.uniform(0.0, 0.02, (SERVERS, 1))):
        hearing = network(rng, gain)
        sent, prior, prior_var = messages(rng, regions, share)
        for ours, oracle in zip(
            absorb_few(prior, prior_var, sent, hearing), by_arrays(prior, prior_var, sent, hearing), strict=True
        ):
            assert ours.shape == (SERVERS, regions)
            assert np.array_equal(ours, oracle, equal_nan=True)


def test_who_knows_nothing_and_hears_nothing_still_knows_nothing() -> None:
    """0 * inf would turn a server without information into NaN, and its neighbours with it."""
    hearing = one_hop_hearing(Graph.from_edges(2, [0], [1]), 0.1, "numba")
    none = np.zeros((2, 1))
    sent = InfoMessages(np.zeros(2, dtype=np.bool_), none, none, none, none > 0)
    mean, var = absorb_few(none, np.full((2, 1), np.inf), sent, hearing)
    assert mean.tolist() == [[0.0], [0.0]]
    assert np.isposinf(var).all()


def test_the_loop_is_taken_only_where_it_can_do_the_work_and_pays() -> None:
    """Flooding has no neighbour lists to walk, a live server must not load Numba, and many speakers are read faster."""
    rng = np.random.default_rng(2)
    few, many = messages(rng, 1, 0.1)[0], messages(rng, 1, 0.9)[0]
    hearing = network(rng)
    assert few_speak(few, hearing)
    assert not few_speak(many, hearing)
    assert not few_speak(few, replace(hearing, engine="numpy"))
    assert not few_speak(few, replace(hearing, mutual=False))
    assert not few_speak(few, flooded_hearing(np.zeros(SERVERS, dtype=np.int64)))
    assert not few_speak(few, Hearing(engine="numba"))
