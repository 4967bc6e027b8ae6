"""Fit a process model on a series: which season, which variance, and every number, chosen on blocks that were held out.

Blocks of the span are held out. Each is predicted by a profile that was fitted on the slots before it, and the
candidates (season, weight of recent slots, kind of variance) are compared by their continuous ranked probability score
(CRPS), which rewards small errors and honest widths. Nothing outside the span is looked at.

How far a series is from its profile, and how long a deviation lasts, is also taken from held-out blocks: residuals of
slots that a profile was fitted on are too small.

    a = sum of e(t) e(t+1) / sum of (e(t)^2 - noise)            q = mean of (e(t+1) - a e(t))^2 - noise

Of measurements with noise, the likelihood decides instead. Both are shrunk, q towards a Poisson count's and a towards
the mean of all regions, since series may be short.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import Floats, Ints
from dpcrowd.filters.crps import normal_crps
from dpcrowd.models.model import LEAST_VAR, Scores, VarianceKind, expected_people, row_variances
from dpcrowd.models.profiles import Profile, ProfileSeries, estimate_profile
from dpcrowd.models.season import SeasonKind, SeasonTiming, SlotTimes, possible_seasons, timing

__all__ = ["Estimate", "Fitted", "fit_series"]

_FOLDS = ((0.35, 0.85), (0.5, 1.0), (0.75, 1.0))
"""Where held-out blocks begin and end: far enough ahead to see a level drift away, since a model is used for long."""
_FEWEST = 10  # slots of a training part; shorter series are fitted without blocks
_LARGEST_A = 0.995
_SHRINKAGE = 12.0  # pairs of slots that the mean of all regions counts for
_SHORTEST_HALF_LIFE = 25.0  # slots; a shorter memory of the level would take chance for change
_FEW = 4.0  # slots that a Poisson count's variance counts for
_FAR = 20.0  # standard deviations beyond which a residual is cut off
_GAIN = 0.99  # a more complex candidate must have at most this part of the score
_GRID_A = np.array([0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.85, 0.92, 0.96, 0.985])
_GRID_V = 2.0 ** np.arange(-4, 5)
Z95 = 1.959963984540054


@dataclass(frozen=True)
class Candidate:
    """One way to model a series."""

    season: SeasonKind
    half_life: float | None = None

    @property
    def text(self) -> str:
        """The candidate in words."""
        season = "a constant level" if self.season == "none" else f"season {self.season}"
        return season if self.half_life is None else f"{season}, half-life of {self.half_life:.0f} slots"


@dataclass(frozen=True, eq=False)
class Estimate:
    """The parameters of all regions: profile, a (d,), and variance (d,) of the given kind."""

    profile: Profile
    transition: Floats
    variance: Floats
    kind: VarianceKind


@dataclass(frozen=True, eq=False)
class Fitted:
    """An estimate, which season it has, how good it was on held-out blocks, and why it was chosen."""

    estimate: Estimate
    season: SeasonKind
    scores: Scores
    reason: str


@dataclass(frozen=True, eq=False)
class _Block:
    """A held-out block: its values, and what a profile of earlier slots expects of them."""

    series: ProfileSeries
    expected: Floats
    level: Floats
    deviation_var: Floats


def fit_series(
    value: Floats,
    noise_var: Floats | None = None,
    times: SlotTimes | None = None,
    season: SeasonKind = "auto",
    first: int = 0,
) -> Fitted:
    """Fit a model on values (T, d): counts, or measurements with the variances `noise_var`.

    times  when slots begin; None: unknown
    first  the number of the first slot in its series

    >>> rng = np.random.default_rng(0)
    >>> counts = rng.poisson(np.where(np.arange(400) % 7 < 5, 30, 10))[:, None].astype(float)
    >>> fitted = fit_series(counts, season=7)
    >>> fitted.estimate.profile.rows.round(-1).ravel().tolist()
    [30.0, 30.0, 30.0, 30.0, 30.0, 10.0, 10.0]
    """
    noise = np.zeros(value.shape) if noise_var is None else noise_var
    slots = len(value)
    seasons: Sequence[SeasonKind] = possible_seasons(times, slots) if season == "auto" else [season]
    half_lives = [half for half in (slots / 3.0, slots / 10.0) if half >= _SHORTEST_HALF_LIFE]
    candidates = [Candidate(one, half) for one in seasons for half in (None, *half_lives)]
    timings = {one: timing(one, times, first) for one in seasons}
    series = {one: ProfileSeries(value, noise, _row_of(place, slots)) for one, place in timings.items()}
    if int(slots * _FOLDS[0][0]) < _FEWEST:
        only = Candidate(seasons[0])
        fitted = _estimate(series[only.season], timings[only.season].rows, only, [])
        reason = f"{only.text}: {slots} slots are too few to compare anything on held-out blocks"
        return Fitted(fitted, only.season, Scores(*(float("nan"),) * 4, 0), reason)
    held_out = {
        candidate: _held_out(series[candidate.season], timings[candidate.season].rows, candidate)
        for candidate in candidates
    }
    scores = {candidate: _score(blocks, "fixed") for candidate, blocks in held_out.items()}
    best = _simplest(scores)
    blocks = held_out[best]
    by_kind = {kind: _score(blocks, kind) for kind in _KINDS}
    kind: VarianceKind = "fixed" if by_kind["fixed"] < _GAIN * by_kind["proportional"] else "proportional"
    estimate = _estimate(series[best.season], timings[best.season].rows, best, blocks, kind)
    return Fitted(
        estimate,
        best.season,
        _scores(blocks, kind, slots - int(slots * _FOLDS[0][0])),
        _reason(best, scores, kind, by_kind),
    )


_KINDS: tuple[VarianceKind, ...] = ("fixed", "proportional")


def _row_of(place: SeasonTiming, slots: int) -> Ints:
    ticks = (place.offset + place.step * np.arange(slots)) % place.season * place.rows // place.season
    return np.asarray(ticks, dtype=np.int64)


def _simplest(scores: dict[Candidate, float]) -> Candidate:
    """Return the best candidate; one that comes before it, and is hardly worse, is preferred."""
    least = min(scores.values())
    return next(candidate for candidate, score in scores.items() if score * _GAIN <= least)


def _reason(
    best: Candidate, scores: dict[Candidate, float], kind: VarianceKind, by_kind: dict[VarianceKind, float]
) -> str:
    """Return which candidate was chosen, and what the others reached."""
    others = sorted((score, candidate.text) for candidate, score in scores.items() if candidate != best)
    text = f"{best.text}, {kind} variance: CRPS {by_kind[kind]:.4g} per slot on held-out blocks"
    if others:
        text += "; " + ", ".join(f"{name} {score:.4g}" for score, name in others[:4])
    other = by_kind["fixed" if kind == "proportional" else "proportional"]
    return f"{text}; {'fixed' if kind == 'proportional' else 'proportional'} variance {other:.4g}"


def _held_out(series: ProfileSeries, rows: int, candidate: Candidate) -> list[_Block]:
    slots = len(series.value)
    blocks = []
    for first, last in ((int(slots * begin), int(slots * end)) for begin, end in _FOLDS):
        profile = _profile(series.part(0, first), rows, candidate)
        part = series.part(first, last)
        blocks.append(_Block(part, profile.rows[part.row], profile.level, profile.deviation_var))
    return blocks


def _profile(series: ProfileSeries, rows: int, candidate: Candidate) -> Profile:
    return estimate_profile(series, rows, candidate.half_life, smooth=candidate.season == "year")


def _estimate(
    series: ProfileSeries, rows: int, candidate: Candidate, blocks: Sequence[_Block], kind: VarianceKind = "fixed"
) -> Estimate:
    """Return the parameters: the profile of the complete span, and deviations from held-out blocks, if any."""
    profile = _profile(series, rows, candidate)
    if not blocks:
        blocks = [_Block(series, profile.rows[series.row], profile.level, profile.deviation_var)]
    transition, variance = _deviations(blocks, kind)
    settled = row_variances(profile.rows, profile.level, transition, variance, kind) / (1.0 - np.square(transition))
    # Blocks of a small region may have been calm by chance: never less than on the slots that were fitted.
    variance = variance * np.maximum(profile.deviation_var / settled.mean(axis=0), 1.0)
    return Estimate(profile, transition, variance, kind)


def _weights(block: _Block, kind: VarianceKind) -> Floats:
    """Return what the variance of a deviation is in proportion to, (T, d)."""
    return np.ones_like(block.expected) if kind == "fixed" else expected_people(block.expected, block.level)


def _deviations(blocks: Sequence[_Block], kind: VarianceKind) -> tuple[Floats, Floats]:
    """Return a (d,), and q (d,) or q per expected person."""
    parts = [_residuals(block, kind) for block in blocks]

    def total(of: Callable[[_Residuals], Floats]) -> Floats:
        return np.asarray(sum((part.both * of(part)).sum(axis=0) for part in parts))

    pairs, people, poisson = (
        total(of) for of in (lambda _: np.ones(1), lambda one: one.weight, lambda one: one.poisson)
    )
    squares = total(lambda part: np.square(part.value[:-1]) - part.noise[:-1])
    products = total(lambda part: part.value[1:] * part.value[:-1])
    few = _FEW / (pairs + 1.0)  # as a part of all pairs
    paired = pairs > 0.0  # of measurements, there may be no two in a row
    raw = np.clip(products / np.where(paired, np.maximum(squares, few * poisson), 1.0), 0.0, _LARGEST_A)
    pooled = float(np.average(raw, weights=pairs + 1e-9))
    transition = (pairs * raw + _SHRINKAGE * pooled) / (pairs + _SHRINKAGE)
    changes = total(lambda part: _squared_changes(part, transition))
    by_chance = poisson * (1.0 - np.square(transition))
    variance = (np.maximum(changes, 1e-3 * by_chance) + few * by_chance) / np.where(paired, people * (1.0 + few), 1.0)
    variance = np.where(paired, variance, _lone_variance(blocks, kind) * (1.0 - np.square(transition)))
    if any(part.noise.any() for part in parts):
        return _most_likely(blocks, kind, variance / (1.0 - np.square(transition)))
    return transition, variance


def _lone_variance(blocks: Sequence[_Block], kind: VarianceKind) -> Floats:
    """Return the variance (d,) of deviations, or per expected person, where no two measurements are in a row."""
    usual = np.mean([np.maximum(block.deviation_var, LEAST_VAR) for block in blocks], axis=0)
    return np.asarray(usual / np.mean([_weights(block, kind).mean(axis=0) for block in blocks], axis=0))


def _most_likely(blocks: Sequence[_Block], kind: VarianceKind, rough: Floats) -> tuple[Floats, Floats]:
    """Return a (d,) and q (d,) of noisy measurements: their mean over a grid, weighted by the likelihood.

    rough  (d,) a first guess at the variance of deviations, from moments

    A measurement says little, so moments of pairs would be far off where a filter over all of them is not.
    """
    a, factor = (axis.reshape(-1, 1) for axis in np.meshgrid(_GRID_A, _GRID_V))
    settled = factor * np.maximum(rough, 1e-12)
    likelihood = np.zeros(settled.shape)
    for block in blocks:
        weight, present = _weights(block, kind), block.series.present
        residual = np.where(present, block.series.value - block.expected, 0.0)
        mean, var = np.zeros(settled.shape), settled * weight[0]
        for slot in range(len(residual)):
            if slot:
                mean, var = a * mean, a * a * var + settled * (1.0 - a * a) * weight[slot]
            spread = np.where(present[slot], var + block.series.noise_var[slot], 1.0)
            error = residual[slot] - mean
            likelihood += np.where(present[slot], -0.5 * (np.log(spread) + error * error / spread), 0.0)
            gain = np.where(present[slot], var / spread, 0.0)
            mean, var = mean + gain * error, (1.0 - gain) * var
    chance = np.exp(likelihood - likelihood.max(axis=0))
    chance = chance / chance.sum(axis=0)
    transition = (chance * a).sum(axis=0)
    return transition, (chance * settled).sum(axis=0) * (1.0 - np.square(transition))


@dataclass(frozen=True, eq=False)
class _Residuals:
    """Residuals of a block.

    value, noise     (T, d) residuals, and the variance of their measurement
    both             (T - 1, d) how much a slot and the one before it count together
    weight, poisson  (T - 1, d) what the variance is in proportion to, and that of a Poisson count
    """

    value: Floats
    noise: Floats
    both: Floats
    weight: Floats
    poisson: Floats


def _residuals(block: _Block, kind: VarianceKind) -> _Residuals:
    present = block.series.present
    noise = np.where(present, block.series.noise_var, 0.0)
    usual = np.maximum(block.deviation_var, LEAST_VAR)
    residual = np.where(present, block.series.value - block.expected, 0.0)
    limit = _FAR * np.sqrt(usual + noise)  # one absurd slot must not decide
    trust = np.where(present, usual / (usual + noise), 0.0)
    weight, poisson = _weights(block, kind)[1:], np.maximum(block.expected[1:], LEAST_VAR)
    return _Residuals(np.clip(residual, -limit, limit), noise, trust[1:] * trust[:-1], weight, poisson)


def _squared_changes(part: _Residuals, transition: Floats) -> Floats:
    """Return (e(t+1) - a e(t))^2 less the variance of the measurements, (T - 1, d)."""
    change = part.value[1:] - transition * part.value[:-1]
    return np.asarray(np.square(change) - part.noise[1:] - np.square(transition) * part.noise[:-1])


def _others(blocks: Sequence[_Block], number: int) -> Sequence[_Block]:
    """Return the blocks from which deviations are taken to judge one of them: all others."""
    return [block for place, block in enumerate(blocks) if place != number]


def _predictions(block: _Block, transition: Floats, variance: Floats, kind: VarianceKind) -> tuple[Floats, ...]:
    """Return mean and variance of every slot from the slot before, and from the model alone, (T, d) each.

    Variances include that of the measurement, since it is the measurements that are predicted.
    """
    series = block.series
    noise = np.where(series.present, series.noise_var, 0.0)
    q = row_variances(block.expected, block.level, transition, variance, kind)
    alone = q / (1.0 - np.square(transition))
    mean, var = np.empty_like(block.expected), np.empty_like(block.expected)
    deviation, spread = np.zeros(block.level.size), alone[0]
    for slot in range(len(mean)):
        if slot:
            deviation, spread = transition * deviation, np.square(transition) * spread + q[slot]
        mean[slot], var[slot] = block.expected[slot] + deviation, spread
        gain = np.where(series.present[slot], spread / (spread + noise[slot]), 0.0)
        deviation = deviation + gain * (series.value[slot] - mean[slot])
        spread = (1.0 - gain) * spread
    return mean, var + noise, block.expected, alone + noise


def _score(blocks: Sequence[_Block], kind: VarianceKind) -> float:
    """Return the mean CRPS per slot, summed over the regions, of predictions with and without the slot before."""
    total, slots = 0.0, 0
    for number, block in enumerate(blocks):
        present = block.series.present
        mean, var, alone, alone_var = _predictions(block, *_deviations(_others(blocks, number), kind), kind)
        for expected, spread in ((mean, var), (alone, alone_var)):
            total += 0.5 * float(np.where(present, normal_crps(block.series.value - expected, spread), 0.0).sum())
        slots += len(present)
    return total / max(slots, 1)


def _scores(blocks: Sequence[_Block], kind: VarianceKind, slots: int) -> Scores:
    sums = np.zeros(6)
    for number, block in enumerate(blocks):
        present = block.series.present
        mean, var, alone, alone_var = _predictions(block, *_deviations(_others(blocks, number), kind), kind)
        for place, (expected, spread) in enumerate(((mean, var), (alone, alone_var))):
            error = np.abs(block.series.value - expected)
            sums[place] += float(error[present].sum())
            sums[2 + place] += float((error <= Z95 * np.sqrt(spread))[present].sum())
        sums[4] += float(np.abs(block.series.value[present]).sum())
        sums[5] += float(present.sum())
    totals: list[float] = sums.tolist()
    # A series of zeros has no relative error.
    people, cells = totals[4] or float("nan"), max(totals[5], 1.0)
    return Scores(totals[0] / people, totals[1] / people, totals[2] / cells, totals[3] / cells, slots)
