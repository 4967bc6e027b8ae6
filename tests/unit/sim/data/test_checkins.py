"""Raw check-ins: slots, one region per user and slot, and a partition over servers."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.sim.data import CheckIns, draw_run, load
from project_support import ROOT

SHARED = ROOT.parent / "shared" / "data"
Save = Callable[..., CheckIns]


@pytest.fixture
def checkins(tmp_path: Path) -> Save:
    def save(text: str, **options: object) -> CheckIns:
        path = tmp_path / "c.csv"
        path.write_text(text, encoding="utf-8")
        data = load(path, **options)  # type: ignore[arg-type]
        assert isinstance(data, CheckIns)
        return data

    return save


def truth(data: CheckIns) -> list[list[int]]:
    return [[int(cell) for cell in row] for row in data.truth(np.random.default_rng(0))]


SMALL = """user,time,region
ann,2020-01-01T08:00:00Z,A
ann,2020-01-01T20:00:00Z,B
bob,2020-01-01T09:00:00Z,A
bob,2020-01-01T07:00:00Z,B
ann,2020-01-03T00:00:00Z,A
"""


def test_last_check_in_of_a_slot_wins(checkins: Save) -> None:
    """Without this, a user would count in two regions of a slot and the sensitivity would be 2."""
    data = checkins(SMALL)
    assert data.regions == ("A", "B")
    assert data.slot_labels == ("2020-01-01", "2020-01-02", "2020-01-03")
    assert truth(data) == [[1, 1], [0, 0], [1, 0]]


def test_of_two_at_the_same_instant_the_later_row_wins(checkins: Save) -> None:
    """Without this, the result would depend on the sorting algorithm."""
    text = "user,time,region\n" + "u,2020-01-01T08:00:00Z,A\nu,2020-01-01T08:00:00Z,B\n" * 3 + "v,2020-01-02,A\n"
    assert truth(checkins(text)) == [[0, 1], [1, 0]]


def test_slot_lengths(checkins: Save) -> None:
    """Without this, hours could be cut from the first check-in instead of the clock, or weeks start on a Thursday."""
    hours = checkins(SMALL, slot_length="12h")
    assert hours.slot_labels is not None
    assert hours.slot_labels[:2] == ("2020-01-01", "2020-01-01T12:00:00Z")
    assert truth(hours)[:2] == [[2, 0], [0, 1]]
    week = checkins(SMALL + "zoe,2020-01-06,C\n", slot_length="1w")
    assert week.slot_labels == ("2019-12-30", "2020-01-06")
    assert checkins(SMALL, slot_length=43_200).slots == hours.slots
    assert checkins(SMALL, slot_length="0.5d").slots == hours.slots


@pytest.mark.parametrize("length", ["", "x", "0d", "-1h", "1y", "nan", "inf", "1e300d"])
def test_bad_slot_lengths(checkins: Save, length: str) -> None:
    """Without this, a wrong length would give one endless slot or a traceback."""
    with pytest.raises(BadInput, match="slot length"):
        checkins(SMALL, slot_length=length)


def test_too_many_slots_are_refused(checkins: Save) -> None:
    """Without this, slots of a millisecond over years would exhaust the memory."""
    text = "user,time,region\na,2000-01-01,A\nb,2020-01-01,B\n"
    for length in ("0.001s", "1m"):
        with pytest.raises(BadInput, match="take a longer slot"):
            checkins(text, slot_length=length)
    data = checkins(text, slot_length="1d")
    with pytest.raises(BadInput, match="do not fit into memory"):
        data.split(np.full(20_000, 1 / 20_000), "pinned", np.random.default_rng(0))


@pytest.mark.parametrize(
    "time",
    [
        "2020-01-01T08:00:00Z",
        "2020-01-01T08:00:00",
        "2020-01-01 08:00",
        "2020-01-01T10:00:00+02:00",
        "1577865600",
        "1577865600000",
        "1577865600.25",
        "2020-01-01T08:00:00.123456Z",
    ],
)
def test_forms_of_time(checkins: Save, time: str) -> None:
    """Without this, epochs or offsets would fall into other slots than the same moment in UTC."""
    data = checkins(f"user,time,region\na,{time},A\nb,2020-01-01T09:30:00Z,B\n", slot_length="1h", process_var=1.0)
    assert data.slot_labels == ("2020-01-01T08:00:00Z", "2020-01-01T09:00:00Z")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (",2020-01-01,A", r"c\.csv line 3, column 'user' is empty"),
        ("a,,A", r"line 3, column 'time' is empty"),
        ("a,2020-01-01,", r"line 3, column 'region' is empty"),
        ("a,2020-02-30,A", r"line 3, column 'time' is '2020-02-30', not a time"),
        ("a,yesterday,A", r"line 3, column 'time' is 'yesterday', not a time"),
        ("a,nan,A", r"line 3, column 'time' is 'nan', not a time"),
        ("a,1e300,A", r"line 3, column 'time' is '1e300', not a time"),
        ("a,2020-01-01", r"line 3 has 2 cells"),
    ],
)
def test_bad_rows_are_named(checkins: Save, row: str, message: str) -> None:
    """Without this, a broken check-in would be dropped in silence or end in a traceback."""
    with pytest.raises(BadInput, match=message):
        checkins(f"user,time,region\na,2020-01-01,A\n{row}\n")


def test_no_check_ins(checkins: Save) -> None:
    """Without this, a file with a header only would fail in the arithmetic."""
    with pytest.raises(BadInput, match="no check-ins"):
        checkins("user,time,region\n")


def test_columns_in_any_order_and_ids_of_any_kind(checkins: Save) -> None:
    """Without this, large or textual ids would overflow or collide."""
    text = (
        "Region,User,Time\n10,99999999999999999999999,2020-01-01\n9,9999999999999999999999,2020-01-01\n9,é,2020-01-02\n"
    )
    data = checkins(text)
    assert data.regions == ("9", "10")  # numeric order
    assert truth(data) == [[1, 1], [1, 0]]
    assert data.users == 3


def test_slots_and_regions_of_a_part(checkins: Save) -> None:
    """Without this, a part of the data would differ from the same part of the whole."""
    whole = checkins(SMALL)
    assert truth(checkins(SMALL, slots=1, process_var=1.0)) == truth(whole)[:1]
    assert truth(checkins(SMALL, regions=["B"])) == [[row[1]] for row in truth(whole)]
    with pytest.raises(BadInput, match="unknown region"):
        checkins(SMALL, regions=["Z"])
    with pytest.raises(BadInput, match="allowed: 1 to 3"):
        checkins(SMALL, slots=9)


def test_slot_length_is_for_check_ins_only(tmp_path: Path) -> None:
    """Without this, a slot length for a file of counts would be ignored in silence."""
    path = tmp_path / "x.csv"
    path.write_text("a\n1\n2\n")
    with pytest.raises(BadInput, match="it is for check-ins"):
        load(path, slot_length="1h")
    with pytest.raises(BadInput, match="it is for check-ins"):
        load("linear", slot_length="1h")


def test_parquet_check_ins(tmp_path: Path) -> None:
    """Without this, time stamps of Parquet files (with and without zone, or integers) would be refused or shifted."""
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "c.parquet"
    moments = np.array(["2020-01-01T08:00", "2020-01-02T09:00"], dtype="datetime64[us]")
    for times in (moments, pa.array(moments, pa.timestamp("us", tz="UTC")), moments.astype(np.int64) // 1000):
        pq.write_table(pa.table({"user": [2**62, 2**62 - 1], "time": times, "region": [5, 40]}), path)
        data = load(path)
        assert isinstance(data, CheckIns)
        assert data.regions == ("5", "40")
        assert data.slot_labels == ("2020-01-01", "2020-01-02")
        assert truth(data) == [[1, 0], [0, 1]]


def crowd(tmp_path: Path) -> CheckIns:
    rng = np.random.default_rng(5)
    rows = zip(rng.integers(0, 200, 3000), rng.integers(0, 10 * 86_400, 3000), rng.integers(0, 4, 3000), strict=True)
    path = tmp_path / "crowd.csv.gz"
    path.write_bytes(gzip.compress(("user,time,region\n" + "".join(f"{u},{t},{r}\n" for u, t, r in rows)).encode()))
    data = load(path)
    assert isinstance(data, CheckIns)
    return data


@pytest.mark.parametrize(("users", "shares"), [("pinned", "uniform"), ("roaming", "uniform"), ("roaming", "per-slot")])
def test_servers_are_a_partition(tmp_path: Path, users: str, shares: str) -> None:
    """Without this, a user would be lost or counted by two servers."""
    data = crowd(tmp_path)
    run = draw_run(data, seed=1, run=2, servers=7, users=users, shares=shares)
    assert run.counts.shape == (10, 7, 4)
    assert (run.counts.sum(axis=1) == run.truth).all()
    assert run.partition
    np.testing.assert_allclose(run.shares.sum(axis=-1), 1.0)


def test_pinned_users_stay_and_roaming_users_move(tmp_path: Path) -> None:
    """Without this, 'pinned' and 'roaming' could be the same thing, and the privacy claims for them empty."""
    rows = "".join(f"u{u},{day * 86_400},r{u}\n" for day in range(30) for u in range(40))
    path = tmp_path / "c.csv"
    path.write_text("user,time,region\n" + rows)
    data = load(path)  # region k is user k, so the counts show who is where
    pinned = draw_run(data, seed=0, run=0, servers=5, users="pinned").counts
    roaming = draw_run(data, seed=0, run=0, servers=5, users="roaming").counts
    assert (pinned == pinned[0]).all()
    assert (pinned[0].sum(axis=1) < 40).all()  # not all at one server
    assert ((roaming.sum(axis=0) > 0).sum(axis=0) >= 3).all()  # each user was at several


class AlmostOne:
    """A generator that always draws the largest number below 1."""

    def random(self, size: int) -> np.ndarray:
        return np.full(size, np.nextafter(1.0, 0.0))


def test_rounding_never_leaves_the_slot_or_the_servers(checkins: Save) -> None:
    """Without this, a draw just below 1 would fall to a server that does not exist, or into the next slot."""
    data = checkins("user,time,region\n" + "".join(f"u,{day * 86_400},A\n" for day in range(3000)))
    shares = np.full(7, 1 / 7)  # sums to a little less than 1 in floating point
    assert np.cumsum(shares)[-1] < 1
    for users in ("pinned", "roaming"):
        counts = data.split(shares, users, AlmostOne())  # type: ignore[arg-type]
        assert (counts[:, 6, 0] == 1).all()
        assert counts.sum() == 3000


def test_shares_of_check_ins(tmp_path: Path) -> None:
    """Without this, shares that do not sum to 1 would be rescaled behind the user's back."""
    data = crowd(tmp_path)
    run = draw_run(data, seed=0, run=0, servers=2, shares=[0.25, 0.75])
    assert run.shares.tolist() == [0.25, 0.75]
    with pytest.raises(BadInput, match=r"sum to 1\.5"):
        draw_run(data, seed=0, run=0, servers=2, shares=[0.75, 0.75])
    with pytest.raises(BadInput, match="roaming"):
        draw_run(data, seed=0, run=0, servers=2, shares="per-slot", users="pinned")


@pytest.mark.data
@pytest.mark.skipif(not SHARED.is_dir(), reason="the data folder beside the project is not there")
@pytest.mark.slow
def test_gowalla() -> None:
    """Without this, real check-ins could be cut into slots wrongly; compared with a plain loop over all rows."""
    path = SHARED / "gowalla_nyc_checkins.csv.gz"
    data = load(path)
    assert isinstance(data, CheckIns)
    assert (data.users, len(data.regions)) == (5894, 64)
    rows = [line.split(",") for line in gzip.decompress(path.read_bytes()).decode().splitlines()[1:]]
    rows.sort(key=itemgetter(1))  # by time; those of one moment stay in the order of the file
    last = {(time[:10], user): region for user, time, region in rows}
    assert data.slot_labels is not None
    slot = {label: t for t, label in enumerate(data.slot_labels)}
    place = {region: k for k, region in enumerate(data.regions)}
    expected = np.zeros((data.slots, 64), dtype=np.int64)
    for (day, _), region in last.items():
        expected[slot[day], place[region]] += 1
    assert (data.truth(np.random.default_rng(0)) == expected).all()
    run = draw_run(data, seed=0, run=0, servers=50, users="roaming")
    assert (run.counts.sum(axis=1) == expected).all()
