"""The pilot: where filters learn, one that does not decides when to sample, so that learning changes no schedule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpcrowd.filters import ProcessModel
from dpcrowd.filters.course import Course
from dpcrowd.privacy import Guarantee, SeededNoise
from dpcrowd.schemes.base import Plan, Release, Setting
from dpcrowd.schemes.dpcrowd_w import DPCrowdW
from dpcrowd.schemes.filtering import FilterScheme
from dpcrowd.schemes.messages import InfoMessages
from dpcrowd.schemes.registry import make_scheme
from dpcrowd.schemes.server import Server
from dpcrowd.schemes.snapshot import from_bytes, to_bytes
from project_support import TESTS
from schemes_support import Case, World, make_server, make_world, play

STORED = TESTS / "fixtures" / "v0.2.dev-17" / "states"
"""Server 0 of two after slot 11, which learns and samples adaptively, of the last build without pilots."""
ADAPTIVE = ("fast", "dfast", "dpcrowd", "dpcrowd-w", "dpcrowd-plus", "rescuedp", "drescuedp", "central")
ONE_HOP = ("dpcrowd", "dpcrowd-w", "dpcrowd-plus")


def leaving(regions: int) -> World:
    """A crowd that leaves its model: it doubles after a third of the slots."""
    world = make_world(6, regions=regions, slots=24)
    counts = world.counts.copy()
    counts[8:] *= 2
    return replace(world, counts=counts)


def played(name: str, world: World, *, learn: bool, model: str = "course") -> list[Release]:
    case = Case(name, regions=world.regions, model=model)
    setting = replace(case.setting(), observation="binomial", turnover=0.05, learn=learn)
    return play(case.scheme(), setting, world)


@pytest.mark.parametrize("model", ["walk", "course"])
@pytest.mark.parametrize("regions", [1, 4])
@pytest.mark.parametrize("name", ADAPTIVE)
def test_learning_changes_no_schedule(name: str, regions: int, model: str) -> None:
    """With one filter for both, slots, prices and groups would depend on what it has learned."""
    world = leaving(regions)
    with_it, without = (played(name, world, learn=learn, model=model) for learn in (True, False))
    for one, other in zip(with_it, without, strict=True):
        assert (one.sampled == other.sampled).all()
        assert (one.charge == other.charge).all()
        assert (one.speaks == other.speaks).all()
    differ = [
        ~np.isclose(one.estimate, other.estimate, equal_nan=True) for one, other in zip(with_it, without, strict=True)
    ]
    assert np.any(differ), "and it does learn"


@pytest.mark.parametrize("name", ONE_HOP)
def test_messages_of_the_pilot_are_those_without_learning(name: str) -> None:
    """Pilots have to hear one another: the priors of filters that learn would pull at them."""
    sent: dict[bool, list[InfoMessages]] = {True: [], False: []}
    for learn, messages in sent.items():
        world, case = leaving(3), Case(name, regions=3, model="course")
        setting = replace(case.setting(), observation="binomial", learn=learn)
        scheme = case.scheme()
        assert isinstance(scheme, FilterScheme)
        take = scheme.message

        def keep(state: Any, plan: Any, reading: Any, take: Any = take, messages: Any = messages) -> InfoMessages:
            messages.append(take(state, plan, reading))
            return messages[-1]

        scheme.message = keep  # type: ignore[method-assign]
        play(scheme, setting, world)
    for with_it, without in zip(sent[True], sent[False], strict=True):
        assert without.pilot is None
        assert with_it.pilot is not None
        for name_of, array in without.arrays().items():
            assert (with_it.pilot.arrays()[name_of] == array).all()


def test_bytes_of_the_pilot_are_counted() -> None:
    """A message says everything twice then; schemes are compared by these bytes."""
    for name in ("dpcrowd-w", "dpcrowd-plus"):
        case = Case(name, regions=3, model="course")
        learns = replace(case.setting(), learn=True)
        scheme = case.scheme()
        assert scheme.data_bytes(learns) == 2 * scheme.value_bytes(3, "diagonal")
        assert scheme.data_bytes(replace(learns, learn=False)) == scheme.value_bytes(3, "diagonal")
        assert scheme.data_bytes(replace(learns, form="matrix")) == scheme.value_bytes(3, "matrix")
    on_schedule = make_scheme("dpcrowd-w", sampling="fixed", interval=3)
    assert on_schedule.data_bytes(replace(Case("dpcrowd-w").setting(), learn=True)) == on_schedule.value_bytes(
        1, "diagonal"
    )


def test_a_scheme_of_somebody_else_has_a_pilot_too() -> None:
    """A subclass that makes its own plans would be steered by what was learned, and nothing would say so."""

    class Twice(DPCrowdW):
        def plan(self, state: Any, slot: int, shares: Any) -> Plan:
            plan = super().plan(state, slot, shares)
            return Plan(slot, shares, plan.due, plan.amount, plan.noise_var, plan.prior, plan.prior_var, plan.known)

    world, case = leaving(3), Case("dpcrowd-w", regions=3, model="course")
    sampled = []
    for learn in (True, False):
        setting = replace(case.setting(), observation="binomial", learn=learn)
        sampled.append([release.sampled for release in play(Twice(), setting, world)])
    assert (np.array(sampled[0]) == np.array(sampled[1])).all()


# ---------------------------------------------------------------------------------------- neighbours, states, revisions


def of_two(name: str, number: int, profile: float = 1.0) -> Server:
    """A server of the network in which `STORED` was saved."""
    days = profile * np.array([[400.0, 120.0, 60.0], [300.0, 100.0, 40.0]])
    model = ProcessModel.around(Course(days, np.full(days.shape, 100.0), season=2, step=1), 0.5)
    promise = Guarantee.window(12, epsilon=2.0)
    setting = Setting(1, model, promise, observation="binomial", learn=True, turnover=0.05)
    noise = SeededNoise([np.random.SeedSequence(7 + number)], 1, 3)
    scheme = make_scheme(name)
    return Server(scheme, setting, noise, number=number, share=0.5, max_degree=1, allow_simulated_noise=True)


def exchange(servers: list[Server], slots: range, forget: tuple[int, ...] = ()) -> list[Release]:
    """Let slots pass; servers in `forget` send messages as builds without pilots do. Returns releases of the first."""
    releases = []
    for slot in slots:
        counts = np.array([500, 150, 80]) + slot % 3
        sent = {server.number: server.observe(slot, counts + server.number) for server in servers}
        for number in forget:
            message = sent[number]
            sent[number] = message.of_filter() if isinstance(message, InfoMessages) else None
        for server in servers:
            others = {number: message for number, message in sent.items() if number != server.number and message}
            release = server.hear(others)
            if server is servers[0]:
                releases.append(release)
    return releases


@pytest.mark.parametrize("name", ["dpcrowd-w", "dpcrowd-plus"])
def test_a_neighbour_without_a_pilot_is_understood(name: str) -> None:
    """While servers are upgraded one by one; what it says of its only filter stands for both."""
    servers = [of_two(name, 0), of_two(name, 1)]
    releases = exchange(servers, range(12), forget=(1,))
    assert all(np.isfinite(release.estimate).all() for release in releases)
    assert sum(release.sampled.any() for release in releases) > 1


@pytest.mark.parametrize("name", ["dpcrowd-w", "dpcrowd-plus"])
def test_a_state_without_a_pilot_goes_on(name: str) -> None:
    """After an upgrade the pilot begins with the estimates: from those of the start it would sample in every slot."""
    server = of_two(name, 0)
    server.restore((STORED / f"{name}-learning.state").read_bytes())
    state = server._state
    assert (state.pilot.posterior == state.posterior).all()
    assert (state.pilot.posterior_var == state.posterior_var).all()
    assert int(state.pilot.slot) == 11
    server.observe(12, None)
    estimate, variance = {
        "dpcrowd-plus": ([859.9545393420706, 262.1086195113867, 115.9565361131379], 390665.02523645276),
        "dpcrowd-w": ([400.2824674884024, 120.32199055342737, 59.98362846396166], 152.9773813661879),
    }[name]
    release = server.hear()
    assert release.estimate == pytest.approx(estimate, rel=1e-12), "what the build that stored it went on with"
    assert release.variance[0] == pytest.approx(variance, rel=1e-12)


@pytest.mark.parametrize("name", ["dfast", "drescuedp"])
def test_a_state_of_a_flooded_scheme_without_a_pilot_goes_on(name: str) -> None:
    """The filter is inside: its pilot would have begun anew, far from where the estimates are."""
    case = Case(name, regions=3, model="learn")
    world = leaving(3)
    before, after = (make_server(world, name, case.setting(), 0) for _ in range(2))
    for slot in range(12):
        before.observe(slot, world.counts[slot, 0])
        before.hear()
    arrays = from_bytes(before.save())
    assert any(".pilot." in key for key in arrays)
    after.restore(to_bytes({key: array for key, array in arrays.items() if ".pilot." not in key}))
    inner = after._state.inner
    assert (inner.pilot.posterior == inner.posterior).all()
    assert int(inner.pilot.slot) == 11


@pytest.mark.parametrize("name", ["dpcrowd-w", "dpcrowd-plus"])
def test_a_restart_keeps_the_pilot(name: str) -> None:
    """Also in the middle of a slot: a pilot that begins anew would choose other slots than one that never stopped."""
    through, stopped = ([of_two(name, 0), of_two(name, 1)] for _ in range(2))
    exchange(through, range(8))
    exchange(stopped, range(8))
    for server in (through[0], stopped[0]):
        server.observe(8, [600, 170, 90])
    again = of_two(name, 0)
    again.restore(stopped[0].save())
    assert (again.hear().estimate == through[0].hear().estimate).all()
    mine, theirs = (from_bytes(server.save()) for server in (again, through[0]))
    assert [key for key in mine if key.startswith("state.pilot.")]
    assert to_bytes(mine) == to_bytes(theirs)


@pytest.mark.parametrize("name", ["dpcrowd-w", "dpcrowd-plus"])
def test_a_revision_keeps_the_pilot(name: str) -> None:
    """In the regions that stay; a new one begins with what its filter that learns expects."""
    before = [of_two(name, 0), of_two(name, 1)]
    exchange(before, range(10))
    saved, old = before[0].save(), before[0]._state.pilot
    after = of_two(name, 0, profile=1.2)
    after.take_over(saved, of_two(name, 0), [1, None, 0])
    pilot = after._state.pilot
    assert (pilot.posterior[0, [0, 2]] == old.posterior[0, [1, 0]]).all()
    assert (pilot.posterior_var[0, [0, 2]] == old.posterior_var[0, [1, 0]]).all()
    assert pilot.posterior[0, 1] == after._state.posterior[0, 1]
    assert int(pilot.slot) == 9
    assert not (old.posterior == before[0]._state.posterior).all(), "the two filters did differ"
