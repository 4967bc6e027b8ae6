"""Two worlds that differ by one user, and everything that an outsider can see of them.

A world is a live node, its neighbour, and a story (`node_support_stories`) that is told with user x or without. Noise
is agreed beforehand: whatever the counts are, both worlds release the same noisy values. That is the case which noise
is there for: it makes these values about as likely in one world as in the other, and that is paid for. All that is left
to differ is what does not go through account and noise, and of that nothing may differ at all:

    answers    to everybody but the sender of x's own rows: status, headers and bytes of every path; the event stream
    messages   to the neighbour: their bytes, hence their sizes, and their order
    logs       every line, at level debug, as it is formatted for the operator
    metrics    the full text
    samples    in which slots the counts were read, and in which order
    files      names and bytes of everything in the data folder, when no slot with check-ins of x is open
    recording  what is written down of the state machine, for `dpcrowd node replay`, as soon as it is written
    time       the moment of each of these, as far as the node's clock decides it

Moreover, noise hides one user: in each slot that is sampled, the counts of both worlds may differ by one user in one
region. A row of x that makes the node refuse a thousand others changes a count by a thousand, and agreed values must
not cover that.

What is not compared, and why:

    answers to x's own sender    Whoever sends a row of x knows of it; the answer may say what became of that row.
    random bytes                 Keys for hashing and whatever else is drawn become a function of the time of the draw
                                 (`repeatable_bytes`). They depend on nobody, but no two runs would be equal.
    keys, certificates, tokens   They are made once, for both worlds.
    FILE-shm                     SQLite's index of its log. It follows from the log; of the index the size is compared.
    FILE-wal                     All pages of the log are compared, old ones included. SQLite draws a salt for each log
                                 by a generator of its own; that, and the checksums over it, cannot be repeated.
    times of files               The file system has another clock than the world.
    the time that work takes     It takes none here. A node that is slower with more check-ins passes this test.
    the journal of open slots    It holds check-ins, those of x among them, until the slot is sealed: it is the
                                 operator's own, and no outsider's.
    exact counters               `[ingest] exact_counters` shows raw counts in /metrics. It is off by default, and a
                                 warning tells whoever switches it on.
"""

from __future__ import annotations

import itertools
import re
import shutil
from pathlib import Path
from typing import Any

from node_support_live import write_network
from node_support_stories import DEADLINE, GRACE, LENGTH, REGIONS, Story
from node_support_virtual import VirtualLoop, run_virtually
from node_support_world import EPOCH, HERE, READER, RECORDING, THERE, Record, World

__all__ = ["RELAY", "compare", "differences", "make_files", "observe"]


EVERY_SLOT: dict[str, Any] = {"name": "dpcrowd-w", "process_var": 100.0, "sampling": "fixed", "interval": 1}
RELAY: dict[str, Any] = {"name": "relay", "process_var": 100.0, "samples": 10}


def make_files(folder: Path, scheme: dict[str, Any] = EVERY_SLOT) -> Path:
    """Two networks, of two servers and of one: network.toml, keys and node.toml; made once, since keys take time."""
    for name, servers in (("pair", (HERE, THERE)), ("alone", (HERE,))):
        (folder / name).mkdir(parents=True)
        write_network(
            folder / name,
            {server: 1 / len(servers) for server in servers},
            [(HERE, THERE)] if len(servers) > 1 else [],
            epoch_ns=EPOCH,
            regions=list(REGIONS),
            guarantee={"kind": "window", "length": 10, "epsilon": "1"},
            scheme=scheme,
        )
        network = folder / name / "network.toml"
        text = network.read_text(encoding="utf-8")
        for setting, seconds in (("slot", LENGTH), ("grace", GRACE), ("deadline", DEADLINE)):
            text = re.sub(rf"(?m)^{setting} = .*$", f'{setting} = "{round(seconds)}s"', text, count=1)
        network.write_text(text, encoding="utf-8")
    return folder


def observe(files: Path, folder: Path, story: Story, *, x: bool) -> Record:
    """One world from its beginning to its end. Both worlds use the same folder: a path in a log line is the same."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in (files / ("alone" if story.alone else "pair")).glob("*.toml"):
        shutil.copyfile(file, folder / file.name)
    node = folder / f"{HERE}.toml"
    text, _, _ = node.read_text(encoding="utf-8").partition("[ingest]")
    text = re.sub(r"(?m)^read = .*$", f'read = ["{READER}"]', text, count=1)
    accepts = "counts" if story.by_counts else "checkins"
    ingest = ["[ingest]", f'accepts = "{accepts}"', *story.ingest]
    debug = ["[debug]", f'record = "{RECORDING}"', ""]
    node.write_text("\n".join([text, *ingest, *debug]), encoding="utf-8")

    async def tell(loop: VirtualLoop) -> Record:
        with World(folder, loop, x=x) as world:
            await world.tell(story)
        return world.record

    return run_virtually(tell)


def differences(files: Path, folder: Path, story: Story) -> dict[str, str]:
    """Tell a story twice, with x and without: the first difference of each kind, and nothing if nobody can tell.

    The kinds are those of the entries of a `Record`, and "samples", "counts" and "order".
    """
    return compare(observe(files, folder, story, x=True), observe(files, folder, story, x=False))


def compare(with_x: Record, without: Record) -> dict[str, str]:
    """The first difference of each kind between two worlds, in words."""
    texts: dict[str, str] = {}
    for kind in dict.fromkeys(entry.kind for entry in (*with_x.entries, *without.entries)):
        pairs = itertools.zip_longest(with_x.of(kind), without.of(kind))
        unequal = next((pair for pair in pairs if pair[0] != pair[1]), None)
        if unequal is not None:
            texts[kind] = _side_by_side(*unequal)
    if not texts and with_x.entries != without.entries:
        pairs = itertools.zip_longest(with_x.entries, without.entries)
        texts["order"] = _side_by_side(*next(pair for pair in pairs if pair[0] != pair[1]))
    slots = [[draw[:2] for draw in record.draws] for record in (with_x, without)]
    if slots[0] != slots[1]:
        texts["samples"] = _side_by_side(*slots)
        return texts
    for (slot, _, counts), (_, _, others) in zip(with_x.draws, without.draws, strict=True):
        if sum(abs(a - b) for a, b in zip(counts, others, strict=True)) > 1:
            texts["counts"] = _side_by_side(f"slot {slot}: {counts}", f"slot {slot}: {others}")
            break
    return texts


def _side_by_side(with_x: object, without: object) -> str:
    return f"     with x: {str(with_x)[:4_000]}\n    without: {str(without)[:4_000]}"
