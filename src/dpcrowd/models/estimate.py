"""Fit a process model on a series: which season, which variance, and every number, chosen on blocks that were held out.

Blocks of the span are held out. Each is predicted by a profile that was fitted on the slots before it, and the
candidates (season, weight of recent and of unusual slots, kind of variance) are compared by their continuous ranked
probability score (CRPS), which rewards small errors and honest widths: seasons first, each by its best candidate with
the variance that suits it, and then the candidates of that season. Nothing outside the span is looked at.

How far a series is from its profile, and how long a deviation lasts, is also taken from held-out blocks: residuals of
slots that a profile was fitted on are too small. The scores of the model that was chosen are those of slots from which
neither its profile nor its deviations were taken.

    a = sum of e(t) e(t+1) / sum of e(t)^2            q = mean of (e(t+1) - a e(t))^2

Where deviations are relative, in proportion to the expected count s(t), e(t) s(t+1)/s(t) takes the place of e(t). Both
are shrunk, q towards a Poisson count's and a towards the mean of all regions, since series may be short.

Of measurements with noise, the likelihood decides instead, and regions that tell little borrow from the others
(`weak`). What they miss contains their noise, so the errors that are reported of them are those that the model expects
of itself, of counts without noise; their coverage is that of the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpcrowd.arrays import Bools, Floats
from dpcrowd.filters.crps import normal_crps
from dpcrowd.filters.model import InCommon
from dpcrowd.models.autocorrelation import smooth_season, suggested_seasons
from dpcrowd.models.choice import Candidate, best_candidate, best_of_seasons, reason_of, simplest_kind
from dpcrowd.models.correlation import common_transition, mean_correlation
from dpcrowd.models.detrended import shows_beside_trend
from dpcrowd.models.model import LEAST_VAR, Scores, VarianceKind, deviation_scale, expected_people, row_variances
from dpcrowd.models.profiles import Profile, ProfileSeries, estimate_profile
from dpcrowd.models.season import (
    SeasonKind,
    SlotTimes,
    is_calendar_season,
    possible_seasons,
    row_of,
    seasons_seen,
    timing,
)
from dpcrowd.models.tails import tails_in_common, tails_of
from dpcrowd.models.weak import CELLS, START, EarlierModel, chance_var, common_weights, settled_var

__all__ = ["LEAST_SCORED", "Estimate", "Fitted", "fit_series"]

_FOLDS = ((0.35, 0.85), (0.5, 1.0), (0.75, 1.0))
"""Where held-out blocks begin and end: far enough ahead to see a level drift away, since a model is used for long."""
_FEWEST = 10  # slots of a training part; shorter series are fitted without blocks
LEAST_SCORED = math.ceil(_FEWEST / _FOLDS[0][0])
"""Slots from which on some are held out, so that it is known how well a model predicts."""
_LARGEST_A = 0.995
_SHRINKAGE = 12.0  # pairs of slots that the mean of all regions counts for
_SHORTEST_HALF_LIFE = 25.0  # slots; a shorter memory of the level would take chance for change
_FEW = 4.0  # slots that a Poisson count's variance counts for
_MONTHS = 12
_FAR = 20.0  # standard deviations beyond which a residual is cut off
_ROUNDING = 1e-12  # smaller relative errors are those of arithmetic
_PRECISE_PART = 0.25  # of a Poisson count's variance: noise below it shows whether a crowd is calmer than that
_OVERLAP = 0.5  # blocks overlap, so that most of their slots count twice in a likelihood
Z95 = 1.959963984540054


@dataclass(frozen=True, eq=False)
class Estimate:
    """The parameters of all regions: profile, a (d,), and variance (d,) of the given kind."""

    profile: Profile
    transition: Floats
    variance: Floats
    kind: VarianceKind


@dataclass(frozen=True, eq=False)
class Fitted:
    """An estimate, which season it has, how good it was on held-out blocks, and why it was chosen.

    region_correlation  of the deviations of two regions (`correlation`); None: unknown, where less than two regions
                        vary, or of releases without an earlier model that knew it
    in_common           how what regions have in common moves; None: there is nothing, or it is unknown
    mean                (d,) the mean count, bursts included, of the slots that the level stands for; None: of releases
    tails               usual and unusual deviations, (d,) each (`tails`); None: all are usual, or of releases
    expected            (T, d) what the profile expects of the slots that were fitted
    """

    estimate: Estimate
    season: SeasonKind
    scores: Scores
    reason: str
    expected: Floats
    region_correlation: float | None = None
    in_common: InCommon | None = None
    mean: Floats | None = None
    tails: tuple[Floats, Floats] | None = None


@dataclass(frozen=True, eq=False)
class _Block:
    """A held-out block: its values, what a profile of earlier slots expects of them, and the model before, if any.

    first  its first slot in the span
    """

    series: ProfileSeries
    expected: Floats
    level: Floats
    deviation_var: Floats
    earlier: EarlierModel | None = None
    first: int = 0

    def part(self, begin: int, end: int) -> list[_Block]:
        """Return the part of it that is in slots begin .. end - 1 of the span, if any."""
        start, stop = max(begin - self.first, 0), min(end - self.first, len(self.expected))
        if start >= stop:
            return []
        series, expected = self.series.part(start, stop), self.expected[start:stop]
        return [replace(self, series=series, expected=expected, first=self.first + start)]

    @property
    def is_noisy(self) -> bool:
        """Whether its values are measurements with noise, and not counts."""
        return self.series.is_noisy


def fit_series(
    value: Floats,
    noise_var: Floats | None = None,
    times: SlotTimes | None = None,
    season: SeasonKind = "auto",
    first: int = 0,
    released: Floats | None = None,
    earlier: EarlierModel | None = None,
) -> Fitted:
    """Fit a model on values (T, d): counts, or measurements with the variances `noise_var`.

    times     when slots begin; None: unknown
    first     the number of the first slot in its series
    released  (T, d) what was released of the slots, for regions that were measured weakly; NaN: nothing
    earlier   the model with which it was released: its season is kept unless another one is clearly better, also if
              it fits less than twice into these slots, since its shape is known

    >>> rng = np.random.default_rng(0)
    >>> counts = rng.poisson(np.where(np.arange(400) % 7 < 5, 30, 10))[:, None].astype(float)
    >>> fitted = fit_series(counts, season=7)
    >>> fitted.estimate.profile.rows.round(-1).ravel().tolist()
    [30.0, 30.0, 30.0, 30.0, 30.0, 10.0, 10.0]
    """
    noise = np.zeros(value.shape) if noise_var is None else noise_var
    slots = len(value)
    seasons: Sequence[SeasonKind] = [season]
    numbers: list[int] = []
    smooth = None
    if season == "auto":
        seasons = possible_seasons(times, slots)
        if noise_var is None:
            numbers, smooth = _numbers_of_slots(value, times)
            seasons = [one for one in (*seasons, *numbers) if _may_be_one(value, one, times, first)]
    half_lives = [half for half in (slots / 3.0, slots / 10.0) if half >= _SHORTEST_HALF_LIFE]
    ways = _ways(seasons, season, earlier, times, slots)
    robust = (False,) if noise_var is not None else (False, True)  # noise has its own rule for what is far off
    candidates = [
        Candidate(one, half, around, usual) for one, around in ways for half in (None, *half_lives) for usual in robust
    ]
    timings = {one: timing(one, times, first) for one, _ in ways}
    level = None if earlier is None else earlier.level
    series = {
        (one, around): ProfileSeries(
            value, noise, row_of(timings[one], slots), released, level, earlier.shape if earlier and around else None
        )
        for one, around in ways
    }
    if int(slots * _FOLDS[0][0]) < _FEWEST:
        only = candidates[0]
        fitted = _estimate(series[ways[0]], timings[only.season].rows, only, [], earlier=earlier)
        reason = f"{only.text}: {slots} slots are too few to compare anything on held-out blocks"
        mean = None if noise_var is not None else _mean_count(series[ways[0]], fitted.profile, only.half_life)
        expected = fitted.profile.rows[series[ways[0]].row]
        return Fitted(fitted, only.season, Scores(*(float("nan"),) * 4, 0), reason, expected, mean=mean)
    held_out = {
        candidate: _held_out(series[candidate.way], timings[candidate.season].rows, candidate, earlier)
        for candidate in candidates
    }
    scores = {candidate: _score(blocks, "fixed") for candidate, blocks in held_out.items()}
    noisy = any(block.is_noisy for block in held_out[candidates[0]])
    by_season = {
        least: _kind_scores(held_out[least], timings[least.season].rows, scores[least], noisy)
        for least in ([] if noisy else best_of_seasons(scores))
    }
    best = best_candidate(scores, by_season, noisy, numbers, smooth)
    blocks = held_out[best]
    by_kind = by_season.get(best) or _kind_scores(blocks, timings[best.season].rows, scores[best], noisy)
    kind = simplest_kind(by_kind, noisy)
    estimate = _estimate(series[best.way], timings[best.season].rows, best, blocks, kind)
    unseen = slots - int(slots * _FOLDS[0][0])
    correlation = together = None
    several_vary = int((np.ptp(value, axis=0) > 0.0).sum()) > 1  # those that do not would show the doubt of a level
    if noise_var is None and several_vary:  # in releases, wrong shares would look like it (`sim.earlier`)
        deviations = [_clipped(block) for block in blocks]
        correlation = mean_correlation(deviations, unseen)
        if correlation > 0.0:
            together = _in_common(series[best.way], estimate, common_transition(deviations))
    return Fitted(
        estimate,
        best.season,
        _scores(blocks, kind, unseen),
        reason_of(best, scores, by_season, kind, by_kind, noisy),
        estimate.profile.rows[series[best.way].row],
        correlation,
        together,
        None if noise_var is not None else _mean_count(series[best.way], estimate.profile, best.half_life),
        None if noise_var is not None else _tails(series[best.way], estimate, usual_slots=best.robust),
    )


def _tails(series: ProfileSeries, estimate: Estimate, *, usual_slots: bool) -> tuple[Floats, Floats] | None:
    """Return how deviations of the complete span are distributed around an estimate, whose levels may be those of
    usual slots.
    """
    profile, a, variance = estimate.profile, estimate.transition, estimate.variance
    expected = profile.rows[series.row]
    q = row_variances(profile.rows, profile.level, a, variance, estimate.kind)[series.row]
    scale = deviation_scale(profile.rows, profile.level, a, variance)[series.row]
    settled = _settled(q, a, estimate.kind) if usual_slots else None
    return tails_of(series.value - expected, expected, q, a, _ratios(scale, estimate.kind), settled)


def _in_common(series: ProfileSeries, estimate: Estimate, left: float) -> InCommon:
    """Return how that moves which deviations have in common, and of which a part is left after a slot."""
    profile = estimate.profile
    q = row_variances(profile.rows, profile.level, estimate.transition, estimate.variance, estimate.kind)
    deviation = (series.value - profile.rows[series.row]).sum(axis=1)
    return InCommon(left, *tails_in_common(deviation / np.sqrt(q).sum(axis=1)[series.row], left))


def _numbers_of_slots(value: Floats, times: SlotTimes | None) -> tuple[list[int], int | None]:
    """Return the seasons in slots that counts suggest and no calendar has, and the smooth one of them, if any."""
    numbers, smooth = suggested_seasons(value), smooth_season(value)
    if smooth in numbers:
        smooth = None
    if smooth is not None:
        numbers = [*numbers, smooth]
    return [one for one in numbers if not is_calendar_season(one, times, len(value))], smooth


def _may_be_one(value: Floats, season: SeasonKind, times: SlotTimes | None, first: int) -> bool:
    """Whether counts may have this season, and not only a trend."""
    return season == "none" or shows_beside_trend(value, timing(season, times, first))


def _ways(
    seasons: Sequence[SeasonKind], asked: SeasonKind, earlier: EarlierModel | None, times: SlotTimes | None, slots: int
) -> list[tuple[SeasonKind, bool]]:
    """Return the seasons to be tried, and whether around the earlier shape; those that come first are preferred.

    The season of the model before comes first: around its shape, if that is known, and then as any other, if it fits
    twice into these slots.
    """
    if earlier is None:
        return [(one, False) for one in seasons]
    before = earlier.season
    known = earlier.shape is not None and before != "none" and asked in ("auto", before)
    seen = seasons_seen(before, None if times is None else times.length, slots)
    fresh = before in seasons if not known or seen is None else seen >= 2.0
    others = [one for one in seasons if one != before]
    return [*[(before, True)] * known, *[(before, False)] * fresh, *((one, False) for one in others)]


def _kind_scores(blocks: Sequence[_Block], rows: int, fixed: float, noisy: bool) -> dict[VarianceKind, float]:
    """Return the scores of a candidate by kind of variance; `fixed`: that of fixed variance."""
    scores: dict[VarianceKind, float] = {"fixed": fixed, "proportional": _score(blocks, "proportional")}
    if rows > 1 and not noisy:  # at a constant level it is the same; noise would hide it
        scores["relative"] = _score(blocks, "relative")
    return scores


def _held_out(series: ProfileSeries, rows: int, candidate: Candidate, earlier: EarlierModel | None) -> list[_Block]:
    slots = len(series.value)
    blocks = []
    for first, last in ((int(slots * begin), int(slots * end)) for begin, end in _FOLDS):
        profile = _profile(series.part(0, first), rows, candidate)
        part = series.part(first, last)
        blocks.append(_Block(part, profile.rows[part.row], profile.level, profile.deviation_var, earlier, first))
    return blocks


def _profile(series: ProfileSeries, rows: int, candidate: Candidate) -> Profile:
    # A week of the year is seen a few times only, and is like the weeks beside it; a month is not like its neighbours.
    smooth = candidate.season == "year" and rows > _MONTHS
    return estimate_profile(series, rows, candidate.half_life, smooth=smooth, robust=candidate.robust)


def _mean_count(series: ProfileSeries, profile: Profile, half_life: float | None) -> Floats:
    """Return the mean count (d,) of complete seasons, with recent slots counting more if they do so in the level."""
    age = np.arange(len(series.value))[::-1, None]
    weight = np.ones(age.shape) if half_life is None else 0.5 ** (age / half_life)
    people, expected = ((weight * values).sum(axis=0) for values in (series.value, profile.rows[series.row]))
    return np.asarray(profile.level * (people / np.maximum(expected, 1e-300)))


def _estimate(
    series: ProfileSeries,
    rows: int,
    candidate: Candidate,
    blocks: Sequence[_Block],
    kind: VarianceKind = "fixed",
    earlier: EarlierModel | None = None,
) -> Estimate:
    """Return the parameters: the profile of the complete span, and deviations from held-out blocks, if any."""
    profile = _profile(series, rows, candidate)
    if not blocks:
        blocks = [_Block(series, profile.rows[series.row], profile.level, profile.deviation_var, earlier)]
    transition, variance = _deviations(blocks, kind)
    if any(block.is_noisy for block in blocks):
        # A level that measurements leave in doubt is a deviation that the filters have to expect.
        usual = row_variances(profile.rows, profile.level, transition, variance, kind) / (1.0 - np.square(transition))
        return Estimate(profile, transition, variance * (1.0 + profile.level_var / usual.mean(axis=0)), kind)
    settled = row_variances(profile.rows, profile.level, transition, variance, kind) / (1.0 - np.square(transition))
    # Blocks of a small region may have been calm by chance: never less than on the slots that were fitted.
    variance = variance * np.maximum(profile.deviation_var / settled.mean(axis=0), 1.0)
    return Estimate(profile, transition, variance, kind)


def _weights(scale: Floats, kind: VarianceKind) -> Floats:
    """Return what the variance of a deviation is in proportion to, (T, d); `scale`: the people who are expected."""
    if kind == "fixed":
        return np.ones_like(scale)
    return np.square(scale) if kind == "relative" else scale


def _ratios(scale: Floats, kind: VarianceKind) -> Floats:
    """Return by what deviations are larger than in the slot before, (T - 1, d); `scale`: what they may follow."""
    return np.asarray(scale[1:] / scale[:-1]) if kind == "relative" else np.ones((len(scale) - 1, 1))


def _deviations(blocks: Sequence[_Block], kind: VarianceKind) -> tuple[Floats, Floats]:
    """Return a (d,), and q (d,), q per expected person or per expected person squared."""
    if any(block.is_noisy for block in blocks):
        return _most_likely(blocks, kind)
    scales = [expected_people(block.expected, block.level) for block in blocks]
    transition, variance = _moments(blocks, kind, scales)
    if kind == "relative":  # where few people are expected, their scale depends on both
        scales = [deviation_scale(block.expected, block.level, transition, variance) for block in blocks]
        transition, variance = _moments(blocks, kind, scales)
    return transition, variance


def _moments(blocks: Sequence[_Block], kind: VarianceKind, scales: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Return a and q from the squares and products of residuals of counts without noise.

    scales  the people who are expected, (T, d) each
    """
    parts = [_residuals(block, kind, scale) for block, scale in zip(blocks, scales, strict=True)]

    def total(of: Callable[[_Residuals], Floats]) -> Floats:
        return np.asarray(sum(of(part).sum(axis=0) for part in parts))

    pairs, people, poisson = (
        total(of) for of in (lambda one: np.ones_like(one.before), lambda one: one.weight, lambda one: one.poisson)
    )
    squares = total(lambda part: np.square(part.before))
    products = total(lambda part: part.value[1:] * part.before)
    few = _FEW / (pairs + 1.0)  # as a part of all pairs
    paired = pairs > 0.0  # a single slot has no slot before it
    raw = np.clip(products / np.where(paired, np.maximum(squares, few * poisson), 1.0), 0.0, _LARGEST_A)
    pooled = float(np.average(raw, weights=pairs + 1e-9))
    transition = (pairs * raw + _SHRINKAGE * pooled) / (pairs + _SHRINKAGE)
    changes = total(lambda part: np.square(part.value[1:] - transition * part.before))
    by_chance = poisson * (1.0 - np.square(transition))
    variance = (np.maximum(changes, 1e-3 * by_chance) + few * by_chance) / np.where(paired, people * (1.0 + few), 1.0)
    return transition, variance


