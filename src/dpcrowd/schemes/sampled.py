"""Filtering with samples of equal price: FAST's sampling (Section "Adaptive Sampling") and fixed schedules.

    adaptive   PID control, at most T_s samples of epsilon/T_s
    fixed(I), lockstep(I)   the same slots for all servers, epsilon/(number of samples)
    staggered(I)            every server its own public phase, epsilon/(number of its own samples)

For a window guarantee the adaptive rule works on blocks of w slots and pays epsilon/2 per block, because a sliding
window can straddle two blocks; schedules pay epsilon/ceil(w/I), which holds for any window.

With several regions and sound accounting, a slot is sampled if any region is due, and then all regions are: at
that price they are free. With per-region accounting (the paper's) each region has samples of its own.

With roaming users the adaptive rule pays epsilon/T (epsilon/w) per sample, whichever server takes it, and may sample
in any slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Floats, Ints
from dpcrowd.errors import BadInput, unknown_name
from dpcrowd.privacy import Guarantee, noise_var
from dpcrowd.privacy.allocation import per_sample, uniform
from dpcrowd.sampling import pid
from dpcrowd.sampling.schedule import check_interval, due, samples_in_horizon, samples_in_window
from dpcrowd.schemes.base import Plan, Reading, Setting, any_region, every_region
from dpcrowd.schemes.filter_state import FilterState, filter_start
from dpcrowd.schemes.filtering import FilterScheme

__all__ = ["SampledScheme", "SampledState", "Sampling"]

Sampling = Literal["adaptive", "fixed", "staggered", "lockstep"]


@dataclass
class SampledState(FilterState):
    """Adds the PID controllers, the samples taken (in this block), and the price of one sample."""

    controllers: pid.PidState
    samples: Ints
    amount: Ints
    amount_var: Floats


class SampledScheme(FilterScheme):
    """Base of FAST, DPCrowd and DPCrowdW.

    sampling  "adaptive", "fixed", "staggered" or "lockstep"
    interval  I, for all but adaptive
              staggered takes its phases from the setting (`dpcrowd.sampling.schedule.spread_phases`)
    """

    live = True
    block_parts = 2
    """Into how many parts epsilon is divided for the samples of one block of w slots."""

    def __init__(self, sampling: Sampling = "adaptive", interval: int | None = None) -> None:
        if sampling not in ("adaptive", "fixed", "staggered", "lockstep"):
            raise unknown_name("sampling", sampling, ("adaptive", "fixed", "staggered", "lockstep"))
        if (sampling == "adaptive") != (interval is None):
            raise BadInput(
                f"sampling '{sampling}' " + ("takes no interval." if sampling == "adaptive" else "needs an interval.")
            )
        self.sampling = sampling
        self.interval = None if interval is None else check_interval(interval)

    @property
    def adaptive(self) -> bool:
        return self.interval is None

    def start(self, setting: Setting) -> SampledState:
        self.check(setting)
        guarantee = setting.need_guarantee()
        amount = self._amount(guarantee, setting)
        columns = 1 if setting.accounting == "sound" else setting.regions
        return SampledState(
            **filter_start(setting, consensus=self.reach == "one-hop", adaptive=self.adaptive),
            controllers=pid.start(setting.servers, setting.regions, setting.tuning.integral_window),
            samples=np.zeros((setting.servers, columns), dtype=np.int64),
            amount=amount,
            amount_var=noise_var(amount, guarantee.sensitivity),
        )

    def _amount(self, guarantee: Guarantee, setting: Setting) -> Ints:
        """Return the nano-epsilon of one sample, shape (1, 1) or (N, 1)."""
        total, length = guarantee.total, guarantee.length
        if self.interval is None:
            if guarantee.users == "roaming":  # servers choose their own slots: cap what any slot may cost
                return np.array([[uniform(total, length)]])
            parts = self.block_parts if guarantee.kind == "window" else 1
            return np.array([[per_sample(total // parts, self._most_samples(setting))]])
        if self.sampling == "staggered" and guarantee.users == "roaming":
            raise BadInput("staggered sampling is for pinned users; with roaming users take 'lockstep' or 'fixed'.")
        phases = self._phases(setting)
        if guarantee.kind == "window":
            return np.array([[per_sample(total, samples_in_window(length, self.interval))]])
        samples = np.maximum(samples_in_horizon(length, self.interval, phases), 1)
        per_sample(total, int(samples.max()))  # refuses a budget too small for this many
        return total // samples

    def _phases(self, setting: Setting) -> Ints:
        """Return the phases: (1, 1), slot 0 for all, or (N, 1) if staggered."""
        if self.sampling != "staggered":
            return np.zeros((1, 1), dtype=np.int64)
        if setting.phases is None:
            raise BadInput("staggered sampling needs the servers' public phases in the setting.")
        phases = np.asarray(setting.phases, dtype=np.int64)
        assert self.interval is not None
        if phases.shape != (setting.servers,) or (phases < 0).any() or (phases >= self.interval).any():
            raise BadInput(
                f"staggered sampling needs one phase >= 0 and below the interval {self.interval} for each of "
                f"{setting.servers} servers; given {phases.tolist()[:10]}."
            )
        return phases[:, None]

    @staticmethod
    def _most_samples(setting: Setting) -> int:
        """Return T_s of the horizon or of a block of w slots; all slots where the price of a slot is capped anyway."""
        if setting.need_guarantee().users == "roaming":
            return setting.need_guarantee().length
        return max(1, int(setting.tuning.sample_fraction * setting.need_guarantee().length))

    def plan(self, state: SampledState, slot: int, shares: Floats) -> Plan:
        assert state.ledger is not None
        prior, prior_var = self.predict(state, slot)
        guarantee = state.setting.need_guarantee()
        if self.interval is None:
            self._open_block(state, guarantee, slot, state.ledger.slot)
            ask = state.controllers.next_slot <= slot
            if state.samples.shape[1] == 1 and ask.shape[1] > 1:
                ask = any_region(ask)[:, None]
            paid = state.samples < self._most_samples(state.setting)
        else:
            ask = np.broadcast_to(due(slot, self.interval, self._phases(state.setting)), state.samples.shape)
            paid = np.ones_like(ask)
        paid = paid & (state.ledger.remaining(slot) >= state.amount)
        return Plan(
            slot, shares, ask & paid, state.amount, state.amount_var, prior, prior_var, state.known, scheduled=ask
        )

    @staticmethod
    def _open_block(state: SampledState, guarantee: Guarantee, slot: int, before: int) -> None:
        """Start every controller anew in the first slot of a block of w slots; the filter keeps its estimates.

        before  the slot planned before this one; a server may skip slots, the first one of a block too
        """
        if guarantee.kind == "window" and slot // guarantee.length > before // guarantee.length:
            fresh = pid.start(state.setting.servers, state.setting.regions, state.setting.tuning.integral_window)
            fresh.next_slot[:] = slot
            state.controllers = fresh
            state.samples = np.zeros_like(state.samples)

    def adapt(self, state: SampledState, plan: Plan, reading: Reading) -> None:
        if self.interval is not None:
            return
        state.samples += plan.due
        posterior = state.steering.posterior
        rows = np.flatnonzero(every_region(plan.due, posterior.shape[1]))
        if not rows.size:
            return
        tuning = state.setting.tuning
        assert plan.prior is not None and plan.prior_var is not None and plan.known is not None
        intervals = state.controllers.interval.reshape(-1)
        had_prior = self._had_prior(plan, rows)
        if not had_prior.all():  # nothing to compare with yet: sample again after the same interval
            pid.schedule(state.controllers, plan.slot, rows[~had_prior], intervals[rows[~had_prior]])
            rows = rows[had_prior]
        error = pid.relative_error(plan.prior.reshape(-1)[rows], posterior.reshape(-1)[rows], tuning.floor)
        engine = state.setting.engine
        pid.fast_step(state.controllers, plan.slot, rows, error, tuning.gains, tuning.theta, tuning.xi, engine)

    @staticmethod
    def _had_prior(plan: Plan, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        assert plan.prior is not None and plan.prior_var is not None and plan.known is not None
        if plan.prior_var.ndim == plan.prior.ndim:
            return np.isfinite(plan.prior_var.reshape(-1)[rows])
        return np.asarray(plan.known[rows // plan.prior.shape[1]])
