"""A network of single servers that pass messages releases the same bits as the batch that the simulator runs.

This is what makes a simulated figure a statement about a live network: one arithmetic, two drivers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from dpcrowd.filters import Course, Observation, ProcessModel, share_learning
from dpcrowd.network.costs import components
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes import relay_surprise
from dpcrowd.schemes.base import Form, Release
from dpcrowd.schemes.messages import Messages
from dpcrowd.schemes.registry import SCHEMES, make_scheme
from dpcrowd.schemes.server import Server
from schemes_support import CASES, SERVERS, WINDOW, Case, World, bits, make_server, make_setting, make_world, play

# Central hears all servers in one place, so no single server can run it. Roaming users change prices and accounts, as
# they do with several regions and the sound ledger: the other cases with them take the same paths again.
SINGLE = [
    case
    for case in CASES
    if case.name != "central" and (case.users == "pinned" or (case.regions > 1 and case.accounting == "sound"))
]
SLOTS = 2 * WINDOW
"""Long enough for payments to come back, for intervals of adaptive sampling to change, and for groups to form anew."""
Meddle = Callable[[int, list[Server]], None]


def audience(world: World, reach: str, slot: int, server: int) -> list[int]:
    """Whose messages reach a server."""
    if reach in ("one-hop", "relay"):
        return [int(n) for n in world.graph(slot).neighbours(server)]
    if reach == "flooding":
        labels = components(world.graph(slot))
        return [int(n) for n in np.flatnonzero(labels == labels[server]) if n != server]
    return []


def run_network(world: World, servers: list[Server], meddle: Meddle | None = None) -> list[list[Release]]:
    """Slot by slot: everybody observes, messages travel along the links, everybody hears."""
    releases = []
    for slot in range(world.slots):
        said: Mapping[int, Messages] = {
            number: message
            for number, server in enumerate(servers)
            if (message := server.observe(slot, world.counts[slot, number])) is not None
        }
        if meddle is not None:
            meddle(slot, servers)
        heard = [audience(world, server.scheme.reach, slot, number) for number, server in enumerate(servers)]
        releases.append([server.hear({n: said[n] for n in heard[i] if n in said}) for i, server in enumerate(servers)])
    return releases


def assert_same_bits(singles: list[list[Release]], batch: list[Release]) -> None:
    for single, release in zip(singles, batch, strict=True):
        low, high = release.interval
        for number, one in enumerate(single):
            for mine, theirs in (
                (one.estimate, release.estimate),
                (one.variance, release.variance),
                (one.low, low),
                (one.high, high),
            ):
                assert bits(mine) == bits(theirs[number]), (release.slot, number)
            assert (one.sampled == release.sampled[number]).all()
            assert one.epsilon == int(release.charge[number].max()) / 1e9
            assert one.slot == release.slot


def test_what_one_server_released_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds are computed when they are asked for: of a later slot, if the scheme wrote into its arrays meanwhile."""
    world = make_world(2, regions=2, slots=1, changing=False)
    server = make_server(world, "dpcrowd-w", make_setting(SERVERS, 2, Guarantee.window(6, 2.0)), 0)
    batch = Release(
        slot=7,
        estimate=np.array([[3.0, np.nan]]),
        variance=np.array([[16.0, np.inf]]),
        sampled=np.array([[False]]),
        charge=np.array([[12_000_000_001]]),
        speaks=np.array([False]),
    )
    monkeypatch.setattr(server.scheme, "release", lambda *_: batch)
    low, high = batch.interval
    server.observe(0, world.counts[0, 0])
    one = server.hear()
    for values in (batch.estimate, batch.variance, batch.sampled, batch.charge, batch.speaks):
        values[:] = 0
    assert (bits(one.low), bits(one.high)) == (bits(low[0]), bits(high[0]))
    assert one.estimate.tolist()[0] == 3.0
    assert one.sampled.tolist() == [False, False]
    assert (one.slot, one.nano, one.epsilon, bool(one.speaks)) == (7, 12_000_000_001, 12.000000001, False)


def is_plain(case: Case) -> bool:
    """Whether `make check` has a case: of each scheme the usual one with several regions, of relay each."""
    return case == Case(case.name, regions=4) or case.name == "relay"


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [case if is_plain(case) else pytest.param(case, marks=pytest.mark.slow) for case in SINGLE], ids=str
)
def test_servers_release_the_bits_of_the_batch(case: Case) -> None:
    """A sum in another order, another step size or another draw would make the simulator speak of another system."""
    one_graph = case == Case(case.name)  # in all other cases the links change from slot to slot
    world = make_world(2, regions=case.regions, slots=SLOTS, changing=not one_graph)
    setting = case.setting()
    servers = [make_server(world, case.name, setting, number) for number in range(SERVERS)]
    assert_same_bits(run_network(world, servers), play(case.scheme(), setting, world))


