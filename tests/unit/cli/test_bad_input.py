"""Wrong input on the command line: one line on standard error, exit code 2, nothing on standard output.

Each line says what was given and what is allowed (or the nearest name). Every entry of the table is a mistake that
somebody will make.
"""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from dpcrowd.cli.main import cli, main
from sim_support import tiny_words

COMMANDS = ", ".join(sorted(cli.list_commands(click.Context(cli))))
COUNTS = "week,north\n2020-01-05,10\n2020-01-12,11\n{}\n2020-01-26,12\n"
FILES = {
    "nan.csv": COUNTS.format("2020-01-19,NaN"),
    "negative.csv": COUNTS.format("2020-01-19,-3"),
    "fraction.csv": COUNTS.format("2020-01-19,2.5"),
    "word.csv": COUNTS.format("2020-01-19,many"),
    "empty-cell.csv": COUNTS.format("2020-01-19,"),
    "hole.csv": "week,north\n2020-01-05,10\n2020-01-12,11\n2020-01-26,12\n",
    "twice.csv": COUNTS.format("2020-01-12,12"),
    "empty.csv": "",
    "header.csv": "week,north\n",
    "counts.csv": "slot,north,south\n" + "".join(f"{t},{100 + t},{50 + t}\n" for t in range(40)),
    "checkins.csv": "user,time,region\n" + "".join(f"u{d % 3},2024-03-{d:02d},a\n" for d in range(1, 30)),
    "isolated.txt": "0,1\n1,2\n4,5\n",
    "empty.txt": "\n# nothing\n",
    "loop.txt": "0,0\n",
    "five.txt": "0,1\n1,2\n2,3\n3,4\n",
    "lonely.txt": "0 1 0\n1 0 0\n0 0 0\n",
}

