"""Which of the candidates that were scored on held-out blocks is taken, and why, in words.

A more complex candidate has to be clearly better than a simpler one. Seasons are compared first, each by its best
candidate with the kind of variance that suits it; then the candidates of that season, with a fixed variance; and then
the kinds of variance of the one that is taken. A fixed variance for all seasons would be no fair comparison: a season
with closed Sundays would have to expect the deviations of other days on them, and lose to a constant level.

Scores are CRPS, or log scores of measurements with noise. Noise hides kinds of variance, so candidates of all seasons
are then compared at once, with a fixed one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpcrowd.models.model import VarianceKind
from dpcrowd.models.season import SeasonKind

__all__ = ["Candidate", "best_candidate", "best_of_seasons", "reason_of", "simplest_kind"]

_GAIN = 0.99  # a more complex candidate must have at most this part of the score
_NUMBER_GAIN = 0.9  # the same of a number of slots in the place of a season of the calendar, or of a smooth one
_CLEAR = 3.0  # by which the log score of a more complex candidate has to be better: noise hides 1% of any other score
_LISTED = 4  # others in a reason


@dataclass(frozen=True)
class Candidate:
    """One way to model a series.

    around_earlier  whether the shape of its season starts from that of an earlier model
    """

    season: SeasonKind
    half_life: float | None = None
    around_earlier: bool = False
    robust: bool = False

    @property
    def way(self) -> tuple[SeasonKind, bool]:
        """Its season, and whether around the earlier shape."""
        return self.season, self.around_earlier

    @property
    def text(self) -> str:
        """The candidate in words."""
        season = "a constant level" if self.season == "none" else f"season {self.season}"
        if self.around_earlier:
            season += " around the earlier shape"
        if self.half_life is not None:
            season += f", half-life of {self.half_life:.0f} slots"
        return f"{season}, of usual slots" if self.robust else season


def best_of_seasons(scores: dict[Candidate, float]) -> list[Candidate]:
    """Return the candidate of each season, and of each way to model it, that has the smallest score, in their order."""
    ways = dict.fromkeys(candidate.way for candidate in scores)
    return [min((one for one in scores if one.way == way), key=lambda one: scores[one]) for way in ways]


def best_candidate(
    scores: dict[Candidate, float],
    by_season: dict[Candidate, dict[VarianceKind, float]],
    noisy: bool,
    numbers: Sequence[int] = (),
    smooth: int | None = None,
) -> Candidate:
    """Return the candidate to be taken: the simplest of the best season.

    scores     of all candidates, with fixed variance
    by_season  the scores by kind of variance of the best candidate of each season, the simplest season first
    numbers    seasons in slots that the counts themselves suggest. They are compared after the others, and a season of
               the calendar, for which there is a reason outside the counts, gives way only to a number of slots that is
               clearly better
    smooth     one of them that has to be as clearly better than a constant level: what comes and goes slowly is like it
    """
    if noisy:
        return _simplest(scores, noisy)
    least = {candidate: min(kinds.values()) for candidate, kinds in by_season.items()}
    others = {one: score for one, score in least.items() if one.season not in numbers}
    season = _simplest(others, noisy)
    better = {}
    for one, score in least.items():
        gain = _GAIN if season.season == "none" and one.season != smooth else _NUMBER_GAIN
        if one.season in numbers and score < gain * min(others.values()):
            better[one] = score
    if better:
        season = _simplest(better, noisy)
    return _simplest({one: score for one, score in scores.items() if one.way == season.way}, noisy)


def simplest_kind(by_kind: dict[VarianceKind, float], noisy: bool) -> VarianceKind:
    """Return the kind of variance to be taken: in proportion, unless another one is clearly better."""
    hardly_worse = _is_hardly_worse(by_kind["proportional"], by_kind["fixed"], noisy)
    kind: VarianceKind = "proportional" if hardly_worse else "fixed"
    if "relative" not in by_kind or _is_hardly_worse(by_kind[kind], by_kind["relative"], noisy):
        return kind
    return "relative"


def _simplest(scores: dict[Candidate, float], noisy: bool) -> Candidate:
    """Return the best candidate; one that comes before it, and is hardly worse, is preferred."""
    least = min(scores.values())
    return next(candidate for candidate, score in scores.items() if _is_hardly_worse(score, least, noisy))


def _is_hardly_worse(score: float, other: float, noisy: bool) -> bool:
    """Whether a score is so close to another one that its candidate is preferred for being simpler."""
    return score <= other + _CLEAR if noisy else not other < _GAIN * score


def reason_of(
    taken: Candidate,
    scores: dict[Candidate, float],
    by_season: dict[Candidate, dict[VarianceKind, float]],
    kind: VarianceKind,
    by_kind: dict[VarianceKind, float],
    noisy: bool,
) -> str:
    """Return which candidate was chosen, and what the others reached, in the order in which they were compared.

    Scores with any kind of variance and scores with a fixed one are listed apart: they cannot be compared.
    """
    parts = []
    if not noisy and len(by_season) > 1:
        parts.append(_seasons_text(taken, {one: min(kinds.values()) for one, kinds in by_season.items()}))
    alike = {one: score for one, score in scores.items() if noisy or one.way == taken.way}
    if len(alike) > 1:
        parts.append(f"all with fixed variance: {_listed(taken, alike)}")
    by_name = ", ".join(f"{one} {by_kind[one]:.4g}" for one in sorted(by_kind, key=lambda one: one != kind))
    parts.append(f"{f'of {taken.text}, ' if parts else ''}by kind of variance: {by_name}")
    what = "log score" if noisy else "CRPS per slot"
    return f"{taken.text}, {kind} variance: {what} on held-out blocks, {'; then '.join(parts)}"


def _seasons_text(taken: Candidate, least: dict[Candidate, float]) -> str:
    """Return what the best candidates of all seasons reached with any kind of variance."""
    chosen = next(candidate for candidate in least if candidate.way == taken.way)
    text = f"the best of each season with the variance that suits it: {_listed(chosen, least)}"
    if min(least.values()) < _GAIN * least[chosen]:
        text += f", where {chosen.text} gives way only to a number of slots that is {1.0 - _NUMBER_GAIN:.0%} better"
    return text


def _listed(first: Candidate, scores: dict[Candidate, float]) -> str:
    """Return scores with the names of their candidates: one of them, and then the best of the others."""
    others = sorted((score, candidate.text) for candidate, score in scores.items() if candidate != first)
    return "; ".join(
        [f"{first.text} {scores[first]:.4g}", *(f"{name} {score:.4g}" for score, name in others[:_LISTED])]
    )
