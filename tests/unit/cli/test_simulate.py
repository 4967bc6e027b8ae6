"""`dpcrowd simulate`: the JSON object, the table, files, and that it says what the Python API says."""

from __future__ import annotations

import csv
import io
import json
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpcrowd
from dpcrowd.cli.main import main
from dpcrowd.cli.simulate import _exhaustion, _number, _size_columns
from sim_support import NAMES, TINY, WINDOW, tiny_words, write_checkins

KEYS = {
    *("scheme", "are", "ace", "frequency", "packets_per_slot", "bytes_per_slot", "latency_ms", "epsilon_paid"),
    *("coverage95", "server_slots_per_second", "heartbeats_per_slot"),
    *("total_error", "mae", "rmse", "by_size", "burn_in"),
    *("exhausted_at", "exhausted_servers", "horizon_over_at"),
    *("turnover", "shares", "composition", "share_width"),
    *("promise", "claimed_by", "passes_checks"),
}
RELAY_KEYS = {"samples", "reach", "hops_per_slot", "lag", "groups", "meetings"}
ALONE = {"fast", "rescuedp", "bd", "ba", "pegasus", "uniform", "sample", "kalman-uniform"}
WITHOUT_INTERVALS = {"bd", "ba", "dbd", "dba", "pegasus", "dpegasus"}


