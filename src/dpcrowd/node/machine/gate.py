"""The gate: a message is checked before anything is done with it, down to numbers that cannot be.

A neighbour that is broken, or lies, could pull every estimate anywhere. Its sample is y = Y x + noise, where x are the
people of each region, at most the population, and the noise of y_k has the variance Y_kk. Its prior is an estimate of
x, behind which there may be nothing better than one sample of the least budget that any server spends. Noise of many
standard deviations is rare but honest (Laplace tails), and shares may be wrong by a factor; so the gate is wide: it
stops nonsense, not every lie.

Full matrices are inverted together with one's own: information beyond any count, or in one direction only, would leave
nothing of the other digits.

Fusing what was heard, whatever it is: a message that no filter can take is left out, by its sender's name.

Everything was checked before, number by number. But a filter inverts matrices of all of them together, and a neighbour
that seeks the one which cannot be inverted may find it. That must cost its message, not the node.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dpcrowd.errors import BadInput
from dpcrowd.node.machine.view import NetworkView
from dpcrowd.node.wire import Heard, Refused, decode
from dpcrowd.schemes.base import Release
from dpcrowd.schemes.messages import InfoMessages
from dpcrowd.schemes.server import Server

__all__ = ["check", "fuse", "plausible"]

_TIMES_POPULATION = 10.0
_DEVIATIONS = 40.0  # of Laplace noise: one draw in 10^24
_MOST_IN_MATRIX = 1e8  # a variance of 1e-8 people


def check(view: NetworkView, number: int, slot: int, payload: bytes) -> Heard:
    """What a neighbour said, for a slot; `Refused` or `BadInput` says what is wrong with it."""
    heard = decode(
        payload,
        sender=number,
        digest=view.digest,
        slot=slot,
        regions=len(view.regions),
        form=view.form,
        verify=view.verify,
        names=dict(enumerate(view.names)),
    )
    if heard.message is not None:
        heard.message.check_values(view.names[number])
        if view.population is not None and not plausible(heard.message, view.population, view.coarsest):
            raise Refused("absurd", f"{view.names[number]} sent a sample of far more people than there are.")
    return heard


def plausible(message: InfoMessages, population: int, coarsest: float) -> bool:
    """Whether a sample could be noisy counts, and its prior an estimate, of so many people.

    coarsest  standard deviation of the noisiest honest sample
    """
    info_mat, most = message.info_mat, _TIMES_POPULATION * population
    diagonal = info_mat.ndim == 2
    information = info_mat if diagonal else np.diagonal(info_mat, axis1=1, axis2=2)
    above, below = np.maximum(info_mat, 0.0), np.maximum(-info_mat, 0.0)
    if not diagonal:
        if information.max(initial=0.0) > _MOST_IN_MATRIX:
            return False
        above, below = above.sum(axis=2), below.sum(axis=2)
    noise = _DEVIATIONS * np.sqrt(np.maximum(information, 0.0))
    if (message.info_vec > above * most + noise).any() or (message.info_vec < -below * most - noise).any():
        return False
    return bool((np.abs(message.prior[message.prior_known]) <= most + _DEVIATIONS * coarsest).all())


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