def _most_likely(blocks: Sequence[_Block], kind: VarianceKind) -> tuple[Floats, Floats]:
    """Return a (d,) and q (d,) of noisy measurements: their means over a grid, weighted by the likelihood (`weak`).

    A measurement says little, so moments of pairs would be far off where a filter over all of them is not.
    """
    a = CELLS[:, :1]
    level = np.mean([np.maximum(block.level, LEAST_VAR) for block in blocks], axis=0)
    people = np.ones_like(level) if kind == "fixed" else level
    unit = level if kind == "fixed" else np.ones_like(level)
    settled, chance_part = settled_var(level) * unit, chance_var() * unit
    lasting = settled - chance_part
    likelihood = np.zeros(settled.shape)
    for block in blocks:
        weight, present = _weights(expected_people(block.expected, block.level), kind), block.series.present
        residual = np.where(present, block.series.value - block.expected, 0.0)
        mean, var = np.zeros(settled.shape), lasting * weight[0]
        for slot in range(len(residual)):
            if slot:
                mean, var = a * mean, a * a * var + lasting * ((1.0 - a * a) * weight[slot])
            if not present[slot].any():
                continue
            new = chance_part * weight[slot] + block.series.noise_var[slot]
            spread = np.where(present[slot], var + new, 1.0)
            error = residual[slot] - mean
            likelihood += np.where(present[slot], -0.5 * (np.log(spread) + error * error / spread), 0.0)
            gain = np.where(present[slot], var / spread, 0.0)
            mean, var = mean + gain * error, (1.0 - gain) * var
    likelihood *= _OVERLAP
    correlation = a * (lasting / settled)  # of two slots, and so a of the AR(1) that has it
    if blocks[0].earlier is not None:
        likelihood += blocks[0].earlier.log_prior(settled * (1.0 if kind == "fixed" else level), correlation)
    chance = common_weights(likelihood, START)
    transition = (chance * correlation).sum(axis=0)
    # A filter should expect what it doubts: the square of the mean deviation, not of a typical one.
    deviation = np.square((chance * np.sqrt(settled)).sum(axis=0))
    return transition, np.maximum(deviation, _least_variance(blocks, level) / people) * (1.0 - np.square(transition))


