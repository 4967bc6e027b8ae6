"""What servers have learned, under another setting: it goes on where that which it is about stays.

How well a model fits a region is learned over dozens of slots, and shares over hundreds. A revision that changes the
number of samples, a link or another region makes none of it wrong:

- The beliefs about a region, with their weights, go on where the model expects of the region what it expected before.
- Learned shares go on with the same servers, regions, public shares and width (`relay_shares.learning_goes_on`),
  whatever model there is: they are about how servers divide a crowd, not about the crowd.

Everything else begins anew, with estimates that go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.filters import ProcessModel
from dpcrowd.filters.common_deviation import common_facts
from dpcrowd.filters.learning import Bank
from dpcrowd.filters.tails import NORMAL
from dpcrowd.schemes.base import Setting

__all__ = ["begins_anew", "goes_on_learning", "keep_beliefs", "keeps_shares"]

Places = Sequence[int | None]


def goes_on_learning(old: Setting, new: Setting, places: Places) -> Bools:
    """Return in which regions of `new` beliefs about the model go on, (d,).

    places  for each region its number in `old`; None: a new region
    """
    came = np.array([-1 if place is None else place for place in places])
    if not (old.learn and new.learn and old.form == new.form == "diagonal"):
        return np.zeros(len(came), dtype=np.bool_)
    return (came >= 0) & _expects_the_same(old.model, new.model, came)


def _expects_the_same(old: ProcessModel, new: ProcessModel, came: Ints) -> Bools:
    """Return of which regions (d,) `new` expects what `old` expects of those in `came`."""
    before, now = _expectation(old), _expectation(new)
    if before.shape[0] != now.shape[0] or _season(old) != _season(new):
        return np.zeros(len(came), dtype=np.bool_)
    return np.asarray((before[:, came] == now).all(axis=0))


def _expectation(model: ProcessModel) -> Floats:
    """Return all that a model says of a region, (numbers, d)."""
    parts = [model.diagonal_transition, model.diagonal_var]
    if (course := model.course) is not None:
        parts += [course.profile, course.variance] + ([] if course.scale is None else [course.scale])
        tails = course.tails
        parts += [np.array(part) for part in NORMAL] if tails is None else [tails.usual, tails.unusual]
    return np.concatenate([np.broadcast_to(part, (part.size // part.shape[-1] if part.ndim else 1, model.regions))
                           for part in parts])  # fmt: skip


def _season(model: ProcessModel) -> tuple[float, ...]:
    """Return which row of a profile belongs to which slot, whether there is a belief in another season, and what
    regions have in common.
    """
    course = model.course
    if course is None:
        return ()
    timing = course.season, course.offset, course.step, len(course.profile), course.unknown_season is None
    part, known = common_facts(model) or (0.0, None)
    return *timing, part, *(() if known is None else astuple(known))


def keep_beliefs(
    fresh: Bank,
    former: Bank,
    estimates: tuple[Floats, Floats],
    places: Places,
    where: Bools,
    ratio: Floats | float = 1.0,
) -> None:
    """Let regions of a bank, in place, differ from its estimates as they did before.

    fresh, former  (beliefs, N, regions now or before); all beliefs of `fresh` have its estimates
    estimates      means and variances (N, regions before) that the beliefs of `former` make together
    where          (d,) in which regions, see `goes_on_learning`
    ratio          (d,) by what deviations are larger in the slot of `fresh`
    """
    mean, var = estimates
    factor = np.broadcast_to(ratio, where.shape)
    for region in np.flatnonzero(where).tolist():
        before = places[region]
        fresh.mean[..., region] += factor[region] * (former.mean[..., before] - mean[..., before])
        # An estimate is wider than before where the new setting does not follow some of its errors any more.
        wider = _finite(fresh.var[0, :, region]) - factor[region] ** 2 * _finite(var[..., before])
        fresh.var[..., region] = factor[region] ** 2 * former.var[..., before] + np.maximum(wider, 0.0)
        fresh.weight[..., region] = former.weight[..., before]


def _finite(variance: Floats) -> Floats:
    return np.where(np.isfinite(variance), variance, 0.0)


def keeps_shares(old: Setting, new: Setting, places: Places, origins: Places) -> bool:
    """Whether learned shares go on: servers, regions, public shares and their width are what they were.

    origins  for each server its number in `old`; None: a new server
    """
    if old.peers is None or new.peers is None or old.share_width == 0.0:
        return False
    return (
        old.share_width == new.share_width
        and list(places) == list(range(old.regions))
        and list(origins) == list(range(len(old.peers.shares)))
        and np.array_equal(old.peers.shares, new.peers.shares)
    )


def begins_anew(old: Setting, new: Setting, places: Places, origins: Places) -> tuple[str, ...]:
    """Return what servers that learned it, and still do, have to learn anew, in words."""
    lost = []
    stay = np.array([place is not None for place in places])
    if old.learn and new.learn and new.form == "diagonal" and (stay & ~goes_on_learning(old, new, places)).any():
        lost.append("how well the model fits")
    if old.share_width > 0.0 and new.share_width > 0.0 and not keeps_shares(old, new, places, origins):
        lost.append("shares")
    return tuple(lost)
