"""What the package promises: dpcrowd's contract, and what is special about this scheme."""

from __future__ import annotations

import pytest
from crowd_example.moving_median import MovingMedian

import dpcrowd
from dpcrowd.testing import check_scheme


@pytest.mark.parametrize("length", [1, 5])
def test_it_keeps_the_contract(length: int) -> None:
    """Without this, dpcrowd prints the promise as a claim that does not pass its checks."""
    assert check_scheme(MovingMedian(length)).ok


def test_a_median_of_one_is_uniform() -> None:
    """The simplest oracle: both read the same counts at the same price."""
    settings = {"servers": 5, "slots": 60, "runs": 2, "window": 10, "density": 1.0}
    result = dpcrowd.simulate({"median": MovingMedian(1), "uniform": "uniform"}, **settings)
    assert result["median"].are == pytest.approx(result["uniform"].are)


@pytest.mark.parametrize("data", ["linear", "crowd_example.market:load"])
def test_its_intervals_cover_the_truth(data: str) -> None:
    """A variance that leaves out the noise, the crowd's movement or the users elsewhere gives intervals too narrow."""
    result = dpcrowd.simulate({"median": MovingMedian()}, data, servers=5, slots=100, runs=2, window=10, density=1.0)
    assert result["median"].coverage95.mean() > 0.95
