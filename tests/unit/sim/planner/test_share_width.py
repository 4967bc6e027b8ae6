"""Plans of servers that learn shares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dpcrowd
from dpcrowd.cli.main import main
from dpcrowd.errors import BadInput
from dpcrowd.node.config import load_network
from dpcrowd.node.config.samples import sample_network
from dpcrowd.sim.planner.toml import toml_text

QUICK: dict[str, Any] = {"epsilons": [1.0], "advice": False}
RING: dict[str, Any] = {"process_var": 9.0, "servers": 3, "graph": "ring", "window": 24, **QUICK}


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """A network that learns shares, with groups that it cannot have beside them."""
    file = tmp_path / "network.toml"
    known: dict[str, Any] = {"scheme": "relay", "samples": 6, "reach": "all", "interval": None}
    text = sample_network(4, regions=["a", "b"], process_var=[50.0, 50.0], share_width=0.2, **known)
    file.write_text(text, encoding="utf-8")
    return file


def test_a_share_width_can_be_planned_without_a_network_file() -> None:
    """The page on shares says that a plan writes `meetings` beside it, and no option wrote either."""
    result = dpcrowd.plan([300.0, 80.0], share_width=0.1, **RING)
    assert (result.share_width, result.reach, result.request.meetings) == (0.1, "all", True)
    assert "share_width = 0.1\nmeetings = true" in toml_text(result)
    (remark,) = (remark for remark in result.remarks if "learn them" in remark)
    assert remark.startswith("servers assume that shares are wrong by about 10%")
    for none in (None, 0.0):
        plain = dpcrowd.plan([300.0, 80.0], share_width=none, **RING)
        assert plain.share_width is None
        assert "meetings" not in toml_text(plain)


def test_servers_whose_users_roam_do_not_meet() -> None:
    """A roaming user who was counted at two servers in the slot of a meeting would pay twice in one slot."""
    roaming = dpcrowd.plan([300.0, 80.0], share_width=0.1, users="roaming", **RING)
    assert (roaming.share_width, roaming.request.meetings) == (0.1, False)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"reach": 1}, r"share_width=0.1 cannot be planned: records travel 1 hop"),
        ({"shares": "uniform"}, "every user at one server"),
        ({"observation": "paper"}, "observation binomial"),
        ({"share_width": 2}, r"share_width=2; allowed: from 0 \(shares are right\) to 1"),
        ({"share_width": 1e-9}, "where there would be nothing to learn"),
        ({"share_width": True}, "a number such as 0.1"),
    ],
)
def test_a_share_width_that_no_network_can_use_is_refused(settings: dict[str, Any], words: str) -> None:
    """The width of a file is left out with a remark; whoever asks for one would not look for that."""
    with pytest.raises(BadInput, match=words):
        dpcrowd.plan([300.0, 80.0], **{"share_width": 0.1, **RING, **settings})


def test_a_share_width_that_is_given_replaces_that_of_the_file(network: Path) -> None:
    """As every other number of a plan, and a remark names both."""
    kept = dpcrowd.plan([400.0, 300.0], graph=network, **QUICK)
    other = dpcrowd.plan([400.0, 300.0], graph=network, share_width=0.1, **QUICK)
    none = dpcrowd.plan([400.0, 300.0], graph=network, share_width=0.0, **QUICK)
    assert [plan.share_width for plan in (kept, other, none)] == [0.2, 0.1, None]
    assert not any("this plan has share_width" in remark for remark in kept.remarks)
    assert f"this plan has share_width 0.1, but '{network}' has 0.2." in other.remarks
    assert f"this plan has share_width 0, but '{network}' has 0.2." in none.remarks
    text = network.read_text(encoding="utf-8").replace("share_width = 0.2", 'groups = "auto"')
    network.write_text(text, encoding="utf-8")
    grouped = dpcrowd.plan([400.0, 300.0], graph=network, share_width=0.1, **QUICK)
    assert grouped.groups is None
    assert f"groups of '{network}' are left out: they need shares that are known." in grouped.remarks
    assert "groups" not in toml_text(grouped)


def test_the_option_needs_no_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in `dpcrowd simulate`: the next option is not taken for its number."""
    file, words = tmp_path / "plan.toml", ["plan", "--level", "300,80", "--process-var", "9", "--servers", "3"]
    words += ["--graph", "ring", "--window", "24", "--epsilons", "1", "--slot", "1m"]
    assert main([*words, "--share-width", "--toml", str(file)]) == 0
    assert main(["init", str(tmp_path / "net"), "--plan", str(file)]) == 0
    method = load_network(tmp_path / "net" / "network.toml").method
    assert (method.share_width, method.meetings, method.reach) == (0.1, True, "all")
    capsys.readouterr()
    assert main([*words, "--share-width", "-1"]) == 2
    assert "--share-width -1.0; allowed: from 0" in capsys.readouterr().err
    assert main([*words, "--share-width", "--reach", "1"]) == 2
    assert "--share-width 0.1 cannot be planned: records travel 1 hop" in capsys.readouterr().err
