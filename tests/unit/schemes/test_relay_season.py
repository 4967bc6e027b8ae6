"""A relay server that learns shares beside a season, when its clock or its absence takes it to other slots at once.

What is expected of the crowd differs from slot to slot there, so a filter that is kept under the number of another slot
expects the wrong crowd.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpcrowd.filters import ProcessModel
from dpcrowd.filters.course import Course
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.relay_filter import complete_filters
from dpcrowd.schemes.relay_share_steps import base_filters
from dpcrowd.schemes.relay_state import RelayState
from dpcrowd.schemes.server import Server
from relay_support import Network, message_of
from schemes_support import account_for

pytestmark = pytest.mark.slow

SEASON, LAG, LAST = 8, 5, 40
PROFILE = np.array([[2000.0], [4000.0], [6000.0], [8000.0], [8000.0], [6000.0], [4000.0], [1000.0]])
SHARES = np.array([0.4, 0.35, 0.25])

by_course = pytest.mark.parametrize(("scaled", "learn"), [(False, False), (True, False), (False, True), (True, True)])


def network(*, scaled: bool, learn: bool) -> Network:
    variance = np.square(0.05 * PROFILE) if scaled else np.full_like(PROFILE, 100.0**2)
    course = Course(PROFILE, variance, season=SEASON, step=1, scale=PROFILE if scaled else None)
    return Network(
        SHARES, ProcessModel.around(course, 0.8), Guarantee.window(SEASON, epsilon=40.0), samples=SEASON,
        phases=np.zeros(3, dtype=np.int64), lag=LAG, observation="binomial", learn=learn, turnover=0.05,
        share_width=0.1,
    )  # fmt: skip


def truth(slot: int) -> float:
    return float(1.05 * PROFILE[slot % SEASON, 0])


def live(
    net: Network, server: Server, slots: range, *, heard: bool = True, sampling: bool = True
) -> tuple[float, float]:
    """Let a server live through slots; return the last estimate and its standard deviation."""
    for slot in slots:
        server.observe(slot, [round(SHARES[0] * truth(slot))] if sampling else None)
        records = {(origin, slot): np.array([np.rint(SHARES[origin] * truth(slot))]) for origin in (1, 2)}
        release = server.hear({9: message_of(records, list(records), net.price)} if heard else {})
    return float(release.estimate[0]), float(np.sqrt(release.variance[0]))


def settled(net: Network) -> Server:
    """A server that knows the shares."""
    server = net.server(0, account_for(net.guarantee))
    live(net, server, range(LAST + 1))
    return server


def restarted(net: Network, server: Server) -> Server:
    again = net.server(0, account_for(net.guarantee))
    again.restore(server.save())
    return again


@by_course
@pytest.mark.parametrize("last", [35, 2])
def test_a_clock_that_comes_back_finds_the_crowd_of_its_slot(last: int, *, scaled: bool, learn: bool) -> None:
    """With one filter for all slots it released 2593, give or take 99, of 8400 people."""
    net = network(scaled=scaled, learn=learn)
    server = settled(net)
    server.begin_again(last)
    again = restarted(net, server)
    for slot in range(last + 1, last + 1 + LAG):
        for one in (server, again):
            estimate, deviation = live(net, one, range(slot, slot + 1), sampling=False)
            assert abs(estimate - truth(slot)) < 3.0 * deviation
            assert deviation < 0.05 * truth(slot)


@by_course
def test_a_clock_that_comes_back_after_a_restart_makes_no_difference(*, scaled: bool, learn: bool) -> None:
    """The filters of the last slots are not part of a saved state: those of an older slot would be taken for them."""
    net = network(scaled=scaled, learn=learn)
    server = settled(net)
    again = restarted(net, server)
    for one in (server, again):
        one.begin_again(20)
    slots = range(21, 24)
    assert live(net, again, slots, sampling=False) == live(net, server, slots, sampling=False)


@by_course
@pytest.mark.parametrize("slots", [LAG + 2, 3 * LAG, 44])
def test_after_an_absence_filters_say_what_posteriors_say(slots: int, *, scaled: bool, learn: bool) -> None:
    """Filters that learn have begun anew meanwhile, and expect more of a slot than it was predicted from afar: their
    priors would take the place of the posteriors, of which records that come late are news.
    """
    net = network(scaled=scaled, learn=learn)
    server = settled(net)
    live(net, server, range(LAST + slots, LAST + slots + 1), heard=False, sampling=False)
    state = server._state
    assert isinstance(state, RelayState)
    assert state.learned is not None
    complete_filters(state, int(state.last) + 1, "numpy")
    for place, filters in enumerate(state.learned.filters):
        assert filters is not None
        assert filters[0].mean[:, 0] == pytest.approx(state.mean[place, 0])
        assert filters[0].crowd_var == pytest.approx(state.mean_var[place, 0])


@pytest.mark.parametrize("slots", [LAG + 2, 3 * LAG, 44])
def test_errors_of_shares_grow_with_the_season_during_an_absence(slots: int) -> None:
    """They are in people while noise hides the crowd: grown by the season of other slots, they would be too many."""
    net = replace(network(scaled=False, learn=False), guarantee=Guarantee.window(SEASON, epsilon=0.002))
    server = settled(net)
    state = server._state
    assert isinstance(state, RelayState)
    assert state.learned is not None
    latest = state.learned.filters[LAST % LAG]
    assert latest is not None
    assert not latest[0].settled.any()
    live(net, server, range(LAST + slots, LAST + slots + 1), heard=False, sampling=False)
    course = net.model.course
    assert course is not None

    def size(slot: int) -> float:
        """How large the crowd of a slot may be."""
        return float(np.sqrt(course.mean(slot)[0] ** 2 + course.settled_var(slot, net.model.transition)[0]))

    base = base_filters(state.learned)[0]
    growth = size(LAST + slots - LAG) / size(LAST)
    assert base.scale == pytest.approx(growth * latest[0].scale)
    assert base.mean[:, 1:4] == pytest.approx(growth * latest[0].mean[:, 1:4])
