"""How fast the links of a network mix what its servers know, in three numbers of each server that all can compute.

A consensus step of gain c per speaking neighbour replaces the servers' errors e by (I - c L) e, where L is the
Laplacian of the links. Along an eigenvector u of L with the eigenvalue l an error shrinks by 1 - c l per step: the
average of a component stays (l = 0), and everything else dies out. A sample is heard by its server and all neighbours,
so its noise is mostly along eigenvectors that die out slowly: with the adjacency A, g = |(I + A) u|^2 of it is along u.
What lasts of it is in proportion to g/l. A server follows the rest as if all of it shrank at one rate, weighted by how
much of each eigenvector it has itself:

    rate_i = sum_u u_i^2 g / (sum_u u_i^2 g/l) / degree_i                        per neighbour that speaks

With J_i = 1 + degree_i servers in reach, of all samples of a component of n servers a server hears J_i, and if it heard
all of them, the variance of their noise would be J_i/n of what it is. Samples that more servers hear count more in the
average of the network than others, which costs the factor mean(J^2)/mean(J)^2:

    focus_i = min(n, J_i mean(J^2)/mean(J)^2)

Links that are drawn anew in every slot are on average those of a complete graph: all eigenvalues are alike.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Floats

__all__ = ["Mixing", "changing_mixing", "mixing_of"]

_LITTLE = 1e-9
_LARGEST = 1000
"""Eigenvalues of larger components are not computed: there, nothing is taken to be mixed."""


class Mixing(NamedTuple):
    """What a server's links do to errors, (N, 1) each.

    size   the number of servers that its own messages reach, directly or not, with itself
    rate   see above; 0: nothing is mixed
    focus  how many servers' samples a server hears, corrected as above
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
            rate[members] = _rates(members, sources, targets) / degree[members]
    return Mixing(size[:, None], rate[:, None], focus[:, None])


def changing_mixing(degree: NDArray[np.integer], runs: int) -> Mixing:
    """Return the mixing of a slot of networks whose links are drawn anew in every slot; `degree` is (runs x servers,).

    >>> drawn = changing_mixing(np.array([1, 1, 2, 0, 1, 1]), runs=2)
    >>> drawn.size.ravel().tolist(), drawn.rate[0].tolist()
    ([3.0, 3.0, 3.0, 3.0, 3.0, 3.0], [1.5])
    """
    servers = len(degree) // runs
    focus = np.concatenate([_focus(one) for one in degree.reshape(runs, servers)])
    rate = servers / (servers - 1) if servers > 1 else 0.0
    every = np.ones((len(degree), 1))
    return Mixing(servers * every, rate * every, focus[:, None])


def _focus(degree: NDArray[np.integer]) -> Floats:
    heard = 1.0 + degree
    return np.asarray(np.minimum(heard * np.square(heard).mean() / np.square(heard.mean()), len(heard)))


def _rates(members: NDArray[np.integer], sources: NDArray[np.integer], targets: NDArray[np.integer]) -> Floats:
    """Return the mean eigenvalue of each server of one component, weighted as above."""
    place = np.full(int(max(sources.max(), targets.max())) + 1, -1)
    place[members] = np.arange(len(members))
    inside = place[sources] >= 0
    one, other = place[sources[inside]], place[targets[inside]]
    linked = np.zeros((len(members), len(members)))
    linked[one, other] = linked[other, one] = 1.0
    values, vectors = np.linalg.eigh(np.diag(linked.sum(axis=1)) - linked)
    noise = np.square(vectors + linked @ vectors).sum(axis=0)
    # Where all servers hear the same samples nothing is left to be mixed, and any rate is right.
    weight = np.square(vectors[:, 1:]) * (noise[1:] + _LITTLE)
    return np.asarray(weight.sum(axis=1) / (weight / values[1:]).sum(axis=1))


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
