"""What is written for speed (compiled loops, noise for a few rows) against the plain operations that it stands for."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from dpcrowd.errors import BadInput
from dpcrowd.filters import fuse
from dpcrowd.network.graph import Graph
from dpcrowd.network.hearing import Hearing, flooded_hearing, one_hop_hearing
from dpcrowd.network.random_graph import RandomGraph
from dpcrowd.privacy import SeededNoise, noise_scale
from dpcrowd.privacy.noise_loop import NoiseLoop, add_noise, compiled_noise
from dpcrowd.sampling import pid
from dpcrowd.sampling.pid_loop import compiled_pid, fast_step, rescue_step
from dpcrowd.schemes.absorb_few import absorb_few, few_speak
from dpcrowd.schemes.messages import InfoMessages

pytest.importorskip("numba", reason="the extra 'fast' is not installed: there are no compiled loops to test")

Floats = NDArray[np.float64]
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
    said = InfoMessages(speaks, weight * rng.normal(0.0, 1e4, shape), weight, prior, known)
    return said, prior, prior_var


def network(rng: np.random.Generator, gain: Floats | float = 0.02) -> Hearing:
    return one_hop_hearing(RandomGraph(SERVERS, 0.1).draw(rng), gain, "numba")


def by_arrays(prior: Floats, prior_var: Floats, said: InfoMessages, hearing: Hearing) -> tuple[Floats, Floats]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return fuse(prior, prior_var, *said.split(hearing.sums(said.table())), hearing.gain)


@pytest.mark.parametrize("regions", [1, 5])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 1.0])
def test_adding_to_the_hearers_gives_the_same_bits_as_reading_what_is_heard(regions: int, share: float) -> None:
    """A sum in another order, a speaker left out or a fused multiply-add would change the last bits of every run."""
    rng = np.random.default_rng(1)
    for gain in (0.02, rng.uniform(0.0, 0.02, (SERVERS, 1))):
        hearing = network(rng, gain)
        said, prior, prior_var = messages(rng, regions, share)
        for ours, oracle in zip(
            absorb_few(prior, prior_var, said, hearing), by_arrays(prior, prior_var, said, hearing), strict=True
        ):
            assert ours.shape == (SERVERS, regions)
            assert np.array_equal(ours, oracle, equal_nan=True)


def test_who_knows_nothing_and_hears_nothing_still_knows_nothing() -> None:
    """0 * inf would turn a server without information into NaN, and its neighbours with it."""
    hearing = one_hop_hearing(Graph.from_edges(2, [0], [1]), 0.1, "numba")
    none = np.zeros((2, 1))
    said = InfoMessages(np.zeros(2, dtype=np.bool_), none, none, none, none > 0)
    mean, var = absorb_few(none, np.full((2, 1), np.inf), said, hearing)
    assert mean.tolist() == [[0.0], [0.0]]
    assert np.isposinf(var).all()


def test_the_loop_is_taken_only_where_it_can_do_the_work_and_pays() -> None:
    """Flooding has no neighbour lists to walk, a live server must not load Numba, and many speakers are read faster."""
    rng = np.random.default_rng(2)
    few, many = messages(rng, 1, 0.1)[0], messages(rng, 1, 0.9)[0]
    hearing = network(rng)
    assert few_speak(few, hearing)
    assert not few_speak(many, hearing)
    assert not few_speak(few, replace(hearing, engine="scipy"))
    assert not few_speak(few, replace(hearing, mutual=False))
    assert not few_speak(few, flooded_hearing(np.zeros(SERVERS, dtype=np.int64)))
    assert not few_speak(few, Hearing(engine="numba"))


def same(one: pid.PidState, other: pid.PidState) -> bool:
    pairs = ((getattr(one, f.name), getattr(other, f.name)) for f in fields(pid.PidState))
    return all(np.allclose(a, b, rtol=1e-12, atol=0.0) for a, b in pairs)


@pytest.mark.parametrize("rule", ["fast", "rescue"])
@pytest.mark.parametrize("window", [1, 5])
@pytest.mark.parametrize("gains", [(0.9, 0.1, 0.0), (0.7, 0.1, 0.2)])
def test_the_controllers_loop_steps_like_the_array_operations(
    rule: str, window: int, gains: tuple[float, float, float]
) -> None:
    """A controller that forgets an error, or reads the wrong one, would sample at other times than the node does."""
    rng = np.random.default_rng(3)
    looped, plain = pid.start(20, 3, window), pid.start(20, 3, window)
    for slot in range(1, 60, 2):
        rows = np.flatnonzero(rng.random(60) < 0.4)
        error = rng.exponential(0.05, rows.size)
        if rule == "fast":
            fast_step(looped, slot, rows, error, gains, 2.5, 0.05, compiled_pid())
            fast_step(plain, slot, rows, error, gains, 2.5, 0.05)
        else:
            left = rng.uniform(0.0, 30.0, rows.size)
            rescue_step(looped, slot, rows, error, gains, 3.0, left, compiled_pid())
            rescue_step(plain, slot, rows, error, gains, 3.0, left)
        assert same(looped, plain)
    assert looped.measured.max() > window
    assert looped.interval.max() > 5.0


def test_steps_of_nobody_change_nothing() -> None:
    """With RescueDP's rule an empty list of budgets must not be taken for FAST's."""
    rows, nothing = np.empty(0, dtype=np.int64), np.empty(0)
    state = pid.start(4, 1, 5)
    for loop in (None, compiled_pid()):
        fast_step(state, 3, rows, nothing, (0.9, 0.1, 0.0), 2.5, 0.05, loop)
        rescue_step(state, 3, rows, nothing, (0.9, 0.1, 0.0), 1.0, nothing, loop)
    assert same(state, pid.start(4, 1, 5))


@pytest.mark.parametrize("compiled", [False, True])
def test_a_huge_error_ends_at_interval_one_and_a_theta_of_zero_changes_nothing(compiled: bool) -> None:
    """Without the caps, 0 * inf would make the interval NaN, and the controller would never sample again."""
    loop = compiled_pid() if compiled else None
    rows, error, left = np.array([0]), np.array([1e200]), np.array([1.0])
    for theta, expected in ((0.0, 3.0), (2.5, 1.0)):
        fast, rescue = pid.start(1, 1, 5), pid.start(1, 1, 5)
        for state in (fast, rescue):
            state.interval[:] = 3.0
        fast_step(fast, 7, rows, error, (0.9, 0.1, 0.0), theta, 0.05, loop)
        rescue_step(rescue, 7, rows, error, (0.9, 0.1, 0.0), theta, left, loop)
        for state in (fast, rescue):
            assert state.interval.tolist() == [[expected]]
            assert state.next_slot.tolist() == [[7 + int(expected)]]


@pytest.mark.parametrize("loop", [add_noise, compiled_noise()])
def test_noise_for_a_few_rows_is_the_noise_of_their_places(loop: NoiseLoop) -> None:
    """If a value got the noise of another place, schemes would no longer be compared on the same luck."""
    rng = np.random.default_rng(4)
    shape = (30, 4)
    counts, sensitivity = rng.integers(0, 1000, shape), rng.integers(1, 4, shape)
    where = rng.random(shape) < 0.2
    for charge in (np.array([[10**7]]), rng.integers(10**6, 10**8, (30, 1)), rng.integers(10**6, 10**8, shape)):
        noise = SeededNoise([np.random.SeedSequence(5)], *shape, loop=loop)
        first, second = noise._unit(2, 0)
        scale = noise_scale(charge, sensitivity)
        everywhere = counts + (np.floor(first * scale) - np.floor(second * scale))
        assert np.array_equal(noise.noisy(2, counts, charge, sensitivity, where), np.where(where, everywhere, 0.0))


@pytest.mark.parametrize("loop", [add_noise, compiled_noise()])
def test_a_charge_is_asked_for_where_a_count_is_read_and_nowhere_else(loop: NoiseLoop) -> None:
    """A slot in which no server samples must not be refused, and a read that pays nothing must never pass."""
    noise = SeededNoise([np.random.SeedSequence(5)], 3, 2, loop=loop)
    counts, where = np.ones((3, 2), dtype=np.int64), np.zeros((3, 2), dtype=np.bool_)
    assert not noise.noisy(0, counts, np.array([[0]]), 1, where).any()
    where[1, 0] = True
    assert noise.noisy(0, counts, np.array([[0], [10**9], [0]]), 1, where)[where].all()
    for charge in (np.array([[0]]), np.array([[10**9], [0], [10**9]])):
        with pytest.raises(BadInput, match="charge of at least"):
            noise.noisy(0, counts, charge, 1, where)
