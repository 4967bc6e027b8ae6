"""First lines of numbers: counts of slot 0, or names of regions that are numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpcrowd.cli.main import main
from dpcrowd.errors import BadInput
from dpcrowd.sim.configure import configure
from dpcrowd.sim.data import load

ZIP = "98101,98102,98103\n12,5,0\n14,7,0\n9,4,1\n11,6,0\n"


def save(folder: Path, text: str, name: str = "x.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "names", "reason"),
    [
        (ZIP, ("98101", "98102", "98103"), "far above all counts below them"),
        ("98103;98101\n12;5\n14;7\n9;4\n", ("98103", "98101"), "far above all counts below them"),
        ("02134,10001\n12000,9000\n14000,9100\n9000,8000\n", ("02134", "10001"), "begins with a 0"),
        ("0,101,102\n2020-01-01,1,2\n2020-01-02,3,4\n", ("101", "102"), "begin with a time, such as '2020-01-01'"),
    ],
)
def test_numbers_that_cannot_be_counts_are_names(
    tmp_path: Path, text: str, names: tuple[str, ...], reason: str
) -> None:
    """Read as slot 0, ZIP codes would be crowds of a hundred thousand, and results of all regions be wrong."""
    data = load(save(tmp_path, text))
    assert data.regions == names
    assert data.slots == text.count("\n") - 1
    (note,) = (note for note in data.notes if "first line" in note)
    assert reason in note
    assert "--no-header" in note


@pytest.mark.parametrize(
    ("text", "regions"),
    [
        ("12,5\n14,7\n9,4\n", "'region-1' to 'region-2'"),
        ("7\n8\n9\n", "'count'"),
        ("2020-01-01,2\n2020-01-02,4\n", "'count'"),
        ("900,50\n14,7\n9,4\n8,8\n", "'region-1' to 'region-2'"),  # one region alone is far above what follows
        ("900,900\n14,7\n9,4\n8,8\n", "'region-1' to 'region-2'"),  # two regions with one name
        ("900,800\n14,7\n", "'region-1' to 'region-2'"),  # too few lines to compare with
        ("007,012\n008,011\n006,013\n005,010\n", "'region-1' to 'region-2'"),  # all have leading zeros
        ("1,2,3\n4,5,6\n7,8,9\n1,2,3\n", "'region-1' to 'region-3'"),  # others are consecutive, too
        ("0,12,20,30,40\n1,9,9,9,9\n2,9,8,7,6\n3,9,9,9,9\n", "'region-1' to 'region-5'"),  # rows are numbered
    ],
)
def test_a_file_without_a_header_is_read_with_a_note(tmp_path: Path, text: str, regions: str) -> None:
    """Without the note, nobody would see that a line of names was counted; counts must not be taken for names."""
    data = load(save(tmp_path, text))
    assert data.slots == text.count("\n")
    (note,) = (note for note in data.notes if "no header line" in note)
    assert regions in note
    assert "--header" in note


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("1,2,3\n4,0,6\n7,8,8\n1,1,3\n", "consecutive"),
        ("11,12,21,22,31\n12,9,9,9,9\n9,9,8,7,6\n30,9,9,9,9\n", "ascending"),
    ],
)
def test_numbers_that_may_be_either_are_refused(tmp_path: Path, text: str, what: str) -> None:
    """Cells and precincts have small numbers: whoever guesses is silently wrong in one of two cases."""
    path = save(tmp_path, text)
    with pytest.raises(BadInput, match=rf"x\.csv: the first line has {what} numbers.*--header.*--no-header"):
        load(path)
    named, counted = load(path, header=True), load(path, header=False)
    assert named.regions == tuple(text.splitlines()[0].split(","))
    assert (named.slots, counted.slots) == (3, 4)
    assert counted.regions[0] == "region-1"
    assert not any("first line" in note for note in (*named.notes, *counted.notes))


def test_a_header_that_is_given_wins(tmp_path: Path) -> None:
    """Without this, a file that looks like something else could not be read at all."""
    path = save(tmp_path, ZIP)
    assert load(path, header=False).slots == 5
    assert load(save(tmp_path, "5,7\n5,7\n6,7\n"), header=True).regions == ("5", "7")
    with pytest.raises(BadInput, match="'north', not a count"):
        load(save(tmp_path, "south,north\n5,7\n6,7\n"), header=False, regions=["count"])


def test_only_csv_files_have_a_first_line(tmp_path: Path) -> None:
    """An option that does nothing misleads."""
    with pytest.raises(BadInput, match="'linear' is a data set; leave it out"):
        load("linear", header=True)
    with pytest.raises(BadInput, match="is a Parquet file"):
        load(save(tmp_path, "", "x.parquet"), header=True)
    with pytest.raises(BadInput, match="header is for files of counts"):
        configure("uniform", np.ones((30, 1), dtype=int), header=True, window=5)


@pytest.mark.slow
def test_commands_that_read_counts_say_how_and_take_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The note and the message name the option, so every command that reads counts has to have it, and print them."""
    lines = ["12,5,0", "14,7,1", "9,4,1", "11,6,0"] * 10
    path = str(save(tmp_path, "\n".join(["98101,98102,98103", *lines, ""])))
    network = ["--servers", "4", "--density", "1", "--window", "5"]
    tuning = ["tune", "--scheme", "dpcrowd-w", "--data", path, "--runs", "1", "--method", "likelihood", *network]
    for command in (
        ["fit", path, "--source", "x", "--slot-length", "1d"],
        ["simulate", "--scheme", "uniform", "--data", path, "--runs", "1", *network],
        ["plan", "--data", path, *network],
        tuning,
    ):
        assert main(command) == 0
        assert "note: the numbers in the first line of x.csv are read as names" in capsys.readouterr().out
        assert main([*command, "--no-header"]) == 0
        assert "first line" not in capsys.readouterr().out
    assert main(["plan", "--level", "50", "--process-var", "4", "--header", *network]) == 2
    assert "--header is for a file of counts; give it with --data FILE" in capsys.readouterr().err
