"""Counts that have stepped to another level within the span that a model is fitted on, and have stayed there since.

A shop has lost most of its customers a year ago, or a feed has doubled. Before the step, counts say nothing of what
comes: held-out blocks that are predicted across it make deviations large and lasting, and estimates then follow noise.
So a model is fitted on the slots after a step, if there is a clear one.

The span is divided into blocks. A block has y = sum of counts / sum of what a fitted profile expects of its slots, so
that a season is none. In each region, y is one level, two levels (all regions step at the same time), a line, or a wave
that is as long as the span. With C = sum of (counts - fitted)^2/expected over blocks and regions, there is a step where

    C(two levels) < 0.3 C(one level)          the step explains most of what there is
    C(two levels) < 0.5 C(line)               and a line does not: growth is no step
    C(two levels) < 0.5 C(wave)               nor a wave: neither is the year of a span of one year, which comes back
    the level has changed by a factor of 1.5 or more, up or down      of smaller changes, nothing depends

Of 30 random walks one has such a step, and of 40 drawn crowds without any (`benchmarks/drawn.py`) none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.models.estimate import Fitted, fit_series
from dpcrowd.models.season import SeasonKind, SlotTimes, seasons_seen

__all__ = ["LevelStep", "fit_after_step", "step_of"]

_BLOCKS = 20
_FEWEST = 3 * _BLOCKS  # slots
_FIRST, _LAST = 2, 12  # blocks before the step: less than two are no level, and more leave too little after it
_EXPLAINED, _GRADUAL = 0.3, 0.5
_LEAST_CHANGE = 1.5
_ALIKE = 0.8  # of all change: what regions do together
_NOBODY = 1e-3


@dataclass(frozen=True)
class LevelStep:
    """A step of the level.

    begin   the first slot that is certainly after it
    change  the factor by which the level has changed, typical of all regions
    mixed   whether some regions have risen and others have fallen, by that factor
    """

    begin: int
    change: float
    mixed: bool = False

    @property
    def text(self) -> str:
        """The step in words."""
        direction = "risen to" if self.change > 1.0 else "fallen to"
        what = f"the counts have {direction} {self.change:.2g} times their level"
        if self.mixed:
            factor = max(self.change, 1.0 / self.change)
            what = f"the counts have changed by a factor of about {factor:.2g}, up in some regions and down in others"
        return f"{what}, shortly before slot {self.begin} of the span, and have stayed there"


def fit_after_step(
    counts: Floats, times: SlotTimes | None, season: SeasonKind, first: int = 0
) -> tuple[Fitted, LevelStep | None]:
    """Fit a model as `fit_series` does, on the counts after a step, if there is one; the step is returned, too."""
    fitted = fit_series(counts, None, times, season, first)
    step = step_of(counts, fitted.expected)
    if step is None:
        return fitted, None
    rest, later = counts[step.begin :], None if times is None else SlotTimes(times.at(step.begin), times.length)
    if season not in ("auto", "none"):
        seen = seasons_seen(season, None if later is None else later.length, len(rest))
        if seen is None or seen < 2.0:
            return fitted, None
    return fit_series(rest, None, later, season, first + step.begin), step


def step_of(counts: Floats, expected: Floats) -> LevelStep | None:
    """Return the step of counts (T, d) beside what a model expects of them, (T, d); None: there is no clear one.

    >>> counts = np.where(np.arange(200) < 60, 90.0, 30.0)[:, None] + np.arange(200)[:, None] % 3
    >>> step_of(counts, np.full((200, 1), 40.0))
    LevelStep(begin=70, change=0.34..., mixed=False)
    >>> step_of(100.0 * 1.01 ** np.arange(200)[:, None], np.full((200, 1), 300.0)) is None
    True
    """
    if len(counts) < _FEWEST:
        return None
    edges = np.linspace(0, len(counts), _BLOCKS + 1).astype(np.int64)
    people = np.add.reduceat(counts, edges[:-1], axis=0)
    usual = np.add.reduceat(expected, edges[:-1], axis=0)
    inhabited = (usual > 0.0).all(axis=0) & (people.sum(axis=0) > 0.0)
    if not inhabited.any():
        return None
    people, usual = people[:, inhabited], usual[:, inhabited]
    blocks = np.arange(_BLOCKS)
    level: Floats = np.ones((_BLOCKS, 1))
    line: Floats = np.stack([np.ones(_BLOCKS), blocks.astype(np.float64)], axis=1)
    turns = 2.0 * np.pi * blocks / _BLOCKS
    wave: Floats = np.stack([np.ones(_BLOCKS), np.cos(turns), np.sin(turns)], axis=1)
    parts = {place: (blocks[:, None] < place) == [[True, False]] for place in range(_FIRST, _LAST + 1)}
    left = {place: _left(people, usual, part.astype(np.float64)) for place, part in parts.items()}
    place = min(left, key=lambda one: left[one])
    others = ((_EXPLAINED, level), (_GRADUAL, line), (_GRADUAL, wave))
    if any(left[place] >= part * _left(people, usual, other) for part, other in others):
        return None
    before, after = (
        np.maximum(people[part].sum(axis=0) / usual[part].sum(axis=0), _NOBODY)
        for part in (blocks < place, blocks >= place)
    )
    weight = usual.sum(axis=0) / usual.sum()
    change = np.log(after / before)
    size = float(np.exp((weight * np.abs(change)).sum()))
    if size < _LEAST_CHANGE:
        return None
    direction = float((weight * change).sum())
    mixed = abs(direction) < _ALIKE * (weight * np.abs(change)).sum()
    return LevelStep(int(edges[place + 1]), size if direction > 0.0 else 1.0 / size, bool(mixed))


def _left(people: Floats, usual: Floats, design: Floats) -> float:
    """Return C of the best multiple of what is usual, (n, d) each, that is linear in a design (n, k)."""
    total = 0.0
    for region in range(people.shape[1]):
        root = np.sqrt(usual[:, region])
        value: Floats = people[:, region] / root
        columns: Floats = design * root[:, None]
        fitted = columns @ np.linalg.lstsq(columns, value, rcond=None)[0]
        total += float(np.square(value - fitted).sum())
    return total
