"""What the tests of the schemes share: small worlds, networks, noises that watch, and a driver.

A *world* is a few servers with shares, whole-number counts of every slot and region, and networks. A *case* is one
scheme under one accounting, way of living and number of regions; `CASES` holds every one that fits together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpcrowd.filters import ProcessModel, default_gain
from dpcrowd.network.costs import components
from dpcrowd.network.graph import Graph, union
from dpcrowd.network.hearing import Hearing, central_hearing, flooded_hearing, one_hop_hearing
from dpcrowd.network.random_graph import RandomGraph
from dpcrowd.privacy import Accounting, Guarantee, SeededNoise
from dpcrowd.schemes.base import Peers, Release, Scheme, Setting, run_slot
from dpcrowd.schemes.messages import InfoMessages
from dpcrowd.schemes.registry import SCHEMES, make_scheme
from dpcrowd.schemes.server import Server
from dpcrowd.schemes.tuning import Tuning

SERVERS, SLOTS, WINDOW, SAMPLES = 6, 36, 8, 3

# Chosen so that in such small, short worlds intervals grow and shrink and regions are due in slots of their own.
TUNING = Tuning(xi=0.2, sample_fraction=0.5, rescue_theta=2.0, epsilon_max=0.5, phi=0.5, tau2=-0.5)


@dataclass(frozen=True)
class World:
    """counts (slots, servers, regions), shares (servers, 1), and one graph a slot or one for all."""

    counts: NDArray[np.int64]
    shares: NDArray[np.float64]
    graphs: tuple[Graph, ...]
    seed: int = 0

    @property
    def slots(self) -> int:
        return len(self.counts)

    @property
    def servers(self) -> int:
        return int(self.counts.shape[1])

    @property
    def regions(self) -> int:
        return int(self.counts.shape[2])

    def graph(self, slot: int) -> Graph:
        return self.graphs[slot % len(self.graphs)]

    def noise(self, only: int | None = None) -> SeededNoise:
        return SeededNoise([np.random.SeedSequence(self.seed, spawn_key=(7,))], self.servers, self.regions, only)

    @property
    def gain(self) -> float:
        """One consensus step that is safe for all graphs of the world."""
        return default_gain(max(graph.max_degree for graph in self.graphs))


@cache
def make_world(
    seed: int = 0,
    servers: int = SERVERS,
    regions: int = 1,
    slots: int = SLOTS,
    *,
    changing: bool = False,
    size: float = 400.0,
) -> World:
    """Counts that wander, one large region and small ones that can be grouped; every server has a neighbour."""
    rng = np.random.default_rng([seed, servers, regions, slots])
    sizes = np.concatenate([[size], np.linspace(20.0, 8.0, regions - 1)])
    truth = np.abs(sizes * np.exp(np.cumsum(rng.normal(0.0, 0.05, (slots, regions)), axis=0)))
    shares = rng.uniform(0.2, 1.0, (servers, 1))
    counts = np.maximum(np.rint(shares * truth[:, None, :] + rng.normal(0, 2, (slots, servers, regions))), 0)
    draw = RandomGraph(servers, min(1.0, 2.0 / (servers - 1))).draw
    graphs = tuple(draw(rng) for _ in range(slots if changing else 1))
    return World(counts.astype(np.int64), shares, graphs, seed)


@dataclass(frozen=True)
class Case:
    """A scheme and what it runs under."""

    name: str
    accounting: str = "sound"
    users: str = "pinned"
    regions: int = 1
    form: str = "diagonal"

    def __str__(self) -> str:
        return "-".join((self.name, self.accounting, self.users, f"d{self.regions}", self.form))

    @property
    def private(self) -> bool:
        return bool(SCHEMES[self.name].kinds)

    @property
    def guarantee(self) -> Guarantee | None:
        return guarantee_for(self.name, users=self.users) if self.private else None

    def scheme(self) -> Scheme:
        return make_scheme(self.name)

    def setting(self, servers: int = SERVERS) -> Setting:
        runs = max(1, servers // SERVERS)
        more: dict[str, Any] = {"accounting": self.accounting, "form": self.form, "runs": runs}
        return make_setting(servers, self.regions, self.guarantee, **more)


def guarantee_for(name: str, *, users: Any = "pinned", epsilon: float = 3.0, **more: Any) -> Guarantee:
    """A guarantee that fits: a window of 8 slots where the scheme takes one, else the horizon of a world."""
    if "window" in SCHEMES[name].kinds:
        return Guarantee.window(WINDOW, epsilon, users=users, **more)
    return Guarantee.finite(SLOTS - 4, 4 * epsilon, users=users, **more)


def make_setting(servers: int, regions: int, guarantee: Guarantee | None, **more: Any) -> Setting:
    more.setdefault("tuning", TUNING)
    more.setdefault("samples", SAMPLES)  # only relay asks
    return Setting(servers, ProcessModel.of(1.0, np.linspace(200.0, 20.0, regions)), guarantee, **more)


def accountings(name: str) -> tuple[Accounting, ...]:
    """The ledgers that a scheme keeps: relay has the sound one alone."""
    return ("sound",) if name == "relay" else ("sound", "per-region")


def _cases() -> list[Case]:
    cases = []
    for name, scheme in SCHEMES.items():
        several = Case(name, regions=4)
        if not scheme.kinds:
            cases += [Case(name), several]
        else:
            for users in ("pinned", "roaming"):
                cases += [Case(name, users=users)]  # with one region both accountings are the same ledger
                cases += [replace(several, accounting=a, users=users) for a in accountings(name)]
        if name in ("non-private", "central", "dpcrowd", "dpcrowd-w", "dpcrowd-plus", "rescuedp", "drescuedp", "relay"):
            cases.append(replace(several, form="matrix"))
    return cases


CASES = _cases()
PRIVATE_CASES = [case for case in CASES if case.private]
every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_private_case = pytest.mark.parametrize("case", PRIVATE_CASES, ids=str)


def hearing_of(scheme: Scheme, graphs: Sequence[Graph], gain: float) -> Hearing:
    """Who hears whom when each of the graphs is one run of a batch."""
    graph = union(list(graphs))
    if scheme.reach == "one-hop":
        return one_hop_hearing(graph, gain)
    if scheme.reach == "flooding":
        return flooded_hearing(components(graph))
    if scheme.reach == "central":
        return central_hearing(len(graphs), graphs[0].servers, one_hop_hearing(graph, gain))
    if scheme.reach == "relay":
        return replace(one_hop_hearing(graph, gain), graph=graph)
    return Hearing()


def play(
    scheme: Scheme,
    setting: Setting,
    world: World,
    *,
    noise: Any = None,
    counts: NDArray[np.int64] | None = None,
    step: Callable[..., Release] = run_slot,
) -> list[Release]:
    """Every slot of a world, all servers in one batch."""
    state = scheme.start(setting)
    noise = world.noise() if noise is None else noise
    counts = world.counts if counts is None else counts
    releases = []
    for slot in range(world.slots):
        hearing = hearing_of(scheme, [world.graph(slot)], world.gain)
        releases.append(step(scheme, state, slot, world.shares, counts[slot].copy(), noise, hearing))
    return releases


@cache
def played(case: Case) -> tuple[Release, ...]:
    """The releases of a case in its standard world; many tests look at the same ones."""
    return tuple(play(case.scheme(), case.setting(), make_world(regions=case.regions)))


def charges_of(releases: Sequence[Release], regions: int) -> NDArray[np.int64]:
    """(slots, servers, regions) nano-epsilon."""
    return np.stack([np.broadcast_to(r.charge, (len(r.charge), regions)) for r in releases])


def bits(values: NDArray[Any]) -> bytes:
    """Values with every bit, signs of zeros and NaNs included, and their shape."""
    return repr(values.shape).encode() + np.ascontiguousarray(values).tobytes()


def fingerprint(release: Release) -> tuple[bytes, ...]:
    """Everything that a release says, to the last bit."""
    parts = (release.estimate, release.variance, release.sampled, release.charge, release.speaks)
    return tuple(bits(part) for part in parts)


def same(first: Sequence[Release], second: Sequence[Release]) -> bool:
    """Whether two runs released the same bits."""
    return [fingerprint(r) for r in first] == [fingerprint(r) for r in second]


class BlindNoise:
    """Noise that never looks at the counts it is given: whatever depends on raw counts after it has gone around it."""

    private = False

    def __init__(self, noise: SeededNoise) -> None:
        self._noise = noise

    def noisy(self, slot: int, counts: Any, charge: Any, sensitivity: Any, where: Any, read: int = 0) -> Any:
        return self._noise.noisy(slot, np.full(counts.shape, 50), charge, sensitivity, where, read)


@dataclass(frozen=True)
class Read:
    """One call of the noise."""

    slot: int
    number: int
    charge: NDArray[np.int64]
    sensitivity: NDArray[np.int64]
    where: NDArray[np.bool_]
    blank: bool


class WatchedNoise(BlindNoise):
    """Writes down what was asked of it."""

    def __init__(self, noise: SeededNoise) -> None:
        super().__init__(noise)
        self.reads: list[Read] = []

    def noisy(self, slot: int, counts: Any, charge: Any, sensitivity: Any, where: Any, read: int = 0) -> Any:
        charges, units, places = (np.broadcast_to(part, counts.shape).copy() for part in (charge, sensitivity, where))
        self.reads.append(Read(slot, read, charges, units, places, not counts.any()))
        return self._noise.noisy(slot, counts, charge, sensitivity, where, read)


COUNTS = [40, 17, 9]
"""One server's counts of a slot with three regions."""


