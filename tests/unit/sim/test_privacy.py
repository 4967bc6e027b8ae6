"""What users really paid: reported from every charge of every server, region and slot."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import dpcrowd
from dpcrowd.schemes.base import Scheme
from dpcrowd.sim.simulate import simulate
from sim_support import FINITE, TINY, WINDOW, spy_on_engine

LONG: dict[str, Any] = {**TINY, "slots": 100, "runs": 2, "data": "multi-linear"}
WIDE = {**LONG, "window": 40}


@cache
def _together(schemes: tuple[str, ...], **settings: Any) -> Any:
    """Schemes that are simulated on the same runs, once for all tests that look at one of them."""
    return simulate(",".join(schemes), **settings)


def _paid(result: Any, scheme: str) -> dict[str, float]:
    paid: dict[str, float] = next(row for row in result.summary() if row["scheme"] == scheme)["epsilon_paid"]
    return paid


def _slow(charges: np.ndarray, window: int) -> tuple[int, int, int]:
    """Worst window of (slots, servers, regions) for one who stays, one who moves, one who roams; by loops."""
    slots, servers, regions = charges.shape
    staying = moving = roaming = 0
    for first in range(max(1, slots - window + 1)):
        span = charges[first : first + window]
        for server in range(servers):
            for region in range(regions):
                staying = max(staying, sum(int(c) for c in span[:, server, region]))
            moving = max(moving, sum(int(c[server].max()) for c in span))
        roaming = max(roaming, sum(int(c.max()) for c in span))
    return staying, moving, roaming


@pytest.mark.parametrize(
    ("scheme", "accounting", "more"),
    [
        (dpcrowd.DPCrowdPlus(), "per-region", {"window": 12}),
        (dpcrowd.DPCrowdPlus(), "sound", {"window": 12}),
        (dpcrowd.BD(), "sound", {"window": 7}),
        (dpcrowd.DPCrowd(), "per-region", {}),
        (dpcrowd.DFAST(), "sound", {}),
    ],
    ids=lambda value: value.name if isinstance(value, Scheme) else None,
)
def test_the_payment_reported_is_that_of_the_charges(
    monkeypatch: pytest.MonkeyPatch, scheme: Scheme, accounting: str, more: dict[str, Any]
) -> None:
    """The figure that makes this simulator honest: burn-in included, worst window, server and run."""
    spy = spy_on_engine(monkeypatch)
    result = simulate(scheme, "multi-linear", accounting=accounting, jobs=1, **TINY, **more)
    slots, servers, runs = TINY["slots"], TINY["servers"], TINY["runs"]
    all_regions = [np.broadcast_to(release.charge, (runs * servers, 6)) for release in spy.of(scheme)]
    charges = np.array(all_regions).reshape(slots, runs, servers, 6)
    by_run = [_slow(charges[:, run], more.get("window", slots)) for run in range(runs)]
    record = result[scheme.name]
    assert [(p.staying, p.moving, p.roaming) for p in record.paid] == by_run
    worst = np.max(by_run, axis=0) / 1e9
    assert list(_paid(result, scheme.name).values()) == pytest.approx(worst.tolist(), rel=1e-12)
    assert list(_paid(result, scheme.name)) == ["server", "moving", "roaming"]
    table = result.table()
    assert table["epsilon_paid_moving"] == [p[1] / 1e9 for p in by_run]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", WINDOW)
def test_sound_accounting_keeps_the_promise_to_a_user_who_moves(scheme: str) -> None:
    """If a moving user paid more than epsilon, the privacy that is printed would be a lie."""
    paid = _paid(_together(WINDOW, **WIDE), scheme)
    assert 0 < paid["server"] <= paid["moving"] <= 1
    assert paid["moving"] <= paid["roaming"]


@pytest.mark.parametrize("scheme", FINITE)
def test_sound_accounting_keeps_the_promise_over_the_whole_stream(scheme: str) -> None:
    """The same for a finite horizon, where nothing ever comes back."""
    paid = _paid(_together(FINITE, **LONG), scheme)
    assert 0 < paid["moving"] <= 1


GROUPING = ("dpcrowd-plus", "rescuedp", "dpcrowd-w")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", GROUPING)
def test_the_papers_accounting_costs_a_moving_user_more_than_epsilon(scheme: str) -> None:
    """The reason why sound accounting exists; if this no longer showed, the observer would be blind."""
    paid = _paid(_together(GROUPING, accounting="per-region", **WIDE), scheme)
    assert 0 < paid["server"] <= 1 < paid["moving"] <= paid["roaming"]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [*FINITE, "central", *WINDOW])
def test_roaming_users_pay_no_more_than_epsilon(scheme: str) -> None:
    """A user who is at another server in every slot pays at all of them; the promise is for the whole network."""
    paid = _paid(_over_60_slots(scheme, "roaming"), scheme)
    assert 0 < paid["roaming"] <= 1


def _over_60_slots(scheme: str, users: str) -> Any:
    settings = {**TINY, "slots": 60, "users": users}
    if scheme in WINDOW:
        return _together(WINDOW, window=20, **settings)
    return _together((*FINITE, "central"), **settings)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["dpcrowd", "dpcrowd-w", "bd"])
def test_roaming_is_not_free_of_charge_by_chance(scheme: str) -> None:
    """With pinned users the same schemes do exceed epsilon for one who roams: the bound above is no accident."""
    assert _paid(_over_60_slots(scheme, "pinned"), scheme)["roaming"] > 1


@pytest.mark.parametrize(
    ("sampling", "users"), [("lockstep", "roaming"), ("fixed", "roaming"), ("staggered", "pinned")]
)
def test_schedules_spend_epsilon_and_no_more(sampling: str, users: str) -> None:
    """A schedule is known in advance, so it can spend the whole budget; what is left unspent is lost accuracy."""
    result = simulate("dpcrowd", interval=5, sampling=sampling, users=users, **TINY)
    who = "roaming" if users == "roaming" else "moving"
    assert 1 - 1e-6 < _paid(result, "dpcrowd")[who] <= 1


def test_a_shorter_horizon_ends_the_spending(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the horizon nothing may be sampled any more: its budget covers these slots and no others."""
    spy = spy_on_engine(monkeypatch)
    scheme = dpcrowd.DPCrowd(sampling="fixed", interval=2)
    result = simulate(scheme, horizon=10, jobs=1, **TINY)
    sampled = [bool(release.sampled.any()) for release in spy.of(scheme)]
    assert sampled == [slot % 2 == 0 and slot < 10 for slot in range(30)]
    assert 1 - 1e-6 < _paid(result, "dpcrowd")["moving"] <= 1


def test_epsilon_divided_for_correlation_is_not_spent() -> None:
    """Remark 2: with a factor of 4 only a quarter of the budget may be used."""
    result = simulate("uniform", window=10, correlation=4.0, **TINY)
    assert _paid(result, "uniform")["moving"] == pytest.approx(0.25, abs=1e-6)


def test_without_privacy_nothing_is_reported_as_paid() -> None:
    """0 would mean perfect privacy; exact counts have none, so there is no number."""
    result = simulate("non-private", **TINY)
    assert _paid(result, "non-private") == {"server": None, "moving": None, "roaming": None}
    assert result["non-private"].paid == ()
    assert result.guarantees == {"non-private": None}
    assert result.table()["epsilon_paid_server"] == [None, None]
