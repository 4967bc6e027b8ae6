"""How a live node signs: with its own key, for one network; what it signed before a renewal is still its own."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dpcrowd.cli.main import main
from dpcrowd.node.build import make_view
from dpcrowd.node.config import load_pair
from dpcrowd.node.keys.trial import make_trial
from dpcrowd.node.machine import NetworkView
from dpcrowd.node.wire import VERSION, Body, encode, proven
from node_support_keys import NOW
from node_support_wire import proof_in


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trial") / "net"
    assert main(["init", str(folder), "--dev"]) == 0
    return folder


def view_of(net: Path) -> NetworkView:
    return make_view(*load_pair(net / "server-1" / "node.toml"))


def said(view: NetworkView, counter: int) -> bytes:
    return proof_in(encode(Body(VERSION, view.digest, view.me, 7, 1, counter, {}), view.sign))


def test_what_a_server_has_said_is_proven_to_it_by_its_own_key(net: Path) -> None:
    """And is of nobody else: not of a neighbour, nor of a number that is no server."""
    view = view_of(net)
    shown = said(view, 9)
    assert proven(shown, view.me, view.verify) == (7, 9)
    assert [proven(shown, number, view.verify) for number in (view.me + 1, 99, -1)] == [None] * 3


def test_a_word_of_one_network_does_not_count_in_another(net: Path) -> None:
    """One key may serve in two networks on one machine: the counter of one would stop sampling in the other."""
    here = view_of(net)
    file = net / "network.toml"
    text = file.read_text(encoding="utf-8")
    network = load_pair(net / "server-1" / "node.toml")[1]
    assert text.count(f'"{network.id}"') == 1
    file.write_text(text.replace(f'"{network.id}"', f'"{network.id}-2"'), encoding="utf-8")
    try:
        there = view_of(net)
    finally:
        file.write_text(text, encoding="utf-8")
    shown = said(there, 9)
    assert proven(shown, there.me, there.verify) == (7, 9)
    assert proven(shown, here.me, here.verify) is None


def test_a_proof_by_the_old_key_counts_while_both_are_pinned(net: Path, tmp_path: Path) -> None:
    """Otherwise a renewal would be the moment to restore an old copy."""
    node, network = load_pair(net / "server-1" / "node.toml")
    shown = said(make_view(node, network), 9)
    fresh = make_trial(tmp_path / "keys", ["server-1"], NOW)["server-1"]
    renewed = msgspec.structs.replace(node, keys=msgspec.structs.replace(node.keys, key=fresh.key))
    after = make_view(renewed, network)
    assert proven(shown, after.me, after.verify) == (7, 9)
    assert proven(said(after, 9), after.me, after.verify) is None, "the new key is not pinned yet"
