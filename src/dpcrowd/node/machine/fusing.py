"""Fusing what was heard, whatever it is: a message that no filter can take is left out, by its sender's name.

Everything was checked before, number by number. But a filter inverts matrices of all of them together, and a neighbour
that seeks the one which cannot be inverted may find it. That must cost its message, not the node.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dpcrowd.errors import BadInput
from dpcrowd.schemes.base import Release
from dpcrowd.schemes.messages import InfoMessages
from dpcrowd.schemes.server import Server

__all__ = ["fuse"]


class _Unfit(Exception):
    """What came out is no estimate."""


_FAILURES = (_Unfit, BadInput, ArithmeticError, ValueError)  # numpy.linalg.LinAlgError is a ValueError


def fuse(server: Server, messages: Mapping[int, InfoMessages]) -> tuple[Release, list[int]]:
    """The release of the server's open slot, and the numbers of the neighbours whose messages were left out."""
    if not messages:
        return server.hear(), []
    before = server.save()
    release = _try(server, messages)
    if release is not None:
        return release, []
    good: dict[int, InfoMessages] = {}
    for number, message in messages.items():
        server.restore(before)
        if _try(server, {number: message}) is not None:
            good[number] = message
    server.restore(before)
    release = _try(server, good)
    if release is None:  # each alone can be taken, all together cannot
        good = {}
        server.restore(before)
        release = server.hear()
    return release, sorted(messages.keys() - good.keys())


def _try(server: Server, messages: Mapping[int, InfoMessages]) -> Release | None:
    try:
        with np.errstate(all="ignore"):
            release = server.hear(messages)
            _check(release)
    except _FAILURES:
        return None
    return release


def _check(release: Release) -> None:
    estimate, variance = release.estimate, release.variance
    unknown = np.isnan(estimate) & ~np.isfinite(variance) & ~release.sampled
    if not (np.isfinite(estimate) | unknown).all() or (variance < 0.0).any():
        raise _Unfit
