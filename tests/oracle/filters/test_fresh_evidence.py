"""`filters.fresh_evidence` against the variance of sums of drawn evidence."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.filters.fresh_evidence import fresh_evidence, squared_surprise


@pytest.mark.parametrize(("part", "stays"), [(1.0, 0.9), (0.5, 0.9), (0.3, 0.6), (0.7, 0.0)])
def test_sums_of_innovations_and_of_their_squares_vary_as_so_many_independent_ones(part: float, stays: float) -> None:
    """Innovations have a part that is a deviation which stays: what they say of a mean or of a variance is less."""
    rng = np.random.default_rng(1)
    slots, runs = 400, 4000
    deviation, total, squares = rng.normal(size=runs), np.zeros(runs), np.zeros(runs)
    for _ in range(slots):
        deviation = stays * deviation + np.sqrt(1.0 - stays * stays) * rng.normal(size=runs)
        innovation = np.sqrt(part) * deviation + np.sqrt(1.0 - part) * rng.normal(size=runs)
        total, squares = total + innovation, squares + np.square(innovation)
    typical = np.full((1, 1), part), stays, np.ones((1, 1))
    # Of as many independent ones, the sums have the variances 1 and 2 per slot.
    counts = (float(fresh_evidence(*typical, considered=considered)[0, 0]) for considered in (True, False))
    assert (slots / total.var(), 2.0 * slots / squares.var()) == pytest.approx(tuple(counts), rel=0.1)


@pytest.mark.parametrize("considered", [True, False])
def test_what_no_deviation_explains_is_new(considered: bool) -> None:
    """A crowd that has left its model would be taken for one deviation that lasts."""
    part, surprise = np.full((1, 3), 0.7), np.array([[0.1, 2.0, 50.0]])
    usual, typical, far = fresh_evidence(part, 0.995, surprise, considered=considered)[0]
    assert usual == typical < 0.02
    assert far > 0.9


def test_nothing_is_surprising_where_nothing_was_known_or_heard() -> None:
    """Infinite variances and empty sums must not become NaN."""
    mean, var = np.zeros((1, 3)), np.array([[np.inf, 4.0, 4.0]])
    sums = np.array([[5.0, 0.0, 5.0]]), np.array([[1.0, 0.0, 1.0]])
    assert squared_surprise((mean, var), sums).tolist() == [[0.0, 0.0, 5.0]]


@pytest.mark.parametrize("considered", [True, False])
def test_users_who_never_leave_are_no_error(considered: bool) -> None:
    """With a turnover of 1e-17, which is allowed and rounds to nobody, estimates were NaN."""
    parts = np.array([[0.0, 0.5]])
    fresh = fresh_evidence(parts, 1.0 - 1e-17, np.ones((1, 2)), considered=considered)
    assert fresh[0, 0] == 1.0
    assert 0.0 < fresh[0, 1] < 1e-8
