"""A network.toml as the graph of a simulation or a plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.config.samples import sample_network
from dpcrowd.sim.configure import configure
from dpcrowd.sim.network_file import read_network_file
from dpcrowd.sim.planner.plan import plan
from dpcrowd.sim.planner.toml import write_plan


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


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The path is what was mistyped."""
    with pytest.raises(BadInput, match=r"cannot read network file .*no\.toml"):
        plan(500, process_var=4, graph=tmp_path / "no.toml")
