"""Schemes that filter: predict, sample, exchange information, update (Algorithms 1 to 3).

With `reach = "one-hop"` this is the Kalman-consensus information filter; with "alone" the sums hold the server's own
sample only, and it is the plain Kalman filter of FAST and RescueDP; with "central" every sample of the run.
Where nothing was sampled there is no own measurement: taking the last release for one, as Algorithms 2 and 3
print it, would count the same information twice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Bools, Floats
from dpcrowd.filters import (
    consensus_gain,
    consensus_pull,
    fuse,
    fuse_matrix,
    group_info,
    observation_info,
    observation_var,
    predict,
    predict_matrix,
)
from dpcrowd.filters.ahead import moved_in_time, predict_ahead, predict_ahead_matrix, predict_bank_ahead
from dpcrowd.filters.bank_estimate import combined, doubtful_weights
from dpcrowd.filters.drift import (
    Innovations,
    carry_drift,
    keep_drift,
    learn_drift,
    learn_offset,
)
from dpcrowd.filters.fresh_evidence import fresh_evidence, squared_surprise
from dpcrowd.filters.groups import over_members
from dpcrowd.filters.learning import (
    Priors,
    carried_parts,
    over_beliefs,
    predict_bank,
    update_bank,
)
from dpcrowd.filters.mixed import LinkEffect, Mixed, follow_mixed
from dpcrowd.filters.offset import Fused, fused_innovations
from dpcrowd.filters.splitting import follow_split, group_sizes, measured_by_sums
from dpcrowd.filters.staying import (
    count_slots,
    deviating_part,
    follow_staying,
    kept_part,
)
from dpcrowd.kernels.engine import compiled
from dpcrowd.kernels.fusion import add_to_hearers, fuse_sums
from dpcrowd.kernels.gather import unsigned
from dpcrowd.network.hearing import Hearing
from dpcrowd.privacy import Noise
from dpcrowd.schemes.base import Form, Plan, Reading, Release, Scheme, Setting, any_region, every_region
from dpcrowd.schemes.filter_state import FilterState, filter_start, filter_variance, has_pilot
from dpcrowd.schemes.messages import InfoMessages
from dpcrowd.schemes.perturb import perturb_counts

__all__ = ["FilterScheme", "FilterState", "absorb_few", "few_speak", "filter_start", "filter_variance"]

_UNLINKED = LinkEffect(np.ones(1), np.zeros(1), np.ones(1))
"""Where nobody knows how servers are linked, nothing is taken to be averaged away."""
_FEW = 0.4
"""Above this share of speakers, reading what each server hears is faster than adding to what others hear."""


class FilterScheme(Scheme):
    """Base of all schemes with a filter. Subclasses decide when to sample and at what price, and adapt afterwards."""

    message_vectors = 3  # info_vec, info_mat and the prior

    @property
    def adaptive(self) -> bool:
        """Whether it chooses the slots of its samples by what is estimated."""
        return False

    def value_bytes(self, regions: int, form: Form) -> int:
        known = regions  # a byte per region says whether the prior means anything
        values = super().value_bytes(regions, form)
        return known + (values if form == "diagonal" else values + 8 * regions * (regions - 1))

    def predict(self, state: FilterState, slot: int | None = None) -> tuple[Floats, Floats]:
        """Return mean and variance of the prior of a slot; without its number, of the one after the posterior's."""
        model = state.setting.model
        if state.bank is not None:
            return combined(_prior_bank(state, slot), state.beliefs)
        if model.course is not None:
            return _predict_by_course(state, slot)
        if state.setting.form == "diagonal":
            if state.skipped:
                return predict_ahead(state.posterior, state.posterior_var, model, state.skipped + 1)
            return predict(state.posterior, state.posterior_var, model)
        if state.skipped:
            prior, prior_cov = predict_ahead_matrix(state.posterior, state.posterior_var, model, state.skipped + 1)
        else:
            prior, prior_cov = predict_matrix(state.posterior, state.posterior_var, model)
        if not state.known.all():
            prior_cov = np.where(state.known[:, None, None], prior_cov, state.posterior_var)
        return prior, prior_cov

    def perturb(self, state: FilterState, plan: Plan, counts: NDArray[np.int64], noise: Noise) -> Reading:
        assert state.ledger is not None
        return perturb_counts(state.ledger, plan, counts, noise, state.setting.need_guarantee().sensitivity)

    def data_bytes(self, setting: Setting) -> int:
        return super().data_bytes(setting) * (2 if has_pilot(setting, self.adaptive) else 1)

    def plan_of_pilot(self, state: FilterState, plan: Plan) -> Plan:
        """Return the plan as the pilot sees it, before it has fused the slot; without one, the same plan."""
        if state.pilot is None:
            return plan
        state.pilot.skipped = state.skipped
        prior, prior_var = self.predict(state.pilot, plan.slot)
        return replace(plan, prior=prior, prior_var=prior_var, known=state.pilot.known)

    def message(self, state: FilterState, plan: Plan, reading: Reading) -> InfoMessages:
        message = self._info(state, plan, reading)
        if state.pilot is None:
            return message
        return replace(message, pilot=self._info(state.pilot, self.plan_of_pilot(state, plan), reading))

    def _info(self, state: FilterState, plan: Plan, reading: Reading) -> InfoMessages:
        """Return the messages of one filter, which expects the prior of the plan."""
        plan = _used(plan, reading)
        assert plan.prior is not None and plan.prior_var is not None
        setting, share = state.setting, plan.shares
        matrix = setting.form == "matrix"
        speaks = self._speaks(plan)
        known = np.repeat(state.known[:, None], setting.regions, axis=1) if matrix else np.isfinite(plan.prior_var)
        spread = _spread(setting, plan, reading, known)
        alpha = setting.tuning.alpha
        if matrix:
            info_vec, info_mat = self._matrix_info(plan, reading, spread, alpha)
        elif setting.model.course is not None and plan.pivot is not None and reading.group_noisy is not None:
            info_vec, info_mat = self._info_of_sums(plan, reading, spread, alpha)
        else:
            info_vec, info_mat = observation_info(reading.noisy, share, alpha * reading.noise_var + spread, plan.due)
        return InfoMessages(speaks, info_vec, info_mat, plan.prior, known)

    @staticmethod
    def _matrix_info(plan: Plan, reading: Reading, spread: Floats, alpha: float) -> tuple[Floats, Floats]:
        servers, regions = reading.noisy.shape
        spread = np.broadcast_to(spread, reading.noisy.shape)
        if reading.group_noisy is None or reading.group_var is None or plan.pivot is None:
            info_vec, info = observation_info(reading.noisy, plan.shares, alpha * reading.noise_var + spread, plan.due)
            info_mat = np.zeros((servers, regions, regions))
            info_mat[:, np.arange(regions), np.arange(regions)] = info
            return info_vec, info_mat
        due = np.broadcast_to(plan.due, reading.noisy.shape)
        members = ((plan.pivot[:, None, :] == np.arange(regions)[None, :, None]) & due[:, None, :]).astype(np.float64)
        group_spread = np.einsum("ngk,nk->ng", members, spread)
        return group_info(reading.group_noisy, plan.shares, alpha * reading.group_var + group_spread, members)

    @staticmethod
    def _info_of_sums(plan: Plan, reading: Reading, spread: Floats, alpha: float) -> tuple[Floats, Floats]:
        """Return the information of a slot in which sums of groups were read, in the diagonal form."""
        assert plan.prior is not None and plan.prior_var is not None and plan.pivot is not None
        assert reading.group_noisy is not None and reading.group_var is not None
        shape = reading.noisy.shape
        due = every_region(plan.due, shape[1])
        pivot = np.where(due, plan.pivot, np.arange(shape[1]))
        leads = due & (pivot == np.arange(shape[1]))
        noisy = over_members(np.where(leads, reading.group_noisy, 0.0), pivot)
        noise = over_members(np.where(leads, reading.group_var, 0.0), pivot)
        variance = alpha * noise + over_members(np.broadcast_to(spread, shape), pivot)
        noisy, variance = measured_by_sums(noisy, variance, plan.prior, plan.prior_var, plan.shares, pivot)
        return observation_info(noisy, plan.shares, variance, due)

    def _speaks(self, plan: Plan) -> Bools:
        """Return which servers send a message, (N,): those that sampled, unless they work alone."""
        sampled = any_region(plan.due)
        return np.zeros_like(sampled) if self.reach == "alone" else sampled

    def fuse(self, state: FilterState, plan: Plan, reading: Reading, messages: InfoMessages, hearing: Hearing) -> None:
        assert plan.prior is not None and plan.prior_var is not None
        before, of_pilot = state.posterior_var, self.plan_of_pilot(state, plan)
        repeats = self.count_own_sample(state, _used(plan, reading), reading)
        self.absorb(state, plan.prior, plan.prior_var, messages, hearing, plan.slot, repeats)
        if state.mixed is not None:
            self._follow_mixed(state, state.mixed, before, _used(plan, reading), hearing)
        self.follow_errors(state, _used(plan, reading), reading, plan.prior_var)
        state.end(plan.slot)
        if state.pilot is not None:
            assert of_pilot.prior is not None and of_pilot.prior_var is not None and messages.pilot is not None
            self.absorb(state.pilot, of_pilot.prior, of_pilot.prior_var, messages.pilot, hearing, plan.slot)
            state.pilot.end(plan.slot)
        self.adapt(state, of_pilot, reading)

    def count_own_sample(self, state: FilterState, plan: Plan, reading: Reading) -> Floats | None:
        """Remember that a server samples, and return the part of its measurement that users who stay will repeat.

        None where evidence need not know it: filters do not learn, or everybody chooses a server anew.
        """
        if state.staying is None or state.bank is None or plan.prior_var is None:
            return None
        due = np.broadcast_to(plan.due, state.staying.since.shape)
        state.staying = count_slots(state.staying, due, _steps(state, plan.slot))
        return _deviating_part(state.setting, plan, reading, np.isfinite(plan.prior_var))

    def _follow_mixed(self, state: FilterState, mixed: Mixed, before: Floats, plan: Plan, hearing: Hearing) -> None:
        """Follow what the consensus averages away; `before`: the posterior variance of the slot before."""
        assert plan.prior_var is not None and state.heard is not None
        known = np.isfinite(plan.prior_var)
        own = self._speaks(plan)[:, None] & known  # a server that speaks has heard its own prior, too
        pull = np.where(known, consensus_gain(plan.prior_var, hearing.gain), 0.0) * (state.heard - own)
        links = _UNLINKED if hearing.mixing is None else LinkEffect(*hearing.mixing())
        carried = state.setting.model.carried(plan.slot)
        state.mixed = follow_mixed(mixed, before, plan.prior_var, state.posterior_var, carried, pull, links)

    def follow_errors(
        self, state: FilterState, plan: Plan, reading: Reading, prior_var: Floats, prior: Floats | None = None
    ) -> None:
        """Follow errors that the filter does not know of; what others have sent is taken to be like the own sample.

        prior, prior_var  of the filter whose errors they are; without `prior`, that of the plan
        """
        setting = state.setting
        if state.drift is not None:
            self._follow_drift(state, plan, reading, plan.prior if prior is None else prior, prior_var)
        if state.staying is not None:
            part = _deviating_part(setting, plan, reading, np.isfinite(prior_var))
            left, gone = _carried(state, plan.slot), 1.0 - (1.0 - setting.turnover) ** _steps(state, plan.slot)
            state.staying = follow_staying(state.staying, prior_var, state.posterior_var, part, left, gone)
        if state.divided is not None:
            a = setting.model.carried(plan.slot)
            sizes, due = state.divided.sizes, every_region(plan.due, setting.regions)
            if plan.due.any():
                now = np.ones_like(sizes) if plan.pivot is None else group_sizes(plan.pivot, due)
                sizes = np.where(due, now, sizes)
            posterior = (state.posterior, state.posterior_var)
            state.divided = follow_split(state.divided, prior_var, posterior, sizes, a)

    def _follow_drift(
        self, state: FilterState, plan: Plan, reading: Reading, prior: Floats | None, prior_var: Floats
    ) -> None:
        """Learn from the own samples how far the crowd moves, before the memory of other errors is of this slot."""
        assert state.drift is not None and prior is not None
        setting = state.setting
        a = setting.model.carried(plan.slot, _steps(state, plan.slot))
        known = np.isfinite(prior_var) & np.isfinite(state.drift.last_var)
        with np.errstate(invalid="ignore"):
            added = np.where(known, prior_var - np.square(a) * state.drift.last_var, 0.0)
        ratio = setting.model.ratio(plan.slot - 1, plan.slot)
        drift = carry_drift(state.drift, np.maximum(added, 0.0), a, setting.turnover, ratio)
        seen, deviation = None, np.zeros(known.shape)
        if state.staying is not None:
            deviation = _spread(setting, plan, reading, np.isfinite(prior_var)) / np.square(plan.shares)
        if plan.due.any():
            seen = self._innovations(state, plan, reading, prior, np.where(known, prior_var, np.inf))
            drift = learn_drift(drift, seen)
        prior_var = np.where(known, prior_var, np.inf)
        if state.fused is None:
            measured = state.posterior if state.pull is None else state.posterior - state.pull
            fused = fused_innovations((prior, prior_var), (measured, state.posterior_var), deviation)
        else:
            fused = Fused.of_sums(*state.fused, (prior, prior_var), deviation)
        drift = learn_offset(drift, fused)
        kept = kept_part(prior_var, state.posterior_var)
        state.drift = keep_drift(drift, state.posterior_var, kept, seen, state.pull)

    def _innovations(
        self, state: FilterState, plan: Plan, reading: Reading, prior: Floats, prior_var: Floats
    ) -> Innovations:
        """Return the innovations of the own samples; of regions that are read as one sum, that of their mean."""
        setting, share = state.setting, plan.shares
        known = np.isfinite(prior_var)
        due = every_region(plan.due, setting.regions)
        spread = _spread(setting, plan, reading, known)
        extra = inherited = deviation = np.zeros(due.shape)
        if state.staying is not None:
            a = _carried(state, plan.slot)
            extra, deviation = np.square(a) * state.staying.extra, spread / np.square(share)
            inherited = (1.0 - setting.turnover) ** _steps(state, plan.slot) * a * state.staying.cross
        error_var = np.where(known, prior_var, 0.0) + extra
        noise_var = setting.tuning.alpha * reading.noise_var / np.square(share)
        value, spread_var = reading.noisy / share - prior, spread / np.square(share)
        if plan.pivot is not None:  # one draw of noise, and one answer how far the group has moved
            pivot = np.where(due, plan.pivot, np.arange(setting.regions))
            sizes = over_members(np.ones(due.shape), pivot)
            value, spread_var = over_members(value, pivot) / sizes, over_members(spread_var, pivot) / np.square(sizes)
            error_var, noise_var = (
                np.square(over_members(np.sqrt(np.broadcast_to(part, due.shape)), pivot) / sizes)
                for part in (error_var, noise_var)
            )
        # A server alone finds its own deviation in its prior again.
        common = 2.0 * inherited if self.reach == "alone" else 0.0
        noise = noise_var + spread_var
        variance = np.maximum(error_var + noise - common, noise_var)
        return Innovations(due & known, value, variance, deviation, inherited, extra)

    @staticmethod
    def absorb(
        state: FilterState,
        prior: Floats,
        prior_var: Floats,
        messages: InfoMessages,
        hearing: Hearing,
        slot: int | None = None,
        repeats: Floats | None = None,
    ) -> None:
        """Set the posterior from a prior and the messages heard (Eqs. kgain, posterior).

        repeats  the part of what is heard that users who stay will repeat; None: none of it
        """
        if state.bank is not None:
            _absorb_in_bank(state, (prior, prior_var), messages, hearing, slot, repeats)
            return
        asked = state.drift is not None or state.mixed is not None
        state.pull, state.heard = (np.zeros(prior.shape) if asked else None for _ in range(2))
        if state.setting.form == "diagonal" and few_speak(messages, hearing):
            state.posterior, state.posterior_var = absorb_few(
                prior, prior_var, messages, hearing, state.pull, state.heard
            )
            return
        info_vec, info_mat, prior_sum, speakers = messages.split(hearing.sums(messages.table()))
        if state.setting.form == "diagonal":
            state.posterior, state.posterior_var = fuse(
                prior, prior_var, info_vec, info_mat, prior_sum, speakers, hearing.gain
            )
            if state.pull is not None:
                state.pull, state.heard = (
                    consensus_pull(prior, prior_var, prior_sum, speakers, hearing.gain),
                    speakers,
                )
        else:
            state.posterior, state.posterior_var, state.known = fuse_matrix(
                prior, prior_var, state.known, info_vec, info_mat, prior_sum, speakers[:, :1], hearing.gain
            )

    def adapt(self, state: Any, plan: Plan, reading: Reading) -> None:
        """Adjust the sampling from what `state.steering` has just estimated; the plan has what that one expected."""

    def release(self, state: FilterState, plan: Plan, reading: Reading) -> Release:
        speaks = self._speaks(_used(plan, reading))
        estimate = state.posterior
        if state.setting.form == "diagonal":
            variance = filter_variance(state)
            if not np.isfinite(variance).all():
                estimate = np.where(np.isfinite(variance), estimate, np.nan)
        else:
            variance = np.diagonal(state.posterior_var, axis1=1, axis2=2)
            if not state.known.all():
                estimate = np.where(state.known[:, None], estimate, np.nan)
                variance = np.where(state.known[:, None], variance, np.inf)
        return Release(plan.slot, estimate, variance, plan.due, reading.charge, speaks)


