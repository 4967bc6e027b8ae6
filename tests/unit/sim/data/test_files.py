"""Files of counts: what is read, and what is refused with one line that names file, line and column."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dpcrowd.errors import BadInput, MissingExtra
from dpcrowd.sim.data import FixedData, load
from project_support import ROOT

SHARED = ROOT.parent / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the data folder beside the project is not there")

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def save(text: str) -> Path:
        path = tmp_path / "x.csv"
        path.write_text(text, encoding="utf-8")
        return path

    return save


def counts(path: Path, **options: object) -> list[list[int]]:
    data = load(path, **options)  # type: ignore[arg-type]
    assert isinstance(data, FixedData)
    return [[int(cell) for cell in row] for row in data.counts]


def test_a_plain_file_is_read(write: Write) -> None:
    """Without this, labels would be read as a region, or columns be mixed up."""
    data = load(write("week,north,south\n2020-01-04,5,0\n2020-01-11,7,2\n2020-01-18,4,2\n"))
    assert data.regions == ("north", "south")
    assert data.slot_labels == ("2020-01-04", "2020-01-11", "2020-01-18")
    truth = data.truth(np.random.default_rng(0))
    assert truth.tolist() == [[5, 0], [7, 2], [4, 2]]
    assert truth.dtype == np.int64
    assert data.change_var.tolist() == [(4 + 9) / 2, (4 + 0) / 2]
    assert data.model.diagonal_transition == 1.0
    assert any("complete series" in note for note in data.notes)


def test_forms_of_a_file(write: Write) -> None:
    """Without this, files from spreadsheets and scripts (BOM, semicolons, no header, spaces, 3.0) would be refused."""
    assert counts(write("\ufeffslot;a;b\n0;1;2\n1;3;4\n")) == [[1, 2], [3, 4]]
    assert counts(write("a\tb\n1\t2\n3\t4\n\n")) == [[1, 2], [3, 4]]
    assert counts(write("1,2\n3,4\n")) == [[1, 2], [3, 4]]
    assert counts(write("2020-01-01,2\n2020-01-02,4\n")) == [[2], [4]]
    assert counts(write("a,b\n 1 ,2.0\n1e3,+4\n")) == [[1, 2], [1000, 4]]
    assert counts(write("slot,a\r\n0,1\r\n1,2\r\n")) == [[1], [2]]
    assert load(write("7\n8\n")).regions == ("count",)


def test_gzip_and_short_slots(tmp_path: Path) -> None:
    """Without this, a compressed file could not be used, and `slots` would be ignored."""
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"slot,a\n0,1\n1,2\n2,9\n"))
    data = load(path, slots=2)
    assert (data.slots, data.slot_labels) == (2, ("0", "1"))
    assert data.change_var.tolist() == [1.0]
    with pytest.raises(BadInput, match="allowed: 1 to 3"):
        load(path, slots=4)
    path.write_bytes(b"\x1f\x8bbroken")
    with pytest.raises(BadInput, match="cannot read"):
        load(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"x\.csv is empty"),
        ("\n\n", r"x\.csv is empty"),
        ("week,a\n", r"x\.csv has a header but no data"),
        ("week\n2020-01-04\n", r"no region columns beside 'week'"),
        ("time|a|b\n2020-01-04|1|2\n", r"beside 'time\|a\|b'; .* are separated by commas, semicolons or tabs\.$"),
        ("time;a\n0;505,5\n1;3\n", r"is '505,5', not a count; .* A comma is read neither as a decimal point nor as"),
        ('a,b\n1,"1,000"\n3,4\n', r"is '1,000', not a count; .* nor as a separator of thousands: write 1000 if"),
        ("time;a\n0;505,5\n1;3\n", r"thousands: write decimal points \(505\.5\), and give --round\.$"),
        (
            "time;a\n0;1,142\n",
            r"write 1142 if it separates thousands; if it is decimal, .* \(1\.142\), and give --round",
        ),
        ("time;a\n0;1.142.000\n", r"not a count; .* Thousands are written without separators: 1142000\.$"),
        (
            "a;b\n1.142;9\n987;2.001\n",
            r"column 'a' is 1\.142, which is a fraction, or 1,142 with .* file \(1142\)\. If",
        ),
        ("a;b\n1.142;9\n987;2.01\n", r"column 'a' is 1\.142, a fraction; counts are whole people"),
        ("a;b\n1.142;9\n987;1200\n", r"column 'a' is 1\.142, a fraction; counts are whole people"),
        ("a;b\n0.142;9\n987;1.200\n", r"column 'a' is 0\.142, a fraction; counts are whole people"),
        ("week,a,a\n2020-01-04,1,2\n", r"two columns 'a'"),
        ("week,a,\n2020-01-04,1,2\n", r"column 3 has no name"),
        (
            "a,b\n1,2\n3\n",
            r"line 3 has 1 cell, the first line has 2; allowed: the same number in every line\. Fill in",
        ),
        ("a,b\n1,2\n\n3,4\n", r"line 3 has 0 cells"),
        ("a,b\n1,2\n3,\n", r"line 3, column 'b' is empty; fill it in"),
        ("a,b\n1,2\n3,nan\n", r"line 3, column 'b' is NaN; fill it in \(0 if nobody was there, else an estimate"),
        (
            "a,b\n1,\n,NaN\n2,2\n",
            r"line 2, column 'b' is empty, as are 2 more of 6 counts \(line 3, column 'a'; line 3, column 'b'\); fill ",
        ),
        (
            "a,b\n1,\n3,4\n,4\n",
            r"column 'b' is empty, as is 1 more of 6 counts \(line 4, column 'a'\); fill them in \(0",
        ),
        (
            "a\nNaN\n" + " \n" * 5 + "7\n",
            r"line 2, .* is NaN, as are 5 more of 7 counts \(.*; line 5, .*; and 2 more\)",
        ),
        ("a,b\n1,2\n-3,4\n", r"line 3, column 'a' is -3; a count cannot be negative"),
        ("a,b\n1,2\n-0.5,4\n", r"line 3, column 'a' is -0\.5; a count cannot be negative"),
        ("a,b\n1,2.5\n3,4\n", r"line 2, column 'b' is 2\.5, a fraction.*--round"),
        ("a,b\n1,2\n3,many\n", r"line 3, column 'b' is 'many', not a count"),
        ("a,b\n1,1_000\n3,4\n", r"line 2, column 'b' is '1_000', not a count"),
        ("a,b\n1,inf\n3,4\n", r"line 2, column 'b' is inf, too large"),
        ("a,b\n1,99999999999999999999\n3,4\n", r"line 2, column 'b' is 9+, too large"),
        ("a,b\n1,1e30\n3,4\n", r"line 2, column 'b' is 1e30, too large"),
        ("a,b\n1,9007199254740993\n3,4\n", r"too large"),
        ('a,b\n1,"2\n', r"is not CSV"),
        ("a,b\n1,2\n3\r,4\n", r"line 3 has a carriage return \(CR\) that does not end the line"),
        ("a\n5\n", r"one slot, too few"),
    ],
)
def test_bad_cells_are_named(write: Write, text: str, message: str) -> None:
    """Without this, holes and broken cells would be repaired in silence, or end in a traceback."""
    with pytest.raises(BadInput, match=message) as caught:
        load(write(text))
    assert "x.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        ("a;b\n1.142;9\n987;2.001\n", True),
        ("day;region;count\n2026-01-01;a;1.142\n2026-01-02;a;9\n", True),
        ("a;b\n1.142;9\n987;2.5\n", False),
        ("a;b\n1142;9\n987;2001\n", False),
    ],
)
def test_rounding_what_may_be_thousands_leaves_a_note(write: Write, text: str, warned: bool) -> None:
    """A crowd of 1,142, written as 1.142, became 1."""
    notes = load(write(text), round_counts=True).notes
    assert any("three digits after the point" in note and "1.142 as 1." in note for note in notes) is warned


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("2020-01-04 2020-01-11 2020-01-11", r"line 4: week '2020-01-11' occurs twice \(first in line 3\)"),
        ("2020-01-04 2020-01-11 2020-01-25 2020-02-01", r"line 4: week '2020-01-18' is missing before '2020-01-25'"),
        ("2020-01-11 2020-01-04 2020-01-18", r"line 3: week '2020-01-04' comes after '2020-01-11', which is later"),
        ("2020-01-01 2020-01-02 2020-01-04 2020-01-03 2020-01-05", r"line 5: .*'2020-01-03'.* the only row .* Sort"),
        ("2020-01-01 2020-01-04 2020-01-02 2020-01-03 2020-01-05", r"line 4: week '2020-01-02' comes after"),
        ("2020-01-09 2020-02-27 2020-01-01 2020-02-19 2020-01-05", r"2 rows are earlier than the one before them"),
        ("2020-01-03 2020-01-02 2020-01-01", r"all rows are in the reverse order of time. Sort the rows by time"),
        ("20200101 2020-01-02 2020-01-01", r"line 4: week '2020-01-01' occurs twice \(as '20200101' in line 2\)"),
        ("2020-01-04 2020-01-11 2020-01-15 2020-01-22", r"line 4: week '2020-01-15' is 4 days after"),
        ("2020-01-04 2020-01-11 20-01-18", r"line 4: week '20-01-18' is not a date"),
        ("0 1 3 4", r"line 4: week '2' is missing before '3'"),
        ("2020-01-01 2020-01-02 2020-01-04", r"'2020-01-03' is missing before '2020-01-04' \(each step is 1 day\)"),
        ("2020-01-01T00:00:00 2020-01-01T00:00:01 2020-01-01T00:00:03", r"\(each step is 1 s\)"),
        ("2020-01-01 2020-01-08 2020-01-15 2020-01-16", r"is 1 day after '2020-01-15', other steps are 7 days"),
        ("2014w52 2014w53 2015w02 2015w03", r"week 'ending 2015-01-10' is missing before '2015w02'"),
        ("201452 201501 201503 201504", r"is missing before '201503'"),
        (
            "2020-01-01T00:00 2020-01-01T01:00 2020-01-01T03:00 2020-01-01T04:00",
            r"'2020-01-01T02:00:00\+00:00' is missing",
        ),
        ("2019-11 2019-12 2020-02 2020-03", r"week '2020-01' is missing"),
        ("2026-03-29T00:00 2026-03-29T01:00 2026-03-29T03:00", "If these are local times and the clocks were changed"),
        (
            "2026-10-25T01:00 2026-10-25T02:00 2026-10-25T02:00 2026-10-25T03:00",
            r"occurs twice .* write the times in UTC",
        ),
        ("2026-03-29T10:00 2026-03-29T11:00 2026-03-29T13:00 2026-03-29T14:00", "--gaps zero.$"),
        ("2026-03-29T00:00Z 2026-03-29T01:00Z 2026-03-29T03:00Z", "--gaps zero.$"),
        ("2019-11-01 2019-12-01 2020-02-01 2020-03-01", r"week '2020-01' is missing"),
        ("2019-12-31 2020-01-31 2020-03-31", r"week '2020-02' is missing"),
        ("2019-11-30 2019-12-31 2020-02-29 2020-03-31", r"week '2020-01' is missing before .* step is 1 month\)"),
        ("2020-01-04T00:00Z 2020-01-04T01:00+01:00 2020-01-05T00:00Z", r"line 3: .* occurs twice"),
        ("2019Q3 2019Q4 2020Q2 2020Q3", r"week '2020 Q1' is missing before '2020Q2' \(each step is 1 quarter\)"),
        ("2019-Q3 2019-Q4 2020-Q5", r"week '2020-Q5' is not a quarter, as the first one is"),
    ],
)
def test_time_has_no_double_gap_or_disorder(write: Write, labels: str, message: str) -> None:
    """Without this, a duplicate or missing week would shift all later slots, and windows with them."""
    with pytest.raises(BadInput, match=message):
        load(write("week,a\n" + "".join(f"{label},1\n" for label in labels.split())))


@pytest.mark.parametrize(
    "labels",
    [
        "2020-01-30 2020-01-31 2020-02-01",
        "2014w52 2014w53 2015w01",  # the CDC's calendar has a week 53 in 2014
        "2015-W52 2015-W53 2016-W01",  # the ISO calendar has one in 2015
        "201552 201553 201601",
        "2019-12 2020-01 2020-02",
        "2019Q3 2019Q4 2020Q1",
        "2019-12-31 2020-01-31 2020-02-29 2020-03-31",
        "2021-01-31T00:00 2021-02-28T00:00 2021-03-31T00:00",
        "2020-03-31 2020-06-30 2020-09-30 2020-12-31",
        "2020-01-31T23:00Z 2020-02-01T00:00Z 2020-02-01T01:00Z",
        "20200131 20200201 20200202",
        "mon tue wed",
        "10 20 30",
    ],
)
def test_good_labels_are_taken(write: Write, labels: str) -> None:
    """Without this, the check for gaps would refuse calendars whose steps are regular but not in days."""
    text = "week,a\n" + "".join(f"{label},{k}\n" for k, label in enumerate(labels.split()))
    assert load(write(text)).slot_labels == tuple(labels.split())


def test_an_empty_label_is_a_hole(write: Write) -> None:
    """Without this, a row without a week would be taken as a slot."""
    with pytest.raises(BadInput, match=r"line 3 has no week"):
        load(write("week,a\n2020-01-04,1\n,2\n"))


def test_rounding_is_on_request_and_noted(write: Write) -> None:
    """Without this, fractional benchmark streams could not be used, or would be used without a word."""
    path = write("0.5\n1.5\n2.4\n")
    with pytest.raises(BadInput, match="--round"):
        load(path)
    data = load(path, round_counts=True)
    assert data.truth(np.random.default_rng(0)).tolist() == [[0], [2], [2]]
    assert any("rounded" in note for note in data.notes)
    with pytest.raises(BadInput, match="negative"):
        load(write("a\n-0.4\n1\n"), round_counts=True)


def test_process_variance_by_hand_or_floored(write: Write) -> None:
    """Without this, a constant region would have Q = 0, and H^2 Q = 0 would divide by zero."""
    path = write("a,b\n5,1\n5,3\n5,1\n")
    assert load(path).model.diagonal_var.tolist() == [1 / 12, 4.0]
    given = load(path, process_var=9)
    assert given.model.diagonal_var.tolist() == [9.0, 9.0]
    assert given.change_var.tolist() == [1 / 12, 4.0]
    assert any("by hand" in note for note in given.notes)
    assert load(write("a\n5\n"), process_var=9).slots == 1


def test_choosing_regions(write: Write) -> None:
    """Without this, a region that does not exist would end in a traceback or be left out."""
    path = write("slot,north,south\n0,1,2\n1,3,5\n")
    data = load(path, regions=["south"])
    assert data.regions == ("south",)
    assert data.truth(np.random.default_rng(0)).tolist() == [[2], [5]]
    assert data.change_var.tolist() == [9.0]
    with pytest.raises(BadInput, match=r"unknown region 'nort'. Did you mean 'north'"):
        load(path, regions=["nort"])


def test_what_is_no_file(tmp_path: Path) -> None:
    """Without this, a typing error in a path would end in a traceback."""
    with pytest.raises(BadInput, match=r"no\.csv' does not exist.*dpcrowd data"):
        load(tmp_path / "no.csv")
    with pytest.raises(BadInput, match=r"no\.parquet' does not exist"):
        load(tmp_path / "no.parquet")
    with pytest.raises(BadInput, match="is a folder"):
        load(tmp_path)
    (tmp_path / "x.csv").write_bytes(b"a\n\xff\xfe\n")
    with pytest.raises(BadInput, match="not UTF-8"):
        load(tmp_path / "x.csv")
    (tmp_path / "x.parquet").write_bytes(b"no parquet")
    pytest.importorskip("pyarrow")
    with pytest.raises(BadInput, match="not a Parquet file"):
        load(tmp_path / "x.parquet")


def test_parquet(tmp_path: Path) -> None:
    """Without this, Parquet would be read differently from CSV, or its holes be taken as numbers."""
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "x.parquet"

    def save(**columns: object) -> None:
        pq.write_table(pa.table(columns), path)

    save(day=np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[D]"), a=[1, 2], b=[3.0, 4.0])
    data = load(path)
    assert data.slot_labels == ("2020-01-01", "2020-01-02")
    assert data.truth(np.random.default_rng(0)).tolist() == [[1, 3], [2, 4]]
    for bad, message in (
        ([1.0, float("nan")], r"x\.parquet row 2, column 'a' is NaN"),
        ([1, None], r"row 2, column 'a' is empty"),
        ([0.5, 1.0], r"row 1, column 'a' is 0\.5, a fraction"),
        ([-1, 1], r"row 1, column 'a' is -1; a count cannot be negative"),
        ([True, False], r"row 1, column 'a' is 'True', not a count"),
        ([2**62, 1], r"too large"),
    ):
        save(slot=[0, 1], a=bad)
        with pytest.raises(BadInput, match=message):
            load(path)
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), path)
    with pytest.raises(BadInput, match="two columns 'a'"):
        load(path)
    save(a=pa.array([], pa.int64()))
    with pytest.raises(BadInput, match="is empty"):
        load(path)


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this, a missing extra would be an ImportError that names no remedy."""
    (tmp_path / "x.parquet").write_bytes(b"")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(MissingExtra, match=r"dpcrowd\[parquet\]"):
        load(tmp_path / "x.parquet")


