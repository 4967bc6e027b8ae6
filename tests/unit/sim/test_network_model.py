"""The process model of a network.toml: taken by simulations, by plans and by the network that a plan becomes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcrowd.cli.main import main
from dpcrowd.errors import BadInput
from dpcrowd.models.file import read_model
from dpcrowd.node.config import load_network
from dpcrowd.node.config.samples import sample_network
from dpcrowd.schemes.prediction import predicted_deviation
from dpcrowd.sim.configure import configure
from dpcrowd.sim.data.counts import write_counts
from dpcrowd.sim.fit import fit
from dpcrowd.sim.network_file import read_network_file
from dpcrowd.sim.planner.plan import plan
from dpcrowd.sim.planner.toml import toml_text, write_plan

REGIONS = ["hall", "park"]
HOURS = 96
QUICK: dict[str, Any] = {"epsilons": [1.0], "advice": False}


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with hourly counts, a model of them, and a network of four servers that names it."""
    folder = tmp_path_factory.mktemp("town")
    rng = np.random.default_rng(0)
    daily = 1.0 + 0.5 * np.sin(2 * np.pi * np.arange(HOURS) / 24)
    labels = [f"{np.datetime64('2026-01-05T00:00') + np.timedelta64(hour, 'h')}:00Z" for hour in range(HOURS)]
    write_counts(folder / "counts.csv", rng.poisson(np.outer(daily, [400, 30])), REGIONS, labels, "time")
    fit(folder / "counts.csv", source="the town's own survey", season="day", out=folder / "model.toml")
    text = sample_network(
        4,
        scheme="relay",
        slot="1h",
        length=48,
        epsilon="0.5",
        regions=["park", "hall"],  # another order than that of the model
        samples=2,
        reach="all",
        model="model.toml",
    )
    (folder / "network.toml").write_text(text, encoding="utf-8")
    return folder


def edited(town: Path, folder: Path, old: str, new: str, name: str = "network.toml") -> Path:
    """Return the network file of a copy of the town in which one text is another one."""
    copy = folder / "copy"
    shutil.copytree(town, copy)
    text = (copy / name).read_text(encoding="utf-8")
    assert old in text
    (copy / name).write_text(text.replace(old, new), encoding="utf-8")
    return copy / "network.toml"


def simulation(town: Path, graph: Path, **settings: Any) -> Any:
    return configure("relay", town / "counts.csv", graph=graph, window=48, runs=1, **settings)


def test_a_simulation_takes_the_model(town: Path) -> None:
    """A simulation of a network with a model would otherwise show the errors of servers that know nothing."""
    config = simulation(town, town / "network.toml")
    assert config.fitted is not None
    assert config.fitted.source == "the town's own survey"
    assert config.learn
    assert config.data.model.course is not None
    assert any("process model is that of" in note for note in config.data.notes)
    alone = configure("relay", town / "counts.csv", servers=4, model=town / "model.toml", window=48, runs=1)
    assert (config.data.model.course.profile == alone.data.model.course.profile).all()


def test_what_is_given_wins_and_a_note_says_so(town: Path, tmp_path: Path) -> None:
    """Whoever compares a network with and without its model has to see which of them a result is about."""
    graph = town / "network.toml"
    without = simulation(town, graph, model="none")
    assert without.fitted is None
    assert not without.learn
    assert any("is not used: model=none" in note for note in without.data.notes)
    walk = simulation(town, graph, process_var=9.0)
    assert walk.fitted is None
    assert any("because of the given process_var" in note for note in walk.data.notes)
    other = tmp_path / "other.toml"
    shutil.copy(town / "model.toml", other)
    assert any("which was given, instead of" in note for note in simulation(town, graph, model=other).data.notes)
    assert not any("instead of" in note for note in simulation(town, graph, model=town / "model.toml").data.notes)
    fitted = read_model(other)
    assert simulation(town, graph, model=fitted).fitted is fitted