def _used(plan: Plan, reading: Reading) -> Plan:
    """Return the plan without the samples that are discarded, although their prices are paid."""
    if reading.discarded is None:
        return plan
    return replace(plan, due=plan.due & ~reading.discarded, pivot=None)


def _spread(setting: Setting, plan: Plan, reading: Reading, known: Bools) -> Floats:
    """Return the variance of counts around H r, from what is expected, or from the sample where nothing is known."""
    assert plan.prior is not None
    expected = plan.prior
    if setting.observation == "binomial" and not known.all():
        expected = np.where(known, plan.prior, reading.noisy / plan.shares)
    return observation_var(setting.observation, plan.shares, setting.model.one_step_var, expected)


def _deviating_part(setting: Setting, plan: Plan, reading: Reading, known: Bools) -> Floats:
    """Return the part of the variance of the own measurement that is the deviation of the server's users."""
    spread = _spread(setting, plan, reading, known)
    return np.asarray(spread / (setting.tuning.alpha * reading.noise_var + spread))


def _steps(state: FilterState, slot: int) -> int:
    """Return how many slots a slot is after that of the posterior."""
    return state.skipped + 1 if state.slot is None else max(slot - int(state.slot), 1)


def _carried(state: FilterState, slot: int) -> Floats:
    """Return which part of the posterior's error is left in a slot, broadcastable to (N, d).

    Filters that learn believe in several, and count them as their intervals do.
    """
    model, steps = state.setting.model, _steps(state, slot)
    if state.bank is None:
        return model.carried(slot, steps)
    parts = carried_parts(state.beliefs, model, slot, steps)
    return over_beliefs(doubtful_weights(state.bank, state.beliefs) * parts)


