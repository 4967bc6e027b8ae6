"""Shares from a CSV file, and simulations whose shares differ by region."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.config.samples import sample_network
from dpcrowd.sim.configure import configure
from dpcrowd.sim.data.draw import draw_run
from dpcrowd.sim.data.observe import observe
from dpcrowd.sim.data.share_file import read_shares
from dpcrowd.sim.data.shares import checked_shares, is_partition
from dpcrowd.sim.planner.plan import plan
from dpcrowd.sim.planner.toml import toml_text
from dpcrowd.sim.simulate import simulate

LINES = "server,region,share\na,north,0.6\na,south,0.1\nb,north,0.4\nb,south,0.9\n"
BY_REGION = [[0.6, 0.1], [0.4, 0.9]]


def written(folder: Path, text: str) -> Path:
    file = folder / "shares.csv"
    file.write_text(text, encoding="utf-8")
    return file


def series(folder: Path) -> Path:
    file = folder / "counts.csv"
    rows = "".join(f"{slot},{500 + 10 * (slot % 3)},{80 + slot % 5}\n" for slot in range(30))
    file.write_text(f"slot,north,south\n{rows}", encoding="utf-8")
    return file


def test_every_pair_of_server_and_region_has_its_share(tmp_path: Path) -> None:
    """Columns in another order, or servers by number, would otherwise give one server's share to another one."""
    shares = read_shares(written(tmp_path, LINES)).shares(None, ["south", "north"])
    assert shares.tolist() == [[[0.1, 0.6], [0.9, 0.4]]]
    named = read_shares(written(tmp_path, LINES)).shares(["b", "a"], ["north", "south"])
    assert named.tolist() == [[[0.4, 0.9], [0.6, 0.1]]]
    numbered = written(tmp_path, "share,server\n0.3,1\n0.7,0\n")
    assert read_shares(numbered).shares(None, ["x"]).tolist() == [0.7, 0.3]


def test_shares_that_are_the_same_in_all_regions_are_one_per_server(tmp_path: Path) -> None:
    """Groups and a composition were refused, because the shares would differ by region, which they do not."""
    text = "server,region,share\na,north,0.6\na,south,0.6\nb,north,0.4\nb,south,0.4\n"
    assert read_shares(written(tmp_path, text)).shares(None, ["south", "north"]).tolist() == [0.6, 0.4]
    assert checked_shares([[0.6, 0.6], [0.4, 0.4]], 2, 30, 2).tolist() == [0.6, 0.4]


@pytest.mark.parametrize("text", ["server;share\na;0.25\nb;0,75\n", "server\tshare\na\t0.25\nb\t0.75\n"])
def test_cells_are_separated_as_in_files_of_counts(text: str, tmp_path: Path) -> None:
    """A spreadsheet writes counts and shares alike; only the counts could be read."""
    assert read_shares(written(tmp_path, text)).shares(None, ["x"]).tolist() == [0.25, 0.75]


def test_rounded_shares_are_a_partition(tmp_path: Path) -> None:
    """Three servers with a third each, written with six decimals, would otherwise overlap."""
    file = written(tmp_path, "server,share\na,0.333333\nb,0.333333\nc,0.333333\n")
    assert is_partition(read_shares(file).shares(None, ["x"]))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"shares.csv' is empty; expected a header, server,share or server,region,share"),
        (" \n\n", "is empty; expected a header"),
        ("server,region\na,north\n", "columns server,region; allowed"),
        ("server,share\n", "no shares below its header"),
        ("server,share\na\n", "line 2 has 1 cell; allowed: 2"),
        ("server,share\na,much\n", "line 2 has the share 'much'; allowed: a number above 0"),
        ("server,share\na,1.5\n", "line 2 has the share 1.5; allowed: above 0 and at most 1"),
        ("server,share\na,0\n", "give a small share such as 0.0001"),
        ("server,share\na,0.1\na,0.2\n", "line 3 has a second share of server 'a'"),
        (LINES + "a,west,0.1\nb,west,0.1\n", "unknown region 'west'"),
        (LINES.replace("b,south,0.9\n", ""), "no share of server 'b' in region 'south'"),
        (LINES + "c,north,0.1\n", "unknown server 'c'. Did you mean 'a'|unknown server 'c'"),
    ],
)
def test_wrong_files_are_refused_with_their_line(text: str, words: str, tmp_path: Path) -> None:
    """A wrong share is found by its line, not by a strange estimate."""
    with pytest.raises(BadInput, match=words):
        read_shares(written(tmp_path, text)).shares(["a", "b"], ["north", "south"])


def test_an_overlap_in_which_one_region_sums_to_one_can_be_simulated(tmp_path: Path) -> None:
    """It was refused, and an overlap of all regions was not; a note says now what is assumed."""
    shares = read_shares(written(tmp_path, LINES.replace("0.9", "0.95"))).shares(["a", "b"], ["north", "south"])
    assert np.allclose(shares.sum(axis=1), [[1.0, 1.05]])


