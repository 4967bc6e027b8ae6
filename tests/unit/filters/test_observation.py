"""The observation variance: formulas, floors and what it looks at."""

from __future__ import annotations

import numpy as np

from dpcrowd.filters import observation_var

SHARE = np.array([[0.1], [1.0]])
PROCESS_VAR = np.array([100.0, 0.0])


def test_paper_takes_the_share_squared_times_q() -> None:
    """H^2 Q of Eq. (approx), one row a server and one column a region."""
    said = observation_var("paper", SHARE, PROCESS_VAR, np.full((2, 2), np.nan))
    np.testing.assert_allclose(said, [[1.0, 1 / 12], [100.0, 1 / 12]])


def test_binomial_takes_the_crowd_that_the_server_expects() -> None:
    """H (1 - H) r, with at least one person expected; a negative prior must not give a negative variance."""
    said = observation_var("binomial", SHARE, PROCESS_VAR, np.array([[1000.0, -50.0], [1000.0, 0.0]]))
    np.testing.assert_allclose(said, [[90.0, 0.09], [1 / 12, 1 / 12]])


def test_no_observation_is_perfect() -> None:
    """Counts are whole numbers: R = 0 would divide by zero and make a server infinitely sure."""
    for kind in ("paper", "binomial"):
        said = observation_var(kind, np.array([[1.0]]), np.array([0.0]), np.array([[0.0]]))
        assert said.tolist() == [[1 / 12]]
