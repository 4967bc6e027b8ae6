"""The two CDC series from the publisher's own files: pure functions from text to counts.

flu        ILINet.csv of FluView: a title line, then REGION TYPE, REGION, YEAR, WEEK, ..., ILITOTAL, ...; the national
           rows. Weeks 2002w40 to 2017w47: earlier summers have weeks in which nobody reported.
multi-flu  the NCHS table pp7x-dyj2: geoid (National, Region, State), state, age, mmwr_year_week (200940), deaths from
           pneumonia and influenza, ...; all ages, 50 states and DC, weeks 2009w40 to 2018w11. New York City reports
           apart from the state: its deaths are added to New York, so that the states sum to the nation.

Published figures are revised now and then: a fresh download may differ a little from an older one.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

import numpy as np

from dpcrowd.arrays import Truth
from dpcrowd.errors import BadInput
from dpcrowd.sim.data.tables import not_csv
from dpcrowd.sim.data.weeks import mmwr_range, mmwr_week_end

__all__ = ["FLU_WEEKS", "MULTI_FLU_WEEKS", "STATES", "WeeklyCounts", "parse_ilinet", "parse_nchs"]

Week = tuple[int, int]
FLU_WEEKS: tuple[Week, Week] = ((2002, 40), (2017, 47))
MULTI_FLU_WEEKS: tuple[Week, Week] = ((2009, 40), (2018, 11))
STATES = tuple(
    "Alabama,Alaska,Arizona,Arkansas,California,Colorado,Connecticut,Delaware,District of Columbia,Florida,Georgia,"
    "Hawaii,Idaho,Illinois,Indiana,Iowa,Kansas,Kentucky,Louisiana,Maine,Maryland,Massachusetts,Michigan,Minnesota,"
    "Mississippi,Missouri,Montana,Nebraska,Nevada,New Hampshire,New Jersey,New Mexico,New York,North Carolina,"
    "North Dakota,Ohio,Oklahoma,Oregon,Pennsylvania,Rhode Island,South Carolina,South Dakota,Tennessee,Texas,Utah,"
    "Vermont,Virginia,Washington,West Virginia,Wisconsin,Wyoming".split(",")
)
CITY = "New York City"
NATION = "the nation"
ILINET_COLUMNS = ("region_type", "year", "week", "ilitotal")
NCHS_COLUMNS = ("geoid", "state", "age", "mmwr_year_week", "deaths_from_pneumonia_and_influenza")


@dataclass(frozen=True, eq=False)
class WeeklyCounts:
    """Weekly counts: the Saturday that ends each week, the regions, int64 (weeks, regions)."""

    weeks: tuple[str, ...]
    regions: tuple[str, ...]
    counts: Truth


def parse_ilinet(text: str, weeks: tuple[Week, Week] = FLU_WEEKS) -> WeeklyCounts:
    """Return the national ILITOTAL per week from the text of ILINet.csv."""
    cells: dict[tuple[date, str], int] = {}
    for line, row in _rows(text, "ILINet.csv", ILINET_COLUMNS):
        if row["region_type"].lower() != "national":
            continue
        end = _week_end(row["year"], row["week"], f"ILINet.csv line {line}")
        _put(cells, end, "count", row["ilitotal"], weeks, f"ILINet.csv line {line}")
    return _series(cells, ("count",), weeks, "ILINet.csv")


def parse_nchs(text: str, weeks: tuple[Week, Week] = MULTI_FLU_WEEKS) -> WeeklyCounts:
    """Return deaths with pneumonia or influenza per state and week from the text of table pp7x-dyj2."""
    cells: dict[tuple[date, str], int] = {}
    areas = {*STATES, CITY}
    for line, row in _rows(text, "table pp7x-dyj2", NCHS_COLUMNS):
        if row["age"].lower() not in ("all", "all ages"):
            continue
        level = row["geoid"].lower()
        area = NATION if level == "national" else row["state"]
        if level not in ("state", "national") or (level == "state" and area not in areas):
            continue
        where = f"table pp7x-dyj2 line {line}"
        number = row["mmwr_year_week"]
        end = _week_end(number[:4], number[4:], where)
        _put(cells, end, area, row["deaths_from_pneumonia_and_influenza"], weeks, where)
    present = {area for _, area in cells}
    series = _series(cells, STATES, weeks, "table pp7x-dyj2")
    if CITY in present:
        city = _series(cells, (CITY,), weeks, "table pp7x-dyj2").counts[:, 0]
        states = series.counts.sum(axis=1)
        # Should New York ever include its city already, the national rows show it: never count anybody twice.
        nation = (
            _series(cells, (NATION,), weeks, "table pp7x-dyj2").counts[:, 0] if NATION in present else states + city
        )
        if abs(states + city - nation).sum() <= abs(states - nation).sum():
            series.counts[:, STATES.index("New York")] += city
    return series


def _rows(text: str, file: str, needed: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (line number, row by normalised column name) of each line after the header, wherever the header is."""
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff")))
    header: list[str] | None = None
    try:
        for row in reader:
            if header is None:
                names = [re.sub(r"[^a-z0-9]+", "_", cell.strip().lower()).strip("_") for cell in row]
                header = names if set(needed) <= set(names) else None
            elif row:
                yield reader.line_num, {name: cell.strip() for name, cell in zip(header, row, strict=False)}
    except csv.Error as error:
        raise not_csv(file, reader.line_num, error) from None
    if header is None:
        raise BadInput(
            f"{file} has no header with the columns {', '.join(needed)}: "
            "it is not the publisher's file, or its format has changed."
        )


def _week_end(year: str, week: str, where: str) -> date:
    try:
        return mmwr_week_end(int(year), int(week))
    except ValueError:
        raise BadInput(f"{where}: '{year}' '{week}' is not a year and MMWR week.") from None


def _put(
    cells: dict[tuple[date, str], int], end: date, region: str, cell: str, weeks: tuple[Week, Week], where: str
) -> None:
    if not mmwr_week_end(*weeks[0]) <= end <= mmwr_week_end(*weeks[1]):
        return
    plain = cell.replace(",", "").removesuffix(".0")
    if not (plain.isascii() and plain.isdigit()):
        raise BadInput(f"{where}: '{cell}' is not a count ({region}, week ending {end}).")
    if (end, region) in cells:
        raise BadInput(f"{where}: the week ending {end} occurs twice for {region}.")
    cells[end, region] = int(plain)


def _series(
    cells: dict[tuple[date, str], int], regions: tuple[str, ...], weeks: tuple[Week, Week], file: str
) -> WeeklyCounts:
    ends = mmwr_range(*weeks)
    counts = np.empty((len(ends), len(regions)), dtype=np.int64)
    for t, end in enumerate(ends):
        for k, region in enumerate(regions):
            value = cells.get((end, region))
            if value is None:
                raise BadInput(f"{file} has no {region} for the week ending {end}; the download may be incomplete.")
            counts[t, k] = value
    return WeeklyCounts(tuple(end.isoformat() for end in ends), regions, counts)