def test_a_simulation_follows_the_file(tmp_path: Path) -> None:
    """Counts that followed other shares than the filters know would be a bias that no filter can see."""
    config = configure("relay", series(tmp_path), shares=written(tmp_path, LINES), window=10, burn_in=0)
    assert config.servers == 2
    assert np.array_equal(config.shares, [BY_REGION])
    run = draw_run(config.data, seed=0, run=0, servers=2, shares=config.shares, observation="binomial", turnover=0.05)
    assert run.partition
    assert (run.counts.sum(axis=1) == run.truth).all()
    assert np.allclose(run.counts.sum(axis=0) / run.truth.sum(axis=0), BY_REGION, atol=0.1)
    with pytest.raises(BadInput, match="the given shares do already"):
        draw_run(config.data, seed=0, run=0, servers=2, shares=config.shares, observation="binomial", composition=5.0)


def test_another_number_of_servers_is_refused_with_the_name_of_the_file(tmp_path: Path) -> None:
    """The message spoke of the shape of an array, which nobody had given."""
    file = written(tmp_path, "server,share\na,0.5\nb,0.3\nc,0.2\n")
    words = "shares.csv' has shares of 3 servers, but the simulation has 4, by --servers .*; give a share for each"
    with pytest.raises(BadInput, match=words):
        configure("relay", series(tmp_path), shares=file, servers=4)
    links = tmp_path / "links.txt"
    links.write_text("0,1\n1,2\n2,3\n", encoding="utf-8")
    with pytest.raises(BadInput, match=r"the simulation has 4, by '.*links.txt'; .* or simulate 3"):
        configure("relay", series(tmp_path), shares=file, graph=links)
    assert configure("relay", series(tmp_path), shares=file, servers=3, window=10, burn_in=0).servers == 3


@pytest.mark.parametrize("kind", ["paper", "binomial"])
@pytest.mark.parametrize("turnover", [0.2, 1.0])
def test_servers_that_overlap_have_shares_by_region(kind: str, turnover: float) -> None:
    """Users who are at several servers are drawn by each server's own shares."""
    truth = np.full((40, 2), 1000)
    shares = np.array([[[0.5, 0.1], [0.8, 0.3], [0.9, 0.7]]])
    counts = observe(kind, truth, shares, np.ones(2), np.random.default_rng(0), turnover=turnover)
    assert np.allclose(counts.mean(axis=0) / 1000, shares[0], atol=0.05)


@pytest.mark.parametrize("shares", [[0.2, 0.3, 0.5], [0.4, 0.9, 0.7]])
@pytest.mark.slow
def test_shares_that_are_the_same_in_all_regions_change_nothing(shares: list[float]) -> None:
    """One number per server is the special case, in every scheme that filters or averages, bit for bit."""
    counts = np.random.default_rng(0).poisson([300, 40], (24, 2)).tolist()
    settings: dict[str, Any] = {"servers": 3, "runs": 1, "window": 10, "burn_in": 5, "turnover": 0.1}
    schemes = ["relay", "dpcrowd-plus", "central", "drescuedp", "dkalman-uniform", "dba", "dpegasus"]
    one = simulate(schemes, counts, shares=shares, observation="binomial", **settings).summary()
    by_region = np.repeat(np.array(shares)[:, None], 2, axis=1)
    same = simulate(schemes, counts, shares=by_region, observation="binomial", **settings).summary()
    for mine, theirs in zip(one, same, strict=True):
        assert (mine["mae"], mine["coverage95"]) == (theirs["mae"], theirs["coverage95"]), mine["scheme"]


def test_shares_that_may_mean_two_things_are_refused() -> None:
    """Three slots of three servers, or three servers in three regions?"""
    with pytest.raises(BadInput, match="one per slot and server, or one per server and region"):
        configure("relay", [[5, 5, 5]] * 3, servers=3, shares=np.full((3, 3), 0.1), window=2, burn_in=0)
    with pytest.raises(BadInput, match="share of server 1 in region 0 is 2; allowed"):
        checked_shares([[0.5, 0.5], [2.0, 0.5]], 2, 9, 2)


def test_a_plan_and_its_network_have_shares_by_region(tmp_path: Path) -> None:
    """A server that sees most of one region and little of another has other errors in each."""
    settings: dict[str, Any] = {"process_var": 25.0, "window": 10, "epsilons": [1.0], "graph": "complete"}
    levels = {"north": 500, "south": 80}
    planned = plan(levels, shares=written(tmp_path, LINES), **settings)
    assert planned.servers == 2
    assert planned.shares_by_region == ((0.6, 0.1), (0.4, 0.9))
    assert planned.shares[0] == pytest.approx((0.6 * 500 + 0.1 * 80) / 580)
    equal = plan(levels, servers=2, shares="equal", **settings)
    assert planned.regions[1].deviation != equal.regions[1].deviation
    assert 'shares = { "north" = 0.6, "south" = 0.1 }' in toml_text(planned)


def test_a_simulation_takes_the_shares_by_region_of_a_network(tmp_path: Path) -> None:
    """What live servers use is what a simulation of their network has to use."""
    file = tmp_path / "network.toml"
    by_region = {"a": {"north": 0.6, "south": 0.1}, "b": {"north": 0.4, "south": 0.9}}
    settings: dict[str, Any] = {"regions": ["north", "south"], "shares": {"a": 0.5, "b": 0.5}}
    file.write_text(sample_network(["a", "b"], shares_by_region=by_region, **settings), encoding="utf-8")
    config = configure("relay", series(tmp_path), graph=file, window=10, burn_in=0)
    assert np.array_equal(config.shares, [BY_REGION])
    planned = plan({"north": 500, "south": 80}, process_var=25.0, graph=file, epsilons=[1.0])
    assert planned.shares_by_region == ((0.6, 0.1), (0.4, 0.9))
