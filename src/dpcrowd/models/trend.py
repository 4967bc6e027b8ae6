"""Whether a series has moved in one direction across the span that a model is fitted on.

A model expects a level that stays. A crowd that grows leaves it, so whoever fits one should know that. The span is
divided into two dozen blocks; x is the logarithm of the counts of a block, divided by what the fitted profile expects
of its slots, so that a season does not look like a trend. A line through x has the slope b, the median of the slopes
between any two blocks (Theil and Sen), which single blocks cannot move. Its error depends on how long deviations last,
which their correlation c from block to block says, corrected for what fitting a line has taken away:

    var(b) = var(x - line) (1 + c)/(1 - c) / sum (t - mean t)^2

There is a trend if b is five of its standard deviations, if the level has moved by a tenth at least, and if that is so
in all regions together and in the same direction in most of them. A single region that comes and goes slowly
(deviations of which 90% to 98% are left after a slot) is taken for a trend in up to 5% of all cases, several of
them in less than 2% (300 simulated series each, of 48 to 300 slots, which typically deviate by up to a third).

A crowd that has moved once, or along a curve, is far from any line. So there is a trend, too, if the median of the last
quarter is at least three times that of the first one, or a third of it, in all regions together, and in the same
direction in most of them. Of single regions that typically deviate by a half and of which 98% are left after a slot,
10% are taken for one.

Fewer than 48 slots are no blocks, and do not tell how long deviations last. There is a trend in them only if hardly any
two slots are in the other order: if Kendall's tau of all regions together, the part of pairs of slots that have risen
less that of those that have fallen, is above 0.9 or below -0.9, and if the level has moved by a tenth and in the same
direction in most regions. Single regions of 12 slots are taken for a trend in 2.2% of all cases if 98% of a deviation
are left after a slot, and in 3.0% if they are random walks, from 16 slots on in less than 1.5% (4,000 simulated
deviations each).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import Bools, Floats

__all__ = ["Trend", "trend_of"]

_BLOCKS = 24
_FEWEST = 2 * _BLOCKS  # slots: deviations that last look like a trend in a shorter span
_FEWEST_IN_ORDER = 12  # slots of which nearly all pairs are in the same order
_IN_ORDER, _MOSTLY_IN_ORDER = 0.9, 0.5  # Kendall's tau of all regions together, and of one of them
_CLEAR, _VISIBLE = 5.0, 1.0  # standard deviations: in all regions together, and in one of them
_LEAST_CHANGE = 0.1
_MOST_CORRELATION = 0.98
_QUARTER, _MULTIPLE, _MULTIPLE_IN_ONE = _BLOCKS // 4, 3.0, 1.5


@dataclass(frozen=True)
class Trend:
    """A level that has moved.

    change     from the beginning of the span to its end, as a part of what it was at the beginning
    regions    in how many regions it has moved in this direction
    inhabited  how many regions have enough people in them to tell
    """

    change: float
    regions: int
    inhabited: int

    @property
    def note(self) -> str:
        """What to know about a model that is fitted on such a span, and what to do."""
        direction = "risen" if self.change > 0.0 else "fallen"
        by = f"by about {abs(self.change):.0%}" if self.change < 2.0 else f"to about {1.0 + self.change:.3g} times"
        return (
            f"the counts have {direction} {by} from the beginning of the span to its end, "
            f"in {self.regions} of the {self.inhabited} regions with enough people to tell, which is more than lasting "
            "deviations explain. A model "
            "expects that the level stays, so estimates lag behind a crowd that goes on like this. Fit on a shorter, "
            "recent span (--span), fit again on your own releases as they come in (--releases), or leave the model out "
            "(--learn), and compare."
        )


def trend_of(counts: Floats, expected: Floats) -> Trend | None:
    """Return the trend of counts (T, d) beside what a model expects of them, (T, d); None: there is no clear one.

    >>> trend = trend_of(100.0 * 1.01 ** np.arange(100.0)[:, None], np.full((100, 1), 160.0))
    >>> trend is not None and round(trend.change, 1)
    1.6
    """
    if len(counts) < _FEWEST_IN_ORDER:
        return None
    people = np.column_stack([counts, counts.sum(axis=1)])
    usual = np.column_stack([expected, expected.sum(axis=1)])
    blocks = _BLOCKS if len(counts) >= _FEWEST else len(counts)
    edges = np.linspace(0, len(counts), blocks + 1).astype(np.int64)[:-1]
    sums, usual = np.add.reduceat(people, edges, axis=0), np.add.reduceat(usual, edges, axis=0)
    inhabited = (sums.mean(axis=0) >= 1.0) & (usual > 0.0).all(axis=0)
    if not inhabited[-1]:
        return None
    logarithm = np.log((sums[:, inhabited] + 1.0) / usual[:, inhabited])
    found = _moved(logarithm) if len(counts) >= _FEWEST else _moved_in_order(logarithm)
    if found is None:
        return None
    change, same = found
    regions, places = int(same[:-1].sum()), int(inhabited[:-1].sum())
    return Trend(float(change[-1]), regions, places) if 2 * regions > places else None


def _moved(logarithm: Floats) -> tuple[Floats, Bools] | None:
    """Return by which part values have changed whose logarithms are (n, k), the last of all regions together, and which
    of them have clearly done so in its direction; None: it has not.
    """
    change, size = _line(logarithm)
    if size[-1] >= _CLEAR and abs(change[-1]) >= _LEAST_CHANGE:
        return change, (np.sign(change) == np.sign(change[-1])) & (size >= _VISIBLE)
    moved = np.median(logarithm[-_QUARTER:], axis=0) - np.median(logarithm[:_QUARTER], axis=0)
    if abs(moved[-1]) < np.log(_MULTIPLE):
        return None
    return np.expm1(moved), np.asarray(moved * np.sign(moved[-1]) >= np.log(_MULTIPLE_IN_ONE))


def _moved_in_order(logarithm: Floats) -> tuple[Floats, Bools] | None:
    """Return the same of single slots, nearly all of which are in order."""
    first, second = np.triu_indices(len(logarithm), 1)
    tau = np.sign(logarithm[second] - logarithm[first]).mean(axis=0)
    change, _ = _line(logarithm)
    if abs(tau[-1]) <= _IN_ORDER or abs(change[-1]) < _LEAST_CHANGE:
        return None
    return change, np.asarray(tau * np.sign(tau[-1]) >= _MOSTLY_IN_ORDER)


def _line(logarithm: Floats) -> tuple[Floats, Floats]:
    """Return by which part values have changed whose logarithms are (n, k), and how many standard errors that is."""
    number = len(logarithm)
    first, second = np.triu_indices(number, 1)
    slope = np.median((logarithm[second] - logarithm[first]) / (second - first)[:, None], axis=0)
    time = np.arange(number) - (number - 1) / 2.0
    residual = logarithm - slope * time[:, None]
    residual = residual - residual.mean(axis=0)
    square = np.maximum(np.square(residual).sum(axis=0), 1e-30)
    correlation = (residual[1:] * residual[:-1]).sum(axis=0) / square
    correlation = np.clip(correlation + (2.0 + 4.0 * correlation) / number, 0.0, _MOST_CORRELATION)
    variance = square / (number - 2) * (1.0 + correlation) / (1.0 - correlation) / np.square(time).sum()
    return np.expm1(slope * (number - 1)), np.abs(slope) / np.sqrt(variance)
