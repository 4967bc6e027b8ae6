"""Relay: servers pass on records, never estimates, and each runs an exact filter over the records that it has.

A record is what a server pays for: (origin, slot, epsilon, noisy counts). Each counts once per receiver, so nothing is
counted twice, there is no consensus step to tune, and intervals are exact given the model.

    schedule  n samples per window or horizon, epsilon/n each, in slots that public facts fix (`sampling.schedule`)
    spread    records travel one hop per round, K rounds per slot, up to `reach` hops (`network.spread`)
    fuse      the records of the last L slots are kept. Where a late one has arrived its slot is summed again in order
              of origin, and the filter runs again from there on
    release   posterior and variance

Whatever depends on the level (the binomial variance, the guard) looks at the finalised state of slot s - L, of which
no record is taken any more in slot s. So the estimate is a function of the set of records, whatever their order, and
servers with the same records release the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpcrowd.errors import BadInput
from dpcrowd.filters import predict, predict_matrix, update, update_matrix
from dpcrowd.filters.records import POOL, RecordTable, Reference, held_pairs, pair_var, record_sums
from dpcrowd.network.hearing import Hearing
from dpcrowd.network.spread import Holdings, Spread, Traffic
from dpcrowd.privacy import Ledger, Noise, noise_var, open_ledger
from dpcrowd.privacy.allocation import per_sample
from dpcrowd.sampling.schedule import samples_due
from dpcrowd.schemes.base import Form, Plan, Reading, Release, Scheme, Setting
from dpcrowd.schemes.messages import Messages
from dpcrowd.schemes.perturb import perturb_counts

__all__ = ["Relay"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

LIMIT = 36.0  # of a squared normalised innovation; one honest record in thousands is beyond
SUSPECT = 3.5  # mean squared residual of an origin, in units of the others', from which on it is down-weighted
_RATE, _FORGIVE, _CAP, _TYPICAL, _TYPICAL_RATE = 1 / 8, 1 / 32, 100.0, 4.0, 1 / 64
_MOST_WITH_HISTORY = 2048


@dataclass
class RelayState:
    """Arrays of N receivers and O origins; of the last L slots, slot t at place t mod L."""

    setting: Setting
    ledger: Ledger | None
    amount: Ints
    amount_var: Floats
    shift: Ints
    spread: Spread | None
    noisy: Floats
    var: Floats
    shares: Floats
    y: Floats
    info: Floats
    mean: Floats
    mean_var: Floats
    known: Bools
    base: Floats
    base_var: Floats
    base_known: Bools
    level: Floats
    level_var: Floats
    score: Floats
    typical: Floats
    recent: Floats
    base_recent: Floats
    heard: list[Holdings | None]
    traffic: Traffic | None
    slot: int


@dataclass(frozen=True)
class Origins(Messages):
    """Who has a record of this slot; in the simulator everybody sees the same table."""


class Relay(Scheme):
    """samples, reach, hops_per_slot, lag: see the module."""

    name = "relay"
    kinds = frozenset({"finite", "window"})
    summary = ("records travel, one hop per round", "n samples, ε/n each, staggered or lockstep", "exact filter", "both")
    reach = "relay"
    live = False

    def __init__(
        self,
        samples: int | None = None,
        interval: int | None = None,
        reach: int | Literal["all"] = "all",
        hops_per_slot: int | Literal["all"] = 1,
        lag: int = 16,
        guard: bool = True,
    ) -> None:
        self.samples, self.interval = samples, interval
        self.max_hops = None if reach == "all" else int(reach)
        self.rounds = None if hops_per_slot == "all" else int(hops_per_slot)
        self.lag, self.guard = lag, guard

    def samples_in(self, setting: Setting) -> int:
        """n."""
        length = setting.need_guarantee().length
        if self.samples is not None:
            return self.samples
        if self.interval is not None:
            if length % self.interval:
                raise BadInput(f"an interval of {self.interval} does not divide {length}; give samples instead.")
            return length // self.interval
        if setting.samples is None:
            raise BadInput("relay needs a number of samples.")
        return setting.samples

    def start(self, setting: Setting) -> RelayState:
        self.check(setting)
        guarantee = setting.need_guarantee()
        n, d, lag = setting.servers, setting.regions, self.lag
        amount = np.array([[per_sample(guarantee.total, self.samples_in(setting))]])
        matrix = setting.form == "matrix"
        spread = None if self.max_hops == 1 else Spread.start(setting.runs, n // setting.runs, lag)
        history = self.guard and n // setting.runs <= _MOST_WITH_HISTORY
        eye = np.eye(d)
        return RelayState(
            setting=setting,
            ledger=open_ledger(guarantee, n, d),
            amount=amount,
            amount_var=noise_var(amount, guarantee.sensitivity),
            shift=np.zeros((n, 1), dtype=np.int64),
            spread=spread,
            noisy=np.zeros((lag, n, d)),
            var=np.zeros((lag, n)),
            shares=np.zeros((lag, n)),
            y=np.zeros((lag, n, d)),
            info=np.zeros((lag, n, d)),
            mean=np.zeros((lag, n, d)),
            mean_var=np.tile(eye, (lag, n, 1, 1)) if matrix else np.full((lag, n, d), np.inf),
            known=np.zeros((lag, n), dtype=np.bool_),
            base=np.zeros((n, d)),
            base_var=np.tile(eye, (n, 1, 1)) if matrix else np.full((n, d), np.inf),
            base_known=np.zeros(n, dtype=np.bool_),
            level=np.zeros((lag, n, d)),
            level_var=np.full((lag, n, d), np.inf),
            score=np.ones((n, n // setting.runs) if history else (0, 0)),
            typical=np.ones(n),
            recent=np.full((lag, n, POOL), np.nan),
            base_recent=np.full((n, POOL), np.nan),
            heard=[None] * lag,
            traffic=None,
            slot=-1,
        )

    def plan(self, state: RelayState, slot: int, shares: Floats) -> Plan:
        assert state.ledger is not None
        setting = state.setting
        guarantee = setting.need_guarantee()
        offsets = np.zeros((1, 1), dtype=np.int64) if setting.phases is None else setting.phases[:, None]
        due = samples_due(slot - state.shift, self.samples_in(setting), guarantee.length, offsets)
        due = due & (state.ledger.remaining(slot) >= state.amount)
        return Plan(slot, shares, due, state.amount, state.amount_var)

    def perturb(self, state: RelayState, plan: Plan, counts: NDArray[np.int64], noise: Noise) -> Reading:
        assert state.ledger is not None
        return perturb_counts(state.ledger, plan, counts, noise, state.setting.need_guarantee().sensitivity)

    def message(self, state: RelayState, plan: Plan, reading: Reading) -> Origins:
        return Origins(plan.due[:, 0])

    def fuse(self, state: RelayState, plan: Plan, reading: Reading, messages: Origins, hearing: Hearing) -> None:
        slot, lag = plan.slot, self.lag
        place = slot % lag
        speaks = messages.speaks
        self._finalise(state, slot, hearing.engine)
        state.noisy[place] = reading.noisy
        state.var[place] = np.where(speaks, state.setting.tuning.alpha * state.amount_var[:, 0], 0.0)
        state.shares[place] = plan.shares[:, 0]
        if state.spread is None:
            changed = [slot]
            matrix = hearing.matrix
            state.heard[place] = Holdings(matrix.indptr, matrix.indices)
        else:
            state.spread.open(slot, speaks)
            assert hearing.graph is not None
            changed, state.traffic = state.spread.exchange(
                slot, hearing.graph, self.rounds, self.max_hops, same_links=hearing.same_links, engine=hearing.engine
            )
            for one in changed:
                state.heard[one % lag] = state.spread.holdings(one, hearing.engine)
        first = changed[0]
        if slot < lag:  # nothing is final yet: every record says something about every other
            first = 0
        self._filter(state, first, slot, set(changed), self._penalty(state, slot), hearing.engine)
        state.slot = slot

    def _table(self, state: RelayState, slot: int) -> RecordTable:
        place = slot % self.lag
        return RecordTable(state.noisy[place], state.var[place], state.shares[place])

    def _sum(
        self, state: RelayState, slot: int, prior: Floats, prior_var: Floats, penalty: Floats | None, engine: str
    ) -> None:
        place, setting = slot % self.lag, state.setting
        held = state.heard[place]
        assert held is not None
        reference = Reference(state.level[place], state.level_var[place])
        if self.guard:
            recent = state.base_recent if slot in (0, state.slot + 2 - self.lag) else state.recent[(slot - 1) % self.lag]
            reference = replace(reference, prior=prior, prior_var=prior_var, penalty=penalty, limit=LIMIT, recent=recent)
        state.y[place], state.info[place], after = record_sums(
            held.indptr, held.indices, self._table(state, slot), reference,
            setting.observation, setting.model.noise_var, setting.servers // setting.runs, engine,
        )  # fmt: skip
        if after is not None:
            state.recent[place] = after

    def _filter(
        self, state: RelayState, first: int, last: int, changed: set[int], penalty: Floats | None, engine: str
    ) -> None:
        """Run the filter again from a slot on. The guard's prior has changed, so later slots are summed again, too."""
        model, lag = state.setting.model, self.lag
        matrix = state.setting.form == "matrix"
        for slot in range(first, last + 1):
            if slot == 0 or slot == last - lag + 1:
                mean, var, known = state.base, state.base_var, state.base_known
            else:
                before = (slot - 1) % lag
                mean, var, known = state.mean[before], state.mean_var[before], state.known[before]
            place = slot % lag
            if matrix:
                prior, prior_var = predict_matrix(mean, var, model)
                if not known.all():
                    prior_var = np.where(known[:, None, None], prior_var, var)
                spread = np.where(known[:, None], np.einsum("nkk->nk", prior_var), np.inf)
            else:
                prior, prior_var = predict(mean, var, model)
                spread = prior_var
            if self.guard or slot in changed:
                self._sum(state, slot, prior, spread, penalty, engine)
            y, info = state.y[place], state.info[place]
            if matrix:
                full = np.zeros((*info.shape, info.shape[1]))
                np.einsum("nkk->nk", full)[:] = info
                state.mean[place], state.mean_var[place], state.known[place] = update_matrix(
                    prior, prior_var, known, y, full
                )
            else:
                state.mean[place], state.mean_var[place] = update(prior, prior_var, y, info)
                state.known[place] = np.isfinite(state.mean_var[place]).all(axis=1)

    # ------------------------------------------------------------------------------------------- what is final

    def _finalise(self, state: RelayState, slot: int, engine: str) -> None:
        """Before a slot: no record of slot - L is taken any more."""
        lag, place = self.lag, slot % self.lag
        if slot >= lag:
            if state.score.size:
                self._judge(state, slot - lag)
            state.base, state.base_var = state.mean[place].copy(), state.mean_var[place].copy()
            state.base_known = state.known[place].copy()
            state.base_recent = state.recent[place].copy()
        state.level[place], state.level_var[place] = self._ahead(state)

    def _ahead(self, state: RelayState) -> tuple[Floats, Floats]:
        """The finalised state as it is expected L slots later: mean and variances."""
        model, lag = state.setting.model, self.lag
        if state.setting.form == "matrix":
            mean, cov = state.base, state.base_var
            a = np.linalg.matrix_power(model.matrix_transition, lag)
            power, grown = np.eye(model.regions), np.zeros_like(model.matrix_var)
            for _ in range(lag):
                grown = grown + power @ model.matrix_var @ power.T
                power = model.matrix_transition @ power
            var = np.einsum("kl,nlm,km->nk", a, cov, a) + np.diag(grown)
            return (a @ mean[..., None])[..., 0], np.where(state.base_known[:, None], var, np.inf)
        mean, var = state.base, state.base_var
        for _ in range(lag):
            mean, var = predict(mean, var, model)
        return mean, var

    def _judge(self, state: RelayState, slot: int) -> None:
        """What the records of a slot that is final say about their origins."""
        place, setting = slot % self.lag, state.setting
        held = state.heard[place]
        assert held is not None
        table = self._table(state, slot)
        rows, origins = held_pairs(held.indptr, held.indices, table)
        if not rows.size:
            return
        servers = setting.servers // setting.runs
        free = Reference(state.level[place], state.level_var[place])
        variance = pair_var(rows, origins, table, free, setting.observation, setting.model.noise_var)
        share = table.shares[origins][:, None]
        var = state.mean_var[place]
        if setting.form == "matrix":
            var = np.einsum("nkk->nk", var)
        off = table.noisy[origins] - share * state.mean[place][rows]
        with np.errstate(invalid="ignore"):
            squared = off * off / (variance + share * share * var[rows])
        known = state.known[place][rows]
        squared = np.where(known[:, None], squared, 1.0).mean(axis=1)
        number = np.bincount(rows, minlength=len(state.typical))
        usual = np.bincount(rows, weights=np.minimum(squared, _TYPICAL), minlength=len(state.typical))
        rate = 1.0 - (1.0 - _TYPICAL_RATE) ** number
        state.typical += np.where(number > 0, (usual / np.maximum(number, 1) - state.typical) * rate, 0.0)
        residual = np.minimum(squared / np.maximum(state.typical[rows], 1.0), _CAP)
        score = state.score[rows, origins % servers]
        rate = np.where((score > SUSPECT) & (residual < score), _FORGIVE, _RATE)
        state.score[rows, origins % servers] = score + (residual - score) * rate

    def _penalty(self, state: RelayState, slot: int) -> Floats | None:
        if not self.guard:
            return None
        if slot < self.lag:
            return self._first_penalty(state, slot)
        if not state.score.size:
            return None
        return np.where(state.score > SUSPECT, np.square(state.score), 1.0)

    def _first_penalty(self, state: RelayState, slot: int) -> Floats | None:
        """Before anything is final: origins whose mean total is far from the median of all."""
        setting = state.setting
        servers = setting.servers // setting.runs
        if servers > _MOST_WITH_HISTORY:
            return None
        shape = (setting.servers, servers)
        total, squares, number = (np.zeros(shape) for _ in range(3))
        for one in range(max(0, slot - self.lag + 1), slot + 1):
            held, table = state.heard[one % self.lag], self._table(state, one)
            assert held is not None
            rows, origins = held_pairs(held.indptr, held.indices, table)
            share = table.shares[origins]
            total[rows, origins % servers] += table.noisy[origins].sum(axis=1) / share
            squares[rows, origins % servers] += table.var[origins] * table.noisy.shape[1] / (share * share)
            number[rows, origins % servers] += 1
        there = number > 0
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(there, total / number, np.nan)
            var = squares / (number * number)
        enough = there.sum(axis=1) >= 5
        out = np.ones(shape)
        if not enough.any():
            return out
        median = np.nanmedian(mean[enough], axis=1, keepdims=True)
        scale = 1.4826 * np.nanmedian(np.abs(mean[enough] - median), axis=1, keepdims=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.square(mean[enough] - median) / (LIMIT * (np.square(scale) + var[enough]))
        out[enough] = np.where(ratio > 1.0, ratio, 1.0)
        return out

    def release(self, state: RelayState, plan: Plan, reading: Reading) -> Release:
        place = plan.slot % self.lag
        estimate, variance, known = state.mean[place], state.mean_var[place], state.known[place]
        if state.setting.form == "matrix":
            variance = np.einsum("nkk->nk", variance)
            estimate = np.where(known[:, None], estimate, np.nan)
            variance = np.where(known[:, None], variance, np.inf)
        else:
            estimate = np.where(np.isfinite(variance), estimate, np.nan)
        return Release(plan.slot, estimate, variance, plan.due, reading.charge, plan.due[:, 0])

    def message_numbers(self, regions: int, form: Form) -> int:
        return regions
