"""How much could records gain over the model alone? An oracle's error, where users are partitioned.

    python benchmarks/bound.py [SERIES ...] [--runs 20]

The oracle knows in hindsight what no scheme can know: of the scored half, each region's variance and AR(1) around the
model, and the covariance of all regions. It has the Kalman filter of these, and hears every record that the promise
allows, at once and in every slot: the most information is in one record per server and window, with noise of variance
2 / epsilon^2 on a share of 1 / servers. Who is at which server costs it nothing. Its total error on the real series,
over that of the model alone, says what is left to gain there. It is no strict bound: filters that are not linear may
gain more, and where levels are left for good, as in `employment`, an AR(1) knows too little. With many regions the
covariance of a few hundred slots flatters it. The last column is the oracle that hears the previous slot exactly, each
region for itself.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray
from real import EPSILONS, SERIES, SERVERS, WINDOW, load_series, table

import dpcrowd
from dpcrowd.sim.data.span import cut

BURN_IN, STEPS = 20, 4000

Array = NDArray[np.float64]


def deviations(name: str) -> Array:
    """Return, per slot of the second half and region, truth minus the model of the first half."""
    data = load_series(name)
    half = data.slots // 2
    scored = cut(data, half, data.slots)
    model = dpcrowd.fit(cut(data, 0, half), source="first half of a published series")
    settings: dict[str, Any] = {"window": WINDOW, "epsilon": 1.0, "runs": 1, "keep_estimates": True}
    alone = dpcrowd.simulate("past", scored, model=model, **settings).records["past"].estimates
    assert alone is not None  # they were asked for
    return np.asarray(scored.truth(np.random.default_rng(0)) - alone[0, :, 0], dtype=np.float64)


def innovations(covariance: Array, retention: Array) -> Array:
    """Return the nearest positive semidefinite covariance of what changes in a slot."""
    values, vectors = np.linalg.eigh(covariance - covariance * np.outer(retention, retention))
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def stationary_gain(retention: Array, change: Array, record_var: float) -> Array:
    """Return the gain matrix of the Kalman filter after many slots."""
    records = record_var * np.eye(len(retention))
    before = change
    for _ in range(STEPS):
        gain = np.linalg.solve(before + records, before).T
        following = (before - gain @ before) * np.outer(retention, retention) + change
        if np.allclose(following, before, rtol=1e-9, atol=0.0):
            break
        before = following
    return np.asarray(gain, dtype=np.float64)


def followed(deviation: Array, retention: Array, gain: Array, record_var: float, runs: int) -> float:
    """Return the oracle's total error over that of the model alone."""
    rng = np.random.default_rng(1)
    estimate = np.zeros((runs, deviation.shape[1]))
    error = 0.0
    for slot, truth in enumerate(deviation):
        before = retention * estimate
        records = truth + rng.normal(0.0, np.sqrt(record_var), estimate.shape)
        estimate = before + (records - before) @ gain.T
        if slot >= BURN_IN:
            error += float(np.abs(truth - estimate).sum()) / runs
    return error / float(np.abs(deviation[BURN_IN:]).sum())


def ratios(name: str, runs: int) -> list[str]:
    """Return a line of the table."""
    deviation = deviations(name)
    variance = np.square(deviation).mean(axis=0)
    deviation, variance = deviation[:, variance > 0.0], variance[variance > 0.0]
    retention = np.clip((deviation[1:] * deviation[:-1]).mean(axis=0) / variance, 0.0, 1.0)
    change = innovations(deviation.T @ deviation / len(deviation), retention)
    found = []
    for epsilon in EPSILONS:
        record_var = 2.0 / epsilon**2 * SERVERS**2 * (WINDOW / SERVERS)
        gain = stationary_gain(retention, change, record_var)
        found.append(followed(deviation, retention, gain, record_var, runs))
    scored = deviation[BURN_IN:]
    exact = float(np.abs(scored - retention * deviation[BURN_IN - 1 : -1]).sum() / np.abs(scored).sum())
    return [name, *(f"{ratio:.4f}" for ratio in [*found, exact])]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("series", nargs="*", default=list(SERIES), metavar="SERIES", help=", ".join(SERIES))
    parser.add_argument("--runs", type=int, default=20, help="noises per cell  [default: 20]")
    options = parser.parse_args()
    unknown = [name for name in options.series if name not in SERIES]
    if unknown:
        parser.error(f"unknown series '{unknown[0]}'; allowed: {', '.join(SERIES)}.")
    header = ["series", *(f"epsilon = {epsilon:g}" for epsilon in EPSILONS), "previous slot exact"]
    print(table(header, [list(ratios(name, options.runs)) for name in options.series], markdown=False))


if __name__ == "__main__":
    main()
