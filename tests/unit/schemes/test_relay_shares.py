"""Relay that learns shares: what it gains, what it costs, and where it refuses to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.filters import share_widths
from dpcrowd.filters.share_learning import fuse_slot
from dpcrowd.schemes import relay, relay_share_steps, relay_shares
from dpcrowd.schemes.relay import Relay
from dpcrowd.schemes.snapshot import from_bytes
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.fit import fit
from dpcrowd.sim.simulate import simulate
from node_support_relay import facts_of
from project_support import TESTS
from schemes_support import bits

_RNG = np.random.default_rng(0)
COUNTS = (
    np.rint(np.array([3000, 900, 5000]) + np.cumsum(_RNG.normal(0.0, 20.0, (80, 3)), axis=0)).astype(np.int64).tolist()
)
SETTINGS: dict[str, Any] = {
    "servers": 8,
    "density": 0.5,
    "window": 20,
    "runs": 1,
    "burn_in": 40,
    "lag": 4,
    "shares": "partition",
    "observation": "binomial",
    "reach": "all",
    "process_var": 400.0,
}


def total(**settings: Any) -> tuple[float, float]:
    row = simulate("relay", COUNTS, **SETTINGS | settings).summary()[0]
    return row["total_error"]["mean"], row["coverage95"]


@pytest.mark.slow
@pytest.mark.parametrize("turnover", [1.0, 0.05])
def test_wrong_shares_are_found(turnover: float) -> None:
    """Without learning, the people whom a server sees more of than its public share says are counted too often."""
    public, missed = total(composition=1.0, turnover=turnover)
    learned, covered = total(composition=1.0, turnover=turnover, share_width=0.1)
    assert learned < 0.5 * public
    assert covered > missed
    assert covered > 0.88


@pytest.mark.slow
def test_right_shares_cost_little() -> None:
    """Whoever asks for learning and did not need it must not pay for it."""
    public, _ = total(turnover=0.05)
    learned, covered = total(turnover=0.05, share_width=0.1)
    assert learned < 1.15 * public
    assert covered > 0.9


@pytest.mark.slow
def test_it_learns_beside_an_expected_course_and_a_bank_of_beliefs() -> None:
    """Variances that are learned, and shares, have to go together: both come from the same records."""
    learned, covered = total(composition=1.0, share_width=0.1, learn=True)
    assert learned < 0.5 * total(composition=1.0, learn=True)[0]
    assert covered > 0.88


@pytest.mark.slow
def test_wrong_public_shares_are_no_reason_for_suspicion() -> None:
    """Whoever was suspected for a wrong share would count for nothing, and its share could never be learned."""

    class Watched(Relay):
        def release(self, state: Any, plan: Any, reading: Any) -> Any:
            if state.learned is not None:  # a scheme of a user's own is tried beforehand, without learning
                suspected.append(bool(self.suspects(state).any()))
            return super().release(state, plan, reading)

    suspected: list[bool] = []
    settings = {name: SETTINGS[name] for name in SETTINGS if name not in ("reach", "lag")}
    simulate(Watched(samples=20, hops_per_slot="all", lag=4), COUNTS, **settings, composition=0.5, share_width=0.1)
    assert suspected == [False] * len(COUNTS)


@pytest.mark.slow
def test_beside_a_model_that_a_series_leaves_almost_right_shares_are_right_ones() -> None:
    """The joint filter would otherwise hide from filters that learn what records say of a crowd that has moved."""
    rng = np.random.default_rng(1)
    past, later = (rng.poisson(np.linspace([2000, 900], [2000 * grown, 900 * grown], 40)) for grown in (1, 3))
    model = fit(counts_from_array(past.tolist(), process_var=1.0), source="test")
    settings = SETTINGS | {"burn_in": 0, "servers": 5, "hops_per_slot": "all", "turnover": 1.0, "epsilon": 0.1}
    del settings["process_var"]
    right, almost = (
        simulate("relay", later.tolist(), **settings, model=model, share_width=width).summary()[0]
        for width in (0.0, 0.001)
    )
    assert almost["total_error"]["mean"] == pytest.approx(right["total_error"]["mean"], rel=0.02)


class _Forgetful(Relay):
    """Relay whose receivers do not take what others have learned from the same records before."""

    def fuse(self, state: Any, *others: Any) -> None:
        if state.learned is not None:
            state.learned.made = [{} for _ in state.learned.made]
        super().fuse(state, *others)


@pytest.mark.slow
def test_late_records_are_learned_from_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter per receiver and slot is slow; one that is shared by mistake belongs to other records."""
    fused: dict[type[Relay], list[int]] = {Relay: [], _Forgetful: []}
    errors = []
    for kind, calls in fused.items():
        monkeypatch.setattr(relay_shares, "fuse_slot", lambda *facts, c=calls: c.append(0) or fuse_slot(*facts))
        settings = {name: SETTINGS[name] for name in SETTINGS if name not in ("reach", "lag")}
        settings |= {"burn_in": 0, "servers": 6}
        result = simulate(kind(samples=10, lag=4), COUNTS[:20], **settings, composition=1.0, share_width=0.1)
        errors.append(result.summary()[0]["total_error"]["mean"])
    assert errors[0] == errors[1]
    assert len(fused[Relay]) < 0.9 * len(fused[_Forgetful])