@pytest.mark.parametrize("name", ["dpcrowd-plus", "dpcrowd-w", "relay"])
def test_shares_by_region_keep_the_bits(name: str) -> None:
    """A live server that took its share of the first region for all of them would speak of another crowd."""
    world = make_world(2, regions=3, slots=SLOTS, changing=True)
    shares = np.random.default_rng(3).uniform(0.1, 0.9, (SERVERS, 3))
    world = replace(world, shares=shares)
    case = Case(name, regions=3)
    setting = replace(case.setting(), observation="binomial")
    servers = [make_server(world, name, setting, number) for number in range(SERVERS)]
    assert_same_bits(run_network(world, servers), play(case.scheme(), setting, world))


@pytest.mark.parametrize("name", ["dpcrowd", "dpcrowd-plus", "dpcrowd-w", "relay"])
def test_users_who_stay_keep_the_bits(name: str) -> None:
    """A live server whose intervals widen otherwise than those of the simulator would cover something else."""
    world = make_world(2, regions=3, slots=SLOTS, changing=True)
    case = Case(name, regions=3)
    setting = replace(case.setting(), observation="binomial", turnover=0.05)
    servers = [make_server(world, name, setting, number) for number in range(SERVERS)]
    assert_same_bits(run_network(world, servers), play(case.scheme(), setting, world))


_LEARNS = ("fast", "dfast", "rescuedp", "drescuedp", "kalman-uniform", "dpcrowd", "dpcrowd-w", "dpcrowd-plus", "relay")
_OFTEN = ("dpcrowd-plus", "relay")  # in `make check`; the others take the same paths


@pytest.mark.parametrize("course", [False, True], ids=["walk", "course"])
@pytest.mark.parametrize("regions", [1, 3])
@pytest.mark.parametrize(
    "name", [name if name in _OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in _LEARNS]
)
def test_learning_where_users_stay_keeps_the_bits(name: str, regions: int, course: bool) -> None:
    """A filter that learns has a bank of beliefs, and each of them remembers users who stay: neither may be lost in a
    restart, or follow another server's share of a region."""
    world = make_world(3, regions=regions, slots=SLOTS, changing=True)
    world = replace(world, shares=np.random.default_rng(4).uniform(0.1, 0.9, (SERVERS, regions)))
    case = Case(name, regions=regions, model="learn" if course else "walk")
    setting = replace(case.setting(), observation="binomial", turnover=0.05, learn=True)
    rng = np.random.default_rng(regions)

    def restart(_: int, servers: list[Server]) -> None:
        for number, server in enumerate(servers):
            if rng.random() < 0.2:
                servers[number] = make_server(world, name, setting, number)
                servers[number].restore(server.save())

    servers = [make_server(world, name, setting, number) for number in range(SERVERS)]
    assert_same_bits(run_network(world, servers, restart), play(case.scheme(), setting, world))


def test_staggered_servers_know_nothing_until_somebody_speaks() -> None:
    """Servers whose phase comes later start without an estimate; the message of the first neighbour gives them one."""
    world = make_world(2, regions=2, slots=12, changing=True)
    guarantee = Guarantee.window(6, 2.0)
    setting = make_setting(SERVERS, 2, guarantee, phases=np.array([0, 1, 2, 2, 2, 2]))
    servers = [make_server(world, "dpcrowd-w", setting, number) for number in range(SERVERS)]
    singles = run_network(world, servers)
    assert_same_bits(singles, play(make_scheme("dpcrowd-w", sampling="staggered", interval=3), setting, world))
    heard = {0} | {int(n) for n in world.graph(0).neighbours(0)}
    for number, release in enumerate(singles[0]):
        assert np.isfinite(release.estimate).all() == (number in heard)
        assert np.isnan(release.low).all() == (number not in heard)


