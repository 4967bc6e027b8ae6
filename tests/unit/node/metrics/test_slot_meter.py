"""What a node counts of its slots: samples and their absence, exchanges, delays, clocks, storage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.machine import instructions as do
from dpcrowd.node.metrics.registry import render_all
from dpcrowd.node.metrics.slot_meter import SlotMeter
from dpcrowd.node.slots import SECOND
from dpcrowd.node.storage import StorageError
from node_support_lone import Lone, beat

TENTH = SECOND // 10


class Metered:
    """A node of the tests whose instructions are told to a meter; its neighbours are servers 1 and 2."""

    def __init__(self) -> None:
        self.node = Lone()
        self.now = 0
        self.meter = SlotMeter(lambda: self.now)
        self.view = self.node.view

    def seal(self, slot: int) -> None:
        """A slot is sealed in time, and sampled."""
        last = self.node.machine.server.slot
        self.meter.sealing(slot, last)
        self.node.seal(slot)
        self._tell()

    def hear(self, number: int, slot: int, late_ns: int) -> None:
        """A heartbeat comes so long after the seal of its slot, by this node's clock."""
        self.now = self.view.seals(slot) + late_ns
        payload = beat(number, slot)
        self.meter.arrived(f"server-{number}", payload, self.now, self.view)
        self.node.hear(number, payload)
        self._tell()

    def deadline(self, slot: int) -> None:
        self.now = self.view.ends(slot)
        self.node.pass_deadline(slot)
        self._tell()

    def _tell(self) -> None:
        for instruction in self.node.take(do.Instruction):  # type: ignore[arg-type]
            self.meter.carried_out(instruction, self.view)

    def __getitem__(self, name: str) -> float:
        return values(self.meter)[name]


def values(meter: SlotMeter) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in render_all([meter.registry], "reader").splitlines() if line[0] != "#"]
    return {name: float(value) for name, _, value in lines}