def _least_variance(blocks: Sequence[_Block], level: Floats) -> Floats:
    """Return the variance (d,) of deviations below which noisy measurements are not believed.

    Noise hides whether a crowd is calmer than independent persons are: a part of it that lasts, such as users who stay,
    is taken for a part of the level. It takes precise measurements, counts, or an earlier model of them.
    """
    noise = np.concatenate([np.where(block.series.present, block.series.noise_var, np.nan) for block in blocks])
    measured = np.isfinite(noise).any(axis=0)
    usual = np.full(level.shape, np.inf)
    usual[measured] = np.nanmedian(noise[:, measured], axis=0)
    least = np.where(usual < _PRECISE_PART * level, 0.0, level)
    earlier = blocks[0].earlier
    return least if earlier is None else np.where(earlier.settled < least, earlier.settled, least)


@dataclass(frozen=True, eq=False)
class _Residuals:
    """Residuals of a block of counts without noise.

    value            (T, d)
    before           (T - 1, d) those of the slot before, in the scale of the slot
    weight, poisson  (T - 1, d) what the variance is in proportion to, and that of a Poisson count
    """

    value: Floats
    before: Floats
    weight: Floats
    poisson: Floats


def _clipped(block: _Block) -> Floats:
    """Return the residuals of a block of counts without noise, (T, d); one absurd slot must not decide."""
    limit = _FAR * np.sqrt(np.maximum(block.deviation_var, LEAST_VAR))
    return np.clip(block.series.value - block.expected, -limit, limit)


