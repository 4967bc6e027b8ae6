"""Which models of earlier revisions a server still names, and from where it knows them."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcrowd.cli.node_folder import budget_of_folder
from dpcrowd.errors import BadInput
from dpcrowd.models.file import write_model
from dpcrowd.node.config import digest, earlier_models, load_network, load_pair
from dpcrowd.node.config.read import network_text
from dpcrowd.node.doctor import examine
from dpcrowd.node.live.open import open_node
from dpcrowd.node.machine import instructions as do
from dpcrowd.node.storage import Storage
from dpcrowd.privacy import SecureNoise
from dpcrowd.schemes.server import Joined, Server
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.fit import fit
from node_support_live import write_network

HOUR, WINDOW, SLOT = 3_600 * 10**9, 8, 100
SOURCE = "the town's own survey"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The node.toml of a server in slot 100 of a network whose revision 1 has a model."""
    counts = np.random.default_rng(0).poisson(50, (60, 1))
    write_model(fit(counts_from_array(counts, regions=["north"]), source=SOURCE), tmp_path / "model.toml")
    return write_network(
        tmp_path,
        {"a": 0.3, "b": 0.4},
        [("a", "b")],
        epoch_ns=time.time_ns() // 10**9 * 10**9 - SLOT * HOUR,
        regions=["north"],
        guarantee={"kind": "window", "length": WINDOW, "epsilon": "3"},
        scheme={"name": "dpcrowd-w", "model": "model.toml"},
        slot="1h",
    )["a"]


def revise(files: Path, number: int, first: int, scheme: str = "dpcrowd-w") -> None:
    """The next revision has no model."""
    path = load_pair(files)[0].network
    text = re.sub(r"revision = \d+(\nvalid_from_slot = \d+)?", "revision = 0", path.read_text(encoding="utf-8"))
    text = text.replace("revision = 0", f"revision = {number}\nvalid_from_slot = {first}")
    text = text.replace('model = "model.toml"', "process_var = 400.0").replace('"dpcrowd-w"', f'"{scheme}"')
    path.write_text(text, encoding="utf-8")


def start(files: Path) -> str:
    """Start the node and stop it; return what it promises meanwhile."""
    with open_node(files) as node:
        return asyncio.run(node.budget()).guarantee


def told(files: Path) -> list[str]:
    """What the tools say of a server that does not run."""
    doctor = " ".join(one.text for one in examine(files, listen=0) if one.check == "configuration")
    return [doctor, budget_of_folder(files)["guarantee"]]


def test_a_model_is_named_long_after_it_was_removed(files: Path) -> None:
    """Estimates go on from it for good; the copy of its revision is deleted after a while."""
    assert SOURCE in start(files)
    revise(files, 2, 10)
    assert all("Estimates go on from releases of slots before 10" in text for text in told(files)), (
        "before a start, too"
    )
    for _ in range(2):
        assert f'in their own words: "{SOURCE}". This is true only if' in start(files)
    revise(files, 3, 20)
    assert SOURCE in start(files)
    assert not list(load_pair(files)[0].data.glob("network.until-*")), "a network without records needs no copies"
    assert all(text.count(SOURCE) == 1 for text in told(files))


def test_it_is_named_for_a_window_where_estimates_began_anew(files: Path) -> None:
    """With another scheme nothing of it is left but what was released."""
    start(files)
    revise(files, 2, SLOT - 3, "relay")
    assert "The present window has releases" in start(files)
    node, network = load_pair(files)
    with Storage.open(node.data, network_id=network.id) as storage:
        ((name, source, until, goes_on),) = storage.earlier_models.all()
        assert (source, until, goes_on) == (SOURCE, SLOT - 3, False)
        storage.earlier_models.put([(name, source, SLOT - WINDOW, goes_on)])
    for copy in node.data.glob("network.until-*"):
        copy.unlink()
    assert SOURCE not in start(files)


