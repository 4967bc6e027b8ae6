"""A process to be killed: a node's storage at work, saying on standard output what it has acknowledged.

Lines: `open`, `batch SLOT DIGEST` (check-ins acknowledged), `sent SLOT DIGEST` (noisy values that left),
`released SLOT`, `forgotten SLOT`. A line is written only after the commit that it speaks of, and is short, so that the
worker never waits for its reader and is killed at its work.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
from pathlib import Path

from dpcrowd.node.storage import SlotTaken
from node_support_storage import LENGTH, open_storage, opens, release


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def work(folder: Path) -> None:
    with open_storage(folder) as storage:
        say("open")
        state = storage.state()
        slot = 0 if state is None else int(state)
        while True:
            storage.journal.slot_key(opens(slot))
            for _ in range(secrets.randbelow(4)):
                batch = secrets.token_bytes(1 + secrets.randbelow(3000))
                storage.journal.append(opens(slot), batch)
                say("batch", slot, digest(batch))
            # As after any restart: draw, and if that was done in an earlier run send what was drawn then.
            values = secrets.token_bytes(secrets.randbelow(20_000))
            try:
                storage.commit_sample(slot, opens(slot), LENGTH, 3, values, str(slot).encode())
            except SlotTaken:
                sample = storage.ledger.sample(opens(slot))
                values = b"missing" if sample is None else sample.noisy
            say("sent", slot, digest(values))
            storage.commit_release([release(slot)], str(slot + 1).encode(), heard={"tram": (slot, slot, b"", slot)})
            say("released", slot)
            storage.journal.forget(opens(slot))
            say("forgotten", slot)
            slot += 1


if __name__ == "__main__":
    work(Path(sys.argv[1]))
