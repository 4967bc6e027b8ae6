"""Record what a scheme releases during a batch of runs, and turn it into one number per run and metric.

Errors are computed for blocks of slots at a time: fast, and memory does not grow with estimates that are not to
be kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Floats, Ints, PerRun, PerRunAndSlot
from dpcrowd.filters.median import median_view
from dpcrowd.filters.nonnegative import nonnegative_view
from dpcrowd.network.costs import last_arrival, message_bytes, packets, relayed_bytes
from dpcrowd.network.spread import Traffic
from dpcrowd.privacy import Paid, worst_paid
from dpcrowd.schemes.base import Release
from dpcrowd.schemes.history import PosteriorHistory
from dpcrowd.schemes.relay import Relay
from dpcrowd.sim.config import Entrant, SimulationConfig
from dpcrowd.sim.exhaustion import exhausted_slots, horizon_end
from dpcrowd.sim.metrics import (
    SIZES,
    absolute_sums,
    consensus_error,
    covered,
    nan_mean,
    relative_error,
    size_of,
    squared_error,
)
from dpcrowd.sim.smoothed import Smoothed, smoothed_records
from dpcrowd.sim.topology import SlotLinks

__all__ = ["Recorder", "RunRecords"]

_BLOCK = 32
_LATENCY_SLOTS = 32  # delays of flooding in a changing network are measured in this many evenly spread slots
_VIEWS = {"nonnegative": nonnegative_view, "median": median_view}


@dataclass(frozen=True, eq=False)
class RunRecords:
    """Results of one scheme on some runs; arrays have the runs first.

    packets_per_slot          messages with data; heartbeats are counted apart
    heartbeats_per_slot       messages without data that a live network would send in addition: a live server sends
                              every neighbour one message per slot; NaN for schemes that do not run live
    missing                   share of (server, slot, region) without an estimate
    mse, claimed_mse          mean squared error, and what the schemes' own variances say it is (Eq. error analysis)
    total_error               sum of absolute errors / sum of the truth
    mae, rmse                 mean absolute error, and root of the mean squared error, in people
    are_by_slot, ace_by_slot  (runs, slots), the burn-in included
    paid                      one for each run, or empty for a scheme without privacy
    estimates, variances      (runs, slots, servers, regions) if they were to be kept
    smoothed                  the history as estimated with later records, if asked for and the scheme keeps records
    by_size                   (runs, sizes, 3) for each class of `dpcrowd.sim.metrics.SIZES`: the sum of absolute
                              errors, the sum of the truth, and the number of estimates; None in stored results
    exhausted_at              (runs, servers) the slot from which on a server has no budget for another sample; NaN
                              where that does not happen; None for a scheme without a finite guarantee
    nonnegative_total_error, nonnegative_mae   of the non-negative view of the estimates, if asked for
    median_total_error, median_mae   of the median view, if asked for; NaN for a scheme without variances
    draws                     (runs, 3) the number of records that servers made, of the draws of noise in them, and of
                              records with one draw on the sum of all regions; None unless relay was asked for groups
    total_error_by_slot       (runs, slots), the burn-in included; NaN where nobody is; None in stored results
    horizon_over_at           the first slot after a finite horizon that ends before the data; None where none does
    empty                     share of the cells (a region in a slot) in which nobody is; None in stored results
    empty_regions             share of the regions in which nobody is in any slot that counts; None in stored results
    """

    label: str
    runs: Ints
    are: PerRun
    ace: PerRun
    frequency: PerRun
    packets_per_slot: PerRun
    heartbeats_per_slot: PerRun
    bytes_per_slot: PerRun
    latency_ms: PerRun
    coverage95: PerRun
    missing: PerRun
    mse: PerRun
    claimed_mse: PerRun
    total_error: PerRun
    mae: PerRun
    rmse: PerRun
    are_by_slot: PerRunAndSlot
    ace_by_slot: PerRunAndSlot
    paid: tuple[Paid, ...]
    seconds: float
    server_slots: int
    estimates: Floats | None = None
    variances: Floats | None = None
    smoothed: Smoothed | None = None
    by_size: Floats | None = None
    exhausted_at: Floats | None = None
    nonnegative_total_error: PerRun | None = None
    nonnegative_mae: PerRun | None = None
    median_total_error: PerRun | None = None
    median_mae: PerRun | None = None
    empty: PerRun | None = None
    empty_regions: PerRun | None = None
    draws: Floats | None = None
    total_error_by_slot: PerRunAndSlot | None = None
    horizon_over_at: int | None = None


class Recorder:
    """The recorder of one scheme in one batch."""

    def __init__(self, config: SimulationConfig, entrant: Entrant, runs: Ints, truth: Floats, data_bytes: int) -> None:
        """`data_bytes`: those of the values in a message."""
        slots, servers, regions = config.data.slots, config.servers, len(config.data.regions)
        self._config, self._entrant, self._runs, self._truth = config, entrant, runs, truth
        self._data_bytes = data_bytes
        self._shape = (len(runs), servers, regions)
        self._all = len(runs) * servers
        self._estimates = np.empty((_BLOCK, self._all, regions))
        self._variances = np.empty((_BLOCK, self._all, regions))
        self._errors = np.empty((6, slots, len(runs)))
        self._absolute = np.empty((2, slots, len(runs), regions))  # sums over servers, and how many servers
        # Of each view that is asked for, sums over servers and regions: absolute errors, the truth, and how many.
        self._views = {name: np.zeros((3, slots, len(runs))) for name in _VIEWS if getattr(config, name)}
        self._spoke = np.zeros((slots, self._all), dtype=np.bool_)
        self._sampled = np.zeros((slots, len(runs)))
        columns = regions if config.accounting == "per-region" else 1
        self._charges = np.zeros((slots, self._all, columns), dtype=np.int64)
        self._packets = np.zeros((slots, len(runs)))
        self._bytes = np.zeros((slots, len(runs)))
        self._relays = entrant.scheme.reach == "relay"
        self._runs_live = entrant.scheme.live or self._relays
        self._heartbeats = np.full((slots, len(runs)), np.nan)
        self._latency = np.full((slots, len(runs)), np.nan)
        grouped = isinstance(entrant.scheme, Relay) and entrant.scheme.groups == "auto"
        self._draws = np.zeros((len(runs), 3)) if grouped else None
        self._blocks: list[tuple[Floats, Floats]] = []
        self._stride = -(-(slots - config.burn_in) // _LATENCY_SLOTS)
        self.seconds = 0.0

    def add(self, slot: int, release: Release, links: SlotLinks, *, static: bool, groups: Ints | None = None) -> None:
        """Record the release of a slot; `groups` (runs x servers, d): of the records that relay made in it."""
        place = slot % _BLOCK
        self._estimates[place] = release.estimate
        self._variances[place] = release.variance
        self._charges[slot] = release.charge
        self._spoke[slot] = release.speaks
        sampled = release.sampled[:, 0] if release.sampled.shape[1] == 1 else release.sampled.any(axis=1)
        self._sampled[slot] = sampled.reshape(len(self._runs), -1).mean(axis=1)
        if self._draws is not None and groups is not None:
            self._draws += _draws(groups, np.asarray(sampled), len(self._runs))
        if release.traffic is not None:
            self._add_traffic(slot, release.traffic, links)
        elif not static:
            self._add_costs(slot, release, links)
        if self._runs_live and not static:
            self._heartbeats[slot] = packets(links.one_hop_cost, ~release.speaks, links.runs)
        if place == _BLOCK - 1 or slot == len(self._sampled) - 1:
            self._close_block(slot - place, place + 1)

    def _add_costs(self, slot: int, release: Release, links: SlotLinks) -> None:
        reach = self._entrant.scheme.reach
        self._packets[slot] = packets(self._message_cost(links), release.speaks, links.runs)
        measured = slot >= self._config.burn_in and (slot - self._config.burn_in) % self._stride == 0
        if reach == "one-hop" or (reach == "flooding" and measured):
            self._latency[slot] = last_arrival(self._delay(links), release.speaks, links.runs)

    def _add_traffic(self, slot: int, traffic: Traffic, links: SlotLinks) -> None:
        """Record the traffic of records that travel; a round begins when the slowest link of the last has ended."""
        self._packets[slot] = traffic.packets
        self._bytes[slot] = relayed_bytes(traffic.packets, traffic.records, traffic.value_bytes)
        rounds = [last_arrival(links.one_hop_delay, senders, links.runs) for senders in traffic.senders]
        if rounds:
            late = np.nansum(rounds, axis=0)
            self._latency[slot] = np.where(late > 0, late, np.nan)

    def _message_cost(self, links: SlotLinks) -> NDArray[np.integer]:
        reach = self._entrant.scheme.reach
        if reach == "one-hop":
            return links.one_hop_cost
        if reach == "flooding":
            return links.flood_cost
        return np.full(self._all, 1 if reach == "central" else 0)

    def _delay(self, links: SlotLinks) -> Floats:
        return links.one_hop_delay if self._entrant.scheme.reach == "one-hop" else links.flood_delay

    def _close_block(self, first: int, count: int) -> None:
        estimates = self._estimates[:count].reshape(count, *self._shape)
        variances = self._variances[:count].reshape(count, *self._shape)
        truth = self._truth[first : first + count]
        self._errors[0, first : first + count] = relative_error(estimates, truth)
        self._errors[1, first : first + count] = consensus_error(estimates)
        self._errors[2, first : first + count] = covered(estimates, variances, truth)
        self._errors[3, first : first + count] = np.isnan(estimates).mean(axis=(2, 3))
        self._errors[4, first : first + count] = squared_error(estimates, truth)
        self._errors[5, first : first + count] = nan_mean(np.where(np.isinf(variances), np.nan, variances), (2, 3))
        self._absolute[:, first : first + count] = absolute_sums(estimates, truth)
        for name, sums in self._views.items():
            errors, servers = absolute_sums(_VIEWS[name](estimates, variances), truth)
            for place, values in enumerate((errors, truth * servers, servers)):
                sums[place, first : first + count] = values.sum(axis=2)
        if self._config.keep_estimates:
            self._blocks.append((estimates.copy(), variances.copy()))

    def finish(
        self, static: SlotLinks | None, shared_seconds: float, history: PosteriorHistory | None = None
    ) -> RunRecords:
        """Return all metrics of the batch; `shared_seconds` is the time for drawing networks and noise."""
        start = self._config.burn_in
        slots = len(self._sampled)
        if self._runs_live and static is not None:
            self._heartbeats = packets(static.one_hop_cost, ~self._spoke, static.runs).astype(np.float64)
        if not self._relays:
            if static is not None:
                self._static_costs(static)
            self._bytes = self._packets * message_bytes(self._data_bytes)
        are, ace, coverage, missing, mse, claimed = (_over_slots(error[start:]) for error in self._errors)
        by_size = self._by_size(start)
        errors, people, estimates = np.moveaxis(by_size.sum(axis=1), 1, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            total_error, mae = errors / people, errors / estimates
        total_error[people == 0] = np.nan  # no people: there is nothing that the error could be a part of
        arrays = [np.concatenate(parts).swapaxes(0, 1) for parts in zip(*self._blocks, strict=True)]
        return RunRecords(
            label=self._entrant.label,
            runs=self._runs,
            are=are,
            ace=ace,
            frequency=_over_slots(self._sampled[start:]),
            packets_per_slot=_over_slots(self._packets[start:]),
            heartbeats_per_slot=_over_slots(self._heartbeats[start:]),
            bytes_per_slot=_over_slots(self._bytes[start:]),
            latency_ms=_over_slots(self._latency[start:]),  # stays NaN where nothing is sent over links
            coverage95=coverage,
            missing=missing,
            mse=mse,
            claimed_mse=claimed,
            total_error=total_error,
            mae=mae,
            rmse=np.sqrt(mse),
            are_by_slot=self._errors[0].T.copy(),
            ace_by_slot=self._errors[1].T.copy(),
            paid=self._worst_payments(),
            seconds=self.seconds + shared_seconds,
            server_slots=slots * self._all,
            estimates=arrays[0] if arrays else None,
            variances=arrays[1] if arrays else None,
            smoothed=None if history is None else self._smoothed(history),
            by_size=by_size,
            exhausted_at=self._exhausted(),
            draws=self._draws,
            empty=_over_slots((self._truth[start:] == 0).mean(axis=2)),
            empty_regions=(self._truth[start:] == 0).all(axis=0).mean(axis=1),
            total_error_by_slot=self._total_error_by_slot(),
            horizon_over_at=horizon_end(self._entrant.guarantee, slots),
            **self._view_scores(start),
        )

    def _total_error_by_slot(self) -> PerRunAndSlot:
        """Return the sums of absolute errors / sums of the truth of each slot, (runs, slots)."""
        errors, servers = self._absolute
        people = (self._truth * servers).sum(axis=2)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(people == 0, np.nan, errors.sum(axis=2) / people).T.copy()

    def _view_scores(self, start: int) -> dict[str, Any]:
        """Return total error and MAE of each view that was asked for, of the cells in which there is one."""
        scores = {}
        for name, sums in self._views.items():
            errors, people, views = (np.ascontiguousarray(values[start:].T).sum(axis=1) for values in sums)
            with np.errstate(divide="ignore", invalid="ignore"):
                scores[f"{name}_total_error"] = np.where(people == 0, np.nan, errors / people)
                scores[f"{name}_mae"] = errors / views
        return scores

    def _by_size(self, start: int) -> Floats:
        """Return (runs, sizes, 3): sums of absolute errors and of the truth, and numbers of estimates.

        Each run's cells are added up by themselves, in the order of slots and regions, whatever runs share the batch.
        """
        errors, servers = self._absolute[:, start:]
        truth = self._truth[start:]
        size = size_of(truth)
        table = np.empty((len(self._runs), len(SIZES), 3))
        for run in range(len(self._runs)):
            place = size[:, run].ravel()
            for column, weights in enumerate((errors[:, run], truth[:, run] * servers[:, run], servers[:, run])):
                table[run, :, column] = np.bincount(place, weights=weights.ravel(), minlength=len(SIZES))
        return table

    def _exhausted(self) -> Floats | None:
        guarantee = self._entrant.guarantee
        if guarantee is None or guarantee.kind != "finite":
            return None
        return exhausted_slots(self._charges, guarantee.total, guarantee.length).reshape(len(self._runs), -1)

    def _smoothed(self, history: PosteriorHistory) -> Smoothed:
        estimates, variances, *measured = (values.reshape(-1, *self._shape) for values in history.smoothed())
        return smoothed_records(estimates, variances, measured[0], measured[1], self._truth, self._config.burn_in)

    def _static_costs(self, links: SlotLinks) -> None:
        """Compute the costs of all slots at once, in a network that never changes."""
        self._packets = packets(self._message_cost(links), self._spoke, links.runs).astype(np.float64)
        if self._entrant.scheme.reach in ("one-hop", "flooding"):
            self._latency = last_arrival(self._delay(links), self._spoke, links.runs)

    def _worst_payments(self) -> tuple[Paid, ...]:
        guarantee = self._entrant.guarantee
        if guarantee is None:
            return ()
        window = guarantee.length if guarantee.kind == "window" else None
        by_run = self._charges.reshape(len(self._charges), len(self._runs), self._shape[1], -1)
        return tuple(worst_paid(by_run[:, run], window) for run in range(len(self._runs)))


def _draws(groups: Ints, sampled: NDArray[np.bool_], runs: int) -> Floats:
    """Return the numbers of records, of their draws, and of records with one draw on the sum of all regions, (runs, 3).

    groups   (runs x servers, d) a group has the number of its first region
    sampled  (runs x servers,) which servers made a record
    """
    regions = groups.shape[1]
    own = (groups == np.arange(regions)).sum(axis=1)
    sums = ~groups.any(axis=1) & (regions > 1)
    table = np.stack([sampled, sampled * own, sampled & sums], axis=1).astype(np.float64)
    return np.asarray(table.reshape(runs, -1, 3).sum(axis=1))


def _over_slots(values: Floats) -> Floats:
    """Return the means of (slots, runs) over the slots, (runs,).

    Each run's slots are laid side by side first: NumPy adds up a lone column in another order than one among others,
    and the last bit of a run's mean would depend on the other runs of its batch.
    """
    return nan_mean(np.ascontiguousarray(values.T), (1,))
