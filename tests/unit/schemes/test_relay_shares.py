"""Relay that learns shares: what it gains, what it costs, and where it refuses to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.sim.simulate import simulate

_RNG = np.random.default_rng(0)
COUNTS = (
    np.rint(np.array([3000, 900, 5000]) + np.cumsum(_RNG.normal(0.0, 20.0, (80, 3)), axis=0)).astype(np.int64).tolist()
)
SETTINGS: dict[str, Any] = {
    "servers": 8,
    "density": 0.5,
    "window": 20,
    "runs": 1,
    "burn_in": 40,
    "lag": 4,
    "shares": "partition",
    "observation": "binomial",
    "reach": "all",
    "process_var": 400.0,
}


def total(**settings: Any) -> tuple[float, float]:
    row = simulate("relay", COUNTS, **SETTINGS | settings).summary()[0]
    return row["total_error"]["mean"], row["coverage95"]


@pytest.mark.slow
@pytest.mark.parametrize("turnover", [1.0, 0.05])
def test_wrong_shares_are_found(turnover: float) -> None:
    """Without learning, the people whom a server sees more of than its public share says are counted too often."""
    public, missed = total(composition=1.0, turnover=turnover)
    learned, covered = total(composition=1.0, turnover=turnover, share_width=0.1)
    assert learned < 0.5 * public
    assert covered > missed
    assert covered > 0.88


@pytest.mark.slow
def test_right_shares_cost_little() -> None:
    """Whoever asks for learning and did not need it must not pay for it."""
    public, _ = total(turnover=0.05)
    learned, covered = total(turnover=0.05, share_width=0.1)
    assert learned < 1.15 * public
    assert covered > 0.9


@pytest.mark.slow
def test_it_learns_beside_an_expected_course_and_a_bank_of_beliefs() -> None:
    """Variances that are learned, and shares, have to go together: both come from the same records."""
    learned, covered = total(composition=1.0, share_width=0.1, learn=True)
    assert learned < 0.5 * total(composition=1.0, learn=True)[0]
    assert covered > 0.88


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"reach": 2}, "needs reach=all"),
        ({"shares": "uniform"}, "needs every user at one server"),
        ({"shares": [0.1] * 8}, "needs every user at one server"),
        ({"observation": "paper"}, "binomial counts"),
        ({"form": "matrix"}, "diagonal form only"),
        ({"share_width": 1.5}, "from 0"),
    ],
)
def test_where_shares_cannot_be_learned_it_says_so(settings: dict[str, Any], words: str) -> None:
    """A scale that cannot be known from records would be made up."""
    with pytest.raises(BadInput, match=words):
        total(**{"share_width": 0.1, **settings})


def test_the_width_is_for_relay() -> None:
    """An option without effect would be believed to have one."""
    with pytest.raises(BadInput, match="is for scheme 'relay' only"):
        simulate("dpcrowd-plus", COUNTS, servers=8, runs=1, window=20, share_width=0.1, shares="partition")