@pytest.mark.data
@needs_shared
def test_flu_and_multi_flu() -> None:
    """Without this, the published sets could be cut, shifted, or carry the wrong tuning."""
    flu = load("flu", data_dir=SHARED)
    assert (flu.slots, len(flu.regions)) == (791, 1)
    assert flu.change_var[0] == pytest.approx(4.64e6, rel=1e-3)
    assert (flu.tuning.theta, flu.tuning.xi, flu.tuning.sample_fraction) == (1.0, 0.6, 0.4)
    truth = flu.truth(np.random.default_rng(0))
    assert (truth.min(), truth.max()) == (318, 69068)
    multi = load("multi-flu", data_dir=SHARED)
    assert (multi.slots, len(multi.regions)) == (441, 51)
    assert multi.tuning.rescue_theta == 3.0
    assert multi.slot_labels is not None
    assert (multi.slot_labels[0], multi.slot_labels[-1]) == ("2009-10-10", "2018-03-17")
    assert (multi.truth(np.random.default_rng(0)) == 0).sum() == 9
    assert all("CDC" in data.notes[0] for data in (flu, multi))


@pytest.mark.data
@needs_shared
def test_the_peers_streams_need_rounding() -> None:
    """Without this, a fractional benchmark stream would be taken as counts of people."""
    path = SHARED / "wevent_synthetic_period80_amplitude10.csv"
    with pytest.raises(BadInput, match=r"line 1, column 'count' is 2\.0000.*fraction.*--round"):
        load(path)
    assert load(path, round_counts=True).slots == 1000


