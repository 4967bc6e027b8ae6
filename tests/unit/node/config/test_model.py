"""A process model in network.toml: public, with a source, and part of what servers have to agree on."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.models.file import write_model
from dpcrowd.models.model import LONGEST_SOURCE
from dpcrowd.node.build import view_of
from dpcrowd.node.config import NetworkConfig, digest, load_network, parse_network
from dpcrowd.node.config.read import network_text
from dpcrowd.node.config.revision import check_next
from dpcrowd.node.config.samples import sample_network
from dpcrowd.node.live.status import network_status
from dpcrowd.node.wire import plausible_sample
from dpcrowd.schemes.messages import InfoMessages
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.fit import fit


def write(
    folder: Path, *, source: str = "the town's own survey", name: str = "model.toml", seed: int = 0, **more: Any
) -> Path:
    """A network whose file names a model beside it."""
    text = sample_network(3, **more)
    regions = parse_network(text).regions
    counts = np.random.default_rng(seed).poisson(50, (60, len(regions)))
    model = fit(counts_from_array(counts, regions=regions), source=source)
    write_model(model, folder / name)
    path = folder / "network.toml"
    lines = [f'model = "{name}"' if line.startswith("process_var") else line for line in text.splitlines()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_servers_know_the_model(tmp_path: Path) -> None:
    """A live server that ignored it would start from nothing, and its estimates would be those of a random walk."""
    network = load_network(write(tmp_path))
    setting = network.setting(network.servers[0].name)
    assert setting.model.course is not None
    assert setting.model.course.mean(0) == pytest.approx(50, abs=5)
    assert setting.learn
    assert "fitted on published data" in network.promise()
    assert "the town's own survey" in network.promise()


def test_the_state_of_a_node_names_the_model_and_its_source(tmp_path: Path) -> None:
    """Doctor and budget print the assertion; whoever reads /v1/network alone would not know that there is a model."""
    network = load_network(write(tmp_path))
    name = network.servers[0].name
    status = network_status(network, name, set(), {}, Counter(), {}, network.clock().opens(3))
    assert network.fitted is not None
    assert (status.model_data, status.model_source) == (network.fitted.data, "the town's own survey")
    plain = parse_network(sample_network(3))
    status = network_status(plain, name, set(), {}, Counter(), {}, plain.clock().opens(3))
    assert (status.model_data, status.model_source) == (None, None)


def test_its_content_is_part_of_the_digest(tmp_path: Path) -> None:
    """Two servers with different models would disagree for ever; another layout of the file is no difference."""
    path = write(tmp_path)
    before = digest(load_network(path))
    model = tmp_path / "model.toml"
    model.write_text("# a comment\n" + model.read_text(encoding="utf-8"), encoding="utf-8")
    assert digest(load_network(path)) == before
    other = tmp_path / "other"
    other.mkdir()
    assert digest(load_network(write(other, seed=1))) != before


def test_a_copy_is_complete(tmp_path: Path) -> None:
    """The copy of a revision in the data folder has no model file beside it."""
    path = write(tmp_path)
    network, text = load_network(path), network_text(path)
    (tmp_path / "model.toml").unlink()
    assert digest(parse_network(text)) == digest(network)


def test_a_model_without_a_source_is_refused(tmp_path: Path) -> None:
    """Fitted on raw check-ins of protected people, it would be a release that nobody has paid for."""
    path = write(tmp_path)
    model = tmp_path / "model.toml"
    text = model.read_text(encoding="utf-8")
    no_text = "'source' of .*model.toml is .*; allowed: a text"
    for source, why in (('"  "', "model.toml has no source"), ("[]", no_text), ("0", no_text), ("false", no_text)):
        model.write_text(text.replace('"the town\'s own survey"', source), encoding="utf-8")
        with pytest.raises(BadInput, match=f"scheme.model: .*{why}"):
            load_network(path)


def test_a_source_that_is_a_book_is_quoted_in_part(tmp_path: Path) -> None:
    """Earlier versions wrote it: a network that runs has to go on, with a promise of which one can read the rest."""
    exact = load_network(path := write(tmp_path, source="x" * LONGEST_SOURCE)).promise()
    assert f'"{"x" * LONGEST_SOURCE}"' in exact
    model = tmp_path / "model.toml"
    model.write_text(model.read_text(encoding="utf-8").replace("xxx", "xxxx", 1), encoding="utf-8")
    network = load_network(path)
    assert network.fitted is not None
    assert network.fitted.source == "x" * (LONGEST_SOURCE + 1), "the file says all of it"
    assert f'"{"x" * (LONGEST_SOURCE - 1)}…"' in network.promise()
    with pytest.raises(BadInput, match="has 501 characters; allowed: 500"):
        write(tmp_path, source="x" * (LONGEST_SOURCE + 1))


def test_the_promise_quotes_the_operators_and_says_when_they_are_right(tmp_path: Path) -> None:
    """A source that admits raw check-ins stood as an example of data that cost nothing."""
    promise = load_network(write(tmp_path, source="raw check-ins of last week")).promise()
    assert 'in their own words: "raw check-ins of last week". This is true only if' in promise
    assert "a release that nobody has paid for" in promise


def with_population(network: NetworkConfig, population: int) -> NetworkConfig:
    return msgspec.structs.replace(network, general=msgspec.structs.replace(network.general, population=population))


@pytest.mark.parametrize(("scheme", "regions_per_slot"), [("relay", 1), ("relay", 3), ("dpcrowd-w", 1)])
def test_a_model_is_questioned_where_records_are_refused(scheme: str, regions_per_slot: int, tmp_path: Path) -> None:
    """A model of 398 people beside a population of 392 was said to be wrong in every log, and nothing was refused. A
    user who counts in three regions lets a record be three times as large."""
    options: dict[str, Any] = {} if scheme == "dpcrowd-w" else {"samples": 10, "reach": "all", "interval": None}
    options |= {"regions_per_slot": regions_per_slot}
    network = load_network(write(tmp_path, scheme=scheme, **options))
    course = network.setting(network.servers[0].name).model.course
    assert course is not None
    for population in range(1, 8):
        one = with_population(network, population)
        view = view_of(one, one.servers[0].name, lambda *parts: b"")
        if view.records is None:
            ones = np.ones((1, len(one.regions)))
            sample = InfoMessages(
                np.ones(1, dtype=np.bool_), course.profile[:1] * 1e9, ones * 1e9, ones, ones.astype(np.bool_)
            )
            refused = not plausible_sample(sample, population)
        else:
            margin = -view.records.least  # for noise
            refused = not view.records.is_plausible(one.shares.max() * course.profile[0] + margin)
        assert any("refused as absurd" in text for text in one.warnings()) == refused


def test_levels_and_variances_that_cannot_be_are_noted(tmp_path: Path) -> None:
    """A model of another town, or one that was written by hand, would be used without a word."""
    path = write(tmp_path)
    network = load_network(path)
    assert not [text for text in network.warnings() if "model" in text and ("population" in text or "= 0" in text)]
    assert not [text for text in with_population(network, 150).warnings() if "population" in text], "200 are expected"
    tiny = with_population(network, 1)
    assert any(
        "estimates of up to 52 people in region" in text and "more than 10 are refused" in text
        for text in tiny.warnings()
    )
    model = tmp_path / "model.toml"
    flat = re.sub(r"\nvariance = [0-9.e-]+", "\nvariance = 0.0", model.read_text(encoding="utf-8"))
    model.write_text(flat, encoding="utf-8")
    assert any(f"variance = 0 in {network.regions[0]}" in text for text in load_network(path).warnings())


def test_what_does_not_fit_is_one_clear_line(tmp_path: Path) -> None:
    """A missing file, other regions, or two kinds of variance: the line says which setting it is."""
    path = write(tmp_path)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('model = "model.toml"', 'model = "model.toml"\nprocess_var = 5.0'), encoding="utf-8")
    with pytest.raises(BadInput, match=r"scheme.process_var: given beside a model"):
        load_network(path)
    path.write_text(text.replace("model.toml", "modl.toml"), encoding="utf-8")
    with pytest.raises(BadInput, match=r"modl.toml: cannot be read"):
        load_network(path)
    for content, fault in (("", "is empty"), ("season", "is not a process model")):
        (tmp_path / "modl.toml").write_text(content, encoding="utf-8")
        with pytest.raises(BadInput, match=rf"scheme.model: 'modl.toml' {fault}; give a file that 'dpcrowd fit' wrote"):
            load_network(path)
    region = parse_network(sample_network(3)).regions[0]
    path.write_text(text.replace(f'"{region}"', '"elsewhere"', 1), encoding="utf-8")
    with pytest.raises(BadInput, match=r"scheme.model: the model has no region 'elsewhere'"):
        load_network(path)


@pytest.mark.parametrize("name", ['"""model.toml"""', "'''model.toml'''", "'model.toml'", '"model.toml"  # ours'])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_its_name_may_be_in_any_quotation_marks(tmp_path: Path, name: str, mark: str) -> None:
    """The text of the file takes the place of its name: half a name that stayed was reported as a broken file."""
    path, model = write(tmp_path), tmp_path / "model.toml"
    before = digest(load_network(path))
    model.write_text(mark + model.read_text(encoding="utf-8"), encoding="utf-8")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"model.toml"', name), encoding="utf-8")
    assert digest(load_network(path)) == before
    path.write_text(text.replace('"model.toml"', '"""\nmodel.toml"""'), encoding="utf-8")
    with pytest.raises(BadInput, match=r'scheme.model: write it as a line of its own in \[scheme\]: model = "model'):
        load_network(path)


@pytest.mark.parametrize(
    ("content", "fault"), [("[model\n", " is not TOML"), ("[scores]\n", " has no section"), ("[mdel]\n", "'mdel'")]
)
def test_a_broken_model_file_is_named_by_its_path(tmp_path: Path, content: str, fault: str) -> None:
    """'the model' is not a file that an operator could open, and several networks may have one of the same name."""
    path, model = write(tmp_path), tmp_path / "model.toml"
    model.write_text(content, encoding="utf-8")
    with pytest.raises(BadInput, match=r"scheme\.model: ") as refused:
        load_network(path)
    assert str(model) in str(refused.value)
    assert fault in str(refused.value)


def test_a_model_without_times_is_warned_of(tmp_path: Path) -> None:
    """A season of slots hangs on the epoch: everything may be off by half a day, and nobody would know why."""
    path = write(tmp_path)
    (warning,) = [text for text in load_network(path).warnings() if "the model" in text]
    assert "the model has no slot length" in warning
    model = tmp_path / "model.toml"
    regions = load_network(path).regions
    counts = np.random.default_rng(0).poisson(50, (40, len(regions)))
    write_model(fit(counts_from_array(counts, regions=regions), source="a survey", season=4), model)
    texts = [text for text in load_network(path).warnings() if "a season of 4 slots and no times" in text]
    assert len(texts) == 1
    assert "begin at the epoch, 20" in texts[0], "a date, not a number of nanoseconds"


def test_learning_that_changes_nothing_is_warned_of(tmp_path: Path) -> None:
    """Servers that leave it out refuse those that write it, and no digest says why; and a matrix does not learn."""
    path = write(tmp_path)
    text = path.read_text(encoding="utf-8")
    plain = load_network(path)
    assert not [one for one in plain.warnings() if "learn" in one]
    path.write_text(text.replace('model = "', 'learn = true\nmodel = "'), encoding="utf-8")
    stated = load_network(path)
    assert stated.setting(stated.servers[0].name).learn == plain.setting(plain.servers[0].name).learn
    assert digest(stated) != digest(plain), "networks of earlier versions keep their digest"
    (warning,) = [one for one in stated.warnings() if "learn" in one]
    assert "learn = true means the same as leaving it out" in warning
    text = text.replace("turnover = 0.05", "turnover = 1.0")  # which a matrix does not know
    path.write_text(text.replace('model = "', 'learn = true\nform = "matrix"\nmodel = "'), encoding="utf-8")
    (warning,) = [one for one in load_network(path).warnings() if "learn" in one]
    assert warning == 'learn = true has no effect with form = "matrix", in which servers do not learn; leave it out.'


def test_groups_that_the_model_rules_out_are_warned_of(tmp_path: Path) -> None:
    """Nothing is joined without a correlation: an operator would take records of single regions for groups."""
    path = write(tmp_path, scheme="relay", groups="auto")
    network = load_network(path)
    assert network.fitted is not None
    assert network.fitted.region_correlation is not None
    assert not [one for one in network.warnings() if "groups" in one]
    write_model(replace(network.fitted, region_correlation=None), tmp_path / "model.toml")
    network = load_network(path)
    (warning,) = [one for one in network.warnings() if "groups" in one]
    assert "joins no regions, since the model has no region_correlation" in warning
    assert "Fit it on public counts" in warning
    status = network_status(network, network.servers[0].name, set(), {}, Counter(), {}, network.clock().opens(3))
    assert (status.groups, status.region_correlation) == ("auto", None)


def test_a_revision_may_add_a_model(tmp_path: Path) -> None:
    """Whoever has run a network for a while can fit a model on its releases: that must not need a new network."""
    path = write(tmp_path)
    later = path.read_text(encoding="utf-8").replace("revision = 1", "revision = 2\nvalid_from_slot = 10")
    path.write_text(later, encoding="utf-8")
    check_next(parse_network(sample_network(3)), load_network(path))


@pytest.mark.parametrize("name", ["../model.toml", "/etc/passwd", "a/../../model.toml", ".."])
def test_a_model_outside_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    """network.toml comes from somebody else, and had any file of this machine opened and quoted in an error."""
    (tmp_path / "net").mkdir()
    path = write(tmp_path / "net")
    (tmp_path / "net" / "model.toml").rename(tmp_path / "model.toml")
    path.write_text(path.read_text(encoding="utf-8").replace('"model.toml"', json.dumps(name)), encoding="utf-8")
    with pytest.raises(
        BadInput, match=r"scheme\.model: \".*\" is not beside network.toml; copy the model into the folder"
    ):
        load_network(path)
    if name == "../model.toml":
        assert "[[region]]" in network_text(path, is_plan=True), "a plan is made where it is read"


def test_a_model_in_a_folder_of_its_own_is_taken(tmp_path: Path) -> None:
    """It is part of what somebody has copied together with network.toml."""
    path = write(tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "model.toml").rename(tmp_path / "models" / "one.toml")
    before = path.read_text(encoding="utf-8")
    path.write_text(before.replace('"model.toml"', '"models/one.toml"'), encoding="utf-8")
    assert load_network(path).fitted is not None


def test_what_is_not_a_file_is_not_opened(tmp_path: Path) -> None:
    """`doctor` waited for ever for somebody to write into a pipe."""
    path = write(tmp_path)
    (tmp_path / "model.toml").unlink()
    os.mkfifo(tmp_path / "model.toml")
    with pytest.raises(BadInput, match=r'scheme.model: "model.toml" is not a regular file; copy the model'):
        load_network(path)
    path.write_text(path.read_text(encoding="utf-8").replace('"model.toml"', '""'), encoding="utf-8")
    with pytest.raises(BadInput, match=r'scheme.model: "" is not the name of a file; copy the model'):
        load_network(path)
