"""The diagonal filter against other computations of the same posterior.

Moment form (K = P H/(H^2 P + R)), filterpy's textbook Kalman filter, one central filter that stacks all
measurements, and the consensus term as a plain double loop over neighbours.
"""

from __future__ import annotations

import numpy as np
import pytest
from filterpy.kalman import KalmanFilter

from dpcrowd.filters import ProcessModel, consensus_gain, fuse, observation_info, predict, update
from dpcrowd.network.hearing import one_hop_hearing
from dpcrowd.network.topologies import build
from dpcrowd.schemes.messages import InfoMessages

Array = np.ndarray


def moment_form(prior: Array, var: Array, share: Array, noisy: Array, obs_var: Array) -> tuple[Array, Array]:
    """One measurement, as the textbook writes it."""
    gain = var * share / (share * share * var + obs_var)
    return prior + gain * (noisy - share * prior), (1.0 - gain * share) * var


def test_information_form_is_the_moment_form_applied_measurement_by_measurement() -> None:
    """A wrong power of H or R in info_vec or info_mat would weigh servers wrongly."""
    rng = np.random.default_rng(0)
    shape = (40, 3)
    prior, var = rng.normal(1e3, 1e3, shape), 10.0 ** rng.uniform(-3, 8, shape)
    mean, spread = prior, var
    vec_sum, mat_sum = np.zeros(shape), np.zeros(shape)
    for _ in range(5):
        share = rng.uniform(0.01, 1, (40, 1))
        obs_var, noisy = 10.0 ** rng.uniform(-1, 6, shape), rng.normal(500, 500, shape)
        where = rng.random(shape) < 0.8
        vec, mat = observation_info(noisy, share, obs_var, where)
        vec_sum, mat_sum = vec_sum + vec, mat_sum + mat
        after = moment_form(mean, spread, share, noisy, obs_var)
        mean, spread = np.where(where, after[0], mean), np.where(where, after[1], spread)
    posterior, posterior_var = update(prior, var, vec_sum, mat_sum)
    # A gain near 1 cancels in the moment form, which is the worse one here.
    np.testing.assert_allclose(posterior_var, spread, rtol=1e-6)
    np.testing.assert_allclose(posterior, mean, rtol=1e-6, atol=1e-6)


def test_information_is_zero_where_nothing_was_sampled() -> None:
    """A slot without a sample must not count as a measurement, whatever stands in the array."""
    noisy = np.array([[7.0, np.finfo(float).max]])
    vec, mat = observation_info(noisy, np.array([[0.5]]), np.array([[2.0, 2.0]]), np.array([[True, False]]))
    assert vec.tolist() == [[1.75, 0.0]]
    assert mat.tolist() == [[0.125, 0.0]]


@pytest.mark.parametrize("transition", [1.0, 0.9, -0.5, 1.02])
def test_one_server_is_filterpys_kalman_filter(transition: float) -> None:
    """A server alone must be a textbook Kalman filter, with changing noise and slots without a sample."""
    rng = np.random.default_rng(1)
    model = ProcessModel.of(transition, [25.0])
    book = KalmanFilter(dim_x=1, dim_z=1)
    book.x, book.P = np.array([[100.0]]), np.array([[400.0]])
    book.F, book.Q, book.H = np.array([[transition]]), np.array([[25.0]]), np.array([[0.3]])
    mean, var = np.array([[100.0]]), np.array([[400.0]])
    for slot in range(200):
        noisy, obs_var = rng.normal(30, 10), float(rng.uniform(0.1, 50))
        book.predict()
        mean, var = predict(mean, var, model)
        np.testing.assert_allclose([mean[0, 0], var[0, 0]], [book.x[0, 0], book.P[0, 0]], rtol=1e-9)
        sampled = np.array([[slot % 3 != 1]])
        if sampled[0, 0]:
            book.update(noisy, R=obs_var)
        info = observation_info(np.array([[noisy]]), np.array([[0.3]]), np.array([[obs_var]]), sampled)
        mean, var = fuse(mean, var, *info, mean * sampled, sampled.astype(float), 0.2)
        np.testing.assert_allclose([mean[0, 0], var[0, 0]], [book.x[0, 0], book.P[0, 0]], rtol=1e-9)


