"""What the tests of the schemes share: every scheme with all that it runs under, and servers to talk to.

Worlds, noises that watch and the driver are those of `dpcrowd.testing`. A *case* is one scheme under one accounting,
way of living and number of regions; `CASES` holds every one that fits together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from dpcrowd.filters import Course, ProcessModel
from dpcrowd.network.mixing import Mixing
from dpcrowd.privacy import Accounting, Guarantee, SeededNoise
from dpcrowd.privacy.account import Account
from dpcrowd.privacy.network_guarantee import Slots, UserBounds
from dpcrowd.privacy.payments import Payment
from dpcrowd.schemes.base import Peers, Release, Scheme, Setting
from dpcrowd.schemes.messages import InfoMessages
from dpcrowd.schemes.registry import SCHEMES, make_scheme
from dpcrowd.schemes.server import Server
from dpcrowd.testing.world import (
    SAMPLES,
    SERVERS,
    SLOTS,
    TUNING,
    WINDOW,
    BlindNoise,
    WatchedNoise,
    World,
    bits,
    charges_of,
    fingerprint,
    hearing_of,
    links_mixing,
    make_world,
    play,
    same,
)

__all__ = [
    "CASES",
    "COUNTS",
    "FILTERS",
    "SAMPLES",
    "SERVERS",
    "SLOTS",
    "TUNING",
    "WINDOW",
    "BlindNoise",
    "Case",
    "WatchedNoise",
    "World",
    "accountings",
    "bits",
    "charges_of",
    "course_model",
    "drawn",
    "every_case",
    "every_private_case",
    "filter_alone",
    "fingerprint",
    "guarantee_for",
    "hearing_of",
    "laplace_var",
    "lone_server",
    "make_server",
    "make_setting",
    "make_world",
    "neighbour_message",
    "play",
    "played",
    "same",
    "watched_noise",
    "without_drift",
]


@dataclass(frozen=True)
class Case:
    """A scheme and what it runs under."""

    name: str
    accounting: str = "sound"
    users: str = "pinned"
    regions: int = 1
    form: str = "diagonal"
    model: str = "walk"

    def __str__(self) -> str:
        parts = (self.name, self.accounting, self.users, f"d{self.regions}", self.form)
        return "-".join(parts if self.model == "walk" else (*parts, self.model))

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
        if self.model != "walk" or SCHEMES[self.name].needs_model:
            more |= {"model": course_model(self.regions), "learn": self.model == "learn"}
        return make_setting(servers, self.regions, self.guarantee, **more)


def account_for(guarantee: Guarantee, epoch_ns: int = 10**18) -> Account:
    """The account of a server that has paid nothing yet, in slots of one second."""
    slots = Slots(epoch_ns, 10**9, guarantee.length)
    span = guarantee.length * slots.slot_ns if guarantee.kind == "window" else None
    return Account("crowd", configured=slots).declare(
        guarantee.total,
        span,
        bounds=UserBounds(guarantee.regions_per_slot, guarantee.servers_per_slot),
        roaming=guarantee.users == "roaming",
        slot_ns=slots.slot_ns,
        epoch_ns=epoch_ns,
    )


def paid_in(account: Account, slot: int, nano: int) -> Account:
    """With one more payment, whatever it breaks."""
    opens, closes = account.slots.opens(slot), account.slots.opens(slot + 1)
    bounds = account.own.payer
    row = Payment(account.count + 1, account.network, "sample", slot, opens, closes, nano)
    return account.add(row._replace(regions=bounds.regions, servers=bounds.servers))


def guarantee_for(
    name: str, *, users: Any = "pinned", epsilon: float = 3.0, horizon: int = SLOTS - 4, **more: Any
) -> Guarantee:
    """A guarantee that fits: a window of 8 slots where the scheme takes one, else a horizon that ends in a world."""
    if "window" in SCHEMES[name].kinds:
        return Guarantee.window(WINDOW, epsilon, users=users, **more)
    return Guarantee.finite(horizon, 4 * epsilon, users=users, **more)


def make_setting(servers: int, regions: int, guarantee: Guarantee | None, **more: Any) -> Setting:
    more.setdefault("tuning", TUNING)
    more.setdefault("samples", SAMPLES)  # only relay asks
    model = more.pop("model", None) or ProcessModel.of(1.0, np.linspace(200.0, 20.0, regions))
    return Setting(servers, model, guarantee, **more)


def course_model(regions: int, *, relative: bool = False) -> ProcessModel:
    """A model that expects the crowds of `make_world`, with a season of two and a half slots.

    relative  whether many and few people take turns, and deviations are in proportion to them
    """
    sizes = np.concatenate([[400.0], np.linspace(20.0, 8.0, regions - 1)])
    profile = sizes * np.array([[0.95], [1.05], [1.0], [1.02], [0.98]])
    if relative:
        profile = sizes * np.array([[0.2], [1.8], [1.0], [1.4], [0.6]])
    variance = 0.02 * (np.square(profile) if relative else profile**1.5)
    course = Course(profile, variance, season=5, offset=1, step=2, scale=profile if relative else None)
    return ProcessModel.around(course, np.linspace(0.9, 0.3, regions), np.linspace(200.0, 20.0, regions))


def accountings(name: str) -> tuple[Accounting, ...]:
    """The ledgers that a scheme keeps: relay has the sound one alone."""
    return ("sound",) if name == "relay" else ("sound", "per-region")


FILTERS = (
    *("non-private", "central", "fast", "dfast", "dpcrowd", "dpcrowd-w", "dpcrowd-plus", "rescuedp", "drescuedp"),
    "relay",
)
"""The schemes that filter, and so know a model."""


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
        if name in FILTERS:
            cases += [replace(several, model="course"), replace(several, model="learn")]
            cases.append(replace(several, form="matrix", model="course"))
    return cases


CASES = _cases()
PRIVATE_CASES = [case for case in CASES if case.private]
every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_private_case = pytest.mark.parametrize("case", PRIVATE_CASES, ids=str)


@cache
def played(case: Case) -> tuple[Release, ...]:
    """The releases of a case in its standard world; many tests look at the same ones."""
    return tuple(play(case.scheme(), case.setting(), make_world(regions=case.regions)))


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
    one_share = world.shares.shape[1] == 1
    peers = Peers(number, world.shares[:, 0] if one_share else world.shares)
    alone = replace(setting, servers=1, phases=phases, peers=peers)
    share = float(world.shares[number, 0]) if one_share else world.shares[number]
    options = {} if setting.phases is None else {"sampling": "staggered", "interval": 3}
    noise = world.noise(only=number)
    scheme = make_scheme(name, **options)
    mixing = None
    if len(world.graphs) == 1:
        mixing = Mixing(*(part[number : number + 1] for part in links_mixing(world.graph(0))))
    return Server(
        scheme, alone, noise, number=number, share=share, beta=world.gain, mixing=mixing, allow_simulated_noise=True
    )


def without_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let schemes release the variance that their filter has, without what samples show of the drift."""
    monkeypatch.setattr("dpcrowd.schemes.filter_state.start_drift", lambda variance: None)
    monkeypatch.setattr("dpcrowd.schemes.sample._learns_drift", lambda setting: False)


def filter_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let schemes release the variance of Algorithm 1, which knows neither drift nor what a consensus averages away."""
    without_drift(monkeypatch)
    monkeypatch.setattr("dpcrowd.schemes.filter_state.start_mixed", lambda variance: None)
