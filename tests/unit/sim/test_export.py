"""Tables and plots as files: what is written can be read back, and what cannot be written is refused at once."""

from __future__ import annotations

import csv
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpcrowd.errors import BadInput, DpcrowdError
from dpcrowd.sim.export import check_table_path, check_writable, refuse_failed_write
from dpcrowd.sim.plot import check_plot_path, plot_errors
from dpcrowd.sim.result import SimulationResult
from dpcrowd.sim.simulate import simulate
from sim_support import TINY


@pytest.fixture(scope="module")
def result() -> SimulationResult:
    return simulate("non-private,fast,dpcrowd", **TINY)


def test_csv_gives_the_table_back(result: SimulationResult, tmp_path: Path) -> None:
    """Every digit and every undefined value: a float that is cut short would not be the one that was computed."""
    path = result.write(tmp_path / "runs.csv")
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    table = result.table()
    assert list(rows[0])[: len(table)] == list(table)
    assert [row["guarantee"] for row in rows] == ["", "", "finite", "finite", "finite", "finite"]
    sizes = ["0_to_5", "6_to_50", "51_to_500", "501_or_more"]
    last = ["claimed_by", "shares", "exhausted_at", "exhausted_servers"]
    last += [f"{score}_of_{size}" for size in sizes for score in ("mae", "share")]
    assert list(rows[0])[-12:] == last, "readers of earlier files find every column where it was"
    assert {row["claimed_by"] for row in rows} == {""}
    assert {row["seed"] for row in rows} == {"0"}, "files of several simulations can be told apart"
    for name, column in table.items():
        read = [row[name] for row in rows]
        if name == "scheme":
            assert read == column
        else:
            assert [None if text == "" else float(text) for text in read] == column


def test_parquet_gives_the_table_back_with_types(result: SimulationResult, tmp_path: Path) -> None:
    """Columns keep their types even where all values are undefined, so that files of several runs fit together."""
    import pyarrow.parquet

    read = pyarrow.parquet.read_table(result.write(str(tmp_path / "runs.parquet")))
    table = result.table()
    assert {name: column for name, column in read.to_pydict().items() if name in table} == table
    alone = pyarrow.parquet.read_table(simulate("fast", **TINY).write(tmp_path / "alone.PARQUET"))
    assert alone.schema == read.schema
    assert str(read.schema.field("latency_ms").type) == "double"
    assert str(read.schema.field("run").type) == "int64"
    assert str(read.schema.field("claimed_by").type) == "string"


def test_the_file_says_of_each_run_when_its_budget_was_exhausted(tmp_path: Path) -> None:
    """Only JSON said so; a reader of the file took the errors of a scheme that had stopped to sample for its best."""
    plain = simulate("fast,dpcrowd", **TINY, shares="partition")
    at = np.array([[3.0, 5.0, 9.0], [np.nan] * 3])
    records = {"fast": replace(plain["fast"], exhausted_at=at), "dpcrowd": replace(plain["dpcrowd"], exhausted_at=None)}
    path = replace(plain, records=records).write(tmp_path / "runs.csv")
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["exhausted_at"] for row in rows] == ["5.0", "", "", ""]
    assert [row["exhausted_servers"] for row in rows] == ["1.0", "0.0", "0.0", "0.0"]
    assert {row["shares"] for row in rows} == {"partition"}


