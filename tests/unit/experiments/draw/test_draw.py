"""Drawings and tables of figures: equal for equal input, readable, small, and true to the numbers."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.experiments.draw import Drawn, canvas, draw
from dpcrowd.experiments.draw.axes import describe, draw_panel, limits
from dpcrowd.experiments.draw.canvas import blocks, columns_that_fit, legend_entries, note_entries, renderer_of
from dpcrowd.experiments.draw.svg import inline_svg
from dpcrowd.experiments.figures import FIGURES, Curve, Figure, Panel
from dpcrowd.experiments.figures.tables import write_tables
from dpcrowd.experiments.points.run import Results, run_points
from dpcrowd.experiments.points.store import Store
from dpcrowd.sim.backends import Backend
from dpcrowd.sim.result import METRICS
from experiments_support import curve_with, tiny_plan

PLAN = tiny_plan(slots=22)
TIME, INTERVAL, WINDOW = FIGURES[0], FIGURES[2], FIGURES[5]
FIGURE = Figure(9, "trial", "A trial <of> drawing", "Fig. Trial", lambda _: [], lambda *_: [], "About & more.")


def _curve(label: str, mean: list[float], half: float = 0.0, note: str = "") -> Curve:
    return curve_with(label, np.arange(1.0, len(mean) + 1.0), mean, half, note)


def _panel(*curves: Curve, row: int = 0, title: str = "Linear: ACE", **more: Any) -> Panel:
    return Panel(title, "privacy budget ε", "ACE (people)", curves, row=row, **more)


LEDGER = _panel(
    _curve("rescuedp", [9.0, 5.0, 4.0], 1.0, "moving user pays up to 4.78×ε"),
    _curve("dpcrowd-w", [7.0, 5.0, 3.0], 0.5, "moving user pays up to 1.58×ε"),
    _curve("dba", [2.0, 1.0, 0.5]),
    title="Multi-Linear, the paper's ledger: ACE",
)
PANELS = [
    LEDGER,
    _panel(_curve("rescuedp", [9.0, 5.0, 4.0]), _curve("dfast", [1e-13, 2e-13, 0.0])),
    _panel(_curve("dpcrowd-plus-matrix", [3.0], 0.4), _curve("dpcrowd", [4.0, np.nan, 1.0]), row=1),
    _panel(_curve("fast", np.linspace(3.0, 1.0, 500).tolist(), 0.2), row=1, title="Linear over time"),
]


def _axes(panel: Panel) -> Any:
    from matplotlib.figure import Figure as Canvas

    axes = Canvas().subplots()
    draw_panel(axes, panel)
    return axes


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    return draw(FIGURE, PANELS, tmp_path_factory.mktemp("drawn"))


@pytest.mark.slow
def test_equal_input_gives_equal_files_whatever_the_users_style_is(drawn: Drawn, tmp_path: Path) -> None:
    """Dates or random identifiers in the files would make every report differ from the last one.

    Someone's matplotlibrc with LaTeX or huge fonts would break the report, and drawing must not change it either.
    """
    from matplotlib import rc_context, rcParams

    with rc_context({"font.size": 40.0, "lines.linewidth": 9.0, "axes.facecolor": "red"}):
        again = draw(FIGURE, PANELS, tmp_path)
        assert rcParams["font.size"] == 40.0
    assert again.svg.read_bytes() == drawn.svg.read_bytes()
    assert again.png.read_bytes() == drawn.png.read_bytes()
    assert again.blocks == drawn.blocks


@pytest.mark.slow
def test_svg_file_is_xml_with_title_text_and_a_view(drawn: Drawn) -> None:
    """A reader who cannot see it gets the numbers, and a viewer can scale it; text is text, not outlines."""
    root = ET.parse(drawn.svg).getroot()
    space = {"s": "http://www.w3.org/2000/svg"}
    assert root.get("viewBox")
    assert root.find("s:title", space).text == "Figure 9: A trial <of> drawing"  # type: ignore[union-attr]
    assert "RescueDP (moving user pays up to 4.78×ε): 9 at 1, 4 at 3" in root.find("s:desc", space).text  # type: ignore
    assert "DPCrowd_w" in "".join(root.itertext())
    assert "<metadata" not in drawn.svg.read_text(encoding="utf-8")


def test_png_is_a_picture_of_all_panels(drawn: Drawn) -> None:
    """Two rows of two panels are wider and higher than one panel; an empty file would pass for a drawing."""
    data = drawn.png.read_bytes()
    assert data.startswith(b"\x89PNG")
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    assert width > 1000
    assert height > 800


def test_pieces_can_stand_in_one_page(drawn: Drawn) -> None:
    """Two pieces with one identifier would clip each other; a fixed width would not fit a phone; no addresses."""
    rows = [row for block in drawn.blocks for row in block.rows]
    pieces = [*(piece for row in rows for piece in row), *(block.legend for block in drawn.blocks)]
    assert [len(row) for row in rows] == [2, 2]
    names: list[str] = []
    for piece in pieces:
        opening = piece[: piece.index(">")]
        assert re.search(r"\b(width|height)=", opening) is None
        assert 'viewBox="' in opening
        assert 'role="img"' in opening
        assert "://" not in piece
        mine = re.findall(r'\sid="([^"]*)"', piece)
        assert set(re.findall(r'(?:url\(|href=")#([^")]+)', piece)) == set(mine), "used and defined are the same"
        names += mine
    assert len(names) == len(set(names))
    assert names


def test_text_alternative_is_escaped() -> None:
    """A title with a quote or an angle bracket would break the page."""
    svg = '<?xml version="1.0"?><svg width="1pt" viewBox="0 0 1 1"><g id="unused"/></svg>'
    assert inline_svg(svg, 'a "b" <c>') == (
        '<svg viewBox="0 0 1 1" role="img" aria-label="a &quot;b&quot; &lt;c&gt;"><g/></svg>'
    )


def test_rounding_errors_do_not_stretch_the_axis() -> None:
    """With 1e-13 on a logarithmic axis nothing else could be told apart; the curve is named instead of hidden."""
    panel = PANELS[1]
    low, high = limits(panel)
    assert 1.0 < low < 4.0
    assert 9.0 < high < 20.0
    axes = _axes(panel)
    assert axes.get_yscale() == "log"
    assert axes.get_ylim() == (low, high)
    np.testing.assert_array_equal(axes.lines[1].get_ydata(), [low, low, low])
    assert [line.get_clip_on() for line in axes.lines] == [True, False], "the edge must not cut it in half"
    assert "≈ 0: DFAST" in [text.get_text() for text in axes.texts]
    assert "DFAST: about 0 throughout" in describe(panel)


def test_a_curve_that_is_zero_in_places_is_named_so() -> None:
    """Flooding in a sparse network agrees at some densities only; "≈ 0" alone would be wrong."""
    axes = _axes(_panel(_curve("dfast", [5.0, 1e-12, 0.0]), _curve("dpcrowd", [9.0, 8.0, 7.0])))
    assert [text.get_text() for text in axes.texts] == ["≈ 0 in places: DFAST"]


def test_nothing_but_zeros_is_still_drawn() -> None:
    """A panel of flooding schemes alone has no logarithm."""
    axes = _axes(_panel(_curve("dfast", [0.0, 1e-13])))
    assert axes.get_yscale() == "linear"
    assert axes.get_ylim() == (0.0, 1.0)


def test_diverged_values_leave_a_gap() -> None:
    """A NaN must neither stop the drawing nor decide the axis."""
    low, high = limits(PANELS[2])
    assert 0.5 < low < 1.0
    assert 4.0 < high < 6.0
    assert np.isnan(_axes(PANELS[2]).lines[1].get_ydata()[1])
    assert limits(_panel(_curve("fast", [np.nan, np.nan]), log_y=False)) == (0.0, 1.0)
    assert "FAST: undefined" in describe(_panel(_curve("fast", [np.nan])))


def test_the_band_is_the_interval() -> None:
    """Half the width or a band around nothing would tell a wrong certainty."""
    axes = _axes(_panel(_curve("fast", [10.0, 12.0, 14.0], 2.0), log_y=False))
    (band,) = axes.collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert heights.max() == pytest.approx(16.0)
    assert heights.min() == pytest.approx(8.0)
    assert axes.get_ylim()[1] > 16.0, "and all of its upper part is seen"


def test_only_short_curves_have_markers() -> None:
    """A thousand markers are a smear, and few points without them hide where the points are."""
    assert _axes(PANELS[3]).lines[0].get_marker() == "None"
    assert _axes(LEDGER).lines[0].get_marker() == "s"


def test_lines_differ_without_colour() -> None:
    """On grey paper curves that differ in colour alone are one; long ones have no markers to help."""
    labels = ("fast", "dfast", "dpcrowd", "uniform", "sample", "central")
    panel = _panel(*(_curve(label, [1.0] * 500) for label in labels))
    looks = {(str(line._dash_pattern), line.get_linewidth()) for line in _axes(panel).lines}
    assert len(looks) == len(labels)


def test_notes_stand_beside_the_names_of_their_panel() -> None:
    """What a moving user pays differs between panels: a shared legend would tell one panel's figure for all."""
    title, entries = note_entries(LEDGER)
    assert title == "moving user pays up to"
    assert [entry.get_label() for entry in entries] == ["RescueDP: 4.78×ε", "DPCrowd_w: 1.58×ε"]
    shared = [entry.get_label() for entry in legend_entries(PANELS[:2])]
    assert shared == ["RescueDP", "DPCrowd_w", "DBA", "DFAST", "band: 95% interval"]
    assert note_entries(PANELS[1]) == ("", [])
    alone = replace(LEDGER, curves=LEDGER.curves[:1])
    assert [e.get_label() for e in note_entries(alone)[1]] == ["RescueDP: moving user pays up to 4.78×ε"]


