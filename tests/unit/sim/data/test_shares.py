"""What a partition is: one definition for simulated crowds, for filters and for files."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.filters.persistence import are_partitioned
from dpcrowd.sim.data.observe import observe
from dpcrowd.sim.data.shares import checked_shares, is_partition, partitioned_regions, without_rounding
from dpcrowd.sim.simulate import simulate

THIRDS = [0.333333] * 3
MIXED = np.array([[0.5, 0.5], [0.3, 0.2], [0.2, 0.2]])  # a partition of the first region only


def test_shares_with_six_decimals_are_a_partition_everywhere() -> None:
    """Filters took them for one and the simulator did not: 95% intervals then covered 0.6%."""
    shares = checked_shares(THIRDS, 3, 10)
    assert is_partition(np.array(THIRDS))
    assert is_partition(shares)
    assert shares.sum() == pytest.approx(1.0, abs=1e-12)
    assert bool(are_partitioned(shares[:, None]).all())
    by_region = np.stack([THIRDS, [0.3, 0.3, 0.3]], axis=1)[None]
    np.testing.assert_allclose(without_rounding(by_region)[0].sum(axis=0), [1.0, 0.9], atol=1e-12)


def test_exact_shares_keep_their_bits() -> None:
    """Dividing by a sum of 0.9999999999999999 would change every simulation of a partition."""
    shares = np.random.default_rng(1).dirichlet(np.ones(7))
    assert without_rounding(shares).tobytes() == shares.tobytes()


def test_people_of_a_region_are_divided_where_its_shares_sum_to_one() -> None:
    """Each region is drawn by its own shares: what filters take to cancel has to cancel."""
    assert partitioned_regions(MIXED[None]).tolist() == [True, False]
    truth = np.full((50, 2), 1000)
    for turnover in (0.05, 1.0):
        counts = observe("binomial", truth, MIXED[None], np.ones(2), np.random.default_rng(0), turnover=turnover)
        together = counts.sum(axis=1)
        assert (together[:, 0] == 1000).all()
        assert together[:, 1].std() > 0.0
        assert abs(together[:, 1].mean() - 900.0) < 30.0


@pytest.mark.slow
@pytest.mark.parametrize(("shares", "turnover"), [(THIRDS, 1.0), (MIXED, 0.05), (MIXED, 1.0)])
def test_intervals_hold_for_shares_given_by_hand(shares: object, turnover: float) -> None:
    """With precise records every deviation of a server shows: a wrong belief in its cancelling covers nothing."""
    crowd = np.random.default_rng(0).poisson(2000, (160, 2))
    result = simulate(
        schemes=["relay"],
        data=crowd,
        servers=3,
        shares=shares,
        epsilon=10.0,
        window=10,
        turnover=turnover,
        graph="complete",
        hops_per_slot="all",
        runs=2,
        jobs=1,
    )
    assert 0.88 < float(np.mean(result["relay"].coverage95)) < 0.99


@pytest.mark.slow
def test_shares_that_sum_to_one_are_no_partition_where_users_are_at_several_servers() -> None:
    """An operator who allows two servers per user has users at none, too: deviations do not sum to 0."""
    crowd = np.random.default_rng(0).poisson(2000, (120, 2))
    claimed = [
        simulate(
            schemes=["relay"],
            data=crowd,
            servers=3,
            shares=[0.5, 0.3, 0.2],
            servers_per_slot=most,
            epsilon=10.0 * most,  # the same noise
            window=10,
            turnover=1.0,
            graph="complete",
            hops_per_slot="all",
            samples=10,
            runs=1,
            jobs=1,
            keep_estimates=True,
            learn=False,
        )["relay"]
        for most in (1, 2)
    ]
    assert claimed[0].coverage95[0] < claimed[1].coverage95[0] == 1.0