# What is given | what has to be in the line. The first word of the left side is the scheme.
TABLE = """
dpcrwd                              | unknown scheme 'dpcrwd'. Did you mean 'dpcrowd'? Allowed: ba, bd, central,
dpcrowd,fats                        | unknown scheme 'fats'. Did you mean 'fast'?
DPCrowd                             | unknown scheme 'DPCrowd'. Did you mean 'dpcrowd'?
,                                   | no scheme was given; allowed: non-private, central, fast, dfast, dpcrowd,
dpcrowd,fast,dpcrowd                | scheme 'dpcrowd' is given twice
dpcrowd --data linaer               | unknown data set 'linaer'. Did you mean 'linear'? Allowed: employment, flights,
dpcrowd --data nowhere.csv          | file 'nowhere.csv' does not exist; give a CSV or Parquet file
dpcrowd --data folder               | 'folder' is a folder; give the path of a CSV or Parquet file
dpcrowd --data nan.csv              | nan.csv line 4, column 'north' is NaN
dpcrowd --data negative.csv         | negative.csv line 4, column 'north' is -3; a count cannot be negative
dpcrowd --data fraction.csv         | fraction.csv line 4, column 'north' is 2.5, a fraction; counts are whole people
dpcrowd --data word.csv             | word.csv line 4, column 'north' is 'many', not a count; allowed: whole numbers
dpcrowd --data empty-cell.csv       | empty-cell.csv line 4, column 'north' is empty; fill it in (0 if nobody
dpcrowd --data hole.csv             | hole.csv line 4: week '2020-01-19' is missing before '2020-01-26'
dpcrowd --data twice.csv            | twice.csv line 4: week '2020-01-12' occurs twice (first in line 3)
dpcrowd --data empty.csv            | empty.csv is empty; expected a header and one line for each slot
dpcrowd --shares nowhere.csv        | nowhere.csv': No such file or directory. Give a CSV file with the columns
dpcrowd --data header.csv           | header.csv has a header but no data
dpcrowd --data counts.csv --slots 41 | --slots 41 asked of counts.csv, which has 40; allowed: 1 to 40
dpcrowd --data counts.csv --slot-length 1d | a slot length was given, but counts.csv has counts
dpcrowd --data checkins.csv --slots 20 --slot-length 1x | slot length
dpcrowd --data checkins.csv --slots 20 --shares per-slot | users are pinned, but the shares change from slot to slot
dpcrowd --data multi-linear --regions region-9 | unknown region 'region-9'. Did you mean 'region-6'? Allowed: region-1,
dpcrowd --data counts.csv --regions nort | unknown region 'nort'. Did you mean 'north'? Allowed: north, south
dpcrowd --data multi-linear --regions region-1,region-1 | region 'region-1' is named twice
dpcrowd --turnover 0.3              | observation, the default of 'linear', has no people. Give --observation binomial
dpcrowd --turnover 0.3 --data linear | --turnover 0.3 is for binomial counts; the paper's observation
dpcrowd --turnover 0.3 --observation paper | the paper's observation has no people
relay --shares partition --share-width 0.1 --reach 1 | --share-width 0.1 needs --reach all
relay --share-width 0.1 --shares uniform | needs every user at one server; give --shares partition, or shares
dpcrowd --slots 0                   | --slots 0 asked of linear; allowed: 1 or more
dpcrowd --slots 99999999999         | --slots 99999999999 asked of linear; allowed: at most 10000000
dpcrowd --slots ten                 | '--slots': 'ten' is not a whole number. See 'dpcrowd simulate --help'
dpcrowd --process-var -1            | process variance must be >= 0; given -1.0
dpcrowd --data multi-linear --process-var 4,x | --process-var is '4,x'; allowed: numbers, separated by commas
dpcrowd --data multi-linear --process-var 4,5 | 2 process variances were given for 6 regions; allowed: one number
dpcrowd --epsilon 0                 | epsilon must be > 0; given 0.0
dpcrowd --epsilon -1                | epsilon must be > 0; given -1.0
dpcrowd --epsilon nan               | epsilon must be a number > 0; given nan
dpcrowd --epsilon inf               | epsilon must be a number > 0; given inf
dpcrowd --epsilon much              | '--epsilon': 'much' is not a number. See 'dpcrowd simulate --help'
dpcrowd --epsilon 1e-12             | epsilon must be at least 1e-9, the smallest unit of the ledger; given 1e-12
dpcrowd --epsilon 1e9               | epsilon must be at most 1000000; given 1000000000.0
dpcrowd --epsilon 1e-9              | a budget of 1e-9 epsilon cannot be split into 9 parts
uniform --window 0                  | window must be a whole number of slots >= 1; given 0
uniform --window -5                 | window must be a whole number of slots >= 1; given -5
uniform --window 1.5                | '--window': '1.5' is not a whole number
uniform --window 31                 | the data have 30 slots, fewer than the window of 31 of scheme 'uniform'
uniform --slots 9                   | the data have 9 slots, fewer than the window of 10 of scheme 'uniform'
dpcrowd,uniform                     | the data have 30 slots, fewer than the default window of 100 of scheme 'uniform'
dpcrowd --horizon 0                 | horizon must be a whole number of slots >= 1; given 0
dpcrowd --horizon -2                | horizon must be a whole number of slots >= 1; given -2
dpcrowd --window 10 --horizon 10    | give a window or a horizon, not both
dpcrowd --window 10                 | scheme 'dpcrowd' takes a horizon, not a window; leave --window out
fast,bd --horizon 10                | scheme 'bd' takes a window, not a horizon; leave --horizon out
bd,fast                             | scheme 'fast' takes a horizon, not a window
dpcrowd --runs 0                    | runs must be a whole number from 1 to 1000000; given 0
dpcrowd --runs -1                   | runs must be a whole number from 1 to 1000000; given -1
dpcrowd --runs 99999999999          | runs must be a whole number from 1 to 1000000; given 99999999999
dpcrowd --seed -1                   | seed must be a whole number of at least 0; given -1
dpcrowd --servers 0                 | servers must be a whole number from 2 to 10000000; given 0
dpcrowd --servers 1                 | servers must be a whole number from 2 to 10000000; given 1
dpcrowd --servers 99999999999       | servers must be a whole number from 2 to 10000000; given 99999999999
dpcrowd --jobs 0                    | jobs must be a whole number of at least 1; leave it out
dpcrowd --jobs -1                   | jobs must be a whole number of at least 1; leave it out
dpcrowd --density 0                 | density 0.0 for 6 servers; allowed: 0.2 (nobody isolated) to 1 (all linked)
dpcrowd --density 0.1               | density 0.1 for 6 servers; allowed: 0.2 (nobody isolated) to 1 (all linked)
dpcrowd --density 1.5               | density 1.5 for 6 servers; allowed: 0.2 (nobody isolated) to 1 (all linked)
dpcrowd --density nan               | density nan for 6 servers; allowed: 0.2
dpcrowd --graph rign                | unknown graph 'rign'. Did you mean 'ring'? Allowed: complete, geometric, grid,
dpcrowd --graph file                | unknown graph 'file'. Allowed: complete, geometric, grid, random, ring,
dpcrowd --graph nowhere.txt         | cannot read graph file 'nowhere.txt': No such file
dpcrowd --graph folder              | cannot read graph file 'folder'
dpcrowd --graph isolated.txt        | graph file 'isolated.txt': no link at server 3 of 6; number servers from 0
dpcrowd --graph empty.txt           | graph file 'empty.txt': the network file is empty; give links 'a,b[,latency_ms]'
dpcrowd --graph loop.txt            | graph file 'loop.txt': line 1: server 0 is linked to itself
dpcrowd --graph five.txt            | graph file 'five.txt': no link at server 5 of 6
dpcrowd --graph lonely.txt --servers 3 | graph file 'lonely.txt': line 3: server 2 has no link
dpcrowd --graph bytes.txt           | graph file 'bytes.txt' is not UTF-8 text
dpcrowd --graph ring --dynamic      | graph 'ring' is fixed and cannot be dynamic; these can: random,
dpcrowd --graph five.txt --servers 5 --dynamic | the network of 'five.txt' is fixed and cannot be dynamic
dpcrowd --burn-in 30                | burn-in must be a whole number from 0 to 29, since 'linear' has 30 slots; given 30
dpcrowd --burn-in -1                | burn-in must be a whole number from 0 to 29
dpcrowd --beta 1                    | beta = 1 can diverge: a server here has up to
dpcrowd --beta 0.3 --graph ring     | beta must be at most 1/(2*2) = 0.25; leave it out for the default 0.166667
dpcrowd --beta -1                   | beta must be a finite number >= 0; given -1.0
dpcrowd --beta nan                  | beta must be a finite number >= 0; given nan
dpcrowd --interval 0                | sampling interval must be a whole number of slots >= 1; given 0
dpcrowd --interval -3               | sampling interval must be a whole number of slots >= 1; given -3
dpcrowd --interval 2.5              | '--interval': '2.5' is not a whole number
bd --interval 3                     | scheme 'bd' takes no sampling interval; these do: central, fast, dfast, dpcrowd,
dpcrowd-plus --interval 3           | scheme 'dpcrowd-plus' takes no sampling interval; these do
non-private --interval 3            | scheme 'non-private' takes no sampling interval; these do
dpcrowd --sampling fixed            | sampling 'fixed' needs an interval
dpcrowd --sampling stagered --interval 3 | unknown sampling 'stagered'. Did you mean 'staggered'?
central --sampling stagered         | unknown sampling 'stagered'. Did you mean 'staggered'?
bd --sampling fixed                 | scheme 'bd' has no option 'sampling'. Allowed: none
dpcrowd --sampling staggered --interval 3 --users roaming | staggered sampling is for pinned users; with roaming users
dpcrowd --accounting per-regin      | unknown accounting 'per-regin'. Did you mean 'per-region'? Allowed: per-region,
dpcrowd --users roming              | unknown kind of users 'roming'. Did you mean 'roaming'? Allowed: pinned, roaming
dpcrowd --observation papper        | unknown observation 'papper'. Did you mean 'paper'? Allowed: binomial, paper
dpcrowd --shares partitoin          | unknown kind of shares 'partitoin'. Did you mean 'partition'? Allowed: equal,
dpcrowd --shares halves             | Allowed: equal, partition, per-slot, uniform. One number per server, or a CSV
dpcrowd --shares 0.5,x              | --shares is '0.5,x'; allowed: numbers, separated by commas
relay --share-width -1              | --share-width -1.0; allowed: from 0 (shares are right) to 1
relay --share-width=-.5             | --share-width -0.5; allowed: from 0 (shares are right) to 1
relay --share-width 2               | --share-width 2.0; allowed: from 0 (shares are right) to 1
relay --share-width 1e-200          | --share-width 1e-200; allowed: from 0 (shares are right) to 1, and not between
relay --share-width -x              | unknown option '-x'
dpcrowd --form matrx                | unknown form 'matrx'. Did you mean 'matrix'? Allowed: diagonal, matrix
dpcrowd --out runs.txt              | cannot write a table to 'runs.txt'; allowed endings: .csv, .parquet
dpcrowd --out nowhere/runs.csv      | cannot write 'runs.csv': the folder 'nowhere' does not exist
dpcrowd --out folder.csv            | cannot write 'folder.csv'
dpcrowd --plot errors.gif           | cannot draw to 'errors.gif'; allowed endings: .png, .svg, .pdf
dpcrowd --plot nowhere/errors.png   | cannot write 'errors.png': the folder 'nowhere' does not exist
dpcrowd --plot folder.png           | cannot write 'folder.png'
dpcrowd --epsion 1                  | unknown option '--epsion'. Did you mean '--epsilon'? See 'dpcrowd simulate --help'
dpcrowd --xyzzy                     | unknown option '--xyzzy'. See 'dpcrowd simulate --help'
dpcrowd --epsilon                   | '--epsilon' requires an argument
dpcrowd fast                        | unexpected extra argument (fast). See 'dpcrowd simulate --help'
"""
CASES = [tuple(part.strip() for part in line.split(" | ")) for line in TABLE.strip().splitlines()]


