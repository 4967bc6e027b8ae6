"""Gowalla: raw check-ins of real people who move between 64 cells of Manhattan, April 2009 to October 2010.

The file has the columns user, time and region (a cell of an 8 x 8 grid, 0 to 63), made from the check-ins that SNAP
publishes for research (E. Cho, S. A. Myers, J. Leskovec: Friendship and Mobility, KDD 2011). It is searched for like
the CDC's series, and not downloaded. In slots of a day most cells are small: a few people, and often nobody.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from dpcrowd.sim.data.checkins import CheckIns, checkins_from_table
from dpcrowd.sim.data.places import find_published
from dpcrowd.sim.data.tables import read_table

__all__ = ["FILE", "GOWALLA", "REMEDY", "gowalla"]

GOWALLA = "gowalla"
FILE = "gowalla_nyc_checkins.csv.gz"
REMEDY = (
    "dpcrowd does not download it: take the Gowalla check-ins of SNAP (snap.stanford.edu/data/loc-Gowalla.html, for "
    "research), write those of Manhattan as a CSV file with the columns user, time and region (a cell of a grid of 8 x "
    "8) into one of these folders"
)
NOTE = (
    "check-ins of Gowalla's users in Manhattan (SNAP; E. Cho, S. A. Myers, J. Leskovec, KDD 2011; for research). "
    "Regions are the 64 cells of a grid."
)


def gowalla(
    data_dir: str | os.PathLike[str] | None = None,
    *,
    slot_length: str | float | None = None,
    slots: int | None = None,
    process_var: object | None = None,
    regions: Sequence[str] | None = None,
) -> CheckIns:
    """Return the check-ins in slots of a length, by default a day."""
    table = read_table(find_published(GOWALLA, FILE, data_dir, REMEDY))
    length = "1d" if slot_length is None else slot_length
    data = checkins_from_table(
        table, GOWALLA, slot_length=length, slots=slots, process_var=process_var, regions=regions
    )
    return replace(data, notes=(NOTE, *data.notes))