def _residuals(block: _Block, kind: VarianceKind, scale: Floats) -> _Residuals:
    weight, poisson = _weights(scale, kind)[1:], np.maximum(block.expected[1:], LEAST_VAR)
    value = _clipped(block)
    return _Residuals(value, _ratios(scale, kind) * value[:-1], weight, poisson)


def _others(blocks: Sequence[_Block], number: int) -> Sequence[_Block]:
    """Return the blocks from which deviations are taken to compare candidates on one of them: all others.

    They overlap with it, alike for all candidates. Longer deviations than those of disjoint parts are left to compare;
    how well the chosen candidate predicts is judged outside of what it has seen (`_judged`).
    """
    return [block for place, block in enumerate(blocks) if place != number]


def _judged(blocks: Sequence[_Block]) -> Iterator[tuple[list[_Block], list[_Block]]]:
    """Yield parts of the blocks with what they are judged by: their deviations are taken from all other slots.

    Blocks overlap, and deviations that are judged on slots that they were taken from would always look right. So all
    that is in one part of the span, from where a block begins to where the next one does, is judged by the others.
    """
    begins = [block.first for block in blocks]
    ends = [*begins[1:], max(block.first + len(block.expected) for block in blocks)]
    for begin, end in zip(begins, ends, strict=True):
        others = [part for block in blocks for part in (*block.part(0, begin), *block.part(end, ends[-1]))]
        yield others, [part for block in blocks for part in block.part(begin, end)]


