"""A reproduction that takes seconds: few servers, short streams, two or three values on each axis."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpcrowd.experiments.figures import Curve, Values
from dpcrowd.experiments.points.plan import RunPlan
from dpcrowd.sim.data import load


def tiny_plan(slots: int = 60, **more: Any) -> RunPlan:
    """Linear and Multi-Linear of a few slots on 8 servers."""
    settings: dict[str, Any] = {
        "data": {name: load(name, slots=slots) for name in ("linear", "multi-linear")},
        "missing": {"flu": "data set 'flu' needs flu.csv", "multi-flu": "data set 'multi-flu' needs multi_flu.csv"},
        "runs": 3,
        "servers": 8,
        "densities": (0.3, 1.0),
        "intervals": (1, 5, 20),
        "epsilons": (0.1, 0.5, 1.0),
        "windows": (10, 20),
        "default_density": 0.3,
        "default_window": 20,
        "matrix_runs": 2,
    }
    return RunPlan(**{**settings, **more})


def curve_with(label: str, x: ArrayLike, mean: ArrayLike, half: ArrayLike, note: str = "") -> Curve:
    """A curve of two runs with given means and halves of their 95% intervals; 12.7 is t(1) at 97.5%."""
    at, means, halves = (np.asarray(values, dtype=np.float64) for values in (x, mean, half))
    apart = np.broadcast_to(halves, means.shape) / 12.706204736432095
    runs = zip(means.tolist(), apart.tolist(), strict=True)
    return Curve(label, at, tuple(Values(label, np.array([m - d, m + d])) for m, d in runs), note)
