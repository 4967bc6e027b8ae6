"""What a plan says of groups of small regions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpcrowd
from dpcrowd.node.config.samples import sample_network
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.planner.groups import GroupsPlan
from dpcrowd.sim.planner.toml import toml_text

NETWORK: dict[str, Any] = {"servers": 4, "density": 1.0, "window": 20, "advice": False, "epsilons": [1.0]}


def test_groups_are_recommended_where_they_help() -> None:
    """The choice that matters most for many small regions: what to do is true, as `plan` has no --groups itself."""
    level = [1.0] * 12 + [500.0]
    result = dpcrowd.plan(level, process_var=[2.0] * 12 + [100.0], dynamic=False, **NETWORK)
    assert result.groups is not None
    assert result.groups.recommended == "auto"
    assert result.groups.draws < 6
    assert result.groups.grouped_error < 0.9 * result.groups.total_error
    (remark,) = (remark for remark in result.remarks if "groups" in remark)
    assert remark.endswith('. The file of --toml has groups = "auto"; in a simulation: --groups auto.')
    assert result.summary()["groups"]["recommended"] == "auto"
    assert 'groups = "auto"' in toml_text(result)


def test_large_regions_are_not_joined_and_nothing_is_said() -> None:
    """A remark on groups that would not exist would only confuse."""
    result = dpcrowd.plan([5000.0, 800.0], process_var=400, dynamic=False, **NETWORK)
    assert result.groups is not None
    assert (result.groups.recommended, result.groups.draws) == ("off", 2)
    assert result.groups.total_error == result.groups.grouped_error
    assert not any("groups" in remark for remark in result.remarks)
    assert "groups" not in toml_text(result)


def test_with_a_model_independent_regions_gain_nothing() -> None:
    """The prediction must not promise what only regions that move together can keep."""
    counts = np.random.default_rng(1).poisson(1.0, (200, 6))
    model = dpcrowd.fit(counts_from_array(counts), source="drawn for this test")
    result = dpcrowd.plan(model=model, **NETWORK)
    assert result.groups is not None
    assert (result.groups.draws, result.groups.recommended) == (6, "off"), "servers would not join them"
    assert result.groups.grouped_error == result.groups.total_error
    assert not any("groups" in remark for remark in result.remarks)


def test_with_a_model_regions_that_go_together_gain() -> None:
    """Without the correlation a plan would advise against groups wherever a model is known."""
    counts = np.random.default_rng(1).poisson(1.0, (60, 12))
    model = dpcrowd.fit(counts_from_array(counts), source="drawn for this test")
    result = dpcrowd.plan(model=replace(model, region_correlation=0.6), **NETWORK)
    assert result.groups is not None
    assert (result.groups.draws, result.groups.recommended) == (1, "auto")
    assert 0.5 < result.groups.grouped_error / result.groups.total_error < 0.99
    unknown = GroupsPlan("off", 12, 0.8561, 0.8561)
    assert unknown.remark(12, course=True) is None
    text = str(unknown.remark(12, True, "net.toml"))
    assert "does not say whether regions rise and fall together" in text
    assert "on public counts" in text, "raw counts of protected people would be an unpaid release"
    assert unknown.remark(12, True, "net.toml", 0.0) is None


def test_sums_of_all_regions_are_recommended_where_single_records_say_little() -> None:
    """Errors of a crowd that stays do not show what sums are for; a plan would advise against them."""
    rng = np.random.default_rng(2)
    counts = rng.poisson(np.linspace(2.0, 30.0, 20) * rng.gamma(60.0, 1.0 / 60.0, (300, 1)))
    model = dpcrowd.fit(counts_from_array(counts), source="drawn for this test")
    weak = dpcrowd.plan(model=model, **(NETWORK | {"servers": 20, "epsilon": 0.1, "epsilons": [0.1]}))
    assert weak.groups is not None
    assert (weak.groups.totals, weak.groups.recommended) == (1.0, "auto")
    assert weak.groups.grouped_error < 1.01 * weak.groups.total_error
    assert any("every record would have the sum of all 20 regions" in remark for remark in weak.remarks)
    assert weak.summary()["groups"]["totals"] == 1.0
    precise = dpcrowd.plan(model=model, **(NETWORK | {"epsilon": 50.0, "epsilons": [50.0]}))
    assert precise.groups is not None
    assert precise.groups.totals == 0.0
    half = GroupsPlan("auto", 20, 0.2, 0.19, in_use=True, totals=0.5).remark(20, True, "net.toml", 0.1)
    assert "'net.toml' has groups = \"auto\": every second record has the sum of all 20 regions" in str(half)


def test_the_remark_is_readable_where_groups_change_nothing_or_there_is_one_draw() -> None:
    """A reader of "1 draws of noise: 85.6% instead of 85.6%" looks for a difference that is not there."""
    same = GroupsPlan("off", 1, 0.8561, 0.8562).remark(40, course=True, correlation=0.123)
    assert same is not None
    assert "1 draw of noise, with a total error of 85.6% either way, if two regions have a correlation of 0.12" in same
    large = GroupsPlan("auto", 2, 10.74, 3.45).remark(3, course=False)
    assert large is not None
    assert "2 draws of noise: a total error of 345% of all people instead of 1,070%." in large


@pytest.mark.slow
def test_groups_of_the_file_are_not_recommended_as_new(tmp_path: Path) -> None:
    """Whoever has set groups already would look for a second setting; and the file of the plan has to keep them."""
    level, variance = [1.0] * 12 + [500.0], [2.0] * 12 + [100.0]
    text = sample_network(4, scheme="relay", regions=[f"r{k}" for k in range(13)], process_var=variance, groups="auto")
    file = tmp_path / "network.toml"
    file.write_text(text, encoding="utf-8")
    result = dpcrowd.plan(level, graph=file, epsilons=[1.0], advice=False)
    assert result.groups is not None
    assert result.groups.in_use
    (remark,) = (remark for remark in result.remarks if "of noise" in remark)
    assert 'has groups = "auto"' in remark
    assert "--groups auto" not in remark
    assert 'groups = "auto"' in toml_text(result)
    large = dpcrowd.plan([500.0] * 13, graph=file, epsilon=50.0, epsilons=[1.0], advice=False)
    assert large.groups is not None
    assert large.groups.recommended == "off"
    assert 'groups = "auto"' in toml_text(large)
    of_walk, of_model = (str(large.groups.remark(20, course, "net.toml")) for course in (False, True))
    assert "That is not worth it" in of_walk
    assert "as the model says. Compare both with" in of_model


@pytest.mark.slow
def test_the_share_width_of_the_file_is_kept(tmp_path: Path) -> None:
    """A network that learns its shares would stop doing so after a plan with another epsilon, and nobody was told."""
    file = tmp_path / "network.toml"
    text = sample_network(4, scheme="relay", regions=["a", "b"], process_var=[50.0, 50.0], share_width=0.1)
    file.write_text(text, encoding="utf-8")
    result = dpcrowd.plan([400.0, 300.0], graph=file, epsilon=2.0, epsilons=[1.0], advice=False)
    assert result.reach == "all"
    assert "share_width = 0.1" in toml_text(result)
    assert result.summary()["share_width"] == 0.1
    short = dpcrowd.plan([400.0, 300.0], graph=file, reach=1, epsilons=[1.0], advice=False)
    assert "share_width" not in toml_text(short)
    assert any("share_width 0.1 of" in remark and "(reach all)" in remark for remark in short.remarks)