def _refusal(capsys: pytest.CaptureFixture[str], words: list[str]) -> str:
    """The line that the command line refuses these words with."""
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == "", "nothing on standard output"
    assert err.count("\n") == 1, "exactly one line"
    assert err.endswith("\n")
    assert err.startswith("dpcrowd: error: ")
    assert len(err) < 400
    return err


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with files that have something wrong with them."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "bytes.txt").write_bytes(b"0,1\n\xff\xfe")
    for name in ("folder", "folder.csv", "folder.png"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("given", "text"), CASES, ids=[given for given, _ in CASES])
def test_a_mistake_gets_one_clear_line(given: str, text: str, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """A traceback, several lines, or a line that does not say what is allowed sends people to the source."""
    scheme, *more = given.split()
    words = tiny_words(scheme, *more)
    if "--data" in more and "--slots" not in more and not {"linear", "multi-linear"} & set(more):
        words.remove("--slots")
        words.remove("30")
    before = sorted(folder.iterdir())
    assert text in _refusal(capsys, words)
    assert sorted(folder.iterdir()) == before, "a refusal leaves no file behind"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["simulat"],
            f"unknown command 'simulat'. Did you mean 'simulate'? Allowed: {COMMANDS}.",
        ),
        (["xyzzy"], f"unknown command 'xyzzy'. Allowed: {COMMANDS}."),
        (["--verion"], "unknown option '--verion'. Did you mean '--version'? See 'dpcrowd --help'."),
        (["simulate"], "Missing option '--scheme'. See 'dpcrowd simulate --help'."),
        (["simulate", "--scheme", ""], "no scheme was given; allowed: non-private,"),
        (["simulate", "--scheme"], "'--scheme' requires an argument."),
        (["schemes", "--jsn"], "unknown option '--jsn'. Did you mean '--json'? See 'dpcrowd schemes --help'."),
        (["schemes", "fast"], "unexpected extra argument (fast). See 'dpcrowd schemes --help'."),
        (["fit", "counts.csv", "--source", "x", "--season", "month"], "or a whole number of slots of at least 2."),
        (["data", "fluu"], "unknown data set 'fluu'. Did you mean 'flu'?"),
        (["data", "flights", "--seed", "3", "--out", "x.csv"], "--seed and --run are for synthetic data sets"),
        (["data", "flu", "--data-dir", "folder"], "without --data-dir (--out folder puts it there)"),
        (["fit", "flu", "--source", "x", "--releases"], "'flu' is a data set of counts; give a table of releases"),
        (["fit", "counts.csv", "--source", "x", "--releases", "--round"], "--round is for counts, not for --releases"),
        (["simulate", "--scheme", "past", "--data", "counts.csv", "--epsilon", "-1"], "epsilon"),
        (
            ["simulate", "--scheme", "dpcrowd", "--tuning", "a.toml", "--tuning", "b.toml"],
            "given 2 times; give it once",
        ),
        (["plan", "--model", "a.toml", "--model", "b.toml"], "given 2 times; give it once"),
    ],
)
def test_other_commands_refuse_in_the_same_way(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One form for all commands, so that scripts can rely on it."""
    assert text in _refusal(capsys, words)


def test_a_file_that_cannot_be_written_is_refused_before_the_simulation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An hour later would be too late."""
    from dpcrowd.sim import simulate as simulate_module

    def late(*arguments: object, **settings: object) -> None:
        raise AssertionError("the simulation was started")

    monkeypatch.setattr(simulate_module, "simulate", late)
    for option in (["--out", "folder.csv"], ["--plot", "folder.png"]):
        assert "cannot write" in _refusal(capsys, tiny_words("dpcrowd", *option))


def test_a_message_does_not_control_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a file of somebody else says is quoted in messages: an escape sequence in it would erase them."""
    (tmp_path / "model.toml").write_text('"\\u001b[2K\\u202e" = 1\n', encoding="utf-8")
    words = ["simulate", "--scheme", "past", "--data", "linear", "--model", str(tmp_path / "model.toml")]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.rstrip("\n").isprintable()
    assert r"\x1b[2K\u202e" in error