def test_the_file_has_the_errors_by_size_of_region_of_each_run(tmp_path: Path) -> None:
    """Table and JSON alone had them: whoever reads files could not say for whom a scheme is good."""
    counts = np.tile([3, 700], (30, 1))
    result = simulate("uniform", counts, window=10, process_var=1.0, **TINY)
    with result.write(tmp_path / "runs.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    by_size = result.summary()[0]["by_size"]
    for name, entry in (("0_to_5", by_size[0]), ("501_or_more", by_size[3])):
        assert [float(row[f"share_of_{name}"]) for row in rows] == [0.5] * TINY["runs"]
        assert np.mean([float(row[f"mae_of_{name}"]) for row in rows]) == pytest.approx(entry["mae"])
    assert {(row["mae_of_6_to_50"], row["share_of_6_to_50"]) for row in rows} == {("", "0.0")}
    records = {"uniform": replace(result["uniform"], by_size=None)}
    with replace(result, records=records).write(tmp_path / "old.csv").open(newline="", encoding="utf-8") as file:
        assert {row["mae_of_0_to_5"] for row in csv.DictReader(file)} == {""}


def test_an_existing_file_is_replaced(result: SimulationResult, tmp_path: Path) -> None:
    """A second simulation into the same file must not be appended to the first."""
    path = tmp_path / "runs.csv"
    path.write_text("old\n" * 1000)
    result.write(path)
    assert path.read_text().startswith("scheme,run,are,")
    assert len(path.read_text().splitlines()) == 7


@pytest.mark.parametrize("check", [check_table_path, check_plot_path])
def test_a_check_leaves_no_trace(check: object, tmp_path: Path) -> None:
    """Asking whether a file can be written must neither make one nor touch one that is there."""
    ending = ".csv" if check is check_table_path else ".png"
    assert callable(check)
    check(tmp_path / f"new{ending}")
    assert list(tmp_path.iterdir()) == []
    there = tmp_path / f"there{ending}"
    there.write_bytes(b"precious")
    check(there)
    assert there.read_bytes() == b"precious"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.txt", r"cannot write a table to 'x.txt'; allowed endings: \.csv, \.parquet\."),
        ("x", "cannot write a table to 'x'; allowed endings"),
        ("nowhere/x.csv", r"cannot write 'x.csv': the folder '.*nowhere' does not exist\."),
        ("folder.csv", r"cannot write '.*folder.csv': "),
    ],
)
def test_a_table_that_cannot_be_written_is_refused_before_any_work(name: str, text: str, tmp_path: Path) -> None:
    """After an hour of simulation it would be too late to say so."""
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(BadInput, match=text):
        check_table_path(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.gif", r"cannot draw to 'x.gif'; allowed endings: \.png, \.svg, \.pdf\."),
        ("nowhere/x.png", "the folder '.*nowhere' does not exist"),
        ("folder.png", r"cannot write '.*folder.png': "),
    ],
)
def test_a_plot_that_cannot_be_written_is_refused_before_any_work(name: str, text: str, tmp_path: Path) -> None:
    """The same for figures."""
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(BadInput, match=text):
        check_plot_path(tmp_path / name)


def test_an_error_of_the_file_system_is_one_line(tmp_path: Path) -> None:
    """A full disk is nobody's bug: no traceback."""
    with pytest.raises(BadInput, match=r"^cannot write '.*x.csv': No space left on device\.$") as refused:  # noqa: SIM117
        with refuse_failed_write(tmp_path / "x.csv"):
            raise OSError(28, "No space left on device")
    assert "\n" not in str(refused.value)
    with pytest.raises(BadInput, match="does not exist"):
        check_writable(tmp_path / "no" / "x.csv")


@pytest.mark.parametrize(
    ("library", "name", "text"),
    [
        ("pyarrow", "x.parquet", r"writing Parquet needs pyarrow.*pip install \"dpcrowd\[parquet\]\""),
        ("matplotlib", "x.png", r"drawing needs matplotlib.*pip install \"dpcrowd\[plot\]\""),
    ],
)
def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, library: str, name: str, text: str
) -> None:
    """Both libraries are optional: whoever lacks one should read how to get it, before the simulation runs."""
    monkeypatch.setitem(sys.modules, library, None)
    check = check_plot_path if library == "matplotlib" else check_table_path
    with pytest.raises(DpcrowdError, match=text):
        check(tmp_path / name)