def test_a_revision_that_takes_over_is_remembered_before_its_file_is_moved(files: Path) -> None:
    """A crash right after that would find neither the model nor anything that names it."""
    start(files)
    with open_node(files) as node:
        revise(files, 2, SLOT + 1)
        following = load_network(load_pair(files)[0].network)
        node.networks[2] = following
        taken = asyncio.run(node.decide(do.TakeOver(2, SLOT + 2, SLOT), time.time_ns()))
        assert taken.at_ns > 0
        ((_, source, until, goes_on),) = node._storage.earlier_models.all()
        assert (source, until, goes_on) == (SOURCE, SLOT + 2, True), "it took over late"


def test_copies_of_earlier_builds_are_read_once_more(files: Path) -> None:
    """They kept copies of revisions with a model for a window, and knew nothing else of them."""
    node, first = load_pair(files)
    start(files)
    copy = node.data / f"network.until-{SLOT - 2}-{digest(first).hex()}.toml"
    copy.write_text(network_text(node.network), encoding="utf-8")
    revise(files, 2, SLOT - 2)
    (node.data / "network.current.toml").write_text(node.network.read_text(encoding="utf-8"), encoding="utf-8")
    for _ in range(2):
        assert SOURCE in start(files)
    assert not copy.exists()


@pytest.mark.parametrize(
    ("changes", "go_on"),
    [
        ({}, True),
        ({"learn": True}, True),
        ({"regions": ["south", "north"]}, True),
        ({"regions": ["south"]}, False),
        ({"scheme": "relay"}, False),
    ],
    ids=str,
)
def test_it_is_known_in_which_revisions_estimates_begin_anew(files: Path, changes: dict[str, Any], go_on: bool) -> None:
    """The promise follows from the files; it must not drop a model whose estimates a server takes over."""
    _, before = load_pair(files)
    revise(files, 2, 10, changes.get("scheme", "dpcrowd-w"))
    path = load_pair(files)[0].network
    text = path.read_text(encoding="utf-8")
    text = text.replace('["north"]', str(changes.get("regions", ["north"])).replace("'", '"'))
    path.write_text(text.replace("[scheme]", "[scheme]\nlearn = true" if "learn" in changes else "[scheme]"))
    _, following = load_pair(files)
    servers = [
        Server(one.scheme(), one.setting("a"), SecureNoise(), number=0, share=0.3, max_degree=1)
        for one in (before, following)
    ]
    servers[0].observe(9, None)
    servers[0].hear()
    level = servers[0]._state.posterior[0]
    places = [before.regions.index(name) if name in before.regions else None for name in following.regions]
    kept = False
    with suppress(BadInput):
        again = Server(before.scheme(), before.setting("a"), SecureNoise(), number=0, share=0.3, max_degree=1)
        servers[1].take_over(servers[0].save(), again, places)
        kept = bool(np.isin(level, servers[1]._state.posterior).any())
    assert kept == go_on
    assert [one.goes_on for one in earlier_models((), [before, following])] == [go_on]


@pytest.mark.parametrize("scheme", ["dpcrowd-w", "relay"])
def test_a_corrected_model_is_named_beside_the_wrong_one(files: Path, scheme: str) -> None:
    """The number of the revision stays, and the wrong model was in use: releases were made with it. A relay server
    begins anew, but the window has them."""
    network = load_pair(files)[0].network
    network.write_text(network.read_text(encoding="utf-8").replace("dpcrowd-w", scheme), encoding="utf-8")
    start(files)
    counts = np.random.default_rng(1).poisson(90, (60, 1))
    write_model(fit(counts_from_array(counts, regions=["north"]), source="the right one"), files.parent / "model.toml")
    for text in (*told(files), start(files), start(files)):
        assert "the right one" in text
        assert f'made with an earlier model, of which the operators asserted the same: "{SOURCE}"' in text


def test_a_server_that_joined_late_says_whose_word_it_took(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It named no earlier model, although its estimates were those of neighbours that name some."""
    revise(files, 2, 10)
    words = "Estimates of this server began with those of b in slot 50: they may go on from models of revisions"
    assert words not in start(files)
    assert not any(words in text for text in told(files))
    joined = Joined(("b",), 50)
    monkeypatch.setattr(Server, "joined", property(lambda self: joined))
    assert words in start(files)
    monkeypatch.setattr(Storage, "state", lambda self: b"stored")
    monkeypatch.setattr("dpcrowd.node.build.saved_join", lambda saved: joined)
    assert all(words in text for text in told(files))
