"""A network.toml as the graph of a simulation or a plan."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.config.samples import sample_network
from dpcrowd.sim.configure import configure
from dpcrowd.sim.network_file import read_network_file
from dpcrowd.sim.planner.adopt import adopt_settings
from dpcrowd.sim.planner.plan import plan
from dpcrowd.sim.planner.toml import write_plan


@pytest.mark.slow
def test_the_network_of_live_servers_can_be_simulated_and_planned(tmp_path: Path) -> None:
    """Whoever has a network wants to know what another epsilon would give in it."""
    file = tmp_path / "network.toml"
    file.write_text(sample_network(5), encoding="utf-8")
    network = read_network_file(file)
    assert network.links == ((0, 1), (1, 2), (2, 3), (3, 4), (4, 0))
    assert network.shares == (0.2,) * 5
    assert configure("dpcrowd", graph=file).servers == 5
    planned = plan(5000, process_var=100, graph=file, window=24, epsilons=[1.0])
    assert planned.shares == (0.2,) * 5
    assert planned.servers == 5
    again = plan(5000, process_var=100, graph=write_plan(planned, tmp_path / "p.toml"), window=24, epsilons=[1.0])
    assert (again.samples, again.reach, again.error) == (planned.samples, planned.reach, planned.error)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = ", "is not TOML"),
        ("", r"has no \[\[server\]\]"),
        ('server = "a"', r"must be tables \[\[server\]\]"),
        ('[[server]]\nname = "a"\n[[server]]\nname = "a"\n[[link]]\nbetween = ["a", "b"]', "need different names"),
        ('[[server]]\nname = "a"\n[[link]]\nbetween = ["a"]', r"between = \['a'\]; allowed: the names of two servers"),
        ('[[server]]\nname = "a"\n[[link]]\nbetween = ["a", "c"]', "unknown server in a"),
        ('[[server]]\nname = "a"\n[[link]]\nbetween = ["a", "a"]\nuntil_slot = 5', "give a file whose links stay"),
        ('[[server]]\nname = "a"\n[[link]]\nbetween = ["a", "a"]', "server 0 is linked to itself"),
    ],
)
def test_files_without_a_graph_are_refused(text: str, words: str, tmp_path: Path) -> None:
    """Half a network would be simulated as if it were all of it."""
    file = tmp_path / "network.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=words):
        configure("dpcrowd", graph=file)


def _sample(folder: Path, **settings: Any) -> Path:
    file = folder / "network.toml"
    usual = {"scheme": "relay", "samples": 2, "reach": 1, "lag": 7, "slot": "15m", "length": 24, "epsilon": "0.5"}
    usual |= {"regions": ["north", "south"], "process_var": [400.0, 25.0], "users": "roaming"}
    file.write_text(sample_network(3, **{**usual, **settings}), encoding="utf-8")
    return file


def _without_turnover(file: Path) -> Path:
    """Make it a file of an earlier version, which states no turnover."""
    kept = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("turnover")]
    file.write_text("\n".join(kept), encoding="utf-8")
    return file


def test_a_plan_of_a_network_has_its_settings(tmp_path: Path) -> None:
    """Otherwise a plan of a running network would be one of another network, with another promise."""
    file = _sample(tmp_path)
    planned = plan([5000, 800], graph=file, advice=False, epsilons=[1.0])
    request, guarantee = planned.request, planned.guarantee
    assert (guarantee.kind, guarantee.length, float(guarantee.epsilon), guarantee.users) == (
        "window",
        24,
        0.5,
        "roaming",
    )
    assert (request.slot, request.lag, planned.samples, planned.reach) == (900.0, 7, 2, 1)
    assert (request.levels.regions, request.levels.process_var) == (("north", "south"), (400.0, 25.0))
    assert planned.observation == "binomial"
    assert planned.promise.startswith("Pure 24-event"), "shares of 0.333333 are a partition, so nothing limits it"
    assert len([remark for remark in planned.remarks if remark.startswith("taken from")]) == 1
    assert not any("this plan has" in remark for remark in planned.remarks)
    written = write_plan(planned, tmp_path / "plan.toml").read_text(encoding="utf-8")
    assert 'between = ["server-1", "server-2"]' in written
    assert "Names of servers are placeholders" not in written


def test_what_is_given_besides_a_network_is_taken_and_named(tmp_path: Path) -> None:
    """Neither the file nor the option may be ignored silently."""
    file = _sample(tmp_path)
    settings = {"epsilon": 2.0, "horizon": 30, "process_var": 9, "shares": [0.5, 0.2, 0.3]}
    planned = plan({"centre": 700}, graph=file, advice=False, epsilons=[1.0], **settings)
    assert (planned.guarantee.kind, float(planned.guarantee.epsilon)) == ("finite", 2.0)
    assert (planned.shares, planned.request.levels.process_var) == ((0.5, 0.2, 0.3), (9.0,))
    said = next(remark for remark in planned.remarks if remark.startswith("this plan has horizon"))
    assert "horizon 30, epsilon 2, process_var 9, shares 0.5,0.2,0.3" in said
    assert f"but '{file}' has window 24, epsilon 0.5, process_var 400,25, shares 0.333333" in said
    assert f"this plan has other regions (1), but '{file}' has north, south." in planned.remarks


def test_a_remark_on_many_shares_stays_short(tmp_path: Path) -> None:
    """A line with the shares of a thousand servers would hide all others."""
    file = tmp_path / "network.toml"
    file.write_text(sample_network(10), encoding="utf-8")
    _, remarks = adopt_settings(read_network_file(file), {"shares": "uniform"})
    assert f"this plan has shares uniform, but '{file}' has shares 0.1,0.1,0.1,0.1,0.1,…." in remarks


def test_a_finite_network_and_an_interval_are_understood(tmp_path: Path) -> None:
    """Live networks may state the same things in these other words."""
    file = _sample(tmp_path, kind="finite", slot="1500ms", samples=None)
    text = (
        file.read_text(encoding="utf-8")
        .replace("samples = 10", "")
        .replace('name = "relay"', 'name = "relay"\ninterval = 6')
    )
    file.write_text(text, encoding="utf-8")
    settings = read_network_file(file).settings
    assert (settings["horizon"], settings["slot"], settings["samples"]) == (24, 1.5, 4)
    file.write_text(text.replace('epsilon = "0.5"', 'epsilon = "much"'), encoding="utf-8")
    with pytest.raises(BadInput, match=r"a setting of '.*network\.toml' is wrong: .*much"):
        read_network_file(file)


def test_a_simulation_takes_the_shares_of_a_network(tmp_path: Path) -> None:
    """Drawn shares are those of another network, in which epsilon means something else."""
    file = _sample(tmp_path)
    config = configure("relay", graph=file, slots=30)
    assert np.allclose(config.shares, 1 / 3)
    assert config.observation == "binomial"
    assert any(f"shares are those of '{file}'" in note for note in config.data.notes)
    drawn = configure("relay", graph=file, slots=30, shares="uniform")
    assert drawn.shares == "uniform"
    assert not any("shares are those" in note for note in drawn.data.notes)


def test_a_table_of_shares_under_the_wrong_name_is_refused(tmp_path: Path) -> None:
    """Shares would be drawn at random instead of those that the file has."""
    file = tmp_path / "network.toml"
    servers = "".join(f'[[server]]\nname = "{name}"\nshare = {{ north = 0.5 }}\n' for name in "ab")
    file.write_text(f'{servers}[[link]]\nbetween = ["a", "b"]\n', encoding="utf-8")
    with pytest.raises(BadInput, match=r"share of server 'a' in .* is a table; .* belong in 'shares', beside 'share'"):
        read_network_file(file)


@pytest.mark.parametrize("learn", [True, False, None])
def test_a_network_that_learns_is_simulated_and_planned_as_one(learn: bool | None, tmp_path: Path) -> None:
    """`dpcrowd init` writes learn = true; its simulation did not learn, and a new plan of the network forgot it."""
    file, counts = _sample(tmp_path, learn=learn), np.full((30, 2), 500)
    config = configure("relay", counts, graph=file, window=10, samples=2)
    assert [config.learn_of(entrant) for entrant in config.entrants] == [learn is True]
    assert configure("relay", counts, graph=file, window=10, samples=2, learn=not learn).learn is not learn
    planned = plan(5000, process_var=100, graph=file, window=24, epsilons=[1.0])
    text = write_plan(planned, tmp_path / "p.toml").read_text(encoding="utf-8")
    assert ("learn = true" in text, "learn = false" in text) == (learn is True, learn is False)


def test_a_simulation_takes_what_the_file_says_of_users_regions_and_shares(tmp_path: Path) -> None:
    """A simulation of a network whose servers know that users stay, or learn shares, would be one of other servers."""
    file = _sample(tmp_path)
    extra = 'name = "relay"\nturnover = 0.02\nshare_width = 0.1\ngroups = "auto"'
    file.write_text(file.read_text(encoding="utf-8").replace('name = "relay"', extra), encoding="utf-8")
    counts = np.full((30, 2), 500)
    config = configure("relay,uniform", counts, graph=file, window=10, samples=2, groups="off")
    assert (config.turnover, config.share_width) == (0.02, 0.1)
    assert config.entrants[0].scheme.groups == "off", "what was given counts"  # type: ignore[attr-defined]
    assert f"also taken from '{file}': turnover 0.02, share_width 0.1." in config.data.notes
    alone = configure("uniform", counts, graph=file, window=10, users="roaming")
    assert (alone.turnover, alone.share_width) == (1.0, 0.0)
    unused = [note for note in alone.data.notes if "is not used here" in note]
    assert len(unused) == 3
    assert any("turnover 0.02" in note and "pinned users" in note for note in unused)
    for choice in ({"observation": "paper"}, {"form": "matrix"}, {"groups": "auto"}):
        other = configure("relay", counts, graph=file, window=10, samples=2, **({"groups": "off"} | choice))
        assert other.share_width == 0.0
        assert any("share_width 0.1" in note and "is not used here" in note for note in other.data.notes)
    learning = configure("relay", counts, graph=file, window=10, samples=2, share_width=0.2)
    assert learning.entrants[0].scheme.groups == "off", "they do not go together, and the width was given"  # type: ignore[attr-defined]
    explicit = configure("relay", counts, graph=file, window=10, samples=2, turnover=0.3, share_width=0.0)
    assert (explicit.turnover, explicit.share_width) == (0.3, 0.0)
    assert explicit.entrants[0].scheme.groups == "auto"  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", ["1e-300", "1e-160", "-0.1", "7.0"])
def test_a_share_width_that_no_filter_can_use_is_refused(width: str, tmp_path: Path) -> None:
    """Its square is 0: the first slot would end with an error of a matrix that is not positive definite."""
    file = _sample(tmp_path)
    text = file.read_text(encoding="utf-8").replace('name = "relay"', f'name = "relay"\nshare_width = {width}')
    file.write_text(text, encoding="utf-8")
    for use in (
        lambda: configure("relay", np.full((30, 2), 500), graph=file, window=10, samples=2),
        lambda: plan([400.0, 300.0], graph=file, epsilons=[1.0], advice=False),
        lambda: configure("relay", np.full((30, 2), 500), window=10, samples=2, share_width=float(width)),
    ):
        with pytest.raises(BadInput, match=r"share_width=.*; allowed: from 0 \(shares are right\) to 1"):
            use()


def test_meetings_of_a_file_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    """A live node refuses them: a plan or a simulation would be one of a network that does not start."""
    file = _sample(tmp_path, users="pinned")
    text = file.read_text(encoding="utf-8")
    learning = text.replace('name = "relay"', 'name = "relay"\nshare_width = 0.1\nmeetings = true')
    for wrong, words in (
        (learning.replace("share_width = 0.1\n", ""), "there is no share_width"),
        (learning.replace('"relay"', '"dpcrowd-w"'), "the scheme is 'dpcrowd-w'"),
        (learning.replace("[guarantee]", '[guarantee]\nusers = "roaming"'), "users are 'roaming'"),
    ):
        file.write_text(wrong, encoding="utf-8")
        with pytest.raises(BadInput, match=rf"scheme.meetings of .* is true, but {words}"):
            read_network_file(file)
    file.write_text(learning, encoding="utf-8")
    assert read_network_file(file).meetings
    roaming = configure("relay", np.full((30, 2), 500), graph=file, window=10, samples=2, users="roaming")
    assert not roaming.meetings, "they sample in the same slots"


def test_a_plan_for_a_network_of_another_scheme_says_so(tmp_path: Path) -> None:
    """What is predicted is relay's; whoever runs another scheme would take it for theirs."""
    file = _sample(tmp_path)
    assert not any("is relay's" in remark for remark in adopt_settings(read_network_file(file), {})[1])
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('name = "relay"', 'name = "dpcrowd-w"'), encoding="utf-8")
    remarks = plan(level=[500, 300], graph=file, advice=False, epsilons=[1.0]).remarks
    assert f"'{file}' has scheme 'dpcrowd-w'; what is predicted here is relay's." in remarks


