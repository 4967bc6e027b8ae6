"""Data for simulations: synthetic streams, files of counts, raw check-ins, and the part that each server sees.

data = load("linear")                                   # or "multi-linear", "flu", "flights", "counts.csv", ...
run = draw_run(data, seed=0, run=0, servers=50)         # run.truth, run.counts, run.shares
"""

from __future__ import annotations

from dpcrowd.sim.data.checkins import CheckIns
from dpcrowd.sim.data.dataset import DataSet, FixedData
from dpcrowd.sim.data.draw import NAMES, PAPER_SETS, RunData, draw_run, load
from dpcrowd.sim.data.observe import observe
from dpcrowd.sim.data.shares import draw_shares
from dpcrowd.sim.data.synthetic import SyntheticData

__all__ = [
    "NAMES",
    "PAPER_SETS",
    "CheckIns",
    "DataSet",
    "FixedData",
    "RunData",
    "SyntheticData",
    "draw_run",
    "draw_shares",
    "load",
    "observe",
]
