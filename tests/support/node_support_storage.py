"""A small storage for tests: ten-second slots from a fixed epoch, a wide promise, readable values."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from dpcrowd.node.release import SlotRelease
from dpcrowd.node.slots import SlotClock
from dpcrowd.node.storage import Storage

SECOND = 1_000_000_000
LENGTH = 10 * SECOND
EPOCH = 1_800_000_000 * SECOND
WIDE = 10**15
SLOTS = SlotClock(EPOCH, LENGTH)


def opens(slot: int) -> int:
    """When a slot opens."""
    return EPOCH + slot * LENGTH


def open_storage(
    folder: Path, network: str = "crowd", *, ledger: Path | None = None, nano: int = WIDE, slots: int | None = None
) -> Storage:
    """A node's storage whose promise is wide, unless `nano` says otherwise, over the whole horizon, or that window."""
    storage = Storage.open(folder, network_id=network, ledger_folder=ledger)
    storage.ledger.declare(nano, None if slots is None else slots * LENGTH, slots=SLOTS)
    return storage


def draw(storage: Storage, slot: int, nano: int = 5, noisy: bytes = b"noisy", state: bytes = b"state") -> int:
    """Pay for a slot."""
    return storage.commit_sample(slot, opens(slot), LENGTH, nano, noisy, state)


def release(slot: int, regions: tuple[str, ...] = ("north", "south"), *, sampled: bool = True) -> SlotRelease:
    """A release whose numbers are made from the slot."""
    estimate = slot + np.arange(len(regions), dtype=np.float64) / 3
    return SlotRelease(slot, opens(slot), LENGTH, regions, estimate, estimate + 1, sampled, 7 if sampled else 0, 2)


def copy_files(folder: Path, target: Path) -> None:
    """What a process that is killed now leaves behind; the shared-memory index is rebuilt from the log by anyone."""
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("*-shm"))


def bytes_on_disk(folder: Path) -> bytes:
    """Everything that is in the folder's files."""
    return b"".join(file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file())
