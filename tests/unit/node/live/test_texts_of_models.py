"""A model whose source could control a terminal: new files are refused, and a folder that has run with one goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpcrowd.cli.node_folder import budget_of_folder
from dpcrowd.errors import BadInput
from dpcrowd.models.file import write_model
from dpcrowd.node.config import load_pair
from dpcrowd.node.doctor import examine
from dpcrowd.node.live.decisions import declare
from dpcrowd.node.live.revisions import current_revision, keep_current
from dpcrowd.node.storage import Storage
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.fit import fit
from node_support_live import write_network

EPOCH, LATER = 1_800_000_000_000_000_000, 2_000_000_000_000_000_000
SOFT, HARMFUL = "our census\\u00ad \\u200f", "our census\\u001b[2K\\u202e\\n"


def put_source(folder: Path, source: str) -> None:
    """A model file that somebody has edited, or that an earlier version wrote."""
    counts = np.random.default_rng(0).poisson(90, (60, 1))
    file = write_model(fit(counts_from_array(counts, regions=["north"]), source="our census"), folder / "model.toml")
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('"our census"', f'"{source}"'), encoding="utf-8")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    put_source(tmp_path, "our census")
    return write_network(
        tmp_path,
        {"a": 0.3, "b": 0.4},
        [("a", "b")],
        epoch_ns=EPOCH,
        regions=["north"],
        guarantee={"kind": "window", "length": 8, "epsilon": "3"},
        scheme={"name": "relay", "model": "model.toml"},
    )["a"]


def run(path: Path) -> None:
    """What a start checks and keeps."""
    node, network = load_pair(path)
    with Storage.open(node.data, network_id=network.id) as storage:
        current = current_revision(node, network, LATER, -1).current
        declare(current, storage, LATER)
        keep_current(node, current)


def revise(path: Path, number: int) -> None:
    file = load_pair(path)[0].network
    text = file.read_text(encoding="utf-8")
    head = f"[network]\nrevision = {number}\nvalid_from_slot = {number}"
    kept = [one for one in text.splitlines() if not one.startswith(("revision =", "valid_from_slot ="))]
    file.write_text("\n".join(kept).replace("[network]", head) + "\n", encoding="utf-8")


def told(path: Path) -> str:
    """What the tools say of a server that does not run."""
    doctor = " ".join(one.text for one in examine(path, listen=0) if one.check == "configuration")
    return f"{doctor} {budget_of_folder(path)['guarantee']}"


def test_what_is_pasted_with_a_text_is_accepted_and_escaped(files: Path) -> None:
    """A soft hyphen in a source was refused as a line break."""
    put_source(files.parent, SOFT)
    run(files)
    assert told(files).count(r'"our census\xad \u200f"') == 2


def test_a_new_model_that_would_control_a_terminal_is_refused(files: Path) -> None:
    """What follows the quotation would be read backwards, in the promise of every server that takes it."""
    put_source(files.parent, HARMFUL)
    with pytest.raises(BadInput, match=r"network.toml: scheme.model: 'source' .* '\\x1b', a control character, as"):
        run(files)
    (finding,) = examine(files, listen=0)
    assert "a control character" in finding.text
    put_source(files.parent, "our census")
    run(files)
    revise(files, 2)
    put_source(files.parent, HARMFUL)
    with pytest.raises(BadInput, match="a control character"):
        run(files)


def test_a_folder_that_has_run_with_it_goes_on(files: Path) -> None:
    """Its own copy kept a server from starting, even after the model had been repaired under a higher number."""
    node, network = load_pair(files)
    put_source(files.parent, HARMFUL)
    with Storage.open(node.data, network_id=network.id):
        keep_current(*load_pair(files))  # as earlier versions did
    run(files)
    assert r"our census\x1b[2K\u202e" in told(files)
    assert told(files).isprintable()
    revise(files, 2)
    put_source(files.parent, "our census, repaired")
    run(files)
    assert "our census, repaired" in told(files)