def test_panels_with_notes_show_them(drawn: Drawn) -> None:
    """A legend outside the picture would be cut off: its text is there, in the first panel only."""
    left, right = drawn.blocks[0].rows[0]
    assert "RescueDP: 4.78×ε" in left
    assert "4.78" not in right


def test_schemes_that_look_alike_have_legends_of_their_own() -> None:
    """FAST and RescueDP share a look: in one legend nobody could tell which of the two a line is."""
    one, two = (_panel(_curve(label, [1.0, 2.0]), _curve("uniform", [3.0, 3.0])) for label in ("fast", "dfast"))
    many = replace(one, curves=(_curve("rescuedp", [1.0, 2.0]),))
    assert blocks([[one], [two], [many]]) == [[[one], [two]], [[many]]]
    assert blocks([[one], [many], [one]]) == [[[one]], [[many]], [[one]]]


def _outside(svg: Path) -> list[str]:
    """Texts of a drawing that leave it, by a guess: a letter is half as wide as its font is high."""
    root = ET.parse(svg).getroot()
    wide = float(root.get("viewBox", "").split()[2])
    cut = []
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        style = text.get("style", "")
        size = float(re.search(r"(\d[\d.]*)px", style)[1])  # type: ignore[index]
        place = text.get("transform", "")
        x = float(text.get("x") or re.search(r"translate\(([-\d.]+)", place)[1])  # type: ignore[index]
        length = 0.0 if "rotate(-90" in place else 0.5 * size * len(text.text or "")
        start = x - length * (1.0 if "text-anchor: end" in style else 0.5 if "text-anchor: middle" in style else 0.0)
        if start < 0.0 or start + length > wide or (length == 0.0 and x < size * 0.7):
            cut.append(text.text or "")
    return cut