@pytest.mark.parametrize("form", ["diagonal", "matrix"])
@pytest.mark.parametrize("observation", ["paper", "binomial"])
@pytest.mark.parametrize("name", ["dpcrowd-w", "dpcrowd-plus", "drescuedp", "relay"])
def test_a_transition_matrix_keeps_the_bits(name: str, form: Form, observation: Observation) -> None:
    """Products with A take another path for one row than for many; the bits must not depend on it."""
    world = make_world(5, regions=5, slots=SLOTS)
    rng = np.random.default_rng(0)
    markov = 0.9 * np.eye(5) + 0.1 * rng.dirichlet(np.ones(5), 5).T
    guarantee = Guarantee.window(8, 3.0)
    setting = replace(
        make_setting(SERVERS, 5, guarantee),
        model=ProcessModel.of(markov, np.linspace(300.0, 3.0, 5)),
        form=form,
        observation=observation,
    )
    servers = [make_server(world, name, setting, number) for number in range(SERVERS)]
    assert_same_bits(run_network(world, servers), play(make_scheme(name), setting, world))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "model"),
    [
        *((name, "walk") for name in SCHEMES if name != "central" and not make_scheme(name).keeps_raw_counts),
        *((name, "learn") for name in ("dpcrowd", "dpcrowd-plus", "dfast", "relay")),
    ],
)
def test_restarts_between_and_within_slots_change_nothing(name: str, model: str) -> None:
    """A server that is killed and restored must go on with the noisy values it paid for: same message, same bits."""
    world = make_world(3, regions=3, slots=SLOTS)
    case = Case(name, regions=3, model=model)
    setting = case.setting()
    rng = np.random.default_rng(0)
    restarts = 0

    def restart(slot: int, servers: list[Server]) -> None:
        nonlocal restarts
        for number, server in enumerate(servers):
            if rng.random() < 0.3:
                before = server.pending_message()
                fresh = make_server(world, name, setting, number)
                fresh.restore(server.save())
                after = fresh.pending_message()
                assert (before is None) == (after is None)
                if before is not None and after is not None:
                    assert {k: bits(v) for k, v in before.arrays().items()} == {
                        k: bits(v) for k, v in after.arrays().items()
                    }
                assert fresh.slot == slot
                servers[number] = fresh
                restarts += 1

    servers = [make_server(world, name, setting, number) for number in range(SERVERS)]
    assert_same_bits(run_network(world, servers, restart), play(case.scheme(), setting, world))
    assert restarts > 20


@pytest.mark.slow
@pytest.mark.parametrize("known", [False, True], ids=["walk", "course"])
def test_learned_shares_keep_the_bits(monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    """Servers that learn shares by themselves have to learn what the simulator's servers do, also after a restart.

    With an expected course, which the crowd leaves at once, its records surprise.
    """
    factors: list[float] = []
    real = relay_surprise.surprise
    monkeypatch.setattr(relay_surprise, "surprise", lambda *given: (found := real(*given), factors.extend(found))[0])
    world = make_world(2, regions=3, slots=30, changing=False)
    shares = np.random.default_rng(3).dirichlet(np.full(SERVERS, 5.0))[:, None]
    world = replace(world, shares=shares)
    case = Case("relay", regions=3)
    setting = replace(case.setting(), observation="binomial", share_width=0.1, turnover=0.2)
    if known:
        level = np.full((1, 3), 40.0 * world.counts.sum(axis=1).mean() / world.counts.shape[-1])
        model = ProcessModel.around(Course(level, np.square(0.02 * level)), np.full(3, 0.9), np.full(3, 100.0))
        setting = replace(setting, model=model, learn=True)
    servers = [make_server(world, "relay", setting, number) for number in range(SERVERS)]

    def restart(slot: int, running: list[Server]) -> None:
        if slot in (8, 20):  # the filters of slots that have surprised run again
            fresh = make_server(world, "relay", setting, 1)
            fresh.restore(running[1].save())
            running[1] = fresh

    assert_same_bits(run_network(world, servers, restart), play(case.scheme(), setting, world))
    learned = servers[1].learned_shares()
    assert learned is not None
    assert not np.array_equal(learned[0], np.broadcast_to(shares, learned[0].shape))
    assert (len(factors) > 0, any(factor > 1.0 for factor in factors)) == (known, known)
    assert np.allclose(learned[0].sum(axis=0), 1.0)
    assert (learned[1] > 0).all()


@pytest.mark.slow
def test_learning_that_begins_anew_keeps_the_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a crowd comes and goes, a slot that is fused again for late records has to begin anew as it did before."""
    contradicted: list[bool] = []
    real = share_learning.is_contradicted
    monkeypatch.setattr(
        share_learning, "is_contradicted", lambda *given: (found := real(*given), contradicted.append(found.any()))[0]
    )
    world = make_world(2, regions=3, slots=30, changing=False)
    seen = np.random.default_rng(4).dirichlet(np.full(SERVERS, 1.0)) * 1e5
    present = np.where(np.arange(30) % 10 < 5, 0.0, 1.0)[:, None, None]
    counts = np.rint(present * seen[None, :, None] * np.ones(3)).astype(np.int64)
    shares = np.random.default_rng(3).dirichlet(np.full(SERVERS, 5.0))[:, None]
    world = replace(world, shares=shares, counts=counts)
    case = Case("relay", regions=3)
    setting = replace(case.setting(), observation="binomial", share_width=0.1, turnover=0.2)
    setting = replace(setting, model=ProcessModel.of(np.ones(3), np.full(3, 3e4**2)))
    servers = [make_server(world, "relay", setting, number) for number in range(SERVERS)]

    def restart(slot: int, running: list[Server]) -> None:
        if slot in (8, 17):
            fresh = make_server(world, "relay", setting, 1)
            fresh.restore(running[1].save())
            running[1] = fresh

    assert_same_bits(run_network(world, servers, restart), play(case.scheme(), setting, world))
    assert any(contradicted)
