"""kill -9 and a start at once, of a server in a real network: the slot in which it happens is sampled all the same.

And if an old copy of the folder is put in its place in the same way, it is exposed before it samples anything.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from node_support_trial import LONG, Trial, change, feeding, trial_of, until

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

NAME, OTHER = "server-2", "server-1"
RESTARTS = 3


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    """Three servers, linked with each other, with slots of three seconds, of which two may be missed."""
    with trial_of(tmp_path, 3, "--slot", "3s") as made:
        for file in made.files.values():
            text = Path(file).read_text(encoding="utf-8")
            Path(file).write_text(f'{text}\n[ingest]\nmax_downtime = "2s"\n', encoding="utf-8")
        change(made.network, ("length = 100", "length = 1000"))  # a window that is not over so soon
        yield made


def sampled(trial: Trial) -> set[int]:
    return {entry.slot for entry in trial.ledger(NAME) if entry.kind == "sample" and entry.slot is not None}


def new_slot(trial: Trial) -> int:
    """Wait for the next slot, and until the one before it is released; the slot that is open then."""
    before = trial.slot(OTHER)
    until(lambda: trial.slot(OTHER) > before and trial.released(NAME) >= before, "the next slot")
    return trial.slot(OTHER)


def kill(trial: Trial) -> None:
    trial.processes[NAME].kill()
    trial.processes[NAME].wait(LONG)


def wait_for_release(trial: Trial, slot: int) -> None:
    until(lambda: trial.released(OTHER) >= slot and trial.released(NAME) >= slot, f"slot {slot} is released")


def logged_as_lost(log: str) -> set[int]:
    """Return the slots of which a log says why they have no sample; a busy machine may miss several at a start."""
    slots = {
        int(slot) for slot in re.findall(r"slot (\d+) (?:is not sampled: |ended while this node was not running)", log)
    }
    for first, last in re.findall(r"slots (\d+) to (\d+) ended while this node was not running", log):
        slots |= set(range(int(first), int(last) + 1))
    return slots


def test_restarts_cost_no_slot_and_old_copies_get_none(trial: Trial) -> None:
    """Check-ins were acknowledged and are on disk; unless neighbours vouch at once, each of these slots is lost."""
    trial.start()
    trial.all_ready()
    folder, old = trial.config(NAME).data, trial.folder / "old copy"
    with feeding(trial, *trial.files):
        until(lambda: len(sampled(trial)) > 1, "samples")
        slots = []
        for _ in range(RESTARTS):
            slots.append(new_slot(trial))
            kill(trial)
            if not old.exists():
                shutil.copytree(folder, old)
            trial.start(NAME)
            wait_for_release(trial, slots[-1])
        lost = set(slots) - sampled(trial)
        assert lost <= logged_as_lost(trial.log(NAME)), "what is lost is logged"
        assert len(lost) <= len(slots) // 3, "a busy machine may need too long for one of them"

        slot = new_slot(trial)
        kill(trial)
        kept = folder.rename(trial.folder / "kept")
        shutil.copytree(old, folder)
        before, logged = sampled(trial), len(trial.log(NAME))
        trial.start(NAME)
        wait_for_release(trial, slot + 1)
        assert sampled(trial) == before, "an old copy has sampled"
        assert "the folder is an old copy" in trial.log(NAME)[logged:]
        kill(trial)
        shutil.rmtree(folder)
        kept.rename(folder)
        before = sampled(trial)
        trial.start(NAME)
        until(lambda: sampled(trial) > before, "the true folder samples")