@pytest.mark.slow
def test_long_numbers_and_many_names_are_not_cut_off(tmp_path: Path) -> None:
    """Millions on an axis used to lose their first digit, and a legend of fourteen schemes both of its ends."""
    labels = ("rescuedp", "drescuedp", "dpcrowd-w", "dpcrowd-plus", "dpegasus", "dbd", "dba", "duniform", "dsample")
    large = [_curve(label, [3e6, 2e6, 1.0]) for label in labels]
    linear = [_curve(label, [123_456_789.0, 2e6, 1.0]) for label in labels]
    panels = [_panel(*large), _panel(*large), _panel(*linear, row=1, log_y=False)]
    assert _outside(draw(FIGURE, panels, tmp_path).svg) == []
    ticks = [tick.get_text() for tick in _axes(panels[0]).get_yticklabels()]
    assert {"1M", "100k", "1,000"} <= set(ticks)


def test_the_left_margin_has_room_for_the_longest_number() -> None:
    """A linear axis with six digits needs more than the usual margin, and all panels of a figure the same one."""
    from matplotlib.figure import Figure as Canvas

    usual, long = (_panel(_curve("fast", [top, 1.0]), log_y=False) for top in (9.0, 900_000.0))
    assert canvas._left_margin([usual]) == canvas._LEFT
    left = canvas._left_margin([usual, long])
    paper = Canvas(figsize=(canvas._WIDTH, canvas._HEIGHT))
    axes = canvas._add_axes(paper, long, left, (0.0, 0.0), canvas._HEIGHT)
    assert 0.0 <= axes.yaxis.get_tightbbox(renderer_of(paper)).x0 < 0.1 * paper.dpi
    assert left > canvas._LEFT


