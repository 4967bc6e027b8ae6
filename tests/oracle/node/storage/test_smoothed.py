"""The smoothed history on disk against a central filter and smoother over all records that were there in time."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.filters import ProcessModel
from dpcrowd.filters.smoothing import smooth_matrix
from dpcrowd.node.release import SlotRelease, Smoothing
from dpcrowd.schemes.base import Release
from dpcrowd.schemes.server import Server
from node_support_storage import SLOTS as CLOCK
from node_support_storage import open_storage, opens
from relay_support import CentralFilter
from relay_worlds import draw_records, networks, play_records

SLOTS = 20


def full_smoother(oracle: CentralFilter, records: Any, last: int) -> tuple[Any, Any, Any]:
    """Means, covariances and what is known of slots 0 to `last`: a fixed-interval smoother over all of these slots."""
    network = oracle.network
    posteriors = oracle.run(records, last)
    d = len(oracle.a)
    means = np.array([[np.zeros(d) if p.mean is None else p.mean] for p in posteriors])
    known = np.array([[p.mean is not None] for p in posteriors])
    covs, doubt = np.array([[p.cov] for p in posteriors]), np.array([[p.doubt] for p in posteriors])
    model = ProcessModel.of(oracle.a, oracle.q) if network.model.course is None else network.model
    return smooth_matrix(means, covs, known, doubt, model)


@settings(max_examples=10)
@given(networks(), st.integers(0, 10**6))
def test_what_is_stored_is_the_fixed_interval_smoother_up_to_the_lag(network: Any, seed: int) -> None:
    """A slot s that becomes final too early, or too late, differs from the smoother over the slots up to s + L - 1."""
    rng = np.random.default_rng(seed)
    records = draw_records(network, rng)
    arrivals: dict[int, list[tuple[int, int]]] = {}
    for key in records:
        if key[0] != 0 and rng.random() < 0.8:
            arrivals.setdefault(key[1] + int(rng.integers(0, network.lag)), []).append(key)
    regions = tuple(f"region {k}" for k in range(network.model.regions))
    with tempfile.TemporaryDirectory() as folder, open_storage(Path(folder)) as storage:

        def commit(server: Server, release: Release) -> None:
            stored = SlotRelease.of(release, CLOCK, regions, 0)
            storage.commit_release([stored], b"", smoothed=Smoothing(server, 0).slots())

        _, sets, _ = play_records(network, 0, records, arrivals, SLOTS, after=commit)
        history = list(storage.releases.smoothed(0, opens(SLOTS)))
        released = list(storage.releases.between(0, opens(SLOTS)))
    assert [one.slot for one in history] == [one.slot for one in released] == list(range(SLOTS))
    oracle = CentralFilter(network)
    smoothed = {last: full_smoother(oracle, sets[last], last) for last in range(network.lag - 1, SLOTS)}
    for slot, stored in enumerate(history):  # the oracle inverts matrices, which costs digits where a prior was far off
        mean, cov, known = smoothed[min(slot + network.lag - 1, SLOTS - 1)]
        if known[slot, 0]:
            assert stored.estimate == pytest.approx(mean[slot, 0], rel=1e-5)
            assert stored.variance == pytest.approx(np.diag(cov[slot, 0]), rel=1e-5)
        else:
            assert np.isnan(stored.estimate).all()