def _prior_bank(state: FilterState, slot: int | None) -> Priors:
    """Return the priors of a slot of all filters of the bank, also if slots were skipped, or a clock was set back."""
    assert state.bank is not None
    model, beliefs = state.setting.model, state.beliefs
    if state.slot is None:
        return predict_bank_ahead(state.bank, model, beliefs, state.skipped + 1)
    before = int(state.slot)
    return predict_bank(state.bank, model, beliefs, before + 1 if slot is None else slot, before)


def _absorb_in_bank(
    state: FilterState,
    priors: tuple[Floats, Floats],
    messages: InfoMessages,
    hearing: Hearing,
    slot: int | None,
    repeats: Floats | None,
) -> None:
    """Let every filter of the bank fuse the messages; the consensus pulls at all of them alike."""
    info_vec, info_mat, prior_sum, speakers = messages.split(hearing.sums(messages.table()))
    beliefs, (prior, prior_var) = state.beliefs, priors
    fresh: Floats | float = 1.0
    if repeats is not None and state.staying is not None:
        deviating = deviating_part(repeats, prior_var, info_mat)
        surprise = squared_surprise(priors, (info_vec, info_mat))
        stays = state.staying.left(state.setting.turnover)
        fresh = fresh_evidence(deviating, stays, surprise, considered=False)
    bank = update_bank(_prior_bank(state, slot), info_vec, info_mat, beliefs, fresh=fresh)
    pull = consensus_pull(prior, prior_var, prior_sum, speakers, hearing.gain)
    bank.mean += pull
    state.pull, state.heard = pull, speakers
    state.bank, state.fused = bank, (info_vec, info_mat)
    state.posterior, state.posterior_var = combined(bank, beliefs)


