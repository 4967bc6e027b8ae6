"""A simulated network that relays, and single servers that pass messages slot by slot: the same bits.

Static and changing links, both engines, every reach; servers that are saved and restored, cut off, or away for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.filters import ProcessModel
from dpcrowd.network.graph import Graph
from dpcrowd.network.hearing import one_hop_hearing
from dpcrowd.privacy import Guarantee, Users
from dpcrowd.schemes.base import Plan, Release, run_slot
from dpcrowd.schemes.relay import Relay
from dpcrowd.schemes.relay_state import RelayState
from dpcrowd.schemes.server import Server
from relay_support import KnownNoise, Network, message_of
from schemes_support import bits

pytestmark = pytest.mark.slow

SLOTS, SERVERS = 26, 6
"""A window and a lag more; a ring of six has servers that are three links apart: records of all reaches differ."""
Engine = Literal["numpy", "numba"]
Cut = set[tuple[int, int]]
"""(slot, server): neither samples nor links."""


def make_network(users: Users = "pinned", regions: int = 2, partition: bool = False, **more: Any) -> Network:
    shares = np.random.default_rng(1).uniform(0.2, 1.0, SERVERS)
    options: dict[str, Any] = {"lag": 6, **more}
    return Network(
        shares=shares / shares.sum() if partition else shares,
        model=ProcessModel.of(1.0, np.linspace(100.0, 50.0, regions)),
        guarantee=Guarantee.window(20, 1.0, users=users),
        samples=7,
        phases=np.arange(SERVERS, dtype=np.int64) * 3 % 20,
        **options,
    )


def links(slot: int, *, changing: bool, cut: Cut) -> Graph:
    """A ring, or as many random links as it has; none for those that are cut off."""
    first, second = np.arange(SERVERS), (np.arange(SERVERS) + 1) % SERVERS
    if changing:
        rng = np.random.default_rng([slot, 9])
        pairs = np.argwhere(np.triu(np.ones((SERVERS, SERVERS)), 1))
        first, second = rng.permutation(pairs)[:SERVERS].T
    there = [(slot, int(a)) not in cut and (slot, int(b)) not in cut for a, b in zip(first, second, strict=True)]
    return Graph.from_edges(SERVERS, first[there], second[there], check=False)


class CutOff(Relay):
    """A simulation in which some servers cannot sample in some slots."""

    cut: Cut

    def plan(self, state: RelayState, slot: int, shares: Any) -> Plan:
        plan = super().plan(state, slot, shares)
        there = np.array([[(slot, server) not in self.cut] for server in range(SERVERS)])
        return replace(plan, due=plan.due & there)


def simulate(network: Network, engine: Engine, changing: bool, cut: Cut, slots: int = SLOTS) -> list[Release]:
    scheme = CutOff(samples=network.samples, lag=network.lag, guard=network.guard, **network.options)
    scheme.cut = cut
    state, noise, releases = scheme.start(network.setting()), KnownNoise(SERVERS, network.model.regions), []
    for slot in range(slots):
        graph = links(slot, changing=changing, cut=cut)
        hearing = replace(one_hop_hearing(graph, 0.1, engine), graph=graph, same_links=not changing)
        shares = network.shares[:, None]
        releases.append(run_slot(scheme, state, slot, shares, counts_of(slot, network), noise, hearing))
    return releases


def counts_of(slot: int, network: Network) -> Any:
    size = (SERVERS, network.model.regions)
    return np.random.default_rng([slot, 3]).integers(100, 130 if slot < 20 else 2000, size)


def run_servers(
    network: Network, changing: bool, cut: Cut, meddle: Callable[[int, list[Server]], None] | None = None
) -> list[list[Release]]:
    servers, releases = [network.server(number) for number in range(SERVERS)], []
    for slot in range(SLOTS):
        graph, counts = links(slot, changing=changing, cut=cut), counts_of(slot, network)
        sent = [
            server.observe(slot, None if (slot, number) in cut else counts[number])
            for number, server in enumerate(servers)
        ]
        if meddle is not None:
            meddle(slot, servers)
        releases.append(
            [
                server.hear({int(n): message for n in graph.neighbours(i) if (message := sent[n]) is not None})
                for i, server in enumerate(servers)
            ]
        )
    for server in servers:
        assert not server.mailbox.refused.any()
        assert server.mailbox.late == 0
    return releases


def assert_same(singles: list[list[Release]], batch: list[Release]) -> None:
    for single, release in zip(singles, batch, strict=True):
        for number, one in enumerate(single):
            assert bits(one.estimate) == bits(release.estimate[number]), (release.slot, number)
            assert bits(one.variance) == bits(release.variance[number]), (release.slot, number)
            assert one.sampled.any() == release.sampled[number].any(), (release.slot, number)


@pytest.mark.parametrize(
    ("reach", "changing", "form"),
    [  # every pair of two options
        (1, False, "diagonal"),
        (1, True, "matrix"),
        (2, True, "diagonal"),
        (2, False, "matrix"),
        ("all", False, "diagonal"),
        ("all", True, "matrix"),
    ],
)
def test_servers_release_the_bits_of_the_simulation(reach: Any, changing: bool, form: Any) -> None:
    """If they differed, a simulated figure would say nothing about a network that runs; by either engine."""
    pytest.importorskip("numba")
    observation: Any = "binomial" if changing else "paper"
    network = make_network(form=form, observation=observation, options={"reach": reach})
    servers = run_servers(network, changing, set())
    assert_same(servers, simulate(network, "numpy", changing, set()))
    assert_same(servers, simulate(network, "numba", changing, set()))


@pytest.mark.parametrize(
    ("reach", "regions", "partition", "learn"),
    [  # every pair of two options
        (1, 1, False, False),
        (1, 2, True, True),
        (2, 1, True, False),
        (2, 2, False, True),
        ("all", 2, True, False),
        ("all", 1, False, True),
        ("all", 2, False, False),
        ("all", 1, True, True),
    ],
)
def test_servers_whose_users_stay(reach: Any, regions: int, partition: bool, learn: bool) -> None:
    """The memory of deviations depends on the set of records alone: late ones and other engines change no bit."""
    network = make_network(
        regions=regions,
        partition=partition,
        observation="binomial",
        turnover=0.1,
        learn=learn,
        options={"reach": reach},
    )
    servers = run_servers(network, True, set())
    assert_same(servers, simulate(network, "numpy", True, set()))
    assert_same(servers, simulate(network, "numba", True, set()))
    plain = simulate(replace(network, turnover=1.0), "numpy", True, set(), slots=12)
    assert bits(plain[-1].variance[0]) != bits(servers[11][0].variance)


@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("reach", [1, "all"])
def test_servers_that_divide_fresh_users(reach: Any, learn: bool) -> None:
    """Deviations that sum to 0 in each slot count the same in every engine, and as those of users who hardly stay."""
    network = make_network(partition=True, observation="binomial", learn=learn, options={"reach": reach})
    releases = simulate(network, "numpy", True, set())
    assert_same(run_servers(network, True, set()), releases)
    assert_same(run_servers(network, True, set()), simulate(network, "numba", True, set()))
    hardly = simulate(replace(network, turnover=1.0 - 1e-12), "numpy", True, set())
    for one, other in zip(releases, hardly, strict=True):
        np.testing.assert_allclose(one.estimate, other.estimate, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(one.variance, other.variance, rtol=1e-6)


@pytest.mark.parametrize("partition", [False, True])
def test_servers_whose_users_stay_are_saved_and_restored(partition: bool) -> None:
    """A memory of deviations that was not saved would begin anew, with too narrow intervals."""
    network = make_network(partition=partition, observation="binomial", turnover=0.1)

    def restart(slot: int, servers: list[Server]) -> None:
        number = slot % SERVERS
        saved, fresh = servers[number].save(), network.server(number)
        fresh.restore(saved)
        assert fresh.save() == saved
        servers[number] = fresh

    assert_same(run_servers(network, True, set(), restart), simulate(network, "numpy", True, set()))


@pytest.mark.parametrize("users", ["pinned", "roaming"])
@pytest.mark.parametrize("guard", [True, False])
def test_servers_that_are_cut_off(users: Users, guard: bool) -> None:
    """Who was cut off samples late (pinned) or not at all (lockstep), and others still learn its records exactly."""
    network = make_network(users, guard=guard)
    gaps = {1: range(10, 14), 2: range(10, 17), 3: range(11, 19)}
    cut = {(slot, server) for server, gap in gaps.items() for slot in gap} | {(0, 5), (24, 5)}
    releases = simulate(network, "numpy", False, cut)
    assert_same(run_servers(network, False, cut), releases)
    taken = np.array([release.sampled[:, 0] for release in releases])
    full = np.array([release.sampled[:, 0] for release in simulate(network, "numpy", False, set())])
    for server, gap in gaps.items():
        missed = full[gap, server].any()
        assert missed
        assert not taken[gap, server].any()
        back = gap.stop
        due = int(np.flatnonzero(full[gap.start :, server])[0]) + gap.start
        # Soon after a sample was due it is taken, and everything later moves along; after an interval it is given up.
        first = due if users == "pinned" and back - due < 3 else back
        assert (taken[back:, server] == full[first : first + SLOTS - back, server]).all()


@settings(max_examples=8)
@given(st.integers(0, 10**6), st.sampled_from(["diagonal", "matrix"]), st.booleans())
def test_servers_that_are_saved_and_restored(seed: int, form: Any, changing: bool) -> None:
    """A server that was killed between any two calls goes on with what it had: a lost record or score would show."""
    network = make_network(form=form)
    rng = np.random.default_rng(seed)

    def restart(slot: int, servers: list[Server]) -> None:
        for number in np.flatnonzero(rng.random(SERVERS) < 0.15):
            saved, fresh = servers[number].save(), network.server(int(number))
            fresh.restore(saved)
            assert fresh.save() == saved
            servers[number] = fresh

    assert_same(run_servers(network, changing, set(), restart), undisturbed(form, changing))


@cache
def undisturbed(form: Any, changing: bool) -> list[Release]:
    return simulate(make_network(form=form), "numpy", changing, set())


@pytest.mark.parametrize("gap", [1, 6, 7, 65])  # up to the lag, above it, and above three windows
@pytest.mark.parametrize("users", ["pinned", "roaming"])
@pytest.mark.parametrize("form", ["diagonal", "matrix"])
def test_skipped_slots_are_slots_in_which_nothing_happened(gap: int, users: Users, form: Any) -> None:
    """A process that was down must not mistake old records for new ones, nor forget that it has missed a sample."""
    assert_skipped(make_network(users, form=form, regions=1), gap)


@pytest.mark.parametrize("gap", [1, 6, 7, 30])
@pytest.mark.parametrize("partition", [False, True])
def test_deviations_fade_in_skipped_slots(gap: int, partition: bool) -> None:
    """A server that was away must remember of deviations what one that was idle does, and not more."""
    network = make_network(regions=1, partition=partition, observation="binomial", turnover=0.1)
    assert_skipped(network, gap)


def assert_skipped(network: Network, gap: int) -> None:
    away, idle = network.server(0), network.server(0)
    for slot in range(12):
        heard = {(origin, slot): np.array([200.0 + 40 * origin]) for origin in (1, 2) if network.due(slot, origin)}
        for server in (away, idle):
            server.observe(slot, [150])
            server.hear({1: message_of(heard, list(heard), network.price)} if heard else None)
    for slot in range(12, 12 + gap):
        idle.observe(slot, None)
        idle.hear()
    for slot in range(12 + gap, 50 + gap):
        releases = []
        for server in (away, idle):
            server.observe(slot, [150])
            late = {(3, slot - 1): np.array([300.0])} if slot % 8 == 0 else {}
            releases.append(server.hear({1: message_of(late, list(late), network.price)} if late else None))
        one, other = releases
        assert (one.sampled == other.sampled).all(), slot
        if gap <= network.lag:
            assert bits(one.estimate) == bits(other.estimate)
            assert bits(one.variance) == bits(other.variance)
        assert one.estimate == pytest.approx(other.estimate, rel=1e-9)
        assert one.variance == pytest.approx(other.variance, rel=1e-9)
    assert (away.mailbox.held == idle.mailbox.held).all()
    assert (away.mailbox.paid_until == idle.mailbox.paid_until).all()


def test_what_was_heard_before_a_gap_is_passed_on_in_its_own_slot() -> None:
    """Under another slot's number a record would be a forgery, and its origin would pay for it."""
    network = make_network(regions=1)
    server = network.server(0)
    records = {(1, 3): np.array([77.0]), (2, 1): np.array([55.0])}
    for slot in range(4):
        server.observe(slot, [150])
        server.hear({1: message_of(records, list(records), network.price)} if slot == 3 else None)
    message: Any = server.observe(7, None)
    assert dict(zip(message.origin.tolist(), message.slot.tolist(), strict=True)) == {
        1: 3
    }  # that of slot 1 is too late
    assert message.noisy.tolist() == [[77.0]]


def test_a_server_that_begins_late_keeps_its_phase() -> None:
    """Whoever joins in slot a million has missed nothing: it must not sample out of turn, nor run through them all."""
    network = make_network(regions=1)
    server, first = network.server(4), 1_000_000
    sampled = []
    for slot in range(first, first + 20):
        server.observe(slot, [150])
        sampled.append(bool(server.hear().sampled.any()))
    assert sampled == [network.due(slot, 4) for slot in range(first, first + 20)]