def test_samples_and_complete_exchanges_are_counted() -> None:
    """An operator sees that a node works by its samples; 'ready' says only that it could."""
    metered = Metered()
    for slot in (0, 1, 2):
        metered.seal(slot)
        metered.hear(1, slot, TENTH // 2)
        if slot < 2:
            metered.hear(2, slot, 3 * TENTH)
    metered.deadline(2)
    assert metered["dpcrowd_samples_total"] == 3
    assert metered['dpcrowd_exchanges_total{outcome="complete"}'] == 2
    assert metered['dpcrowd_exchanges_total{outcome="incomplete"}'] == 1
    assert metered['dpcrowd_slots_unsampled_total{reason="schedule"}'] == 0


def test_delays_are_measured_from_the_seal() -> None:
    """Measured from the end of this node's own work they would depend on how much there was to count."""
    metered = Metered()
    metered.seal(0)
    metered.hear(1, 0, TENTH)
    metered.hear(2, 0, 4 * TENTH)  # the last one: the slot is released now, by this clock 0.4 s after its seal
    one, two = (f'dpcrowd_message_delay_seconds_bucket{{neighbour="server-{number}",le="0.25"}}' for number in (1, 2))
    assert (metered[one], metered[two]) == (1, 0)
    assert metered['dpcrowd_message_delay_seconds_bucket{neighbour="server-2",le="0.5"}'] == 1
    assert metered['dpcrowd_release_delay_seconds_bucket{le="0.25"}'] == 0
    assert metered['dpcrowd_release_delay_seconds_bucket{le="0.5"}'] == 1


def test_a_message_that_was_not_used_has_no_delay() -> None:
    """It is counted as refused; a delay of it would be that of a message that never mattered."""
    metered = Metered()
    metered.seal(0)
    metered.deadline(0)
    metered.hear(1, 0, 6 * TENTH)
    assert not any(name.startswith("dpcrowd_message_delay_seconds") for name in values(metered.meter))


@pytest.mark.parametrize(
    ("delays", "offset"),
    [
        ((2, 3, 9), 0.1),  # clocks agree: quick messages, rounded up
        ((13, 12, 14), 0.2),
        ((-320, -318, -325), -3.2),  # this clock is behind: messages come before their slot is sealed here
        ((36_000_000, 36_000_004), 360_000.0),  # far ahead: everything is late, and nothing of it is used
    ],
)
def test_the_clock_of_a_neighbour_is_judged_by_all_of_its_messages(delays: tuple[int, ...], offset: float) -> None:
    """A clock that is wrong by more than a slot has every message refused: exactly then its offset must show."""
    metered = Metered()
    for slot, hundredths in enumerate(delays):
        now = metered.view.seals(slot) + hundredths * SECOND // 100
        metered.meter.arrived("server-1", beat(1, slot), now, metered.view)
    assert metered.meter.clock_offsets() == {"server-1": offset}


def test_the_public_moment_of_sending_is_no_delay() -> None:
    """With a send_offset of seconds every clock would seem to be ahead, and every neighbour slow."""
    metered = Metered()
    metered.view = replace(metered.view, send_offset_ns=3 * SECOND)
    metered.meter.arrived("server-1", beat(1, 0), metered.view.seals(0) + 3 * SECOND + TENTH // 2, metered.view)
    assert metered.meter.clock_offsets() == {"server-1": 0.1}
    metered.seal(0)
    metered.now = metered.view.seals(0) + 3 * SECOND + 2 * TENTH
    metered.node.hear(1, beat(1, 0))
    metered.node.hear(2, beat(2, 0))
    metered._tell()
    assert metered['dpcrowd_message_delay_seconds_bucket{neighbour="server-1",le="0.25"}'] == 1
    assert metered['dpcrowd_release_delay_seconds_bucket{le="0.25"}'] == 1


def test_a_message_that_is_sent_again_does_not_change_the_clock() -> None:
    """A neighbour that comes up sends its slot again; that it comes late then says nothing of its clock."""
    metered = Metered()
    for late in (1, *[50] * 12):
        metered.meter.arrived("server-1", beat(1, 0), metered.view.seals(0) + late * SECOND, metered.view)
    assert metered.meter.clock_offsets() == {"server-1": 1.0}
    metered.meter.arrived("server-1", b"nonsense", metered.view.seals(1), metered.view)
    assert metered.meter.clock_offsets() == {"server-1": 1.0}


def test_what_is_told_to_a_newcomer_says_nothing_of_the_clock() -> None:
    """It is of the slot before, and comes when the link does: a neighbour would look as if its clock were behind."""
    it = Metered()
    at_ns = it.view.ends(4) + TENTH
    it.meter.arrived("server-1", beat(1, 4, after=True), at_ns, it.view)
    assert it.meter.clock_offsets() == {}
    it.meter.arrived("server-1", beat(1, 4), at_ns, it.view)
    assert it.meter.clock_offsets() != {}


def test_a_neighbour_that_invents_slots_takes_no_memory() -> None:
    """One entry for every slot that it can name would fill the node's memory."""
    metered = Metered()
    for slot in range(1_000):
        metered.meter.arrived("server-1", beat(1, 10**6 + slot), SECOND, metered.view)
    assert len(metered.meter._arrivals["server-1"]) == 4
    metered.seal(0)
    metered.deadline(0)
    assert metered.meter._arrivals == {"server-1": {}}
    metered.seal(1)
    metered.hear(1, 1, TENTH)
    metered.deadline(1)
    assert metered['dpcrowd_message_delay_seconds_count{neighbour="server-1"}'] == 1


def test_slots_that_passed_without_the_node_are_counted() -> None:
    """How much a stop or a sleeping machine has cost is in no other metric: those slots were never sealed."""
    metered = Metered()
    metered.seal(3)  # the first slot of a new node: nothing was missed before it
    metered.deadline(3)
    assert metered["dpcrowd_slots_missed_total"] == 0
    metered.seal(4)
    metered.deadline(4)
    metered.seal(9)
    assert metered["dpcrowd_slots_missed_total"] == 4


def test_a_slot_without_a_sample_has_one_reason() -> None:
    """The reason that the machine gives; a storage failure is counted by itself."""
    meter, view = SlotMeter(), Lone().view
    for slot, why in enumerate(("downtime", "storage", "storage", "budget")):
        meter.carried_out(do.NotSampled(slot, why), view)  # type: ignore[arg-type]
    meter.failed(StorageError("full", "the disk is full", "free some"))
    meter.failed(BadInput("the ledger refused to pay"))  # the disk is well
    counted = values(meter)
    reasons = {name: value for name, value in counted.items() if name.startswith("dpcrowd_slots_unsampled") and value}
    assert reasons == {
        'dpcrowd_slots_unsampled_total{reason="downtime"}': 1,
        'dpcrowd_slots_unsampled_total{reason="storage"}': 2,
        'dpcrowd_slots_unsampled_total{reason="budget"}': 1,
    }
    assert counted['dpcrowd_storage_failures_total{kind="full"}'] == 1
    assert counted["dpcrowd_samples_total"] == 0


def test_jumps_and_standstills_are_counted() -> None:
    """A clock that is set twice a day is a machine whose NTP is broken; a log line is read by nobody."""
    meter = SlotMeter()
    for moved, still in ((0, 0), (3 * SECOND, 0), (-5 * SECOND, 0), (2 * SECOND, 12 * SECOND)):
        meter.looked_at_clock(moved, still)
    counted = values(meter)
    assert counted['dpcrowd_clock_jumps_total{direction="ahead"}'] == 2
    assert counted['dpcrowd_clock_jumps_total{direction="back"}'] == 1
    assert counted["dpcrowd_stood_still_total"] == 1
