"""`check_scheme` on dpcrowd's own schemes, which pass, and on schemes that each break one rule, which must not."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from dpcrowd import (
    DirectState,
    EstimateMessages,
    Guarantee,
    Noise,
    Plan,
    Reading,
    Release,
    Scheme,
    Setting,
    Uniform,
    direct_start,
    noise_var,
    open_ledger,
    perturb_counts,
)
from dpcrowd.schemes.flooding import Flooding
from dpcrowd.schemes.registry import SCHEMES, make_scheme
from dpcrowd.testing import ContractBroken, check_scheme, contract, examine_scheme, privacy

FLOODED = {name for name, scheme in SCHEMES.items() if issubclass(scheme, Flooding)} - {"dfast", "drescuedp"}
"""Schemes that read counts by one and the same wrapper, which is checked completely with two others."""
OF_READS = ("empty account", "composition", "distinguishability")
"""Checks that take a run each, and look at what is read alone."""


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.slow
def test_every_scheme_of_dpcrowd_passes(name: str) -> None:
    """The contract that the simulator and every live server build on: see `check_scheme` for what it holds."""
    report = check_scheme(name, skip=OF_READS if name in FLOODED else ())
    assert report.ok or name in FLOODED
    assert len(report.settings) == (8 * len(SCHEMES[name].kinds) or 3)
    assert not report.refused


@pytest.mark.parametrize(
    ("name", "options", "refused"),
    [
        ("dpcrowd", {"sampling": "fixed", "interval": 3}, 0),
        ("dpcrowd", {"sampling": "staggered", "interval": 3}, 3),
        ("dpcrowd-w", {"sampling": "lockstep", "interval": 2}, 0),
        ("dpcrowd-w", {"blocks": "full"}, 0),
        ("dpcrowd-plus", {"grouping": "none"}, 0),
        ("rescuedp", {"split": "proportional"}, 0),
    ],
)
@pytest.mark.slow
def test_schemes_with_options_pass_too(name: str, options: dict[str, Any], refused: int) -> None:
    """Other schedules and groups pay other amounts; staggered sampling is refused where users roam."""
    report = check_scheme(make_scheme(name, **options), skip=(*contract.CHECKS, "distinguishability", "refusals"))
    assert len(report.refused) == refused


class Raw(Uniform):
    """Publishes raw counts and charges nothing: what used to be printed as 40-event differential privacy."""

    name = "raw"

    def perturb(self, state: DirectState, plan: Plan, counts: Any, noise: Noise) -> Reading:
        state.last, state.last_share = counts.astype(float), plan.shares
        return Reading(counts.astype(float), plan.noise_var, np.zeros((len(counts), 1), dtype=np.int64))


class RawButPaid(Uniform):
    """Charges honestly and publishes raw counts all the same."""

    def perturb(self, state: DirectState, plan: Plan, counts: Any, noise: Noise) -> Reading:
        reading = super().perturb(state, plan, counts, noise)
        state.last = counts.astype(float)
        return reading


class Underpaid(Uniform):
    """Draws the noise of twice the price that it pays."""

    def perturb(self, state: DirectState, plan: Plan, counts: Any, noise: Noise) -> Reading:
        state.ledger.spend(plan.slot, plan.due * plan.amount)
        every = np.ones(counts.shape, dtype=np.bool_)
        state.last = noise.noisy(plan.slot, counts, 2 * plan.amount, 1, every)
        return Reading(state.last, plan.noise_var, plan.due * plan.amount)


class Amplified(Uniform):
    """Reads ten times the count at the sensitivity of one, so that a tenth of the noise is left."""

    def perturb(self, state: DirectState, plan: Plan, counts: Any, noise: Noise) -> Reading:
        reading = super().perturb(state, plan, 10 * counts, noise)
        state.last = state.last / 10
        return replace(reading, noisy=reading.noisy / 10)


class OneUserOneRegion(Uniform):
    """Forgets that a user may count in several regions and at several servers of a slot."""

    def perturb(self, state: DirectState, plan: Plan, counts: Any, noise: Noise) -> Reading:
        reading = perturb_counts(state.ledger, plan, counts, noise, sensitivity=1)
        state.last, state.last_share = reading.noisy, plan.shares
        state.variance = np.broadcast_to(plan.noise_var, counts.shape).copy()
        return reading


class PaysLater(Uniform):
    """Reads first and pays afterwards: if the ledger refuses, it is too late."""

    def perturb(self, state: DirectState, plan: Plan, counts: Any, noise: Noise) -> Reading:
        guarantee = state.setting.need_guarantee()
        every = np.ones(counts.shape, dtype=np.bool_)
        state.last = noise.noisy(plan.slot, counts, plan.amount, guarantee.sensitivity, every)
        state.last_share = plan.shares
        state.ledger.spend(plan.slot, plan.due * plan.amount)
        return Reading(state.last, plan.noise_var, plan.due * plan.amount)


class Generous(Uniform):
    """Opens an account of ten times the budget and spends that."""

    def start(self, setting: Setting) -> DirectState:
        state = super().start(setting)
        guarantee = replace(setting.need_guarantee(), epsilon=10 * setting.need_guarantee().epsilon)
        state.ledger = open_ledger(guarantee, setting.servers, setting.regions)
        return state

    def _price(self, setting: Setting) -> int:
        return 10 * super()._price(setting)


class PerRegion(Uniform):
    """Gives each region an account of its own under sound accounting: who moves pays for each of them."""

    def start(self, setting: Setting) -> DirectState:
        state = super().start(setting)
        state.ledger = open_ledger(setting.need_guarantee(), setting.servers, setting.regions, "per-region")
        return state

    def plan(self, state: DirectState, slot: int, shares: Any) -> Plan:
        guarantee = state.setting.need_guarantee()
        regions = np.arange(state.setting.regions)
        due = np.tile(regions == slot % guarantee.length % state.setting.regions, (state.setting.servers, 1))
        amount = np.array([[guarantee.total // -(-guarantee.length // state.setting.regions)]])
        return Plan(slot, shares, due, amount, noise_var(amount, guarantee.sensitivity))


class Decides(Uniform):
    """Looks at raw counts to decide whether to sample, and pays for the sample only."""

    def perturb(self, state: DirectState, plan: Plan, counts: Any, noise: Noise) -> Reading:
        busy = counts.sum(axis=1, keepdims=True) > 200
        return super().perturb(state, replace(plan, due=plan.due & busy), counts, noise)


class Averages(Uniform):
    """Reads the same counts four times and pays once: the mean has less noise than was paid for."""

    def perturb(self, state: DirectState, plan: Plan, counts: Any, noise: Noise) -> Reading:
        reading = super().perturb(state, plan, counts, noise)
        every, unit = np.ones(counts.shape, dtype=np.bool_), state.setting.need_guarantee().sensitivity
        more = [noise.noisy(plan.slot, counts, plan.amount, unit, every, read=n) for n in (1, 2, 3)]
        state.last = np.mean([reading.noisy, *more], axis=0)
        return reading


class SameDraw(Uniform):
    """Pays for two reads, but numbers both of them 0: their difference is free of noise."""

    def perturb(self, state: DirectState, plan: Plan, counts: Any, noise: Noise) -> Reading:
        unit, every = state.setting.need_guarantee().sensitivity, np.ones(counts.shape, dtype=np.bool_)
        half = plan.amount // 2
        state.ledger.spend(plan.slot, plan.due * (2 * half))
        reads = [noise.noisy(plan.slot, counts, half, unit, every) for _ in range(2)]
        state.last = np.mean(reads, axis=0)
        return Reading(state.last, plan.noise_var, plan.due * (2 * half))


@dataclass
class Memory(DirectState):
    raw: Any


class Remembers(Uniform):
    """Keeps raw counts in its state, which a server saves, without saying so."""

    def start(self, setting: Setting) -> Memory:
        return Memory(**direct_start(setting), raw=np.zeros((setting.servers, setting.regions), dtype=np.int64))

    def perturb(self, state: Any, plan: Plan, counts: Any, noise: Noise) -> Reading:
        state.raw = counts.copy()
        return super().perturb(state, plan, counts, noise)


class Gossips(Uniform):
    """Releases honestly and tells its neighbours the truth."""

    reach = "flooding"

    def perturb(self, state: Any, plan: Plan, counts: Any, noise: Noise) -> Reading:
        return replace(super().perturb(state, plan, counts, noise), group_noisy=counts.astype(float))

    def message(self, state: DirectState, plan: Plan, reading: Reading) -> EstimateMessages:
        assert reading.group_noisy is not None
        return EstimateMessages(np.ones(len(reading.noisy), dtype=np.bool_), reading.group_noisy, state.variance)


class OwnNoise(Uniform):
    """Draws noise of its own, from a generator that everybody can repeat."""

    def perturb(self, state: DirectState, plan: Plan, counts: Any, noise: Noise) -> Reading:
        state.ledger.spend(plan.slot, plan.due * plan.amount)
        state.last = counts + np.random.default_rng(plan.slot).laplace(0, 1e9 / plan.amount, counts.shape)
        return Reading(state.last, plan.noise_var, plan.due * plan.amount)


class Random(Uniform):
    """Adds randomness that nobody passed in."""

    def release(self, state: DirectState, plan: Plan, reading: Reading) -> Release:
        release = super().release(state, plan, reading)
        return replace(release, estimate=release.estimate + np.random.default_rng().normal(size=release.estimate.shape))


class Mixes(Uniform):
    """Averages over all servers of a batch, whichever run they belong to."""

    def release(self, state: DirectState, plan: Plan, reading: Reading) -> Release:
        release = super().release(state, plan, reading)
        mean = np.broadcast_to(release.estimate.mean(axis=0), release.estimate.shape).copy()
        return replace(release, estimate=mean)


class Scribbles(Uniform):
    """Writes into the counts that the next scheme of a comparison will read."""

    def perturb(self, state: DirectState, plan: Plan, counts: Any, noise: Noise) -> Reading:
        reading = super().perturb(state, plan, counts, noise)
        counts[:] = 0
        return reading


class ScribblesOnShares(Uniform):
    """Writes the same number into the shares in every run."""

    def plan(self, state: DirectState, slot: int, shares: Any) -> Plan:
        shares[0] = 0.125
        return super().plan(state, slot, shares)


class KeepsInItself(Uniform):
    """Keeps the last release in the scheme object, where two simulations would share it."""

    def perturb(self, state: DirectState, plan: Plan, counts: Any, noise: Noise) -> Reading:
        reading = super().perturb(state, plan, counts, noise)
        self.latest = reading.noisy
        return reading


class Unchecked(Uniform):
    """Never asks whether the guarantee fits."""

    def start(self, setting: Setting) -> DirectState:
        guarantee = setting.guarantee or Guarantee.window(8, 1.0)
        return DirectState(**{**direct_start(replace(setting, guarantee=guarantee)), "setting": setting})


class Narrow(Uniform):
    """Releases one number per server where there should be one per region."""

    def release(self, state: DirectState, plan: Plan, reading: Reading) -> Release:
        release = super().release(state, plan, reading)
        return replace(release, estimate=release.estimate[:, :1])


class Forgets(Uniform):
    """Has no ledger in its state."""

    def start(self, setting: Setting) -> Any:
        state = super().start(setting)
        ledger, state.ledger = state.ledger, None  # type: ignore[assignment]
        self._spend = ledger.spend
        return state

    def perturb(self, state: DirectState, plan: Plan, counts: Any, noise: Noise) -> Reading:
        every, unit = np.ones(counts.shape, dtype=np.bool_), state.setting.need_guarantee().sensitivity
        self._spend(plan.slot, plan.due * plan.amount)
        state.last = noise.noisy(plan.slot, counts, plan.amount, unit, every)
        return Reading(state.last, plan.noise_var, plan.due * plan.amount)


BAD: list[tuple[type[Scheme], set[str]]] = [
    (Raw, {"noise", "saved state", "unpaid counts", "distinguishability"}),
    (RawButPaid, {"noise", "saved state", "distinguishability"}),
    (Underpaid, {"paid first", "charges", "composition", "distinguishability"}),
    (Amplified, {"composition", "distinguishability"}),
    (OneUserOneRegion, {"paid first", "charges", "composition"}),
    (PaysLater, {"paid first", "empty account"}),
    (Generous, {"ledger", "budget", "composition"}),
    (PerRegion, {"budget", "composition"}),
    (Decides, {"noise", "unpaid counts"}),
    (Averages, {"paid first", "charges", "composition", "distinguishability"}),
    (SameDraw, {"fresh draws"}),
    (Remembers, {"saved state"}),
    (Gossips, {"noise", "distinguishability"}),
    (OwnNoise, {"noise", "saved state"}),
    (Random, {"determinism", "batches"}),
    (Mixes, {"batches"}),
    (Scribbles, {"inputs"}),
    (KeepsInItself, {"inputs"}),
    (Unchecked, {"refusals"}),
    (Narrow, {"shapes"}),
    (Forgets, {"ledger"}),
]


EVERY = {*contract.CHECKS, *privacy.CHECKS, "distinguishability", "refusals"}


@pytest.mark.parametrize(("scheme", "checks"), BAD, ids=lambda value: getattr(value, "__name__", ""))
def test_each_broken_rule_is_found(scheme: type[Scheme], checks: set[str]) -> None:
    """A checker that lets one of these pass would vouch for a promise that does not hold.

    Checks do not depend on each other, so that only those are made that have to fail.
    """
    report = examine_scheme(scheme, skip=EVERY - checks)
    assert {failure.check for failure in report.failures} == checks, report


@pytest.mark.parametrize("scheme", [Scribbles, ScribblesOnShares, KeepsInItself])
def test_changed_inputs_are_found_after_other_checks(scheme: type[Scheme]) -> None:
    """A complete check runs the scheme before: what it stores in every run was then there already, and passed."""
    report = examine_scheme(scheme, skip=EVERY - {"shapes", "determinism", "inputs"})
    assert [failure.check for failure in report.failures] == ["inputs"], report


@pytest.mark.slow
def test_the_report_says_what_and_where() -> None:
    """An author has to find the line: the check, the setting and the array or price that is wrong."""
    with pytest.raises(ContractBroken) as broken:
        check_scheme(PaysLater())
    text = str(broken.value)
    assert "scheme 'uniform' under 8 settings:" in text
    assert "FAILED  paid first (window, pinned users, 1 region): in slot 0 server" in text
    assert "spend before reading" in text
    assert "passed  composition" in text


@pytest.mark.slow
def test_checks_that_are_left_out_are_no_pass() -> None:
    """Whoever has another proof may leave a check out, but then dpcrowd does not say that it has passed."""
    report = check_scheme(Amplified(), skip=("composition", "distinguishability"))
    assert not report.ok
    assert report.skipped == ("composition", "distinguishability")


def test_a_scheme_that_raises_fails_and_one_that_refuses_everything_too() -> None:
    """Neither is a pass: nothing about it has been seen."""

    class Crashes(Uniform):
        def plan(self, state: DirectState, slot: int, shares: Any) -> Plan:
            raise KeyError("forgotten")

    class Refuses(Uniform):
        def start(self, setting: Setting) -> DirectState:
            self.check(replace(setting, guarantee=None))
            raise AssertionError

    crashed = examine_scheme(Crashes)
    assert re.fullmatch(r"KeyError: 'forgotten' \(test_check\.py, line \d+\)", crashed.failures[0].reason)
    assert str(crashed).count("forgotten") == 1, "one crash is one line, however many checks it ends"
    refusing = examine_scheme(Refuses)
    assert [failure.check for failure in refusing.failures] == ["start"]
    assert len(refusing.refused) == 8
