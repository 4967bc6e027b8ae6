"""A server that was started with the wrong model file: what it is told, and how it gets the right one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.models.file import model_digest, write_model
from dpcrowd.node.config import check_next, digest, load_pair
from dpcrowd.node.config.revision import differing_settings, only_model_differs
from dpcrowd.node.doctor import examine
from dpcrowd.node.live.revisions import current_revision, keep_current
from dpcrowd.node.storage import Storage
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.fit import fit
from node_support_live import write_network

EPOCH = 1_800_000_000_000_000_000
REGIONS = ["north", "south"]


def put_model(folder: Path, level: int) -> None:
    """The model file of all servers, or another one."""
    counts = np.random.default_rng(level).poisson(level, (60, len(REGIONS)))
    write_model(fit(counts_from_array(counts, regions=REGIONS), source="a survey"), folder / "model.toml")


@pytest.fixture(params=["dpcrowd-w", "relay"])
def files(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The node.toml of a server that has run with a model file."""
    put_model(tmp_path, 90)
    path = write_network(
        tmp_path,
        {"a": 0.3, "b": 0.4},
        [("a", "b")],
        epoch_ns=EPOCH,
        regions=REGIONS,
        guarantee={"kind": "window", "length": 8, "epsilon": "3"},
        scheme={"name": request.param, "model": "model.toml"},
    )["a"]
    node, network = load_pair(path)
    with Storage.open(node.data, network_id=network.id):
        keep_current(node, network)
    return path


def test_the_right_model_is_taken_if_nobody_has_accepted_the_wrong_one(files: Path) -> None:
    """Refused by all others for its model, it could not even start with the right one: its folder was lost."""
    used = load_pair(files)[1]
    put_model(files.parent, 50)
    node, network = load_pair(files)
    assert digest(used) != digest(network)
    assert only_model_differs(used, network)
    revisions = current_revision(node, network, EPOCH, -1)
    assert digest(revisions.current) == digest(network)
    assert revisions.corrected
    assert revisions.following is None
    if network.relay is None:
        assert revisions.before is not None
        assert digest(revisions.before) == digest(used), "estimates go on"
    else:
        assert revisions.before is None, "its records are its own alone: it asks its neighbours instead"
    keep_current(node, network)
    assert not current_revision(node, network, EPOCH, 5).corrected
    assert digest(current_revision(node, network, EPOCH, 5).current) == digest(network)


@pytest.mark.parametrize("heard", [0, 7, None])
def test_a_model_that_others_have_accepted_is_not_replaced(files: Path, heard: int | None) -> None:
    """Somebody has changed the file of a running network: the start has to say so, and say what has changed."""
    used = load_pair(files)[1]
    put_model(files.parent, 50)
    node, network = load_pair(files)
    with pytest.raises(BadInput, match=r"network.revision: given 1, but the model is another one") as refused:
        current_revision(node, network, EPOCH, heard)
    assert "all other settings are the same" in str(refused.value)
    with pytest.raises(BadInput, match="the model is another one"):
        check_next(used, network)


def test_nothing_but_the_model_is_taken(files: Path) -> None:
    """A changed promise under the number of the old one must be refused, whoever has accepted what."""
    used = load_pair(files)[1]
    put_model(files.parent, 50)
    path = load_pair(files)[0].network
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('epsilon = "3"', 'epsilon = "4"').replace("population = 1000", "population = 900"))
    node, network = load_pair(files)
    assert differing_settings(used, network) == ["guarantee.epsilon", "network.population", "scheme.model"]
    with pytest.raises(BadInput, match=r"guarantee.epsilon: differs .* create a new network with an id"):
        current_revision(node, network, EPOCH, -1)


def test_a_setting_that_means_the_same_is_named(files: Path) -> None:
    """`learn = true` beside a model changes nothing but the digest: whoever compares files has to look for it."""
    used = load_pair(files)[1]
    path = load_pair(files)[0].network
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("[scheme]", "[scheme]\nlearn = true"), encoding="utf-8")
    with pytest.raises(BadInput, match=r"which is in use, in scheme.learn; allowed: a higher number"):
        check_next(used, load_pair(files)[1])


def test_the_doctor_names_the_model(files: Path) -> None:
    """Digests of two files of network.toml do not say that the files are the same and the models are not."""
    put_model(files.parent, 50)
    node, network = load_pair(files)
    assert network.fitted is not None
    text = " ".join(one.text for one in examine(files, listen=0) if one.check == "configuration")
    assert f"the model has the digest {model_digest(network.fitted)[:32]}" in text
    assert "the model file is another one than when the node ran last; it is used from the next start on" in text
    with Storage.open(node.data, network_id=network.id) as storage:
        storage.memory.remember({"b": (3, 1, b"", 3)})
        assert storage.memory.heard_until() == 3
    (only,) = examine(files, listen=0)
    assert only.outcome == "problem"
    assert "the model is another one" in only.text