def watched_noise() -> WatchedNoise:
    """Noise of one server, written down."""
    return WatchedNoise(SeededNoise([np.random.SeedSequence(1)], 4, 3, only=0))


def lone_server(name: str = "dpcrowd-plus", window: int = 8, regions: int = 3, **more: Any) -> Server:
    """Server 0 of a network in which a server has up to three neighbours."""
    tuning = more.pop("tuning", TUNING)
    setting = make_setting(1, regions, Guarantee.window(window, 3.0), tuning=tuning)
    options: dict[str, Any] = {
        "number": 0,
        "share": 0.5,
        "max_degree": 3,
        "allow_simulated_noise": True,
        **more,
    }
    return Server(make_scheme(name), setting, options.pop("noise", None) or watched_noise(), **options)


def neighbour_message(regions: int = 3) -> InfoMessages:
    """What a neighbour might say."""
    vector, known = np.full((1, regions), 2.0), np.ones((1, regions), dtype=np.bool_)
    return InfoMessages(known[:, 0], vector, vector / 100, vector * 50, known)


def drawn(world: World, slot: int, epsilon: int, *, sensitivity: int = 1, read: int = 0) -> list[list[float]]:
    """The noise that each server and region gets in a slot when `epsilon` (nano) is paid: plain numbers for oracles."""
    nothing, every = np.zeros(world.counts.shape[1:], dtype=np.int64), np.ones(world.counts.shape[1:], dtype=np.bool_)
    values: list[list[float]] = (
        world.noise().noisy(slot, nothing, np.array([[epsilon]]), sensitivity, every, read).tolist()
    )
    return values


def laplace_var(epsilon: float, sensitivity: int = 1) -> float:
    """Variance of the discrete Laplace, from its probabilities (1-q)/(1+q) q^|x|."""
    q = float(np.exp(-epsilon / sensitivity))
    return 2 * q / (1 - q) ** 2


def make_server(world: World, name: str, setting: Setting, number: int) -> Server:
    """One server of a world, with the share, noise and step that it has in the batch."""
    phases = None if setting.phases is None else setting.phases[number : number + 1]
    alone = replace(setting, servers=1, phases=phases, peers=Peers(number, world.shares[:, 0]))
    share = float(world.shares[number, 0])
    options = {} if setting.phases is None else {"sampling": "staggered", "interval": 3}
    noise = world.noise(only=number)
    scheme = make_scheme(name, **options)
    return Server(scheme, alone, noise, number=number, share=share, beta=world.gain, allow_simulated_noise=True)