def test_a_legend_has_as_many_columns_as_fit() -> None:
    """Too many are cut off, and too few waste half a page."""
    entries = legend_entries([_panel(*(_curve(label, [1.0]) for label in ("fast", "dfast", "dpcrowd", "central")))])
    columns = [columns_that_fit(entries, width, fontsize=8) for width in (0.5, 2.6, 3.7, 20.0)]
    assert columns[0] == 1
    assert columns == sorted(columns)
    assert columns[-1] == len(entries)
    assert 1 < columns[2] < len(entries)


def test_the_bar_of_a_lone_point_does_not_stretch_the_axis() -> None:
    """Two runs of the matrix form have an interval of twelve times their spread: all else would be a line."""
    lone, others = _curve("dpcrowd-plus-matrix", [3.0], 900.0), _curve("dpcrowd", [4.0, 3.0], 0.5)
    assert limits(_panel(lone, others)) == limits(_panel(_curve("dpcrowd-plus-matrix", [3.0]), others))
    axes = _axes(_panel(lone, others))
    assert axes.get_ylim()[1] < 10.0
    assert all(bar.get_clip_on() for bar in axes.collections)


def test_no_panels_are_refused(tmp_path: Path) -> None:
    """An empty drawing would look like a result."""
    with pytest.raises(BadInput, match="figure 9 has no panels"):
        draw(FIGURE, [], tmp_path)


# ------------------------------------------------------------------------------------------------------------ tables


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    wanted = {"1": TIME.points(PLAN), "3": INTERVAL.points(PLAN)}
    return run_points(PLAN, wanted, Store(tmp_path_factory.mktemp("points")), Backend("local", 1, None))


@pytest.mark.slow
def test_real_panels_can_be_drawn(results: Results, tmp_path: Path) -> None:
    """What the figures give is what the drawing takes."""
    figure = INTERVAL
    done = draw(figure, figure.panels(PLAN, results), tmp_path)
    assert (done.svg, done.png) == (tmp_path / "figure3-interval.svg", tmp_path / "figure3-interval.png")