def _predict_by_course(state: FilterState, slot: int | None) -> tuple[Floats, Floats]:
    """Return mean and variance of the prior of a slot, also if slots were skipped, or a clock was set back."""
    assert state.slot is not None
    before = int(state.slot)
    slot = before + 1 if slot is None else slot
    matrix, mean, var = state.setting.form == "matrix", state.posterior, state.posterior_var
    if slot <= before:  # the same deviation, as of the slot before
        mean, var = moved_in_time(mean, var, state.setting.model, before, slot - 1)
        before = slot - 1
    if slot == before + 1:
        one_step = predict_matrix if matrix else predict
        return one_step(mean, var, state.setting.model, slot)
    ahead = predict_ahead_matrix if matrix else predict_ahead
    return ahead(mean, var, state.setting.model, slot - before, slot)


def few_speak(messages: InfoMessages, hearing: Hearing) -> bool:
    """Whether `absorb_few` applies, and is faster than reading what each server hears."""
    if not hearing.mutual or compiled(add_to_hearers, hearing.engine) is None:
        return False
    return bool(np.count_nonzero(messages.speaks) < _FEW * messages.speaks.size)


def absorb_few(
    prior: Floats,
    prior_var: Floats,
    messages: InfoMessages,
    hearing: Hearing,
    pull: Floats | None = None,
    heard: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Return the posterior means and variances, (N, d), as `FilterScheme.absorb` does, by `dpcrowd.kernels.fusion`.

    pull   (N, d) is set to what the consensus adds to the means, if it is given
    heard  (N, d) likewise to the number of priors that it compares
    """
    add = compiled(add_to_hearers, hearing.engine) or add_to_hearers
    combine = compiled(fuse_sums, hearing.engine) or fuse_sums
    matrix, gain = hearing.matrix, np.asarray(hearing.gain)
    sums = np.zeros(4 * prior.size)
    add(
        unsigned(matrix.indptr),
        unsigned(matrix.indices),
        messages.speaks,
        messages.info_vec,
        messages.info_mat,
        messages.prior,
        messages.prior_known,
        sums,
    )
    beta = gain if gain.shape == prior.shape else np.broadcast_to(gain, prior.shape)
    mean, var = np.empty(prior.shape), np.empty(prior.shape)
    combine(*(array.reshape(-1) for array in (prior, prior_var, sums, beta, mean, var)))
    if pull is not None:
        prior_sum, speakers = (sums.reshape(*prior.shape, 4)[..., part] for part in (2, 3))
        pull[...] = consensus_pull(prior, prior_var, prior_sum, speakers, beta)
        if heard is not None:
            heard[...] = speakers
    return mean, var
