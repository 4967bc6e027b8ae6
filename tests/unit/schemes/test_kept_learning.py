"""What servers have learned goes on under another setting, where that which it is about stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpcrowd.filters import ProcessModel
from dpcrowd.filters.course import Course
from dpcrowd.filters.model import InCommon
from dpcrowd.filters.tails import Tails
from dpcrowd.schemes.relay_state import slot_of_base
from dpcrowd.schemes.server import Server
from node_support_relay import facts_of
from relay_support import Network, message_of
from schemes_support import account_for, course_model
from schemes_support_transfer import CASES, CHANGED, OLD, places, run

SLOTS = 24
TRUE = np.array([0.4, 0.3, 0.3])
"""Which part of the crowd each server sees, where shares are learned."""
LEARNING = [case for case in CASES if case.form == "diagonal" and case.sampling != "staggered"]


def weights(server: Server) -> Any:
    """Weights of the beliefs after the last slot, (beliefs, d)."""
    state = server._state
    if state.bank.weight.ndim == 3:
        return state.bank.weight[:, 0].copy()
    return state.bank.weight[int(state.last) % state.lag][:, 0].copy()


def crowd_model(regions: int = 3, season: int = 1) -> ProcessModel:
    """A crowd of 2,000 that is expected to stay there."""
    profile = np.full((season, regions), 2000.0)
    profile[0] += 100.0 * (season > 1)
    return ProcessModel.around(Course(profile, np.full(profile.shape, 100.0), season=season, step=1), 0.5)


def facts(**changes: Any) -> Network:
    """Three servers that divide a crowd."""
    made = replace(facts_of(servers=3), shares=np.array([0.2, 0.3, 0.5]), observation="binomial", model=crowd_model())
    return replace(made, **changes)


def play(server: Server, network: Network, slots: range, level: float = 3000.0) -> None:
    """Slots in which the other servers tell of a crowd that the model does not expect."""
    true = TRUE if network.share_width else network.shares
    for slot in slots:
        due = [origin for origin in (0, 2) if network.due(slot, origin)]
        records = {(origin, slot): np.full(3, np.rint(level * true[origin])) for origin in due}
        server.observe(slot, np.full(3, int(level * true[1]), dtype=np.int64))
        server.hear({9: message_of(records, list(records), network.price)} if records else {})


def moved(old: Network, new: Network, region_places: Any = range(3), servers: Any = range(3)) -> tuple[Any, ...]:
    """A server that has learned, another one that goes on from it, and what that begins anew."""
    before, after = old.server(1), new.server(1)
    play(before, old, range(SLOTS))
    anew = after.take_over(before.save(), old.server(1), region_places, servers)
    return before, after, anew


@pytest.mark.parametrize(
    "changes", [{"samples": 2}, {"lag": 7}, {"turnover": 0.1}, {"guard": False}], ids=lambda one: next(iter(one))
)
def test_beliefs_go_on_with_other_samples_lag_or_turnover(changes: dict[str, Any]) -> None:
    """With the weights of the start, a crowd that has left its past would be taken for one that has not, again."""
    before, after, anew = moved(facts(learn=True), facts(learn=True, **changes))
    fresh = weights(facts(learn=True).server(1))
    assert np.abs(weights(before) - fresh).max() > 1.0, "it has learned something"
    assert weights(after) == pytest.approx(weights(before))
    assert anew == ()
    base = after._state.base_bank
    assert base.weight[:, 0] == pytest.approx(weights(before)), "who joins soon begins with it"
    play(after, facts(learn=True, **changes), range(SLOTS, SLOTS + 3))
    assert after._state.mean[int(after._state.last) % after._state.lag] == pytest.approx(3000.0, rel=0.1)


def differences(server: Server, slot: int | None = None) -> Any:
    """How far the estimates of the beliefs are from the estimate that they make together, (beliefs, d).

    slot  default: the last one; otherwise that of the base, from which who joins begins
    """
    state = server._state
    if slot is not None:
        return state.base_bank.mean[:, 0] - state.base[0]
    place = int(state.last) % state.lag
    return state.bank.mean[place][:, 0] - state.mean[place][0]


def test_estimates_of_beliefs_go_on_with_their_weights() -> None:
    """A weight belongs to an estimate: what regions have in common is read off the difference of two of them."""
    model = replace(crowd_model(), region_correlation=0.3, in_common=InCommon(0.8))
    before, after, _ = moved(facts(learn=True, model=model), facts(learn=True, model=model, samples=2))
    assert np.abs(differences(before)).max() > 50.0
    assert differences(after) == pytest.approx(differences(before))


def test_differences_of_beliefs_are_as_large_as_deviations_of_the_slot() -> None:
    """Who joins at night would otherwise begin with doubts of the size of the day."""
    profile = np.array([[200.0], [2000.0], [2000.0]]) * np.ones(3)
    course = Course(profile, np.square(0.05 * profile), season=3, step=1, scale=profile / 2000.0)
    network = facts(learn=True, model=ProcessModel.around(course, 0.5))
    before, after, _ = moved(network, replace(network, samples=2))
    base = slot_of_base(SLOTS - 1, network.lag)
    assert (SLOTS - 1) % 3 == 2, "the last slot is one of the day"
    assert base % 3 == 0, "and that of the base is at night"
    assert np.abs(differences(before)).max() > 50.0
    assert differences(after) == pytest.approx(differences(before))
    assert differences(after, base) == pytest.approx(differences(before) / 10.0)


@pytest.mark.parametrize("season", [2, 3])
def test_beliefs_begin_anew_with_another_model(season: int) -> None:
    """How well another model fits, nobody knows yet."""
    new = facts(learn=True, model=crowd_model(season=season))
    _, after, anew = moved(facts(learn=True), new)
    assert anew == ("how well the model fits",)
    assert weights(after) == pytest.approx(weights(new.server(1)))


def test_beliefs_follow_regions_to_other_places() -> None:
    """A region that comes has learned nothing, and those that stay have."""
    old, new = facts(learn=True), facts(learn=True, model=crowd_model(4))
    before, after, anew = moved(old, new, [2, None, 0, 1])
    assert anew == ()
    assert weights(after)[:, [2, 3, 0]] == pytest.approx(weights(before))
    assert weights(after)[:, 1] == pytest.approx(weights(new.server(1))[:, 1])


def test_beliefs_about_a_region_go_on_though_another_one_has_another_model() -> None:
    """Of forty regions one may be corrected."""
    old, model = facts(learn=True), crowd_model()
    course = model.course
    assert course is not None
    profile = course.profile + np.array([0.0, 500.0, 0.0])
    new = facts(learn=True, model=replace(model, course=replace(course, profile=profile)))
    before, after, anew = moved(old, new)
    assert anew == ("how well the model fits",)
    assert weights(after)[:, [0, 2]] == pytest.approx(weights(before)[:, [0, 2]])
    assert weights(after)[:, 1] == pytest.approx(weights(new.server(1))[:, 1])


@pytest.mark.parametrize("case", LEARNING, ids=str)
@pytest.mark.parametrize("changes", [{"share": 0.25}, {"turnover": 1.0}], ids=["share", "turnover"])
def test_beliefs_go_on_in_every_live_scheme(case: Any, changes: dict[str, Any]) -> None:
    """And an estimate does not become narrower where errors that were followed are forgotten."""
    knowledge = {"model": course_model(4), "learn": True, "observation": "binomial", "turnover": 0.1}
    before, after = case.server(**knowledge), case.server(**knowledge | changes)
    run(before, OLD, range(CHANGED))
    anew = after.take_over(before.save(), case.server(**knowledge), places(OLD))
    assert anew == ()
    assert weights(after) == pytest.approx(weights(before))
    assert (after._state.bank.var >= before._state.bank.var * (1.0 - 1e-9)).all()
    if "turnover" in changes:
        assert (after._state.bank.var > before._state.bank.var).any()


@pytest.mark.parametrize("changes", [{"samples": 2}, {"lag": 7}, {"model": crowd_model(season=2)}, {"learn": True}])
def test_learned_shares_go_on_where_servers_and_shares_are_the_same(changes: dict[str, Any]) -> None:
    """It takes hundreds of slots to learn them, and what a crowd is expected to do says nothing of how it divides."""
    old = facts(share_width=0.2)
    before, after, anew = moved(old, replace(old, **changes))
    learned, fresh = (shares_of(one) for one in (before, old.server(1)))
    assert np.abs(learned[0] - fresh[0]).max() > 0.05, "it has learned something"
    assert anew == ()
    for one in (after, restored(after, replace(old, **changes))):
        play(one, replace(old, **changes), range(SLOTS, SLOTS + 1))
        again = shares_of(one)
        assert again[0] == pytest.approx(learned[0], abs=0.03)
        assert again[1] == pytest.approx(learned[1], rel=0.3)


def shares_of(server: Server) -> tuple[Any, Any]:
    """Learned shares and their standard deviations."""
    learned = server.learned_shares()
    assert learned is not None
    return learned


def restored(server: Server, network: Network) -> Server:
    """The same server after a restart, which runs filters of learned shares again."""
    other = network.server(1)
    other.restore(server.save())
    return other


def test_other_public_shares_are_learned_anew() -> None:
    """What was learned of errors of the former shares says nothing of those of others."""
    old = facts(share_width=0.2)
    new = replace(old, shares=np.array([0.4, 0.3, 0.3]))
    _, after, anew = moved(old, new)
    assert anew == ("shares",)
    assert shares_of(after)[0] == pytest.approx(shares_of(new.server(1))[0])


def test_beliefs_go_on_when_a_clock_is_set_back() -> None:
    """What was learned of a crowd is not forgotten with the hour."""
    network = facts(learn=True)
    server = network.server(1, account_for(network.guarantee))
    play(server, network, range(SLOTS))
    before = weights(server)
    server.begin_again(SLOTS - 6)
    assert weights(server) == pytest.approx(before)


def test_beliefs_go_on_where_another_region_gets_tails() -> None:
    """The first model that says where bursts happen must not make all other regions forget."""
    model = crowd_model()
    assert model.course is not None
    tails = Tails(np.array([0.1, 1.0, 1.0]), np.array([0.05, 0.05, 0.05]))
    new = facts(learn=True, model=replace(model, course=replace(model.course, tails=tails)))
    before, after, _ = moved(facts(learn=True), new)
    assert weights(after)[:, 1:] == pytest.approx(weights(before)[:, 1:])
    assert weights(after)[:, 0] == pytest.approx(weights(new.server(1))[:, 0])


def test_beliefs_begin_anew_where_regions_have_something_in_common_for_the_first_time() -> None:
    """There is one belief more then, which would have got the place and the weight of another one."""
    alone, common = crowd_model(), replace(crowd_model(), region_correlation=0.3, in_common=InCommon(0.8))
    new = facts(learn=True, model=common)
    _, after, anew = moved(facts(learn=True, model=alone), new)
    assert anew == ("how well the model fits",)
    assert weights(after) == pytest.approx(weights(new.server(1)))
    before, again, anew = moved(new, replace(new, samples=2))
    assert anew == ()
    assert weights(again) == pytest.approx(weights(before))