@pytest.mark.slow
def test_a_row_says_everything_about_its_setting(results: Results, tmp_path: Path) -> None:
    """A number without its setting cannot be used by anyone else."""
    (path,) = write_tables(INTERVAL, PLAN, results, tmp_path)
    assert path.name == "figure3-interval.parquet"
    table = pyarrow.parquet.read_table(path)
    rows = table.to_pylist()
    paid = {f"epsilon_paid_{who}" for who in ("server", "moving", "roaming")}
    settings = {"figure", "data", "epsilon", "density", "window", "interval", "accounting", "form", "shares"}
    assert {*settings, "scheme", "run", *METRICS, *paid} <= set(table.column_names)
    (fixed,) = (point for x, point in INTERVAL.sweeps(PLAN)[0].of("dpcrowd-fixed") if x == 5)
    mine = [row for row in rows if row["scheme"] == "dpcrowd-fixed" and row["interval"] == 5.0]
    assert [row["run"] for row in mine] == [0, 1, 2]
    assert [row["are"] for row in mine] == results[fixed]["dpcrowd-fixed"].are.tolist()
    assert {(row["figure"], row["data"], row["epsilon"], row["density"]) for row in mine} == {(3, "linear", 1.0, 0.3)}
    windows = {row["scheme"]: row["window"] for row in rows}
    assert windows["uniform"] == 22.0, "the complete stream"
    assert windows["dpcrowd-adaptive"] is None


def test_tables_of_all_figures_fit_together(results: Results, tmp_path: Path) -> None:
    """Files with other types for the same column could not be joined."""
    paths = [write_tables(figure, PLAN, results, tmp_path)[0] for figure in (TIME, INTERVAL)]
    schemas = [pyarrow.parquet.read_schema(path) for path in paths]
    assert schemas[0] == schemas[1]


def test_errors_by_slot_are_means_over_the_runs(results: Results, tmp_path: Path) -> None:
    """The figure over time could not be drawn from the table otherwise."""
    _, path = write_tables(TIME, PLAN, results, tmp_path)
    assert path.name == "figure1-time-by-slot.parquet"
    rows = pyarrow.parquet.read_table(path).to_pylist()
    record = results[TIME.points(PLAN)[0]]["fast"]
    mine = [row for row in rows if row["scheme"] == "fast"]
    assert [row["slot"] for row in mine] == list(range(22))
    np.testing.assert_allclose([row["are"] for row in mine], record.are_by_slot.mean(axis=0))
    spread = record.ace_by_slot.std(axis=0, ddof=1) / np.sqrt(3)
    np.testing.assert_allclose([row["ace_half"] for row in mine], 4.302652729911275 * spread)


@pytest.mark.slow
def test_the_papers_ledger_says_what_a_moving_user_pays(tmp_path: Path) -> None:
    """Its curves look good for a price that is not on the axis: the matrix form's star has to name it like the rest."""
    plan = tiny_plan(slots=22, runs=2)
    results = run_points(plan, {"6": WINDOW.points(plan)}, Store(tmp_path), Backend("local", 1, None))
    left, right, *_ = WINDOW.panels(plan, results)
    notes = {curve.label: curve.note for curve in left.curves}
    for label in ("rescuedp", "dpcrowd-plus", "dpcrowd-plus-matrix"):
        assert re.fullmatch(r"moving user pays at w = 20 \(at most\): [\d.]+×ε( \([\d.]+×ε\))?", notes[label]), label
    ((_, point),) = WINDOW.sweeps(plan)[0].of("dpcrowd-plus-matrix")
    paid = max(p.epsilons()["moving"] for p in results[point]["dpcrowd-plus-matrix"].paid)
    assert notes["dpcrowd-plus-matrix"].endswith(f": {paid:.3g}×ε")
    assert notes["dbd"] == ""
    assert {curve.note for curve in right.curves} == {""}
    assert note_entries(left)[0] == "moving user pays at w = 20 (at most):"


def test_every_scheme_of_every_figure_has_a_look() -> None:
    """A scheme without a style would stop the report after an hour of work."""
    from dpcrowd.experiments.figures.rosters import STYLES

    labels = {entry.label for figure in FIGURES for point in figure.points(PLAN) for entry in point.entries}
    assert labels <= set(STYLES)