def _predictions(block: _Block, transition: Floats, variance: Floats, kind: VarianceKind) -> tuple[Floats, ...]:
    """Return mean and variance of every slot from the slot before, and from the model alone, (T, d) each.

    Variances include that of the measurement, since it is the measurements that are predicted.
    """
    series = block.series
    noise = np.where(series.present, series.noise_var, 0.0)
    q = row_variances(block.expected, block.level, transition, variance, kind)
    alone = _settled(q, transition, kind)
    ratios = _ratios(deviation_scale(block.expected, block.level, transition, variance), kind)
    mean, var = np.empty_like(block.expected), np.empty_like(block.expected)
    deviation, spread = np.zeros(block.level.size), alone[0]
    for slot in range(len(mean)):
        if slot:
            carried = transition * ratios[slot - 1]
            deviation, spread = carried * deviation, np.square(carried) * spread + q[slot]
        mean[slot], var[slot] = block.expected[slot] + deviation, spread
        gain = np.where(series.present[slot], spread / (spread + noise[slot]), 0.0)
        deviation = deviation + gain * (series.value[slot] - mean[slot])
        spread = (1.0 - gain) * spread
    return mean, var + noise, block.expected, alone + noise


def _settled(q: Floats, transition: Floats, kind: VarianceKind) -> Floats:
    """Return the variance of deviations without any record, (T, d), where slots add q, (T, d)."""
    square = np.square(transition)
    if kind != "proportional" or (q == q[0]).all():
        return np.asarray(q / (1.0 - square))
    # What a day has added is carried into the night. A second pass forgets how the first one began.
    alone, spread = np.empty_like(q), q.mean(axis=0) / (1.0 - square)
    for _ in range(2):
        for slot, added in enumerate(q):
            spread = square * spread + added
            alone[slot] = spread
    return alone


