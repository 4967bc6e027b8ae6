"""A storage whose process is killed with SIGKILL at random moments, again and again, on one folder."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from dpcrowd.node.storage import Storage
from node_support_storage import open_storage, opens
from node_support_storage_worker import digest
from project_support import TESTS

RUNS = 6


def live_and_die(folder: Path, lines: int, seconds: float) -> list[list[str]]:
    """What a worker acknowledged before it was killed, `seconds` after it had said some lines."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS / "support"), *sys.path])}
    command = [sys.executable, str(TESTS / "support" / "node_support_storage_worker.py"), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"open\n"
        said = b"".join(worker.stdout.readline() for _ in range(lines))
        time.sleep(seconds)
        assert worker.poll() is None, "the worker ended by itself: nothing was killed"
        worker.kill()
        said += worker.stdout.read()
    whole = said[: said.rfind(b"\n") + 1]  # the last line may be torn, and is then no acknowledgement
    return [line.split(" ") for line in whole.decode().splitlines()]


def test_kill_9_again_and_again(tmp_path: Path) -> None:
    """Never two draws of a slot, no acknowledged check-in lost, sums right, and each restart just works."""
    chance = random.Random(4)
    sent: dict[int, set[str]] = defaultdict(set)
    acknowledged: dict[int, list[str]] = defaultdict(list)
    released: list[int] = []
    forgotten: set[int] = set()
    for _ in range(RUNS):
        for line in live_and_die(tmp_path, chance.randint(1, 20), chance.uniform(0, 0.01)):
            slot = int(line[1])
            if line[0] == "sent":
                sent[slot].add(line[2])
            elif line[0] == "batch":
                acknowledged[slot].append(line[2])
            elif line[0] == "released":
                released.append(slot)
            else:
                forgotten.add(slot)
        with open_storage(tmp_path) as storage:
            check(storage, sent, released)
            check_journal(storage, acknowledged, released, forgotten)
    assert len(released) > RUNS


def check(storage: Storage, sent: dict[int, set[str]], released: list[int]) -> None:
    rows = storage.ledger.payments_since(0)
    drawn = [row.slot for row in rows]
    assert len(set(drawn)) == len(drawn)
    assert storage.ledger.counter() == len(rows)
    assert storage.ledger.total_spent() == 3 * len(rows)
    for slot, values in sent.items():
        sample = storage.ledger.sample(opens(slot))
        assert sample is not None, "values left that were not paid for"
        assert values == {digest(sample.noisy)}, "a slot was drawn twice"
    kept = [one.slot for one in storage.releases.between(0, opens(10**6))]
    assert len(set(released)) == len(released)
    assert set(released) <= set(kept)
    assert len(kept) - len(set(released)) <= RUNS  # at most one per run was committed and not yet reported
    assert storage.state() in (
        str(max(kept, default=-1) + 1).encode(),
        str(drawn[-1]).encode() if drawn else None,
        None,
    )
    assert storage.problems() == []


def check_journal(
    storage: Storage, acknowledged: dict[int, list[str]], released: list[int], forgotten: set[int]
) -> None:
    pending = set(storage.journal.pending())
    assert not pending & {opens(slot) for slot in forgotten}
    for slot, batches in acknowledged.items():
        if opens(slot) not in pending:
            assert slot in released or storage.ledger.sample(opens(slot)) is not None, "check-ins went uncounted"
            continue
        found = [digest(batch) for batch in storage.journal.batches(opens(slot))]
        places = [found.index(batch) for batch in batches]
        assert places == sorted(places)
        assert len(found) - len(batches) <= RUNS


def test_a_killed_node_leaves_no_lock(tmp_path: Path) -> None:
    """A lock that outlives its process would keep the node from coming back within two slots."""
    live_and_die(tmp_path, 1, 0)
    open_storage(tmp_path).close()