def test_learning_of_the_file_is_taken_with_its_model(town: Path, tmp_path: Path) -> None:
    """A network that does not learn would be simulated as one that does."""
    graph = edited(town, tmp_path, 'model = "model.toml"', 'learn = false\nmodel = "model.toml"')
    assert not simulation(town, graph).learn
    assert simulation(town, graph, learn=True).learn
    assert simulation(town, graph, model=town / "model.toml").learn
    assert plan(graph=graph, **QUICK).model.learn is False  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("model.toml", "the town's own survey", " ", "model.toml has no source.*dpcrowd fit --source TEXT"),
        ("network.toml", '"hall"', '"attic"', "has no region 'attic'; it has 'hall', 'park'"),
        ("network.toml", 'slot = "1h"', 'slot = "30m"', "fitted on slots of 1h, but slots are 30m long"),
        ("network.toml", '"model.toml"', '"modl.toml"', r"cannot read model file '.*modl\.toml'"),
        ("network.toml", 'model = "model.toml"', 'process_var = 3\nmodel = "model.toml"', "given beside a model"),
        ("network.toml", '"model.toml"', "4", "scheme.model of .* is 4; allowed: the name of a file"),
        ("network.toml", 'model = "', 'learn = 4\nmodel = "', "scheme.learn of .* is 4; allowed: true or false"),
    ],
)
def test_a_model_that_a_node_refuses_is_refused(
    name: str, old: str, new: str, words: str, town: Path, tmp_path: Path
) -> None:
    """A result for a network that no server would start shows nothing."""
    graph = edited(town, tmp_path, old, new, name)
    with pytest.raises(BadInput, match=words):
        simulation(town, graph)
    with pytest.raises(BadInput, match=words):
        plan(graph=graph, **QUICK)
    with pytest.raises(BadInput):
        load_network(graph)


def test_data_of_other_regions_are_refused_with_a_way_out(town: Path) -> None:
    """The links of a network are simulated with any data; then its model has to be left out, knowingly."""
    with pytest.raises(BadInput, match=r"does not fit the data: .* or none \(--model none\)"):
        configure("relay", "linear", graph=town / "network.toml", runs=1)
    assert configure("relay", "linear", graph=town / "network.toml", runs=1, model="none").fitted is None


def test_the_text_of_a_model_in_the_file_is_read_too(town: Path, tmp_path: Path) -> None:
    """A node keeps copies of network.toml in which the text of the model stands in the place of its name."""
    text = (town / "model.toml").read_text(encoding="utf-8")
    graph = edited(town, tmp_path, '"model.toml"', f"'''\n{text}'''")
    assert read_network_file(graph).model_path is None
    assert simulation(town, graph).fitted is not None
    planned = plan(graph=graph, **QUICK)
    assert planned.model is not None
    assert "process model that has no file" in toml_text(planned)


def test_a_plan_takes_the_model_with_the_regions_of_the_file(town: Path) -> None:
    """A plan with another order of regions would give the shares and errors of one region to another."""
    planned = plan(graph=town / "network.toml", **QUICK)
    assert [region.region for region in planned.regions] == ["park", "hall"]
    assert planned.regions[1].level > planned.regions[0].level
    assert planned.summary()["model"] == "model.toml"
    alone = plan(
        model=town / "model.toml", shares=[0.25] * 4, graph="ring", window=48, epsilon=0.5, slot="1h", samples=2,
        reach="all", **QUICK,
    )  # fmt: skip
    assert planned.regions[0].error == pytest.approx(alone.regions[1].error, rel=1e-9)
    assert any("process model is that of" in remark for remark in planned.remarks)


def test_levels_replace_the_model_of_the_file(town: Path) -> None:
    """Half of a model and half of what was given would be a plan for nobody's crowd."""
    graph = town / "network.toml"
    walk = plan([30, 400], process_var=9, graph=graph, **QUICK)
    assert walk.model is None
    assert any("because of the given level and process_var" in remark for remark in walk.remarks)
    with pytest.raises(BadInput, match=r"has a process model instead of one; leave the levels out \(--level\)"):
        plan([30, 400], graph=graph, **QUICK)
    with pytest.raises(BadInput, match="the expected level of each region is missing"):
        plan(graph=graph, model="none", **QUICK)


def test_a_model_of_other_slots_or_regions_is_not_planned_silently(town: Path, tmp_path: Path) -> None:
    """Levels of an hour would be taken for those of a quarter of an hour."""
    with pytest.raises(BadInput, match="fitted on slots of 1h, but slots are 15m long"):
        plan(model=town / "model.toml", slot="15m", servers=4, **QUICK)
    graph = edited(town, tmp_path, '"park", "hall"', '"attic", "hall"')
    planned = plan(model=town / "model.toml", graph=graph, **QUICK)
    assert any("this plan has other regions (2), but" in remark for remark in planned.remarks)


