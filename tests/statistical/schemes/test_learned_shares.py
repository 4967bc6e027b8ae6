"""Learned shares in simulations: what they cost where public ones are right, and how soon wrong ones are known.

Fixed seeds; 20 servers among which users are divided, all records in their own slot.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpcrowd.sim.data import DataSet
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.recorder import RunRecords
from dpcrowd.sim.simulate import simulate


def relay(data: DataSet, **settings: Any) -> RunRecords:
    options: dict[str, Any] = {
        "servers": 20, "shares": "partition", "window": 40, "epsilon": 1.0, "runs": 1, "jobs": 1, "density": 0.5,
        "reach": "all", "hops_per_slot": "all", "observation": "binomial", "dynamic": False,
    }  # fmt: skip
    return simulate("relay", data, **{**options, **settings})["relay"]


@pytest.mark.slow
def test_a_season_is_not_taken_for_wrong_shares() -> None:
    """With 10 samples in 40 slots, servers of four groups never meet, and each sees its own part of a year of months.

    Without narrow widths the error is about twice that of public shares, which are right.
    """
    rng, months = np.random.default_rng(2), np.arange(160)
    season = 1.0 + 0.25 * np.sin(2.0 * np.pi * months / 12.0)[:, None]
    level = np.array([1e6, 4e5, 2e5]) * season * np.exp(np.cumsum(rng.normal(0.0, 0.02, (160, 3)), axis=0))
    data = counts_from_array(np.rint(level).astype(int).tolist())
    public = relay(data, samples=10, burn_in=40)
    learned = relay(data, samples=10, burn_in=40, share_width=0.1)
    assert learned.total_error.mean() < 1.15 * public.total_error.mean()
    assert learned.coverage95.mean() > 0.9


@pytest.mark.slow
def test_wrong_shares_are_known_once_all_servers_have_been_heard() -> None:
    """Shares as they were known 16 slots before turn a move of the crowd by a tenth into an error of half a percent."""
    moves = np.random.default_rng(5).normal(0.0, 0.1, (24, 1))
    data = counts_from_array(np.rint(5e6 * np.exp(moves)).astype(int).tolist(), process_var=[2.5e11])
    found = relay(data, window=24, samples=24, composition=0.5, share_width=0.1, burn_in=3)
    assert found.total_error.mean() < 3e-4
    assert found.coverage95.mean() > 0.85


@pytest.mark.slow
def test_a_server_with_a_large_share_that_is_heard_late() -> None:
    """Until all servers have been heard, errors of shares are people, and move with the crowd: else none is ever right.

    Links change, so that some servers are first heard in later slots, by when the crowd has moved.
    """
    moves = np.random.default_rng(6).normal(0.0, 0.12, (60, 1))
    data = counts_from_array(np.rint(5e6 * np.exp(moves)).astype(int).tolist(), process_var=[3e11])
    found = relay(
        data, samples=40, composition=0.5, share_width=0.1, burn_in=20, density=None, dynamic=True, runs=3, seed=1
    )
    assert found.coverage95.mean() > 0.85
    assert found.total_error.mean() < 4e-3
