"""Intervals of filtering schemes where users stay: wider, and estimates and schedules as before."""

import numpy as np
import pytest

import dpcrowd

SETTINGS = {"servers": 6, "density": 0.6, "window": 10, "runs": 1, "jobs": 1, "shares": "partition"}


def counts(regions: int = 2) -> dpcrowd.DataSet:
    return dpcrowd.counts_from_array(np.full((60, regions), 4000), process_var=1.0)


@pytest.mark.parametrize("scheme", ["kalman-uniform", "dpcrowd-w", "central"])
def test_intervals_contain_that_deviations_persist(scheme):
    """Whoever takes the deviations of people who stay for new ones believes in too narrow intervals."""
    result = dpcrowd.simulate(scheme, counts(), epsilon=50.0, turnover=0.02, **SETTINGS)
    assert result[scheme].coverage95.mean() > 0.85


def test_estimates_do_not_change(monkeypatch):
    """The memory of deviations is beside the filter: a schedule that depends on releases must not change with it."""
    kept = {"keep_estimates": True, "epsilon": 5.0, "turnover": 0.05}
    wider = dpcrowd.simulate("dpcrowd-w", counts(), **kept, **SETTINGS)["dpcrowd-w"]
    monkeypatch.setattr("dpcrowd.schemes.filter_state._start_staying", lambda setting: None)
    plain = dpcrowd.simulate("dpcrowd-w", counts(), **kept, **SETTINGS)["dpcrowd-w"]
    assert np.array_equal(wider.estimates, plain.estimates, equal_nan=True)
    assert np.array_equal(wider.frequency, plain.frequency)
    assert (wider.variances >= plain.variances).all()
    assert (wider.variances > plain.variances).any()
