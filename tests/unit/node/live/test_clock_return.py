"""Accepting a clock that went back: when there is something to accept, what is told, and what a failing disk leaves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.live.account_loader import AccountLoader
from dpcrowd.node.live.node import LiveNode
from dpcrowd.node.live.open import open_node
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.machine.clock_return import check_acceptable, wait_text
from dpcrowd.node.release import SlotRelease
from dpcrowd.node.slots import SECOND
from dpcrowd.node.storage import StorageError
from dpcrowd.privacy.account_ledger import AccountLedger
from dpcrowd.privacy.network_guarantee import Slots
from dpcrowd.privacy.units import NANO
from dpcrowd.schemes.server import saved_slot
from node_support_doctor import look, problems
from node_support_storage import EPOCH, LENGTH, draw, open_storage

AHEAD = 100


@pytest.fixture
def live(net: Path) -> Iterator[LiveNode]:
    """A node that does not run, whose clock was ahead by a hundred slots and has come back."""
    with open_node(net / "server-1" / "node.toml") as node:
        last = node.clock.slot_of(time.time_ns())
        machine = node.executor.machine
        machine.server.observe(last + AHEAD, None)
        machine.server.hear()
        machine.trust.complete_until = last + AHEAD
        releases = [_release(node, last - 3), _release(node, last + AHEAD)]
        node._storage.commit_release(releases, machine.server.save(), complete_until=last + AHEAD)
        yield node


def _release(node: LiveNode, slot: int) -> SlotRelease:
    regions = tuple(node.revision.regions)
    unknown = np.full(len(regions), np.nan)
    return SlotRelease(slot, node.clock.opens(slot), node.clock.length_ns, regions, unknown, unknown, False, 0)


def _accept(node: LiveNode, now_ns: int) -> str:
    """As the node would, if it ran; what the operator is told."""

    async def run() -> str:
        working = asyncio.create_task(node.executor.run())
        try:
            return await node.executor.ask(on.ClockAccepted(now_ns))
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    return asyncio.run(run())


def test_slots_begin_again_on_disk_and_in_memory(live: LiveNode) -> None:
    """A restart right after it must not wait again, nor find releases of slots that are still to come."""
    now, machine = time.time_ns(), live.executor.machine
    text, last = _accept(live, now), machine.server.slot
    assert last == machine.view.next_seal(now) - 1
    assert f"they begin again with slot {last + 1}" in text
    assert "Nothing was sampled by that clock" in text
    state = live._storage.state()
    assert state is not None
    assert saved_slot(state) == last
    kept = live._storage.releases.latest()
    assert kept is not None
    assert kept.slot <= last
    assert live._storage.memory.complete_until() == machine.trust.complete_until == kept.slot
    assert [(event.kind, event.text) for event in live._storage.events.all()] == [("clock-accepted", text)]


def test_a_disk_that_fails_leaves_everything_as_it_was(live: LiveNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begun again in memory alone, a crash would find a later state, and slots would be told by two lives."""
    machine = live.executor.machine
    before, slot = machine.server.save(), machine.server.slot

    def full(*_: object) -> None:
        raise StorageError("full", "no space", "free some")

    monkeypatch.setattr(live._storage, "accept_clock", full)
    with pytest.raises(StorageError):
        _accept(live, time.time_ns())
    assert machine.server.save() == before
    assert machine.trust.complete_until == slot


def test_what_was_paid_by_the_wrong_clock_is_told(live: LiveNode) -> None:
    """The operator decides on it: that is the price."""
    slot = live.clock.slot_of(time.time_ns()) + AHEAD
    live._storage.commit_sample(slot, live.clock.opens(slot), live.clock.length_ns, NANO // 8, b"", b"")
    assert "sampled 1 slot for ε=0.125, which stays spent" in _accept(live, time.time_ns())


@pytest.mark.parametrize(
    ("slots_behind", "refusal"), [(-1, "there is nothing to accept"), (1, "only to wait"), (50, None)]
)
def test_when_there_is_something_to_accept(slots_behind: int, refusal: str | None, live: LiveNode) -> None:
    """Accepted by mistake, it would cost the open slot; and nobody has to decide about seconds."""
    view, sealed = live.executor.machine.view, live._last_sealed
    now = view.clock.closes(sealed) - slots_behind * view.clock.length_ns
    if refusal is None:
        check_acceptable(view, sealed, now)
    else:
        with pytest.raises(BadInput, match=refusal):
            check_acceptable(view, sealed, now)
    assert bool(wait_text(view, sealed, now, None)) == (slots_behind > 0)
    assert ("accept-clock" in wait_text(view, sealed, now, None)) == (refusal is None)


def test_the_text_says_when_and_how_far(live: LiveNode) -> None:
    """What the operator has to compare with the log of NTP."""
    view, sealed = live.executor.machine.view, live._last_sealed
    now = view.clock.closes(sealed) - 50 * view.clock.length_ns
    text = wait_text(view, sealed, now, (1_800_000_000 * SECOND, 3725 * SECOND))
    assert "the clock went back by 1 h 2 min 5 s at 2027-01-15T08:00:00Z" in text


def test_a_revision_that_took_over_too_early_is_waited_for(live: LiveNode) -> None:
    """The neighbours refuse its messages until its slot has come."""
    view, sealed = live.executor.machine.view, live._last_sealed
    ahead = replace(view, first_slot=sealed - 1, revision=2)
    with pytest.raises(BadInput, match="revision 2 took over by the clock that was ahead"):
        check_acceptable(ahead, sealed, time.time_ns())


@pytest.mark.slow
def test_the_doctor_goes_by_what_was_accepted(net: Path) -> None:
    """What was paid ahead of time stays in the ledger: by that, the clock would look wrong for an hour."""
    with open_node(net / "server-1" / "node.toml") as node:
        slot = node.clock.slot_of(time.time_ns()) + AHEAD
        machine = node.executor.machine
        machine.server.observe(slot, None)
        machine.server.hear()
        state = machine.server.save()
        node._storage.commit_sample(slot, node.clock.opens(slot), node.clock.length_ns, NANO // 8, b"", state)
        found = problems(look(net))["clock"]
        assert "has sealed a slot" in found
        _accept(node, time.time_ns())
        assert "clock" not in problems(look(net))


def test_a_slot_that_was_drawn_before_is_given_no_room(tmp_path: Path) -> None:
    """Drawn and then refused by the ledger, it would look as if the disk had failed."""
    with open_storage(tmp_path, nano=NANO, slots=40) as storage:
        draw(storage, 9, nano=NANO // 40)
        account = AccountLoader(storage, Slots(EPOCH, LENGTH, 40)).load(8)
        assert account is not None
        ledger = AccountLedger(account)
        assert ledger.remaining(8) > 0
        assert ledger.remaining(9) == 0
        assert ledger.remaining(10) > 0
