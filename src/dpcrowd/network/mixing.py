"""How fast the links of a network mix what its servers know, in three numbers that everybody can compute.

A consensus step of gain c per speaking neighbour replaces the servers' errors e by (I - c L) e, where L is the
Laplacian of the links. Along an eigenvector of L with the eigenvalue l an error shrinks by 1 - c l per step: the
average of a component stays (l = 0), and everything else dies out. The rest is followed as if all of it shrank at one
rate, the harmonic mean of the other eigenvalues, since what lasts is in proportion to 1/l:

    rate = (harmonic mean of the eigenvalues above 0) / (mean degree)            per neighbour that speaks

A sample is heard by its server and all neighbours, so its noise is not spread evenly over the eigenvectors. With
J_i = 1 + degree_i servers that hear sample i, the noise of one slot has, along the average,

    focus = mean(J^2) / mean(J)           times the variance that it has in the estimate of one server

Links that are drawn anew in every slot are on average those of a complete graph: all eigenvalues are alike.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Floats

__all__ = ["Mixing", "changing_mixing", "mixing_of"]

_LARGEST = 1000
"""Eigenvalues of larger components are not computed: there, nothing is taken to be mixed."""


class Mixing(NamedTuple):
    """What a server's links do to errors, (N, 1) each.

    size   the number of servers that its own messages reach, directly or not, with itself
    rate   see above; 0: nothing is mixed
    focus  see above
    """

    size: Floats
    rate: Floats
    focus: Floats


def mixing_of(servers: int, sources: NDArray[np.integer], targets: NDArray[np.integer]) -> Mixing:
    """Return the mixing of undirected links, each given once.

    >>> ring = mixing_of(4, np.arange(4), np.array([1, 2, 3, 0]))
    >>> [float(part[0, 0].round(6)) for part in (ring.size, ring.rate, ring.focus)]  # eigenvalues 0, 2, 2, 4
    [4.0, 1.2, 3.0]
    """
    degree = np.bincount(sources, minlength=servers) + np.bincount(targets, minlength=servers)
    size, rate, focus = np.ones(servers), np.zeros(servers), np.ones(servers)
    for members in _components(servers, sources, targets):
        if len(members) == 1:
            continue
        size[members] = len(members)
        focus[members] = _focus(degree[members])
        if len(members) <= _LARGEST:
            rate[members] = _rate(members, sources, targets)
    return Mixing(size[:, None], rate[:, None], focus[:, None])


def changing_mixing(degree: NDArray[np.integer], runs: int) -> Mixing:
    """Return the mixing of a slot of networks whose links are drawn anew in every slot; `degree` is (runs x servers,).

    >>> drawn = changing_mixing(np.array([1, 1, 2, 0, 1, 1]), runs=2)
    >>> drawn.size.ravel().tolist(), drawn.rate[0].tolist()
    ([3.0, 3.0, 3.0, 3.0, 3.0, 3.0], [1.5])
    """
    servers = len(degree) // runs
    focus = np.repeat([_focus(one) for one in degree.reshape(runs, servers)], servers)
    rate = servers / (servers - 1) if servers > 1 else 0.0
    every = np.ones((len(degree), 1))
    return Mixing(servers * every, rate * every, focus[:, None])


def _focus(degree: NDArray[np.integer]) -> float:
    heard = 1.0 + degree
    return float(np.square(heard).mean() / heard.mean())


def _rate(members: NDArray[np.integer], sources: NDArray[np.integer], targets: NDArray[np.integer]) -> float:
    """Return the rate of one component of the links."""
    place = np.full(int(max(sources.max(), targets.max())) + 1, -1)
    place[members] = np.arange(len(members))
    inside = place[sources] >= 0
    one, other = place[sources[inside]], place[targets[inside]]
    laplacian = np.zeros((len(members), len(members)))
    laplacian[one, other] = laplacian[other, one] = -1.0
    np.fill_diagonal(laplacian, -laplacian.sum(axis=1))
    values = np.linalg.eigvalsh(laplacian)[1:]
    return float((len(values) / (1.0 / values).sum()) / np.trace(laplacian) * len(members))


def _components(servers: int, sources: NDArray[np.integer], targets: NDArray[np.integer]) -> list[NDArray[np.integer]]:
    """Return the servers of each component, ascending."""
    label = np.arange(servers)
    while True:  # every server takes the smallest number among its own and those of its neighbours
        smallest = label.copy()
        np.minimum.at(smallest, sources, label[targets])
        np.minimum.at(smallest, targets, label[sources])
        smallest = smallest[smallest]  # and that of the server whose number it has
        if (smallest == label).all():
            break
        label = smallest
    order = np.argsort(label, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(label[order])) + 1)
