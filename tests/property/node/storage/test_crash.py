"""Random histories of a storage with kill -9 and power loss at any statement, beside a model in memory.

A crash is a copy of the files as they are before some statement, opened again: what a killed process leaves behind. A
power loss in the middle of a write cuts the log anywhere behind the last commit that was acknowledged, and what follows
may be anything. The operation that was under way has then happened whole or not at all, and all before it is there:

- no slot is ever drawn twice, and the values of a drawn slot never change;
- counter and sum are those of the rows, and no promise is broken;
- acknowledged batches of open slots are there, in order; those of forgotten slots are in no file.
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dpcrowd.errors import BadInput, BudgetExhausted
from dpcrowd.node.storage import SlotTaken, Storage, database, journal
from examples_support import examples
from node_support_storage import EPOCH, LENGTH, bytes_on_disk, copy_files, opens, release

Crash = int | float | None
WINDOW = 4
TOTAL = 12


@dataclass
class Model:
    """What the storage should hold."""

    rows: list[tuple[str, int, int, int]] = field(default_factory=list)  # network, opens, closes, nano
    values: dict[tuple[str, int], bytes] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    state: bytes | None = None
    released: set[int] = field(default_factory=set)
    batches: dict[int, list[bytes]] = field(default_factory=dict)

    def draw(self, network: str, start: int, end: int, nano: int, values: bytes) -> None:
        if any(row[0] == network and row[1] < end and row[2] > start for row in self.rows):
            raise SlotTaken
        # The promise is declared without slots: any nanosecond may begin a window.
        near = [row for row in self.rows if row[2] > start - WINDOW * LENGTH + 1]
        if sum(row[3] for row in near) + nano > TOTAL:
            raise BudgetExhausted("", requested=nano, remaining=0, returns_at=None)
        self.rows.append((network, start, end, nano))
        self.values[network, start] = values
        self.counters[network] = self.counters.get(network, 0) + 1
        self.state = b"drew " + values


def _logs(folder: Path) -> list[Path]:
    """Files that are only ever written at their end."""
    return [path for path in (folder / "dpcrowd.db-wal", *folder.glob("journal/*.slot")) if path.exists()]


class StorageLife(RuleBasedStateMachine):
    """One network whose storage is killed and opened again, at times under a new name, which refills nothing."""

    @initialize()
    def begin(self) -> None:
        self.temporary = tempfile.TemporaryDirectory()
        # A simulated crash does not depend on what the disk has swallowed: not waiting for it is faster.
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(database, "_PRAGMAS", (*database._PRAGMAS, "synchronous = OFF"))
        self.patch.setattr(journal, "_sync", lambda handle: self.step("sync"))
        self.write = journal._write_all
        self.patch.setattr(journal, "_write_all", self.write_in_steps)
        self.step: Callable[[str], None] = lambda statement: None
        self.runs = 0
        self.draws = 0
        self.network = "crowd"
        self.model = Model()
        self.forgotten: list[bytes] = []
        self.folder = Path(self.temporary.name) / "run0"
        self.open()

    def open(self) -> None:
        self.storage = Storage.open(self.folder, network_id=self.network)
        self.storage.ledger.declare(TOTAL, WINDOW * LENGTH)
        self.acknowledge()

    def acknowledge(self) -> None:
        self.safe = {path.name: path.stat().st_size for path in _logs(self.folder)}

    def write_in_steps(self, handle: int, content: bytes, at: int) -> None:
        """A process may be killed before a write to the journal, and in the middle of it."""
        self.step("before")
        half = len(content) // 2
        self.write(handle, content[:half], at)
        self.step("half")
        self.write(handle, content[half:], at + half)

    # ---------------------------------------------------------------------------------------------- operations

    def perform(self, model_step: Callable[[Model], None], step: Callable[[], object], crash: Crash) -> None:
        """Do a step in both; with `crash`, kill the process before that statement, or cut that part of its log."""
        expected: Exception | None = None
        after = copy.deepcopy(self.model)
        try:
            model_step(after)
        except (SlotTaken, BudgetExhausted, BadInput) as error:
            expected = error
        left = self.arm(crash if isinstance(crash, int) else None)
        if expected is None:
            step()
        else:
            with pytest.raises(type(expected)):
                step()
            after = self.model
        self.disarm()
        if isinstance(crash, float):
            copy_files(self.folder, left)
            self.tear(left, crash)
        if left.exists():
            self.come_back(left, after)
        else:
            self.model = after
            self.acknowledge()

    def arm(self, crash_at: Crash) -> Path:
        """Copy the files before a statement of what comes; the folder that will then be there."""
        self.runs += 1
        target = Path(self.temporary.name) / f"run{self.runs}"
        seen = 0

        def trace(statement: str) -> None:
            nonlocal seen
            if seen == crash_at and not target.exists():
                copy_files(self.folder, target)
            seen += 1

        self.step = trace
        self.storage._database.connection.set_trace_callback(trace)
        return target

    def tear(self, folder: Path, part: float) -> None:
        """Only what was acknowledged need be on the disk: the rest of the log may end anywhere, in anything."""
        for path in _logs(folder):
            size, safe = path.stat().st_size, self.safe.get(path.name, 0)
            keep = safe + int(part * max(size - safe, 0))
            with open(path, "rb+") as log:
                log.truncate(min(size, keep))
                log.seek(0, os.SEEK_END)
                log.write((b"\0" if self.runs % 2 else b"\xa5") * int(part * 5000))

    def disarm(self) -> None:
        self.step = lambda statement: None
        self.storage._database.connection.set_trace_callback(None)

    def come_back(self, folder: Path, after: Model) -> None:
        """Open what the crash left; it is the model before the step or after it."""
        self.storage.close()
        self.folder = folder
        self.open()
        self.model = after if self.agrees(after) else self.model

    # --------------------------------------------------------------------------------------------------- rules

    crashes = st.one_of(st.none(), st.integers(0, 12), st.floats(0, 1))

    @rule(slot=st.integers(0, 12), shift=st.sampled_from([0, 0, 0, LENGTH // 2]), nano=st.integers(1, 6), at=crashes)
    def draw(self, slot: int, shift: int, nano: int, at: Crash) -> None:
        self.draws += 1
        values = b"draw %d" % self.draws  # what was sent can be told from what a second draw would send
        start = opens(slot) + shift
        self.perform(
            lambda model: model.draw(self.network, start, start + LENGTH, nano, values),
            lambda: self.storage.commit_sample(slot, start, LENGTH, nano, values, b"drew " + values),
            at,
        )

    @rule(slots=st.lists(st.integers(0, 30), min_size=1, max_size=3, unique=True), at=crashes)
    def publish(self, slots: list[int], at: Crash) -> None:
        def step(model: Model) -> None:
            if model.released & set(slots):
                raise SlotTaken
            model.released |= set(slots)
            model.state = b"released %d" % slots[0]

        releases = [release(slot) for slot in slots]
        self.perform(step, lambda: self.storage.commit_release(releases, b"released %d" % slots[0]), at)

    @rule(slot=st.integers(0, 3), size=st.sampled_from([1, 50, 9000]), at=crashes)
    def check_in(self, slot: int, size: int, at: Crash) -> None:
        self.draws += 1
        batch = b"<batch %d>" % self.draws * size
        self.perform(
            lambda model: model.batches.setdefault(slot, []),
            lambda: self.storage.journal.slot_key(opens(slot)),
            None,
        )
        self.perform(
            lambda model: model.batches[slot].append(batch),
            lambda: self.storage.journal.append(opens(slot), batch),
            at,
        )

    @rule(slot=st.integers(0, 3), at=crashes)
    def forget(self, slot: int, at: Crash) -> None:
        before = self.model.batches.get(slot, [])
        self.perform(
            lambda model: model.batches.pop(slot, None) and None,
            lambda: self.storage.journal.forget(opens(slot)),
            at,
        )
        if slot not in self.model.batches:
            self.forgotten += [batch[: batch.index(b">") + 1] for batch in before]

    @rule(first=st.integers(0, 12), length=st.integers(1, 3), counter=st.integers(0, 40), at=crashes)
    def lose(self, first: int, length: int, counter: int, at: Crash) -> None:
        def step(model: Model) -> None:
            model.rows.append((self.network, opens(first), opens(first + length), TOTAL))
            model.counters[self.network] = max(model.counters.get(self.network, 0), counter) + 1

        self.perform(
            step,
            lambda: self.storage.ledger.book_loss(
                opens(first), opens(first + length), TOTAL, "lost", at_ns=0, counter=counter
            ),
            at,
        )

    @rule(cut=st.floats(0, 1))
    def power_loss(self, cut: float) -> None:
        self.runs += 1
        target = Path(self.temporary.name) / f"run{self.runs}"
        copy_files(self.folder, target)
        self.tear(target, cut)
        self.come_back(target, self.model)

    @rule(network=st.sampled_from(["crowd", "crowd", "renamed"]))
    def restart(self, network: str) -> None:
        self.storage.close()
        if network != self.network:
            # The old name's promise goes on binding; releases and states belong to a name, payments to the folder.
            self.model.state = None
            self.model.released = set()
            self.network = network
            self.folder_of_name(network)
        self.open()
        self.model.state = self.storage.state() if self.model.state is None else self.model.state

    def folder_of_name(self, network: str) -> None:
        with Storage.open(self.folder, network_id=network) as storage:
            self.model.released = {found.slot for found in storage.releases.between(0, opens(99))}

    # ---------------------------------------------------------------------------------------------- invariants

    def agrees(self, model: Model) -> bool:
        """Whether the storage holds exactly what a model says."""
        entries = self.storage.ledger.payments_since(0)
        found = sorted((one.network, one.opens_ns, one.closes_ns, one.nano) for one in entries)
        return (
            found == sorted(model.rows)
            and self.storage.ledger.counter() == model.counters.get(self.network, 0)
            and self.storage.ledger.payments() == len(model.rows)
            and self.storage.ledger.total_spent() == sum(row[3] for row in model.rows)
            and self.storage.state() == model.state
            and {one.slot for one in self.storage.releases.between(0, opens(99))} == model.released
            and set(self.storage.journal.pending()) == {opens(slot) for slot in model.batches}
            and all(list(self.storage.journal.batches(opens(slot))) == kept for slot, kept in model.batches.items())
        )

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        assert self.agrees(self.model)

    @invariant()
    def drawn_values_never_change(self) -> None:
        for entry in self.storage.ledger.payments_since(EPOCH):
            if entry.kind == "sample" and entry.network == self.network:
                sample = self.storage.ledger.sample(entry.opens_ns)
                assert sample is not None
                assert sample.noisy == self.model.values[self.network, entry.opens_ns]

    @invariant()
    def forgotten_check_ins_are_in_no_file(self) -> None:
        content = bytes_on_disk(self.folder)
        assert not [batch for batch in self.forgotten if batch in content]

    def teardown(self) -> None:
        if hasattr(self, "temporary"):
            self.storage.close()
            self.patch.undo()
            self.temporary.cleanup()


TestStorageLife = pytest.mark.slow(StorageLife.TestCase)
TestStorageLife.settings = settings(max_examples=examples(20), stateful_step_count=20, deadline=None)