@pytest.mark.parametrize(("ending", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
@pytest.mark.slow
def test_plots_are_what_their_ending_says(result: SimulationResult, tmp_path: Path, ending: str, magic: bytes) -> None:
    """A picture in another format than its name does not open."""
    path = tmp_path / f"errors.{ending}"
    plot_errors(result, path)
    assert path.read_bytes().startswith(magic)


@pytest.mark.slow
def test_a_plot_names_every_scheme_and_both_errors(
    result: SimulationResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that nobody can tell from the others, or an axis without a name, is no result."""
    import matplotlib as mpl

    monkeypatch.setitem(mpl.rcParams, "svg.fonttype", "none")
    path = tmp_path / "errors.svg"
    plot_errors(result, path)
    text = path.read_text(encoding="utf-8")
    for word in (
        "non-private",
        "fast",
        "dpcrowd",
        "total error: sum",
        "average relative error",
        "consensus error",
        ">slot<",
    ):
        assert word in text


def test_the_lines_are_the_series_and_the_band_its_interval(
    result: SimulationResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is drawn is what is written: the mean over the runs of each slot and Student's interval."""
    from matplotlib.figure import Figure
    from scipy import stats

    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path: figures.append(self))
    plot_errors(result, tmp_path / "errors.png")
    total, *panels = figures[0].axes
    series = result.series()
    for line, record in zip(total.lines, result.records.values(), strict=True):
        np.testing.assert_allclose(line.get_ydata(), np.mean(record.total_error_by_slot, axis=0))
    for panel, metric in zip(panels, ("are", "ace"), strict=True):
        for number, line in enumerate(panel.lines):
            np.testing.assert_allclose(line.get_ydata(), series[metric][30 * number : 30 * number + 30])
    assert panels[0].get_yscale() == "log"
    legend = panels[0].get_legend_handles_labels()[1]
    (fast,) = (row for row in result.summary() if row["scheme"] == "fast")
    assert legend[1] == f"fast: {fast['total_error']['mean']:.3g}; {fast['coverage95']:.1%}", "beside errors over time"
    values = result["fast"].are_by_slot
    top = values.mean(axis=0) + stats.t.ppf(0.975, 1) * stats.sem(values, axis=0)
    drawn = panels[0].collections[1].get_paths()[0].vertices[:, 1]
    assert drawn.max() == pytest.approx(top.max())


@pytest.mark.slow
def test_a_cross_marks_where_a_horizon_was_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Budget was left, so nothing marked the slot from which on there were no samples."""
    from matplotlib.figure import Figure

    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path: figures.append(self))
    result = simulate("fast", horizon=20, **{**TINY, "slots": 60})
    part = result["fast"].exhausted_at
    assert part is not None
    left = replace(result, records={"fast": replace(result["fast"], exhausted_at=np.full_like(part, np.nan))})
    plot_errors(left, tmp_path / "errors.png")
    panel = figures[0].axes[0]
    assert "fast: horizon over at slot 20,\nno samples since" in panel.get_legend_handles_labels()[1]
    (cross,) = panel.collections[1:]
    assert cross.get_offsets()[0][0] == 20


@pytest.mark.slow
def test_a_cross_marks_where_a_budget_was_exhausted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From there on the line is a prediction without samples, which the line itself does not show."""
    from matplotlib.figure import Figure

    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path: figures.append(self))
    spent = simulate("kalman-uniform,uniform", horizon=None, **{**TINY, "slots": 100})
    ended = simulate("kalman-uniform", horizon=40, **{**TINY, "slots": 100})
    for some in (spent, ended):
        plot_errors(some, tmp_path / "errors.png")
    texts = [figure.axes[0].get_legend_handles_labels()[1] for figure in figures]
    labels = [[text if "budget" in text else text.partition(":")[0] for text in one] for one in texts]
    labels = [[text for text in one if not text.startswith("not scored")] for one in labels]
    assert labels == [
        ["kalman-uniform", "uniform"],
        ["kalman-uniform", "kalman-uniform: budget exhausted at slot 40\n(100% of the servers)"],
    ]
    cross = figures[1].axes[1].collections[-1].get_offsets()
    assert cross.tolist() == [[40.0, pytest.approx(ended.series()["are"][40])]]


@pytest.mark.slow
def test_one_run_and_undefined_slots_can_be_drawn(tmp_path: Path) -> None:
    """No interval, and slots in which nobody knows anything yet: still a plot, and no warning."""
    one = simulate("dpcrowd", interval=9, sampling="staggered", graph="ring", **{**TINY, "runs": 1, "density": None})
    plot_errors(one, tmp_path / "one.png")
    assert (tmp_path / "one.png").stat().st_size > 1000


@pytest.mark.slow
def test_errors_of_zero_can_be_drawn(tmp_path: Path) -> None:
    """A logarithmic axis has no zero; exact estimates must not end in a warning."""
    file = tmp_path / "zeros.csv"
    file.write_text("a\n" + "0\n" * 30)
    exact = simulate("non-private", str(file), observation="binomial", **TINY)
    assert exact["non-private"].are.tolist() == [0.0, 0.0]
    plot_errors(exact, tmp_path / "zero.png")


def test_an_exhausted_budget_is_marked_in_both_panels(
    result: SimulationResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The legend did not say when, and in the panel of errors the cross was hidden behind the lines."""
    from matplotlib.figure import Figure

    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path: figures.append(self))
    records = {**result.records, "fast": replace(result["fast"], exhausted_at=np.array([[7.0, np.nan]] * 2))}
    plot_errors(replace(result, records=records), tmp_path / "errors.png")
    for panel in figures[0].axes:
        crosses = panel.collections[-1]
        assert crosses.get_label() == "fast: budget exhausted at slot 7\n(50% of the servers)", "not all of the scheme"
        assert crosses.get_offsets()[0][0] == 7
        assert crosses.get_zorder() > max(line.get_zorder() for line in panel.lines)


def test_slots_that_are_not_scored_are_shaded(
    result: SimulationResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest errors of a plot were often those of slots that no number of the legend contains."""
    from matplotlib.figure import Figure

    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path: figures.append(self))
    setup = {label: {**values, "burn_in": 4} for label, values in result.setup.items()}
    plot_errors(replace(result, setup=setup), tmp_path / "errors.png")
    for panel in figures[0].axes:
        (shade,) = panel.patches
        assert shade.get_label() == "not scored: slots 0 to 3 (burn-in)"
        assert shade.get_extents().transformed(panel.transData.inverted()).x1 == pytest.approx(3.5)
    setup = {label: {**values, "burn_in": 0} for label, values in result.setup.items()}
    plot_errors(replace(result, setup=setup), tmp_path / "errors.png")
    assert not any(panel.patches for panel in figures[1].axes)


def test_stored_results_are_drawn_without_a_total_error_by_slot(
    result: SimulationResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were written before there was one; the other panels are worth drawing all the same."""
    from matplotlib.figure import Figure

    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path: figures.append(self))
    records = {label: replace(record, total_error_by_slot=None) for label, record in result.records.items()}
    plot_errors(replace(result, records=records), tmp_path / "errors.png")
    assert [panel.get_ylabel() for panel in figures[0].axes] == ["average relative error", "average consensus error"]


def test_the_total_error_of_the_slots_is_that_of_the_run() -> None:
    """Where the same number of people is there in every slot, its mean over the slots is the total error."""
    data = np.full((30, 2), 400)
    record = simulate("uniform", data, window=10, servers=4, density=0.5, burn_in=5, runs=2, jobs=1)["uniform"]
    assert record.total_error_by_slot is not None
    np.testing.assert_allclose(record.total_error_by_slot[:, 5:].mean(axis=1), record.total_error)
