"""The errors of all servers' exact counts put together."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dpcrowd.sim.configure import configure
from dpcrowd.sim.engine import draw_data
from dpcrowd.sim.together import errors_together

COUNTS = np.random.default_rng(5).poisson([40, 400], (30, 2))
SMALL: dict[str, Any] = {"servers": 5, "graph": "ring", "window": 10, "runs": 2, "burn_in": 3}


def test_counts_of_a_partition_are_the_truth_together() -> None:
    """The error of a filter that hears two neighbours was shown as what nobody can avoid."""
    config = configure("uniform", COUNTS, shares="partition", **SMALL)
    are, total_error = errors_together(config, range(2))
    assert are == pytest.approx([0.0, 0.0], abs=1e-12)
    assert total_error == pytest.approx([0.0, 0.0], abs=1e-12)


def test_overlapping_counts_are_divided_by_the_sum_of_shares() -> None:
    """With another Q the figure must stay: it says what shares and counts allow, not how well a filter is tuned."""
    config = configure("uniform", COUNTS, **SMALL)
    _, total_errors = errors_together(config, [1])
    drawn = draw_data(config, 1)
    expected = drawn.counts.sum(axis=1) / drawn.shares.sum()
    assert total_errors[0] == pytest.approx(np.abs(expected - COUNTS)[3:].sum() / COUNTS[3:].sum())
    wrong = configure("uniform", COUNTS, process_var=1e-3, **SMALL)
    assert errors_together(wrong, [1])[1] == pytest.approx(total_errors)


def test_observations_of_the_paper_are_weighted_by_their_precision() -> None:
    """Their noise is in proportion to the share, so a server with a large share says no more than one with a small."""
    shares = np.array([0.9, 0.1, 0.1, 0.1, 0.1])
    counts = np.abs(np.random.default_rng(6).normal(0, 300, (200, 1)).cumsum(axis=0) + 20_000).astype(int)
    config = configure("uniform", counts, shares=shares, observation="paper", **SMALL)
    drawn = draw_data(config, 0)
    plain = np.abs(drawn.counts.sum(axis=1) / shares.sum() - counts)[3:].sum() / counts[3:].sum()
    assert errors_together(config, [0])[1][0] < 0.8 * plain


def test_a_place_without_anybody_has_no_total_error() -> None:
    """A division by zero people would print nan in JSON."""
    config = configure("uniform", np.zeros((30, 1), dtype=int), **SMALL)
    are, total_error = errors_together(config, [0])
    assert are[0] == 0.0
    assert math.isnan(total_error[0])
