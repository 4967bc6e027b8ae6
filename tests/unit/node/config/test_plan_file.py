"""The file of a plan: read as the network that it is a part of, and refused for what it lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.config.plan_file import read_plan

TEXT = """
[network]
slot = "15m"
population = 900
regions = ["north", "south"]

[guarantee]
kind = "window"
length = 96
epsilon = "0.5"

[scheme]
name = "relay"
samples = 7
reach = 2
lag = 9
process_var = [4.0, 9.5]

[plan]
error = 0.1

[[server]]
name = "server-1"
share = 0.6

[[server]]
name = "server-2"
share = 0.4

[[link]]
between = ["server-1", "server-2"]
"""


def written(folder: Path, text: str = TEXT) -> Path:
    file = folder / "plan.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_plan_is_a_network_with_placeholders(tmp_path: Path) -> None:
    """What the plan says is kept, and what it cannot know does not keep it from being checked."""
    plan = read_plan(written(tmp_path))
    assert plan.names == ("server-1", "server-2")
    assert plan.has_slot
    assert plan.network.method.samples == 7
    assert plan.network.method.process_var == (4.0, 9.5)
    assert plan.network.guarantee().epsilon == 0.5
    assert not read_plan(written(tmp_path, TEXT.replace('slot = "15m"\n', ""))).has_slot


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "[plan]\nerror = 0.1\n",
            "",
            "plan.toml: not a plan, since it has no table [plan]; write one with `dpcrowd plan",
        ),
        ("[plan]\nerror = 0.1\n", "plan = 3\n", "not valid TOML|not a plan"),
        (
            '[[link]]\nbetween = ["server-1", "server-2"]\n',
            "",
            "has no [[link]], since the planned network draws its links",
        ),
        ("share = 0.6", "share = 1.6", "plan.toml: server[0].share (of 'server-1'): given 1.6; allowed: above 0"),
        ("samples = 7", "samples = 97", "97 samples in 96 slots; allowed: at most one per slot"),
        ("reach = 2", 'reach = "far"', "scheme.reach"),
        ("[4.0, 9.5]", "[4.0]", "allowed: one number, or 2, one per region"),
        ("population = 900", "population = -1", "network.population"),
        ('[network]\nslot = "15m"\n', "network = 3\n[other]\n", "plan.toml"),
        ("[network]", "[netwrok]", "netwrok"),
    ],
)
def test_a_wrong_plan_is_one_line_with_its_name(old: str, new: str, words: str, tmp_path: Path) -> None:
    """The error has to name the plan and its setting, not a network.toml that does not exist yet."""
    assert old in TEXT
    with pytest.raises(BadInput) as refused:
        read_plan(written(tmp_path, TEXT.replace(old, new)))
    assert any(part in str(refused.value) for part in words.split("|"))
    assert "\n" not in str(refused.value)


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    """A mistyped name is not a traceback."""
    with pytest.raises(BadInput, match="cannot be read"):
        read_plan(tmp_path / "missing.toml")
