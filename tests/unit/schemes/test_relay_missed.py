"""Samples that could not be taken: taken soon afterwards, or not at all; in both cases servers stay apart."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import Guarantee
from relay_support import Network

WINDOW, SAMPLES = 12, 3
INTERVAL = WINDOW // SAMPLES
COUNTS = [300, 40]


def sampled_slots(number: int, away: range, until: int = 40, *, skip: bool = False) -> list[int]:
    """Return the slots in which a server samples that cannot sample, or is not even there, in some slots."""
    network = Network(
        shares=np.array([0.5, 0.4]),
        model=ProcessModel.of(1.0, [100.0, 25.0]),
        guarantee=Guarantee.window(WINDOW, 3.0),
        samples=SAMPLES,
        phases=np.array([0, 5]),
        lag=5,
    )
    server, slots = network.server(number), []
    for slot in range(until):
        if slot in away and skip:
            continue
        server.observe(slot, None if slot in away else COUNTS)
        if server.hear().epsilon:
            slots.append(slot)
    return slots


@pytest.mark.parametrize("number", [0, 1])
def test_a_sample_that_is_missed_for_a_moment_moves_all_later_ones(number: int) -> None:
    """Otherwise a slot without storage would cost a complete interval."""
    undisturbed = sampled_slots(number, range(0))
    third = undisturbed[2]
    late = sampled_slots(number, range(third, third + 2))
    assert late[:3] == [*undisturbed[:2], third + 2]
    assert set(np.diff(late[2:])) == {INTERVAL}


@pytest.mark.parametrize(
    ("away", "skip"),
    [(range(9, 9 + INTERVAL + 3), False), (range(10, 30), False), (range(10, 30), True), (range(5), False)],
)
def test_servers_that_were_away_together_stay_apart(away: range, skip: bool) -> None:
    """If each sampled as soon as it is back, or has started, they would sample in the same slots from then on."""
    slots = [sampled_slots(number, away, skip=skip) for number in (0, 1)]
    for number in (0, 1):
        undisturbed = sampled_slots(number, range(0))
        back = [slot for slot in slots[number] if slot >= away.stop + INTERVAL]
        assert back == [slot for slot in undisturbed if slot >= back[0]]
    assert not {slot for slot in slots[0] if slot > away.stop + 1} & set(slots[1])