@pytest.mark.slow
def test_a_filter_of_few_receivers_costs_no_more_than_it_has_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where links fall apart, servers have filters of their own for good, and what is computed twice counts as often.

    The widths of a filter were weighed after its slot and once more when that became final, steps were computed for
    every receiver, and covariances of all slots stayed in memory.
    """
    weighed, steps, states = list[Any](), list[bytes](), list[Any]()
    weigh, step_of, end_slot = share_widths._weighed, relay_share_steps.step_of, relay.end_slot

    def spy_on_steps(setting: Any, receiver: int, before: Any, after: Any, *facts: Any) -> Any:
        steps.append(b"".join(part[receiver].tobytes() for part in (*before, *after)))
        return step_of(setting, receiver, before, after, *facts)

    def spy_on_slots(state: Any, slot: int, *facts: Any) -> None:
        end_slot(state, slot, *facts)
        states.append(state)
        assert len(steps) == len(set(steps)), "receivers that expect the same have one step"
        steps.clear()

    monkeypatch.setattr(share_widths, "_weighed", lambda *facts: weighed.append(facts[0]) or weigh(*facts))
    monkeypatch.setattr(relay_share_steps, "step_of", spy_on_steps)
    monkeypatch.setattr(relay, "end_slot", spy_on_slots)
    settings = SETTINGS | {"burn_in": 0, "servers": 12, "density": 0.15, "hops_per_slot": "all", "samples": 10}
    simulate("relay", COUNTS[:30], **settings, share_width=0.1)
    by_place = [filters or [] for filters in states[-1].learned.filters]
    assert max(len({id(one) for one in filters}) for filters in by_place) > 3, "the links fall apart"
    assert len({id(one) for one in weighed}) == len(weighed), "no filter is weighed twice"
    kept = {id(one) for filters in by_place for one in filters if one.gain is not None and one._cov is not None}
    assert len(kept) <= 12, "of the last slot at most"


def test_products_with_the_crowd_know_all_widths(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the widest one alone, records of right shares count little until it is ruled out: errors are up to a fifth
    larger than those of public shares."""
    given: list[tuple[bool, Any]] = []

    def spy(*facts: Any) -> Any:
        given.append((bool(facts[0].settled.any() and not facts[0].silent.any()), facts[7]))
        return fuse_slot(*facts)

    monkeypatch.setattr(relay_shares, "fuse_slot", spy)
    settings = SETTINGS | {"burn_in": 0, "servers": 6}
    simulate("relay", [[20_000 + 7 * slot, 9_000] for slot in range(20)], **settings, share_width=0.1)
    settled = [products for is_settled, products in given if is_settled]
    assert len(settled) > 5
    assert all(products is not None for products in settled)
    assert settled[-1].widest < 0.01, "public shares are right"
    assert all(products is None for is_settled, products in given if not is_settled)


STORED = TESTS / "fixtures" / "v0.2.dev-15" / "states" / "relay-shares.state"
"""Server 0 of three after slot 23, which has learned shares from its own records, as builds before stored it."""


def test_a_state_of_an_earlier_build_goes_on() -> None:
    """A server that forgot the shares, or that did not start, would lose what a month of records has shown."""
    network = replace(facts_of(servers=3), observation="binomial", shares=np.array([0.2, 0.3, 0.5]))
    server = replace(network, share_width=0.1, turnover=0.1).server(0)
    server.restore(STORED.read_bytes())
    saved = from_bytes(STORED.read_bytes())
    assert "state.learned.learner.scale" not in saved
    before = saved["state.learned.learner.mean"][0, :, 0]
    for slot in range(24, 40):
        server.observe(slot, [200, 150, 100])
        release = server.hear()
    assert np.isfinite(release.estimate).all()
    assert (np.abs(release.estimate - before) < 5.0 * np.sqrt(release.variance)).all()
    again = replace(network, share_width=0.1, turnover=0.1).server(0)
    again.restore(server.save())
    for one in (server, again):
        one.observe(40, [200, 150, 100])
    mine, theirs = server.hear(), again.hear()
    assert bits(mine.estimate) == bits(theirs.estimate)
    assert bits(mine.variance) == bits(theirs.variance)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"reach": 2}, "needs reach=all"),
        ({"shares": "uniform"}, "needs every user at one server"),
        ({"shares": [0.1] * 8}, "needs every user at one server"),
        ({"observation": "paper"}, "binomial counts"),
        ({"form": "matrix"}, "diagonal form only"),
        ({"share_width": 1.5}, "from 0"),
    ],
)
def test_where_shares_cannot_be_learned_it_says_so(settings: dict[str, Any], words: str) -> None:
    """A scale that cannot be known from records would be made up."""
    with pytest.raises(BadInput, match=words):
        total(**{"share_width": 0.1, **settings})


def test_the_width_is_for_relay() -> None:
    """An option without effect would be believed to have one."""
    with pytest.raises(BadInput, match="is for scheme 'relay' only"):
        simulate("dpcrowd-plus", COUNTS, servers=8, runs=1, window=20, share_width=0.1, shares="partition")