def test_a_simulation_says_what_the_file_states_otherwise(tmp_path: Path) -> None:
    """Another epsilon, window or number of samples than the network's was simulated without a word."""
    file = _sample(tmp_path, samples=10, reach="all", lag=16, users="pinned")
    counts = np.full((60, 2), 500)
    (note,) = [note for note in configure("relay", counts, graph=file).data.notes if "this simulation has" in note]
    assert "horizon 60, epsilon 1, process_var of the data, samples" in note
    assert f"but '{file}' has window 24, epsilon 0.5, process_var 400,25, samples 10" in note
    assert "hops_per_slot 1" in note
    same: dict[str, Any] = {"epsilon": 0.5, "window": 24, "samples": 10, "reach": "all", "hops_per_slot": "all"}
    agreed = configure("relay", counts, graph=file, process_var=np.array([400.0, 25.0]), **same)
    assert not any("this simulation has" in note for note in agreed.data.notes)


@pytest.mark.slow
def test_a_file_without_a_turnover_is_named_where_users_stay(tmp_path: Path) -> None:
    """A simulation whose filters know that users stay promised intervals that live servers of the file do not have."""
    counts = np.full((20, 4), 500)
    file = _without_turnover(_sample(tmp_path, reach="all", users="pinned"))
    settings: dict[str, Any] = {"graph": file, "window": 10, "samples": 2}

    def notes(scheme: str = "relay", **more: Any) -> list[str]:
        found = configure(scheme, counts, **{**settings, **more}).data.notes
        return [note for note in found if "states no turnover" in note]

    assert len(notes()) == 1
    assert notes(turnover=1.0) == []
    _sample(tmp_path, reach="all", users="pinned")
    assert notes() == []


