"""What a neighbour claims to have learned of shares: refused if no joint filter could have learned it.

A finalised state (`relay_join`) of servers that learn shares has the joint filter itself. A filter without a scale, or
one from which the released crowd and the learned shares do not follow, would go on for ever: every later estimate rests
on it. What follows from it is computed here as the receiver will compute it, and compared.

What cannot be seen is a filter that is consistent and wrong. A server joins with its neighbours' word, and whoever
learns shares trusts the other servers more than the public shares.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.errors import BadInput
from dpcrowd.filters.share_state import ShareCovariance, ShareFilter
from dpcrowd.filters.share_widths import learned_crowd, learned_shares
from dpcrowd.schemes.base import Setting, half_width
from dpcrowd.schemes.relay_join import FinalisedState
from dpcrowd.schemes.relay_shares import full_matrices

__all__ = ["check_learned"]

_LARGEST = 2.0**53
_ROUNDING = 1e-6  # of numbers that follow from others, which another machine may have computed


def check_learned(finalised: FinalisedState, setting: Setting) -> None:
    """Refuse what no server could have learned of shares; nothing to check if shares are not learned."""
    learned, learner, cov, begun = (
        finalised.learned,
        finalised.learner,
        finalised.learner_cov,
        finalised.learner_begun,
    )
    if learned is None or learner is None or cov is None or begun is None or setting.peers is None:
        return
    scale, settled = learner[:, -2], learner[:, -1]
    if not ((scale > 1.0 / _LARGEST) & (scale < _LARGEST)).all():
        raise BadInput("a finalised state whose learned shares refer to a crowd of nobody, or beyond 2^53.")
    if not np.isin(settled, (0.0, 1.0)).all() or begun[0] not in (0, 1) or (begun < 0).any():
        raise BadInput("a finalised state that does not say which crowds and servers its learned shares know.")
    public = np.broadcast_to(setting.peers.shares.reshape(len(begun) - 1, -1), (len(begun) - 1, setting.regions))
    public = public / public.sum(axis=0)
    known = ShareFilter(
        learner[:, :-2], ShareCovariance(full_matrices(cov)), scale, bool(begun[0]), begun[1:], settled > 0.0
    )
    try:
        with np.errstate(all="ignore"):
            crowd, crowd_var = learned_crowd(known, public, setting.share_width)
            shares, share_var = learned_shares(known, public, setting.share_width)
    except (np.linalg.LinAlgError, ValueError):
        raise BadInput("a finalised state with learned shares that no filter can go on with.") from None
    parts = (crowd, crowd_var, shares, share_var)
    if not all(np.isfinite(part).all() for part in parts) or not (crowd_var >= 0.0).all():
        raise BadInput("a finalised state with learned shares that no filter can go on with.")
    if known.begun:
        _check_crowd(finalised, crowd, crowd_var)
    latest = learned[:, int(finalised.slot) % learned.shape[1]]
    if not np.isclose(latest, np.stack([shares, share_var]), rtol=_ROUNDING, atol=_ROUNDING).all():
        raise BadInput("a finalised state whose learned shares do not follow from what it knows.")


def _check_crowd(finalised: FinalisedState, crowd: Floats, crowd_var: Floats) -> None:
    """Refuse a joint filter that believes in another crowd than the released estimate."""
    informed = np.isfinite(finalised.variance)
    apart = np.abs(crowd - finalised.base)[informed]
    allowed = half_width(crowd_var[informed]) + half_width(finalised.variance[informed])
    if (apart > np.maximum(allowed, _ROUNDING * np.maximum(np.abs(crowd[informed]), 1.0))).any():
        raise BadInput("a finalised state whose learned shares belong to another crowd than its estimate.")
