"""Copies of network.toml in the data folder: which earlier revisions a start finds, and which copies are not used."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dpcrowd.node.config import NetworkConfig, NodeConfig, digest, load_pair, parse_network
from dpcrowd.node.live.revisions import current_revision, keep_current, keep_next, take_next, text_of
from node_support_live import write_network

EPOCH, LAG = 1_800_000_000_000_000_000, 4


@pytest.fixture
def files(tmp_path: Path) -> Path:
    paths = write_network(
        tmp_path,
        {"a": 0.3, "b": 0.4},
        [("a", "b")],
        epoch_ns=EPOCH,
        regions=["north"],
        guarantee={"kind": "window", "length": 8, "epsilon": "3"},
        scheme={"name": "relay", "process_var": 400.0, "samples": 2, "lag": LAG},
    )
    return paths["a"]


class Folder:
    """A data folder, and the revisions that pass through it."""

    def __init__(self, path: Path) -> None:
        self.path, self.number = path, 1
        self.node.data.mkdir(exist_ok=True)
        self.start(0)

    @property
    def pair(self) -> tuple[NodeConfig, NetworkConfig]:
        return load_pair(self.path)

    @property
    def node(self) -> NodeConfig:
        return self.pair[0]

    def revise(self, valid_from: int) -> NetworkConfig:
        """Network.toml is replaced by the next revision."""
        self.number += 1
        path = self.node.network
        lines = path.read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if not line.startswith(("revision =", "valid_from_slot ="))]
        head = f"[network]\nrevision = {self.number}\nvalid_from_slot = {valid_from}"
        path.write_text("\n".join(kept).replace("[network]", head) + "\n", encoding="utf-8")
        return self.pair[1]

    def take_over(self, valid_from: int) -> None:
        """The next revision takes over while the node runs."""
        network = self.revise(valid_from)
        keep_next(self.node, network)
        take_next(self.node, network)

    def start(self, slot: int) -> list[int]:
        """Start in a slot; return the numbers of the earlier revisions that the start has found."""
        node, network = self.pair
        revisions = current_revision(node, network, network.clock().closes(slot) - 1)
        keep_current(node, revisions.current)
        return [one.revision for one in revisions.earlier]

    @property
    def copies(self) -> list[Path]:
        return sorted(self.node.data.glob("network.until-*"))


def test_earlier_revisions_are_found_after_a_restart(files: Path) -> None:
    """Whether the node ran or was away when they took over; several may follow each other within the lag."""
    folder = Folder(files)
    assert folder.start(1) == []
    folder.take_over(10)
    folder.take_over(12)
    assert folder.start(12) == [1, 2]
    folder.revise(14)
    assert folder.start(13) == [1, 2], "the next one is not valid yet"
    assert folder.start(14) == [1, 2, 3], "it took over while the node was away"
    assert folder.start(15) == [2, 3], "records of the first one were final when the last one took over"
    for copy in folder.copies:
        network = parse_network(copy.read_text(encoding="utf-8"))
        assert text_of(folder.node, network) == copy.read_text(encoding="utf-8"), "recordings name it"


def test_a_start_with_another_revision_knows_what_it_replaces(files: Path) -> None:
    """The node could not say what has changed since it ran last, or would say so at every start."""
    folder = Folder(files)
    network = folder.revise(10)
    node, at_ns = folder.node, network.clock().closes(10) - 1
    replaced = current_revision(node, network, at_ns).replaced
    assert replaced is not None
    assert replaced.revision == 1
    assert current_revision(node, network, network.clock().closes(5)).replaced is None, "it is not valid yet"
    folder.start(10)
    assert current_revision(node, network, at_ns).replaced is None, "it was in use before"


def test_copies_are_deleted_when_their_records_are_final(files: Path) -> None:
    """A network that is revised often must not fill the folder."""
    folder = Folder(files)
    for slot in range(10, 60, 10):
        folder.take_over(slot)
    assert len(folder.copies) == 1
    assert folder.start(51) == [5]


def test_a_folder_without_copies_is_migrated(files: Path) -> None:
    """Earlier versions kept only the one revision before; it is found, and kept with its name from then on."""
    folder = Folder(files)
    folder.take_over(10)
    for copy in folder.copies:
        copy.unlink()
    assert folder.start(11) == [1]
    assert len(folder.copies) == 1
    (folder.node.data / "network.before.toml").unlink()
    assert folder.start(11) == [1]


@pytest.mark.parametrize("content", ["", "not TOML [", None])
def test_a_copy_that_was_changed_is_not_used(
    files: Path, content: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody's signature would fit it, and every record would look forged."""
    caplog.set_level(logging.ERROR)
    folder = Folder(files)
    folder.take_over(10)
    (folder.node.data / "network.before.toml").unlink()
    (copy,) = folder.copies
    changed = copy.read_text(encoding="utf-8").replace('"3"', '"2"') if content is None else content
    copy.write_text(changed, encoding="utf-8")
    assert folder.start(11) == []
    assert [getattr(record, "event", "") for record in caplog.records][:1] == ["revision"]


def test_revisions_with_a_gap_are_not_used(files: Path) -> None:
    """Records of the slots of the missing one would be checked by the wrong revision."""
    folder = Folder(files)
    folder.take_over(10)
    folder.take_over(12)
    (folder.node.data / "network.before.toml").unlink()
    folder.copies[1].unlink()
    assert len(folder.copies) == 1
    assert folder.start(12) == []


def test_the_name_of_a_copy_says_what_is_in_it(files: Path) -> None:
    """The digest is the one that every message carries."""
    folder = Folder(files)
    before = digest(folder.pair[1]).hex()
    folder.take_over(10)
    assert [path.name for path in folder.copies] == [f"network.until-10-{before}.toml"]
