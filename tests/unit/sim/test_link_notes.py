"""Notes on links that do not connect all servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcrowd.sim.configure import configure
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.link_notes import filters_needed, link_notes, slow_notes

SETTINGS: dict[str, Any] = {
    **{"servers": 30, "density": 0.08, "window": 10, "shares": "partition", "observation": "binomial"},
    **{"hops_per_slot": "all", "share_width": 0.1},
}


@pytest.mark.parametrize(
    ("other", "said"),
    [({}, True), ({"density": 0.5}, False), ({"share_width": 0.0}, False)],
    ids=str,
)
def test_learned_shares_over_links_that_fall_apart_are_slow(other: dict[str, Any], said: bool) -> None:
    """A simulation took 66 s instead of 4 s, and nobody knew that it was the graph."""
    data = counts_from_array(np.random.default_rng(0).poisson(50, (20, 2)))
    notes = link_notes(configure("relay", data, **{**SETTINGS, **other}))
    assert bool(notes) == said
    assert all("the links do not connect all servers" in note for note in notes)


@pytest.mark.parametrize(
    ("scheme", "other", "said"),
    [
        ("relay", {}, True),
        ("relay,dpcrowd-w", {"share_width": 0.0}, True),
        ("relay", {"density": 0.5}, False),
        ("fast", {"share_width": 0.0, "window": None}, False),
    ],
    ids=str,
)
def test_links_that_stay_and_connect_not_all_are_named(scheme: str, other: dict[str, Any], said: bool) -> None:
    """Errors were ten times as large, with the advice to let links stay, and nothing said why."""
    data = counts_from_array(np.random.default_rng(0).poisson(50, (20, 2)))
    settings = {**SETTINGS, "density": 0.05, "dynamic": False, "runs": 3, **other}
    if scheme == "fast":
        settings.pop("hops_per_slot")
    notes = link_notes(configure(scheme.split(","), data, **settings))
    assert bool(notes) == said
    if said:
        assert notes[0].startswith(f"{', '.join(scheme.split(','))}: the links stay, and in 3 of 3 runs")
        assert "--density" in notes[0]


def test_a_file_has_no_density(tmp_path: Path) -> None:
    """What to do has to be possible with the graph that was given."""
    file = tmp_path / "links.csv"
    file.write_text("0,1\n1,2\n3,4\n", encoding="utf-8")
    data = counts_from_array(np.random.default_rng(0).poisson(50, (20, 2)))
    (note,) = link_notes(configure(["relay", "central"], data, graph=file, window=10))
    assert note.startswith("relay: the links stay"), "the central server hears everybody"
    assert note.endswith("Add links to the file.")


def test_how_long_it_takes_is_said_beforehand() -> None:
    """A graph that falls apart in one slot of ten took minutes, and nothing said so before or after."""
    data = counts_from_array(np.random.default_rng(0).poisson(50, (300, 1)))
    config = configure("relay", data, **{**SETTINGS, "density": 0.13})
    (note,) = slow_notes(config)
    assert "--density" in note
    assert not slow_notes(configure("relay", data, **{**SETTINGS, "density": 0.5}))


def test_filters_never_become_the_same_again() -> None:
    """Servers that have missed different records have learned different things of shares for good."""
    everybody, one_apart = np.zeros(4, dtype=np.int64), np.array([0, 0, 1, 0])
    assert filters_needed([everybody, one_apart, everybody]) == 2
    assert filters_needed([one_apart, everybody, np.array([1, 0, 0, 0])]) == 3
    assert filters_needed([everybody] * 3) == 1