def test_a_plan_takes_the_turnover_of_a_file(tmp_path: Path) -> None:
    """Whose servers know that users stay has other errors, and other samples are best; without one they do not know."""
    file = _without_turnover(_sample(tmp_path, users="pinned"))
    text = file.read_text(encoding="utf-8").replace('name = "relay"', 'name = "relay"\nturnover = 0.02')
    levels, few = [500, 200], {"epsilons": [1.0], "advice": False}
    fresh = plan(levels, graph=file, **few)
    file.write_text(text, encoding="utf-8")
    staying = plan(levels, graph=file, **few)
    assert (fresh.request.turnover, staying.request.turnover) == (1.0, 0.02)
    assert ["states no turnover" in " ".join(one.remarks) for one in (fresh, staying)] == [True, False]
    assert staying.error != fresh.error
    again = plan(levels, graph=write_plan(staying, tmp_path / "p.toml"), **few)
    assert (again.request.turnover, again.error) == (0.02, pytest.approx(staying.error, rel=1e-4))
    assert plan(levels, graph=file, users="roaming", **few).request.turnover == 1.0
    file.write_text(text.replace("turnover = 0.02", 'turnover = "2%"'), encoding="utf-8")
    with pytest.raises(BadInput, match=r"scheme\.turnover of '.*' is '2%'; allowed: a number"):
        plan(levels, graph=file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The path is what was mistyped."""
    with pytest.raises(BadInput, match=r"cannot read network file .*no\.toml"):
        plan(500, process_var=4, graph=tmp_path / "no.toml")


def test_a_plan_does_not_recommend_groups_to_servers_that_learn_shares(tmp_path: Path) -> None:
    """Whoever followed the plan got a network.toml that its servers refuse."""
    file = tmp_path / "network.toml"
    text = sample_network(4).replace('name = "dpcrowd-w"', 'name = "relay"')
    level = dict.fromkeys(tomllib.loads(text)["network"]["regions"], 1.0)
    settings: dict[str, Any] = {"process_var": 2.0, "graph": file, "window": 20, "epsilons": [1.0], "advice": False}
    file.write_text(text, encoding="utf-8")
    assert any("groups" in remark for remark in plan(level, **settings).remarks)
    file.write_text(text.replace("[scheme]", "[scheme]\nshare_width = 0.1"), encoding="utf-8")
    planned = plan(level, **settings)
    assert planned.groups is None
    assert not any("groups" in remark for remark in planned.remarks)


def test_a_plan_lets_servers_that_learn_shares_meet(tmp_path: Path) -> None:
    """Where groups of servers take turns, the shares of a group cannot be told from a move of the crowd."""
    file = tmp_path / "network.toml"
    text = sample_network(8).replace('name = "dpcrowd-w"', 'name = "relay"\nsamples = 10').replace("interval = 1", "")
    level = dict.fromkeys(tomllib.loads(text)["network"]["regions"], 2000.0)
    settings: dict[str, Any] = {"process_var": 900.0, "graph": file, "window": 40, "epsilons": [1.0], "advice": False}
    file.write_text(text, encoding="utf-8")
    assert not plan(level, **settings).request.meetings
    file.write_text(text.replace("[scheme]", "[scheme]\nshare_width = 0.1"), encoding="utf-8")
    free = plan(level, **{**settings, "window": 39})  # whose number of samples is not that of the file
    assert free.request.meetings
    assert free.summary()["meetings"]
    assert any("meetings = true" in remark for remark in free.remarks)
    assert not any("never sample together" in remark for remark in free.remarks)
    fixed = plan(level, **settings, samples=10)
    (never,) = [remark for remark in fixed.remarks if "never sample together" in remark]
    assert "The nearest number with which all servers meet is " in never
    written = write_plan(free, tmp_path / "p.toml")
    document = tomllib.loads(written.read_text(encoding="utf-8"))
    assert (document["scheme"]["meetings"], document["scheme"]["samples"]) == (True, free.samples)
    again = plan(level, **{**settings, "graph": written, "window": 39})
    assert again.request.meetings
    assert not any("meetings = true" in remark for remark in again.remarks), "the file has it"
    roaming = plan(level, **settings, users="roaming")
    assert not roaming.request.meetings
    file.write_text(text.replace("[scheme]", "[scheme]\nmeetings = 1"), encoding="utf-8")
    with pytest.raises(BadInput, match=r"scheme\.meetings of '.*' is 1; allowed: true or false"):
        plan(level, **settings)


def test_a_simulation_of_a_file_has_the_phases_of_the_live_network(tmp_path: Path) -> None:
    """A network that runs without meetings is simulated so, whoever names the width."""
    file = tmp_path / "network.toml"
    text = (
        sample_network(4).replace('name = "dpcrowd-w"', 'name = "relay"\nshare_width = 0.1').replace("interval = 1", "")
    )
    data = np.full((30, 4), 500)
    for stated, width, expected in (("", None, False), ("meetings = true", None, True), ("", 0.1, False)):
        file.write_text(text.replace("[scheme]", f"[scheme]\n{stated}"), encoding="utf-8")
        assert configure("relay", data, graph=file, window=20, share_width=width).meetings is expected
    file.write_text(text.replace("share_width = 0.1", ""), encoding="utf-8")
    assert configure("relay", data, graph=file, window=20, share_width=0.1).meetings, "the file does not speak of it"


def test_the_turnover_of_any_scheme_is_taken(tmp_path: Path) -> None:
    """Live servers know it with every scheme, so that a simulation without it would have other intervals."""
    file = tmp_path / "network.toml"
    text = sample_network(3, scheme="dpcrowd-w", regions=["north", "south"])
    file.write_text(text.replace("turnover = 0.05", "turnover = 0.5"), encoding="utf-8")
    config = configure("dpcrowd-w", [[500, 80]] * 30, graph=file, window=10, regions=["north", "south"])
    assert config.turnover == 0.5
    assert any("also taken from" in note and "turnover 0.5" in note for note in config.data.notes)
    _without_turnover(file)
    notes = configure("dpcrowd-w", [[500, 80]] * 30, graph=file, window=10, regions=["north", "south"]).data.notes
    assert any("states no turnover" in note for note in notes), "its servers would not know that users stay"