def test_a_network_made_from_a_plan_predicts_what_was_planned(
    town: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the model, servers would start from nothing, and reach a fraction of what the plan promises."""
    (tmp_path / "plans").mkdir()
    file, made = tmp_path / "plans" / "plan.toml", tmp_path / "net"
    words = ["--model", str(town / "model.toml"), "--servers", "4", "--graph", "ring", "--window", "48", "--slot", "1h"]
    assert main(["plan", *words, "--epsilon", "0.5", "--epsilons", "1", "--toml", str(file)]) == 0
    assert main(["init", str(made), "--plan", str(file)]) == 0
    assert f"{made / 'model.toml'} is the process model" in capsys.readouterr().out
    network = load_network(made / "network.toml")
    assert network.fitted is not None
    assert network.method.process_var is None
    planned = plan(graph=made / "network.toml", **QUICK)
    facts = network._public_facts("all")
    assert network.relay is not None
    deviation = predicted_deviation(facts, [network.relay.samples_per(48)])[0]
    assert deviation == pytest.approx([region.deviation for region in planned.regions], rel=1e-9)
    text = file.read_text(encoding="utf-8")
    assert "process_var" not in text
    assert "deviation = [{:.6g}, {:.6g}]".format(*deviation) in text


def test_a_plan_has_the_slots_of_its_model(town: Path, tmp_path: Path) -> None:
    """It was planned with one hop per slot and reach 1, and the file had no slot, though servers accept one only."""
    settings: dict[str, Any] = {"servers": 4, "graph": "ring", "window": 48, **QUICK}
    bare, given = (plan(model=town / "model.toml", slot=slot, **settings) for slot in (None, "1h"))
    assert (bare.request.slot, bare.request.hops_per_slot, bare.reach) == (3600.0, "all", given.reach)
    assert toml_text(bare, tmp_path) == toml_text(given, tmp_path)
    assert [remark for remark in bare.remarks if remark not in given.remarks] == ["taken from model.toml: slots of 1h."]


def test_init_checks_the_model_of_a_plan(town: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A network that no server would load must not be written."""
    copy = tmp_path / "copy"
    shutil.copytree(town, copy)
    settings: dict[str, Any] = {"servers": 4, "graph": "ring", "window": 48, **QUICK}
    file = write_plan(plan(model=copy / "model.toml", **settings), copy / "plan.toml")
    assert main(["init", str(tmp_path / "net"), "--plan", str(file), "--slot", "30m"]) == 2
    assert f"--slot is 30m, but '{file}' has slots of 1h" in capsys.readouterr().err
    earlier = file.read_text(encoding="utf-8").replace('slot = "1h"\n', "")  # plans did not know the model's slot
    file.write_text(earlier, encoding="utf-8")
    assert main(["init", str(tmp_path / "net"), "--plan", str(file), "--slot", "30m"]) == 2
    assert "--slot is 30m, but the model " in capsys.readouterr().err
    assert main(["init", str(tmp_path / "earlier"), "--plan", str(file)]) == 0
    assert load_network(tmp_path / "earlier" / "network.toml").general.slot == 3600 * 10**9
    capsys.readouterr()
    model = copy / "model.toml"
    model.write_text(model.read_text(encoding="utf-8").replace("the town's own survey", ""), encoding="utf-8")
    assert main(["init", str(tmp_path / "net"), "--plan", str(file), "--slot", "1h"]) == 2
    assert f"--plan {file}: scheme.model: {model} has no source" in capsys.readouterr().err
    model.unlink()
    assert main(["init", str(tmp_path / "net"), "--plan", str(file), "--slot", "1h"]) == 2
    assert "scheme.model: " in capsys.readouterr().err
    assert not (tmp_path / "net").exists()


def test_a_plan_with_other_slots_does_not_name_the_model(town: Path) -> None:
    """Solved for another slot, a plan would name a model that every server refuses."""
    planned = plan(
        model=town / "model.toml", servers=4, graph="ring", window=48, slot="1h", goal="3% on average",
        solve_for="slot", **QUICK,
    )  # fmt: skip
    assert planned.request.slot != 3600
    text = toml_text(planned)
    assert "process model of slots of 1h, and has slots of" in text
    assert "\nprocess_var = " in text
    assert "\nmodel = " not in text