def _json(capsys: pytest.CaptureFixture[str], words: list[str]) -> list[dict[str, Any]]:
    assert main([*words, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    whole: dict[str, Any] = json.loads(out, parse_constant=pytest.fail)  # NaN and Infinity are no JSON
    assert list(whole) == ["results", "observation_noise", "notes", "warnings"]
    assert list(whole["observation_noise"]) == ["are", "total_error", "runs", "together", "non_private"]
    results: list[dict[str, Any]] = whole["results"]
    return results


@cache
def _rows(names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """The objects of several schemes, by their names."""
    out = io.StringIO()
    with redirect_stdout(out):
        assert main([*tiny_words(",".join(names)), "--json"]) == 0
    rows = json.loads(out.getvalue(), parse_constant=pytest.fail)["results"]
    assert tuple(row["scheme"] for row in rows) == names
    return {row["scheme"]: row for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_scheme_gives_the_promised_object(name: str) -> None:
    """Programs rely on these keys, on numbers where there is something to say, and on null where there is not."""
    row = _rows(WINDOW if name in WINDOW else tuple(other for other in NAMES if other not in WINDOW))[name]
    assert set(row) == KEYS | (RELAY_KEYS if name == "relay" else set())
    for metric in ("are", "ace", "total_error", "mae", "rmse"):
        assert set(row[metric]) == {"mean", "ci95"}
        low, high = row[metric]["ci95"]
        assert low < row[metric]["mean"] < high
    assert 0 < row["frequency"] <= 1
    assert row["server_slots_per_second"] > 0
    assert set(row["epsilon_paid"]) == {"server", "moving", "roaming"}
    paid = row["epsilon_paid"].values()
    assert all(value is None for value in paid) if name == "non-private" else all(value > 0 for value in paid)
    assert (row["latency_ms"] is None) == (name in ALONE | {"central"})
    assert (row["packets_per_slot"] == 0) == (row["bytes_per_slot"] == 0) == (name in ALONE)
    assert (row["coverage95"] is None) == (name in WITHOUT_INTERVALS)
    assert row["coverage95"] is None or 0 < row["coverage95"] <= 1


def test_one_run_has_no_interval(capsys: pytest.CaptureFixture[str]) -> None:
    """An interval of width 0 would claim certainty after one run."""
    (row,) = _json(capsys, tiny_words("dpcrowd", "--runs", "1"))
    assert row["are"]["ci95"] is None
    assert row["are"]["mean"] > 0


SHORT: dict[str, Any] = {**TINY, "slots": 16}
CASES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "plain": ([], {}),
    "seed": (["--seed", "7"], {"seed": 7}),
    "epsilon": (["--epsilon", "0.3"], {"epsilon": 0.3}),
    "horizon": (["--horizon", "12"], {"horizon": 12}),
    "roaming": (["--users", "roaming"], {"users": "roaming"}),
    "binomial": (["--observation", "binomial"], {"observation": "binomial"}),
    "partition": (["--shares", "partition"], {"shares": "partition"}),
    "per-slot": (["--shares", "per-slot"], {"shares": "per-slot"}),
    "ring": (["--graph", "ring"], {"graph": "ring"}),
    "static": (["--static"], {"dynamic": False}),
    "dynamic": (["--graph", "small-world", "--dynamic"], {"graph": "small-world", "dynamic": True}),
    "interval": (["--interval", "5"], {"interval": 5}),
    "staggered": (["--interval", "5", "--sampling", "staggered"], {"interval": 5, "sampling": "staggered"}),
    "beta": (["--beta", "0.05"], {"beta": 0.05}),
    "burn-in": (["--burn-in", "0"], {"burn_in": 0}),
    "process-var": (["--process-var", "5e4"], {"process_var": 5e4}),
    "regions": (
        ["--data", "multi-linear", "--regions", "region-2, region-5", "--accounting", "per-region"],
        {"data": "multi-linear", "regions": ["region-2", "region-5"], "accounting": "per-region"},
    ),
    "matrix": (["--data", "multi-linear", "--form", "matrix"], {"data": "multi-linear", "form": "matrix"}),
    "jobs": (["--jobs", "1"], {"jobs": 1}),
}


@pytest.mark.parametrize("case", CASES)
def test_numbers_are_those_of_the_python_api(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An option that is dropped or misread on its way would simulate something else, and nobody would notice."""
    words, settings = CASES[case]
    rows = _json(capsys, tiny_words("dpcrowd,central", "--slots", "16", *words))
    wanted = dpcrowd.simulate("dpcrowd,central", **{**SHORT, **settings}).summary()
    for row in (*rows, *wanted):
        row.pop("server_slots_per_second")
    assert rows == wanted
    if case not in ("plain", "jobs"):
        assert _plain_errors() != [row["are"] for row in rows], "the option has an effect"


@cache
def _plain_errors() -> list[Any]:
    return [row["are"] for row in dpcrowd.simulate("dpcrowd,central", **SHORT).summary()]


def test_files_of_data_and_of_links_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check-ins with a slot length, fractional counts to be rounded, a network of one's own."""
    checkins = write_checkins(tmp_path / "checkins.csv")
    fractions = tmp_path / "fractions.csv"
    fractions.write_text("a\n" + "".join(f"{10 + t / 2}\n" for t in range(40)))
    net = tmp_path / "net.txt"
    net.write_text("0,1\n1,2\n2,0\n")
    rest = ["--runs", "2", "--burn-in", "2", "--graph", str(net)]
    (row,) = _json(capsys, ["simulate", "--scheme", "dpcrowd", "--data", str(checkins), "--slot-length", "2d", *rest])
    api = dpcrowd.simulate("dpcrowd", checkins, slot_length="2d", runs=2, burn_in=2, graph=net)
    assert row["are"]["mean"] == api.summary()[0]["are"]["mean"]
    assert api["dpcrowd"].are_by_slot.shape[1] == 21
    (row,) = _json(capsys, ["simulate", "--scheme", "non-private", "--data", str(fractions), "--round", *rest])
    assert row["packets_per_slot"] == 6.0


def test_published_sets_come_from_the_folder_that_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--data flu --data-dir FOLDER` for those who keep data elsewhere."""
    (tmp_path / "flu.csv").write_text("week,count\n" + "".join(f"{t},{100 + t % 9}\n" for t in range(40)))
    words = ["simulate", "--scheme", "dpcrowd", "--data", "flu", "--data-dir", str(tmp_path), "--runs", "2"]
    (row,) = _json(capsys, [*words, "--servers", "5"])
    assert row["are"]["mean"] > 0


def test_a_share_width_without_a_number_is_a_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever wants shares to be learned need not know a width; the next option is not taken for one."""
    words = ["--servers", "3", "--shares", "partition", "--users", "pinned", "--runs", "1", "--window", "8"]
    simulate = ["simulate", "--scheme", "relay", "--data", "linear", "--slots", "8", *words]
    for option in (["--share-width", "--epsilon", "1"], ["--epsilon", "1", "--share-width", "0.2"]):
        assert main([*simulate, *option]) == 0
        width = "10%" if option[0] == "--share-width" else "20%"
        assert f"public shares may be wrong by {width}" in "".join(capsys.readouterr())


def test_the_table_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    """A heading, a line a scheme, the promises and the notes; and nothing on standard error without a terminal."""
    assert main(tiny_words("non-private,fast,dpcrowd")) == 0
    out, err = capsys.readouterr()
    assert err == ""
    head, *lines = out.splitlines()
    headings = [part.strip() for part in head.split("  ") if part.strip()]
    assert headings[:6] == ["scheme", "total error", "coverage", "ARE", "± ARE", "MAE"], "what a reader wants first"
    assert headings[6:] == ["frequency", "packets/slot", "ε server"]
    assert max(map(len, [head, *lines[:3]])) <= 120
    assert [line.split()[0] for line in lines[:3]] == ["non-private", "fast", "dpcrowd"]
    api = {row["scheme"]: row for row in dpcrowd.simulate("non-private,fast,dpcrowd", **TINY).summary()}
    for line in lines[:3]:
        name, _, _, are, half, *_ = line.split()
        assert are == f"{api[name]['are']['mean']:.4g}"
        low, high = api[name]["are"]["ci95"]
        assert half == f"{(high - low) / 2:.4g}"
    assert lines[0].split()[-1] == "–", "no privacy, nothing paid"
    assert lines[3].startswith("warning: shares sum to about 3.15, and users may be at several servers at once")
    assert lines[4].startswith("note: the observation noise alone (each server "), "figures are read with it"
    assert lines[5] == "promise of non-private: none, exact counts are shared."
    (length,) = {len(one["dpcrowd"].are_by_slot[0]) for one in [dpcrowd.simulate("dpcrowd", **TINY)]}
    promise = "Pure user-level differential privacy with ε = 1 for everything that one server releases of a stream of"
    assert lines[6] == f"promise of fast, dpcrowd: {promise} {length} slots."
    assert lines[7].startswith("--wide shows complete promises, RMSE, ACE, bytes, heartbeats")
    assert len(lines) == 8
    assert main(tiny_words("non-private,fast,dpcrowd", "--quiet")) == 0
    assert capsys.readouterr().out.splitlines() == [head, *lines[:4]], "the table and warnings only"
    assert main(tiny_words("non-private,fast,dpcrowd", "--wide")) == 0
    out = capsys.readouterr().out
    assert "Changing where a user was, instead of deleting, costs twice that" in out
    heartbeats = f"dpcrowd {api['dpcrowd']['heartbeats_per_slot']:.4g}. A live server sends every neighbour"
    assert f"heartbeats per slot of a live network, besides these packets: {heartbeats}" in out


def test_what_figures_have_to_be_read_with_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The warning that a model has seen the scored slots stood among a dozen remarks, below two long promises."""
    file, model = tmp_path / "counts.csv", tmp_path / "model.toml"
    rows = np.random.default_rng(1).poisson(50, (120, 2)).tolist()
    file.write_text("a,b\n" + "".join(f"{a},{b}\n" for a, b in rows), encoding="utf-8")
    assert main(["fit", str(file), "--source", "x", "--out", str(model)]) == 0
    words = ["simulate", "--scheme", "relay,kalman-uniform,past", "--data", str(file), "--model", str(model)]
    words += ["--runs", "1", "--servers", "4", "--horizon", "40"]
    capsys.readouterr()
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    starts = [line for line in lines if line.startswith(("warning: ", "note: ", "promise of "))]
    assert starts[0].startswith("warning: in-sample: model.toml was fitted on ")
    assert starts[1].startswith("warning: relay: budget exhausted at slot ")
    assert starts[2].startswith("warning: kalman-uniform: budget exhausted at slot ")
    assert starts[2].endswith(
        "of 120 (the median of the 100% of the servers that ran out); these take no more samples."
    )
    first = next(number for number, line in enumerate(starts) if line.startswith("note: "))
    assert all(line.startswith("warning: ") for line in starts[:first])
    assert starts[first].startswith("note: the observation noise alone ")
    assert starts[first + 1].startswith("promise of relay, kalman-uniform: Pure user-level differential privacy")
    assert starts[first + 2].startswith("promise of past: nothing to promise")
    assert all(line.startswith("note: ") for line in starts[first + 3 :])
    assert main([*words, "--wide"]) == 0
    wide = capsys.readouterr().out
    assert "Of relay also: The audience of a record is the complete network" in wide
    more = {line for line in wide.splitlines() if line.startswith("note: ")} - set(starts)
    assert more == {
        "note: each server counts a binomial part of the people, as live servers do; this default is new in version "
        "0.2, and --observation paper gives the one before."
    }, "what repeats a default pushed the warnings out of sight"
    assert main([*words, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    texts = {line.partition(": ")[2] for line in (*starts, *more) if not line.startswith("promise of ")}
    assert set(content["notes"]) == texts
    assert [f"warning: {text}" for text in content["warnings"]] == starts[:first]
    assert content["notes"][-1].startswith("the observation noise alone"), "the object has its order"
    assert "The audience of a record" in content["results"][0]["promise"]


def test_every_cell_of_the_table_is_a_figure_of_the_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A column under another one's heading would be believed."""
    from dpcrowd.sim import simulate as simulate_module

    fixed = dpcrowd.simulate("dpcrowd", "multi-linear", accounting="per-region", **TINY)
    monkeypatch.setattr(simulate_module, "simulate", lambda *a, **k: fixed)
    (row,) = _json(capsys, tiny_words("dpcrowd"))
    assert main(tiny_words("dpcrowd", "--wide")) == 0
    head, line, *rest = capsys.readouterr().out.splitlines()
    assert not any("--wide" in text for text in rest)
    halves = [(row[metric]["ci95"][1] - row[metric]["ci95"][0]) / 2 for metric in ("are", "ace")]
    paid = row["epsilon_paid"]
    assert paid["server"] < paid["moving"] < paid["roaming"]
    figures = {
        "total error": row["total_error"]["mean"],
        "coverage": row["coverage95"],
        "ARE": row["are"]["mean"],
        "± ARE": halves[0],
        "MAE": row["mae"]["mean"],
        "RMSE": row["rmse"]["mean"],
        "ACE": row["ace"]["mean"],
        "± ACE": halves[1],
        "frequency": row["frequency"],
        "packets/slot": row["packets_per_slot"],
        "bytes/slot": row["bytes_per_slot"],
        "latency ms": row["latency_ms"],
        "ε server": paid["server"],
        "ε moving": paid["moving"],
        "ε roaming": paid["roaming"],
        "M server-slots/s": row["server_slots_per_second"] / 1e6,
    }
    headings, cells = ([part.strip() for part in text.split("  ") if part.strip()] for text in (head, line))
    assert headings == ["scheme", *list(figures)[:-1], "exhausted at", "M server-slots/s"]
    exhausted = f"{row['exhausted_at']} ({row['exhausted_servers']:.0%})"
    values = [_number(value) for value in figures.values()]
    assert cells == ["dpcrowd", *values[:-1], exhausted, values[-1]]
    assert main(tiny_words("dpcrowd")) == 0
    narrow = capsys.readouterr().out.splitlines()[0]
    assert "ε moving" in narrow, "with the paper's accounting a user who moves pays more than is promised"
    assert "ε roaming" not in narrow, "users are pinned"


def write_sizes(path: Path) -> Path:
    """Two regions of very different size, which change all the time, so that adaptive sampling is soon exhausted."""
    rows = (f"{t % 5},{900 + 700 * (t % 2)}\n" for t in range(60))
    path.write_text("small,large\n" + "".join(rows), encoding="utf-8")
    return path


@pytest.mark.slow
def test_errors_by_size_and_the_exhausted_budget_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mean over regions hides the small ones, and no mean shows that a scheme has stopped to sample."""
    data = write_sizes(tmp_path / "sizes.csv")
    words = tiny_words("fast,kalman-uniform", "--data", str(data), "--slots", "60")
    rows = _json(capsys, words)
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    place = lines.index("MAE by the number of people in a region, with the share of such cells:")
    sizes = [entry for entry in rows[0]["by_size"] if entry["share"]]
    assert sum(entry["share"] for entry in sizes) == pytest.approx(1.0)
    assert lines[place + 1].split() == ["scheme", "0-5", "(50%)", ">500", "(50%)"]
    assert lines[place + 2].split() == ["fast", *(_number(entry["mae"]) for entry in sizes)]
    at = rows[0]["exhausted_at"]
    assert 0 < at < 60
    assert f"{at} ({rows[0]['exhausted_servers']:.0%})" in lines[1]
    assert any(line.startswith(f"warning: fast: budget exhausted at slot {at} of 60 (the median of ") for line in lines)
    assert rows[1]["exhausted_at"] is None, "it has paid for every slot"


def test_the_table_says_where_a_horizon_was_over(capsys: pytest.CaptureFixture[str]) -> None:
    """A dash in the column of exhausted budgets, or no column, reads as if samples went on."""
    row = {"exhausted_at": None, "exhausted_servers": 0.0, "horizon_over_at": 20}
    assert _exhaustion(row) == "20 (horizon over)"
    assert _exhaustion({**row, "horizon_over_at": None}) == "–"
    assert main(tiny_words("fast", "--horizon", "20")) == 0
    assert "exhausted at" in capsys.readouterr().out.splitlines()[0]


def test_a_class_of_few_cells_is_not_called_empty() -> None:
    """An error of "0%" of the cells looks like one that cannot be."""
    classes = [
        {"least": 0, "most": 5, "share": 0.004, "mae": 3.0},
        {"least": 6, "most": None, "share": 0.996, "mae": 1.0},
    ]
    assert list(_size_columns([{"by_size": classes}])) == ["0-5 (<1%)", ">5 (100%)"]


@pytest.mark.slow
def test_the_table_fits_a_narrow_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At 80 columns the table is several tables; a number without its digits would be worse than none."""
    from rich.console import Console

    monkeypatch.setattr("dpcrowd.cli.console.console", lambda: Console(width=80, highlight=False))
    data = write_sizes(tmp_path / "sizes.csv")
    views = ("--nonnegative", "--median")
    assert main(tiny_words("fast,dkalman-uniform", "--data", str(data), "--slots", "60", *views)) == 0
    lines = capsys.readouterr().out.splitlines()
    tables = lines[: next(number for number, line in enumerate(lines) if line.startswith(("warning", "note")))]
    assert all(len(line) <= 80 for line in tables)
    assert not any("…" in line for line in tables)
    assert {"ARE", "MAE", "coverage"} <= set(lines[0].split()), "accuracy comes first"
    for name in ("non-negative view", "median view"):
        (view,) = (number for number, line in enumerate(lines) if line.startswith(name))
        assert lines[view + 1].split() == ["scheme", "total", "error", "MAE"], "a table of its own, not divided"
    words = " ".join(lines)
    assert "Its sums and averages mean nothing, and its errors may be larger than those of the estimates" in words
    assert "closest most often:" not in words, "its MAE may be larger than that of the estimates"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0.0, "0"),
        (0.012345678, "0.01235"),
        (7.12e-13, "0"),
        (7.12e-10, "7e-10"),
        (9999.4, "9999"),
        (12231.4, "12,231"),
        (1.0, "1"),
        (-0.5, "-0.5"),
    ],
)
def test_numbers_are_short(value: float | None, shown: str) -> None:
    """Four digits are what 50 runs can tell; a rounded 0 is 0, and thousands stay readable."""
    assert _number(value) == shown


@pytest.mark.parametrize("ending", ["png", "svg"])
@pytest.mark.slow
def test_a_plot_is_drawn_beside_the_result(ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The plot is an extra: the object on standard output stays the same."""
    path = tmp_path / f"errors.{ending}"
    assert len(_json(capsys, tiny_words("fast,dpcrowd", "--plot", str(path)))) == 2
    assert path.read_bytes()[:4] == (b"\x89PNG" if ending == "png" else b"<?xm")


def test_a_row_for_each_scheme_and_run_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CSV and Parquet hold what `result.table()` holds."""
    import pyarrow.parquet

    table = dpcrowd.simulate("fast,dpcrowd", **TINY).table()
    paths = [tmp_path / "runs.csv", tmp_path / "runs.parquet"]
    for path in paths:
        assert main(tiny_words("fast,dpcrowd", "--out", str(path))) == 0
    with paths[0].open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["scheme"] for row in rows] == table["scheme"] == ["fast", "fast", "dpcrowd", "dpcrowd"]
    assert [float(row["are"]) for row in rows] == table["are"]
    read = pyarrow.parquet.read_table(paths[1]).to_pydict()
    assert {name: read[name] for name in table} == table
    assert read["servers"] == [TINY["servers"]] * 4
    written = [line for line in capsys.readouterr().out.splitlines() if line.startswith("written to ")]
    assert written == [f"written to {path}." for path in paths], "fit and tune say it, too"
    assert main(tiny_words("fast", "--quiet", "--out", str(paths[0]))) == 0
    assert "written to" not in capsys.readouterr().out


def test_a_file_that_fails_in_the_end_does_not_cost_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The disk may fill up while the simulation runs: the figures are printed before files are written."""
    path = tmp_path / "runs.csv"
    real = dpcrowd.SimulationResult.table

    def vanish(self: Any) -> Any:
        path.mkdir()
        return real(self)

    monkeypatch.setattr(dpcrowd.SimulationResult, "table", vanish)
    assert main(tiny_words("fast", "--json", "--out", str(path))) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["results"][0]["scheme"] == "fast"
    assert err.startswith("dpcrowd: error: cannot write ")
    assert err.count("\n") == 1


def test_windows_and_whole_streams_may_be_mixed_and_the_note_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Without --window each scheme takes its own default; that the promises differ has to be said."""
    assert main(["simulate", "--scheme", "dpcrowd,uniform", "--servers", "6", "--slots", "100", "--runs", "2"]) == 0
    out = capsys.readouterr().out
    assert "promise of uniform: Pure 100-event" in out
    assert (
        "warning: epsilon covers a complete stream of 100 slots for dpcrowd; any window of 100 slots for uniform" in out
    )


@pytest.mark.slow
def test_every_window_scheme_takes_its_window(capsys: pytest.CaptureFixture[str]) -> None:
    """All of them side by side, on several regions, by the paper's accounting."""
    names = ",".join(WINDOW)
    rows = _json(capsys, tiny_words(names, "--data", "multi-linear", "--accounting", "per-region"))
    assert tuple(row["scheme"] for row in rows) == WINDOW
    assert all(row["epsilon_paid"]["server"] <= 1 for row in rows)


def test_a_variance_per_region_is_given_to_the_filters(capsys: pytest.CaptureFixture[str]) -> None:
    """`fit` and `tune` write one per region, and `simulate` took one number only."""
    words = tiny_words("dkalman-uniform", "--data", "multi-linear", "--runs", "1")
    (by_region,) = _json(capsys, [*words, "--process-var", "4,5,6,7,8,9"])
    (same,) = _json(capsys, [*words, "--process-var", "4"])
    assert by_region["total_error"] != same["total_error"]


def test_the_help_says_that_groups_and_learned_shares_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    """Only the refusal said so, after both were given."""
    assert main(["simulate", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "auto excludes --share-width." in text.partition("--groups auto|off")[2]
    assert "excludes joining small regions (groups auto)" in text.partition("--share-width [PART]")[2]
    assert main(tiny_words("relay", "--groups", "auto", "--share-width", "--shares", "partition")) == 2