@pytest.mark.parametrize("label", ["11/{}/2026", "{} Nov 2026", "day {}"])
def test_labels_that_are_not_understood_as_times_are_noted(write: Write, label: str) -> None:
    """Of US dates no season was ever tried, and nothing said why."""
    labels = [label.format(day) for day in (16, 17, 18)]
    data = load(write("slot,a\n" + "".join(f"{text},1\n" for text in labels)))
    (note,) = (note for note in data.notes if "not understood as times" in note)
    assert f"labels such as '{labels[0]}'" in note
    assert "ISO 8601" in note


@pytest.mark.parametrize(
    "labels", [("0", "1"), ("2026-11-16", "2026-11-17"), ("2026-11", "2026-12"), ("2026w46", "2026w47")]
)
def test_times_and_plain_numbers_need_no_note(write: Write, labels: tuple[str, str]) -> None:
    """A note that every file gets is read by nobody."""
    data = load(write("slot,a\n" + "".join(f"{text},1\n" for text in labels)))
    assert not any("not understood" in note for note in data.notes)


def test_notes_begin_alike(write: Write) -> None:
    """Notes are printed after "note: ", where some began with capitals and others did not."""
    from dpcrowd.sim.data import counts as published
    from dpcrowd.sim.data import gowalla, packaged

    table = "time,a\n01/02/2026,1.5\n01/03/2026,2\n01/04/2026,3\n"
    notes = [
        *load(write(table), round_counts=True, process_var=4.0).notes,
        *load(write("7\n8\n9\n")).notes,
        *load(write("user,time,region\na,2026-01-01T10:00Z,x\nb,2026-01-02T10:00Z,x\n")).notes,
        *load("multi-linear", regions=["region-1"]).notes,
        *load("multi-linear").notes,
        *published.NOTES.values(),
        *(gowalla.NOTE, packaged.FLIGHTS_NOTE, packaged.JOBS_NOTE),
    ]
    assert len(notes) > 12
    assert [note for note in notes if note[0].isupper()] == []