@pytest.mark.parametrize("beta", [0.0, 0.05])
def test_fully_connected_servers_are_one_central_filter(beta: float) -> None:
    """If all hear all, everybody must hold the estimate of a filter that stacks all measurements.

    With equal priors the consensus term adds nothing, so the gain must not matter either.
    """
    rng = np.random.default_rng(2)
    servers, transition, process_var = 7, 0.97, np.array([30.0, 1e4])
    model = ProcessModel.of(transition, process_var)
    hearing = one_hop_hearing(build("complete", servers, rng), beta)
    share = rng.uniform(0.05, 1, (servers, 1))
    mean, var = np.zeros((servers, 2)), np.full((servers, 2), np.inf)
    centre = [(0.0, np.inf), (0.0, np.inf)]
    for _ in range(30):
        noisy, obs_var = rng.normal(300, 100, (servers, 2)), rng.uniform(1, 1e4, (servers, 2))
        prior, prior_var = predict(mean, var, model)
        vec, mat = observation_info(noisy, share, obs_var, np.ones((servers, 1), dtype=bool))
        messages = InfoMessages(np.ones(servers, dtype=bool), vec, mat, prior, np.isfinite(prior_var))
        mean, var = fuse(prior, prior_var, *messages.split(hearing.sums(messages.table())), hearing.gain)
        for k in range(2):
            was, spread = centre[k]
            was, spread = transition * was, transition**2 * spread + process_var[k]
            # Stacked weighted least squares; an unknown start has no row of its own.
            rows = [(share[i, 0], noisy[i, k], obs_var[i, k]) for i in range(servers)]
            rows += [(1.0, was, spread)] if np.isfinite(spread) else []
            design, data, noise = (np.array(column) for column in zip(*rows, strict=True))
            scaled = design / np.sqrt(noise)
            solution = np.linalg.lstsq(scaled[:, None], data / np.sqrt(noise), rcond=None)[0]
            centre[k] = float(solution[0]), float(1.0 / (scaled @ scaled))
            np.testing.assert_allclose(mean[:, k], centre[k][0], rtol=1e-9)
            np.testing.assert_allclose(var[:, k], centre[k][1], rtol=1e-9)


def test_consensus_is_the_sum_over_speaking_neighbours_only() -> None:
    """Algorithm 1 sums prior_j - prior_i over N_i: the own prior, silent and ignorant neighbours add nothing."""
    rng = np.random.default_rng(3)
    servers, regions, beta = 20, 3, 0.04
    graph = build("random", servers, rng, density=0.3)
    hearing = one_hop_hearing(graph, beta)
    prior, prior_var = rng.normal(100, 30, (servers, regions)), 10.0 ** rng.uniform(-2, 3, (servers, regions))
    prior_var[rng.random((servers, regions)) < 0.2] = np.inf
    known = np.isfinite(prior_var)
    prior[~known] = 1e9  # a placeholder that would show
    speaks = rng.random(servers) < 0.6
    vec, mat = observation_info(
        rng.normal(50, 9, (servers, regions)),
        np.full((servers, 1), 0.5),
        np.full((servers, regions), 4.0),
        speaks[:, None],
    )
    messages = InfoMessages(speaks, vec, mat, prior, known)
    mean, var = fuse(prior, prior_var, *messages.split(hearing.sums(messages.table())), beta)
    for i in range(servers):
        for k in range(regions):
            circle = [i, *graph.neighbours(i).tolist()]
            y, big_y = sum(vec[j, k] for j in circle), sum(mat[j, k] for j in circle)
            if not known[i, k]:
                if big_y:
                    assert mean[i, k] == pytest.approx(y / big_y, rel=1e-6)
                    assert var[i, k] == pytest.approx(1 / big_y)
                else:
                    assert mean[i, k] == prior[i, k]
                    assert var[i, k] == np.inf
                continue
            p = prior_var[i, k]
            m = 1 / (1 / p + big_y)
            pull = sum(prior[j, k] - prior[i, k] for j in circle[1:] if speaks[j] and known[j, k])
            expected = prior[i, k] + m * (y - big_y * prior[i, k]) + beta * p / (p + 1) * pull
            assert mean[i, k] == pytest.approx(expected, rel=1e-9)
            assert var[i, k] == pytest.approx(m, rel=1e-9)


def test_consensus_gain_is_beta_p_over_p_plus_one() -> None:
    """The paper's C; its limit for an infinite variance is beta, not NaN."""
    var = np.array([0.0, 1e-9, 0.5, 1.0, 3.0, 1e12])
    np.testing.assert_allclose(consensus_gain(var, 0.2), 0.2 * var / (var + 1), rtol=1e-6)
    assert consensus_gain(np.array([np.inf]), 0.2).tolist() == [0.2]
