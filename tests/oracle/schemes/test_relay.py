"""Relay against a central filter: whatever has arrived, a server knows exactly what one filter over it would know.

The oracle (`relay_support.CentralFilter`) is one dense Kalman filter, solved by least squares, that is given the plain
set of records. The servers get them one by one: late, lost, twice, in any order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay_support import CentralFilter, KnownNoise, Network, Records
from relay_worlds import SLOTS, draw_records, networks, play_records
from schemes_support import bits


def others(records: Records, number: int) -> list[tuple[int, int]]:
    return [key for key in records if key[0] != number]


@settings(max_examples=40)
@given(networks(), st.integers(0, 10**6))
@pytest.mark.slow
def test_a_server_knows_what_a_central_filter_would_know(network: Network, seed: int) -> None:
    """A record counted twice, in a wrong slot or with another variance would show in the digits."""
    rng = np.random.default_rng(seed)
    records = draw_records(network, rng)
    arrivals: dict[int, list[tuple[int, int]]] = {}
    for key in others(records, 0):
        for _ in range(rng.integers(0, 3)):  # lost, once, or twice
            arrivals.setdefault(key[1] + int(rng.integers(0, network.lag + 2)), []).append(key)
    for came in arrivals.values():
        rng.shuffle(came)
    releases, sets, server = play_records(network, 0, records, arrivals, SLOTS)
    oracle = CentralFilter(network)
    for slot in (*range(0, SLOTS, 5), SLOTS - 1):
        expected = oracle.run(sets[slot], slot)[slot]
        release = releases[slot]
        if expected.mean is None:
            assert np.isnan(release.estimate).all()
            assert np.isinf(release.variance).all()
            continue
        deviation = np.sqrt(np.diag(expected.cov))
        assert release.variance == pytest.approx(np.diag(expected.cov), rel=1e-9)
        assert (release.estimate - expected.mean) / deviation == pytest.approx(0.0, abs=1e-7)
        scale = max(1.0, np.abs(expected.mean).max())  # a mean near zero is a difference of larger numbers
        assert release.estimate == pytest.approx(expected.mean, rel=1e-9, abs=1e-9 * scale)
    late = sum(key[1] <= slot - network.lag for slot, came in arrivals.items() if slot < SLOTS for key in came)
    assert server.mailbox.late == late
    assert not server.mailbox.refused.any()


@settings(max_examples=30)
@given(networks(), st.integers(0, 10**6), st.booleans())
@pytest.mark.slow
def test_the_same_records_are_the_same_bits(network: Network, seed: int, learn: bool) -> None:
    """Sums in order of arrival, or a level taken when a record came, would let servers disagree for ever.

    So would a filter that learned from records in the order of their arrival.
    """
    network = replace(network, learn=learn)
    rng = np.random.default_rng(seed)
    records = draw_records(network, rng)
    slots = SLOTS + network.lag + 3
    played = []
    samples: dict[tuple[int, int], Any] = {}
    for slot in range(SLOTS):  # of the two servers: they count nobody
        noise = KnownNoise(network.servers, network.model.regions).noisy(slot, 0, None, None, True)
        samples |= {(number, slot): noise[number] for number in (0, 1) if network.due(slot, number)}
    records = {**{key: records[key] for key in records if key[0] > 1}, **samples}
    for number in (0, 1):
        arrivals: dict[int, list[tuple[int, int]]] = {}
        for key in others(records, number):
            arrivals.setdefault(key[1] + int(rng.integers(0, network.lag)), []).append(key)
        for came in arrivals.values():
            rng.shuffle(came)
        played.append(play_records(network, number, records, arrivals, slots))
    (first, first_sets, _), (second, second_sets, _) = played
    assert first_sets[-1].keys() == second_sets[-1].keys() == records.keys()
    compared = 0
    for slot in range(slots):
        if first_sets[slot].keys() == second_sets[slot].keys():
            assert bits(first[slot].estimate) == bits(second[slot].estimate)
            assert bits(first[slot].variance) == bits(second[slot].variance)
            compared += 1
    assert compared >= 3
