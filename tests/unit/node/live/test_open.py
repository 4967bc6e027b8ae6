"""What a start finds in the folder and tells the operator."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dpcrowd.node.config import load_pair
from dpcrowd.node.live.open import open_node

EVENT = "journal-damaged"


def _damaged(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [one.getMessage() for one in caplog.records if one.__dict__.get("event") == EVENT]
    caplog.clear()
    return found


def test_a_damaged_file_of_the_journal_is_told_with_its_slot(net: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log said that the slot "was missed": nobody would look at the disk that had lost its check-ins."""
    caplog.set_level(logging.INFO, "dpcrowd")
    file = net / "server-1" / "node.toml"
    with open_node(file):
        pass
    assert _damaged(caplog) == []
    node, network = load_pair(file)
    slot = max(network.clock().slot_of(network.clock().epoch_ns), 0) + 7
    path = node.data / "journal" / f"{network.clock().opens(slot)}.slot"
    path.write_bytes(b"\xa5" * 200)
    with open_node(file):
        pass
    (told,) = _damaged(caplog)
    assert str(path) in told
    assert f"check-ins of slot {slot}" in told
    with open_node(file):
        pass
    assert _damaged(caplog) == [], "told once: what was damaged has been replaced"


def test_a_damaged_sign_of_life_is_told(net: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without it the server counts as away for the whole slot, for a reason that nobody could find."""
    caplog.set_level(logging.INFO, "dpcrowd")
    file = net / "server-1" / "node.toml"
    with open_node(file):
        pass
    alive = load_pair(file)[0].data / "journal" / "alive"
    alive.write_bytes(b"\xa5" * 12)
    with open_node(file):
        pass
    (told,) = _damaged(caplog)
    assert str(alive) in told
    assert "counts as missed" in told
    alive.unlink()
    with open_node(file):
        pass
    assert _damaged(caplog) == [], "a file that is not there is not damaged"