def _score(blocks: Sequence[_Block], kind: VarianceKind) -> float:
    """Return the mean CRPS per slot, summed over the regions, of predictions with and without the slot before.

    Of measurements with noise, it is the log score of all of them: the noise of each is known, and outweighs the crowd
    in any score in the units of counts.
    """
    total, slots = 0.0, 0
    for number, block in enumerate(blocks):
        present = block.series.present
        mean, var, alone, alone_var = _predictions(block, *_deviations(_others(blocks, number), kind), kind)
        if block.is_noisy:
            for expected, spread in ((mean, var), (alone, alone_var)):
                surprise = np.square(block.series.value - expected) / spread
                total += 0.5 * _OVERLAP * 0.5 * float((np.log(spread) + surprise)[present].sum())
            continue
        for expected, spread in ((mean, var), (alone, alone_var)):
            total += 0.5 * float(np.where(present, normal_crps(block.series.value - expected, spread), 0.0).sum())
        slots += len(present)
    return total / max(slots, 1)


def _with_deviations(blocks: Sequence[_Block], kind: VarianceKind) -> Iterator[tuple[_Block, tuple[Floats, Floats]]]:
    """Yield parts of the blocks, each with a and q as the slots outside of it show them."""
    for others, parts in _judged(blocks):
        deviations = _deviations(others, kind)
        for part in parts:
            yield part, deviations


