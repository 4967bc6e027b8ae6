"""Relay against a central filter: whatever has arrived, a server knows exactly what one filter over it would know.

The oracle (`relay_support.CentralFilter`) is one dense Kalman filter in moment form that is given the plain set of
records. The servers get them one by one: late, lost, twice, in any order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.server import Server, ServerRelease
from relay_support import CentralFilter, Network, Records, message_of
from schemes_support import bits

SLOTS = 26


@st.composite
def networks(draw: Any) -> Network:
    servers, d = draw(st.integers(2, 7)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    length = draw(st.sampled_from([6, 11, SLOTS]))
    window, together = draw(st.booleans()), draw(st.booleans())
    form = draw(st.sampled_from(["diagonal", "matrix"]))
    transition: Any = draw(st.sampled_from([1.0, 0.9]))
    process_var: Any = rng.uniform(10.0, 300.0, d)
    if form == "matrix" and draw(st.booleans()):
        transition = 0.8 * np.eye(d) + 0.2 * rng.dirichlet(np.ones(d), d).T
        root = rng.normal(0.0, 8.0, (d, d))
        process_var = root @ root.T + np.eye(d)
    return Network(
        shares=rng.uniform(0.1, 1.0, servers),
        model=ProcessModel.of(transition, process_var),
        guarantee=Guarantee.window(length, 2.0) if window else Guarantee.finite(SLOTS, 4.0),
        samples=draw(st.integers(2, length)),
        phases=np.zeros(servers, dtype=np.int64) if together else rng.integers(0, length if window else SLOTS, servers),
        lag=draw(st.integers(1, 6)),
        guard=draw(st.booleans()),
        form=form,
        observation=draw(st.sampled_from(["paper", "binomial"])),
    )


def draw_records(network: Network, rng: np.random.Generator) -> dict[tuple[int, int], Any]:
    """What each origin says in its slots: a crowd that wanders and once jumps, and some records that are far off."""
    d = network.model.regions
    crowd = np.cumsum(rng.normal(0, 8, (SLOTS, d)), axis=0) + rng.uniform(50, 900, d)
    wild = rng.choice([0.02, 0.15])
    crowd[SLOTS // 2 :] += rng.choice([0.0, 4000.0])
    records = {}
    for slot in range(SLOTS):
        for origin in range(network.servers):
            if network.due(slot, origin):
                values = network.shares[origin] * crowd[slot] + rng.laplace(0, 4, d)
                records[origin, slot] = np.rint(values * (-30 if rng.random() < wild else 1))
    return records


def play(
    network: Network, number: int, records: Records, arrivals: dict[int, list[tuple[int, int]]], slots: int
) -> tuple[list[ServerRelease], list[dict[tuple[int, int], Any]], Server]:
    """One server that is given records, by slot of arrival; its releases, and what it has had by then."""
    server, releases, known = network.server(number), [], {}
    sets = []
    for slot in range(slots):
        server.observe(slot, np.zeros(network.model.regions, dtype=np.int64), room=0 if slot >= SLOTS else None)
        sample = server.open_sample()
        if sample is not None:
            known[number, slot] = sample[1]
        came = arrivals.get(slot, [])
        messages = {}
        for part in range(2):  # of two neighbours
            if came[part::2]:
                messages[network.servers + part] = message_of(records, came[part::2], network.price)
        releases.append(server.hear(messages))
        for key in came:
            if key[1] > slot - network.lag:
                known.setdefault(key, records[key])
        sets.append(dict(known))
    return releases, sets, server


def others(records: Records, number: int) -> list[tuple[int, int]]:
    return [key for key in records if key[0] != number]


@settings(max_examples=60)
@given(networks(), st.integers(0, 10**6))
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
    releases, sets, server = play(network, 0, records, arrivals, SLOTS)
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
        assert release.estimate == pytest.approx(expected.mean, rel=1e-9, abs=1e-9)
    late = sum(key[1] <= slot - network.lag for slot, came in arrivals.items() if slot < SLOTS for key in came)
    assert server.mailbox.late == late
    assert not server.mailbox.refused.any()


@settings(max_examples=40)
@given(networks(), st.integers(0, 10**6))
def test_the_same_records_are_the_same_bits(network: Network, seed: int) -> None:
    """Sums in order of arrival, or a level taken when a record came, would let servers disagree for ever."""
    rng = np.random.default_rng(seed)
    records = draw_records(network, rng)
    slots = SLOTS + network.lag + 3
    played = []
    samples: dict[tuple[int, int], Any] = {}
    for number in (0, 1):  # their own records are their own
        _, sets, _ = play(network, number, records, {}, slots)
        samples |= sets[-1]
    records = {**{key: records[key] for key in records if key[0] > 1}, **samples}
    for number in (0, 1):
        arrivals: dict[int, list[tuple[int, int]]] = {}
        for key in others(records, number):
            arrivals.setdefault(key[1] + int(rng.integers(0, network.lag)), []).append(key)
        for came in arrivals.values():
            rng.shuffle(came)
        played.append(play(network, number, records, arrivals, slots))
    (first, first_sets, _), (second, second_sets, _) = played
    compared = 0
    for slot in range(slots):
        if first_sets[slot].keys() == second_sets[slot].keys():
            assert bits(first[slot].estimate) == bits(second[slot].estimate)
            assert bits(first[slot].variance) == bits(second[slot].variance)
            compared += 1
    assert compared >= 3