def _scores(blocks: Sequence[_Block], kind: VarianceKind, slots: int) -> Scores:
    sums, expected_errors = np.zeros(6), np.zeros(3)
    scored = _regions_with_people(blocks)
    for block, deviations in _with_deviations(blocks, kind):
        present = block.series.present
        mean, var, alone, alone_var = _predictions(block, *deviations, kind)
        for place, (expected, spread) in enumerate(((mean, var), (alone, alone_var))):
            error = np.abs(block.series.value - expected)
            sums[place] += float(error[present].sum())
            sums[2 + place] += float((error <= Z95 * np.sqrt(spread))[present & scored].sum())
        sums[4] += float(np.abs(block.series.value[present]).sum())
        sums[5] += float((present & scored).sum())
        if block.is_noisy:
            expected_errors += _expected_errors(block, *deviations, kind)
    if expected_errors.any():
        sums[0], sums[1], sums[4] = expected_errors
    if not sums[5]:  # releases may have no measurement there
        return Scores(*(float("nan"),) * 4, 0)
    totals: list[float] = sums.tolist()
    # A series of zeros has no relative error.
    people, cells = totals[4] or float("nan"), max(totals[5], 1.0)
    ahead, past = (0.0 if total / people < _ROUNDING else total / people for total in totals[:2])
    return Scores(ahead, past, totals[2] / cells, totals[3] / cells, slots)


def _regions_with_people(blocks: Sequence[_Block]) -> Bools:
    """Return in which regions (d,) anybody was counted: an interval around nobody says nothing about the others.

    All of them where nobody was counted anywhere, or where measurements have noise: these do not show it.
    """
    people = np.any([(block.series.value != 0.0).any(axis=0) for block in blocks], axis=0)
    every = not people.any() or any(block.is_noisy for block in blocks)
    return np.asarray(people | every)


def _expected_errors(block: _Block, transition: Floats, variance: Floats, kind: VarianceKind) -> Floats:
    """Return the sums over a block of the |errors| that a model expects of its predictions from the slot before, and
    without it, and of the people that it expects, (3,).
    """
    q = row_variances(block.expected, block.level, transition, variance, kind)
    errors = (np.sqrt(2.0 / np.pi * var).sum() for var in (q, _settled(q, transition, kind)))
    return np.array([*errors, block.expected.sum()])
