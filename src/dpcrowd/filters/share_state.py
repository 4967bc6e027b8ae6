"""What the joint filter of learned shares (`share_learning`) knows, and what it is given and expects in a slot."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints

__all__ = [
    "CrowdStep",
    "Directions",
    "ExpectedRecords",
    "PreparedSlot",
    "ProductMoments",
    "ShareCovariance",
    "ShareFilter",
    "SlotRecords",
    "Widths",
]

_ROUNDING = 1e-15
"""The rounding error of a variance after the records of a slot, as a part of what it was before them."""
_CANCELLED = 1e-10
"""Rounding counts where records have left less than this part of a variance."""


@dataclass(frozen=True)
class Directions:
    """Directions in which errors of shares are independent of one another, before the records of a slot.

    `share_widths` looks at y, errors of shares in such units that all have the same variance at the start.

    var     (d, m - 1) variances of y there
    common  (d, m - 1) its covariances with the crowd
    to      (d, m - 1, m) from errors of shares to these directions
    back    (d, m, m - 1) from these directions to errors of shares
    """

    var: Floats
    common: Floats
    to: Floats
    back: Floats


@dataclass(eq=False)
class ShareCovariance:
    """Covariances before the records of a slot, which filters with different records of it have in common.

    cov         (d, n, n), symmetric
    directions  those of the errors of shares, once `share_widths` has looked for them
    """

    cov: Floats
    directions: Directions | None = None


@dataclass(frozen=True)
class Widths:
    """What each of w widths says of d regions, by directions.

    The records of the slot have made the variances smaller by G^T G, so K = D - c G^T G with D = 1 + c var, and

        K^-1 = D^-1 + c D^-1 G^T S^-1 G D^-1          det K = det D det S          S = 1 - c G D^-1 G^T = R R^T

    weight       (w,) probability
    added        (w, d) c
    diagonal     (w, d, m - 1) D
    gain         (d, k, m - 1) G
    root         (w, d, k, k) R
    mean         (d, m - 1) a
    crowd, var   (w, d) of the crowd
    part         (w, d) f of `share_settling`, and its variances; 1 and 0 where all servers are heard
    """

    weight: Floats
    added: Floats
    diagonal: Floats
    gain: Floats
    root: Floats
    mean: Floats
    crowd: Floats
    var: Floats
    part: tuple[Floats, Floats]


@dataclass(eq=False)
class ShareFilter:
    """What is known after a slot, in d regions of m servers; n = 2 m + 1. Nothing changes it.

    mean     (d, n) crowd, errors of shares and deviations. Errors of shares are in people, b, from the first estimate
             of the crowd until it is settled; before and after that they are parts of it, g
    spread   covariances before the records of the slot
    scale    (d,) the crowd to which the width W at the start refers, in the unit of the errors of shares
    begun    whether the crowd has been estimated for the first time
    heard    (m,) how many records of each server there have been, up to 2
    settled  (d,) whether the crowd is known well enough to linearise g r; the state is then that of `share_settling`
    gain     (d, k, n) G: the k records of the slot have made the covariances smaller by G^T G; None: there are none
    noise    (d,) the variance that their noise alone gives to the crowd, K R K^T with their weights K: no less can be
             left of it, whatever rounding says
    widths   what all widths say of it, with the width of the setting and the public shares for which that was computed
             (`share_widths`)
    """

    mean: Floats
    spread: ShareCovariance
    scale: Floats
    begun: bool
    heard: Ints
    settled: Bools
    gain: Floats | None = None
    noise: Floats | None = None
    widths: tuple[float, Floats, Widths] | None = field(default=None, init=False)
    _cov: Floats | None = field(default=None, init=False)

    @property
    def silent(self) -> Bools:
        """Which servers have never been heard, (m,)."""
        return np.asarray(self.heard == 0)

    @property
    def cov(self) -> Floats:
        """Covariances (d, n, n) after the slot, computed when they are needed: many a filter is asked for its crowd
        alone, and runs again when a late record arrives."""
        if self.gain is None:
            return self.spread.cov
        if self._cov is None:
            self._cov = self.gain.swapaxes(1, 2) @ self.gain
            np.subtract(self.spread.cov, self._cov, out=self._cov)
            self._cov += self._cov.swapaxes(1, 2).copy()
            self._cov *= 0.5
            variances = np.einsum("dii->di", self._cov)
            variances[:] = _with_rounding(variances, np.einsum("dii->di", self.spread.cov))
            if self.noise is not None:
                variances[:, 0] = np.maximum(variances[:, 0], self.noise)
        return self._cov

    def forget_cov(self) -> None:
        """Forget the covariances after the slot, which take as much memory as those before it: they follow from them.

        Where many receivers have filters of their own, a simulation keeps thousands of filters.
        """
        self._cov = None

    @property
    def crowd_var(self) -> Floats:
        """The variances of the crowd, (d,), each > 0 if it was before the records of the slot."""
        before = self.spread.cov[:, 0, 0]
        if self.gain is None:
            return before
        after = _with_rounding(before - np.square(self.gain[:, :, 0]).sum(axis=1), before)
        return after if self.noise is None else np.maximum(after, self.noise)


def _with_rounding(after: Floats, before: Floats) -> Floats:
    """Return variances after the records of a slot with what rounding may have taken from them.

    They are differences. Where records say far more than what was known before, such as the first ones of millions of
    people, rounding decides what is left of them, and even its sign.
    """
    return np.where(after < _CANCELLED * before, np.maximum(after, 0.0) + _ROUNDING * before, after)


@dataclass(frozen=True)
class CrowdStep:
    """How the crowd moves from one slot to another: r becomes expected + transition (r - before), and noise is added.

    transition, added       (d,) a, and the variance of the noise
    jump                    (d,) what is added to that since records contradict what was expected
    before                  (d,) what was believed of the crowd in the slot before, with the same records
    expected, expected_var  (d,) what follows from it for the slot; an infinite variance: nothing is known
    growth                  (d,) the factor by which an expected course grows; 1 without one
    stays                   the part of the users who have stayed
    claimed                 whether the first crowd was what the first records claimed, and may be too small by far
    model_var, persistence  (d,) what a slot adds by the process model alone, and which part of it is left after a slot
    """

    transition: Floats
    added: Floats
    jump: Floats
    before: Floats
    expected: Floats
    expected_var: Floats
    growth: Floats
    stays: float
    claimed: bool = True
    model_var: Floats | float = 0.0
    persistence: Floats | float = 1.0


@dataclass(frozen=True)
class SlotRecords:
    """The records of a slot.

    origins    (k,) the places of the servers that have made them, in ascending order
    noisy      (k, d)
    noise_var  (k,)
    """

    origins: Ints
    noisy: Floats
    noise_var: Floats


@dataclass(frozen=True)
class ProductMoments:
    """What is believed of shares and crowd before the records of a slot, for products of both (`share_widths`).

    widest     the probability that shares are nearly as wrong as the filter takes them to be: its own moments count
    share_var  (d, m) variances of the shares else, and their covariances with the crowd
    common     (d, m)
    """

    widest: float
    share_var: Floats
    common: Floats


@dataclass(frozen=True)
class PreparedSlot:
    """What is compared with the records of a slot.

    known      the filter before them
    shares     (d, m) and crowd (d,): the point at which products of both are linearised
    crowd_var  (d,) variances of the crowd, by all that is believed
    products   None: by the filter alone
    """

    known: ShareFilter
    shares: Floats
    crowd: Floats
    crowd_var: Floats
    products: ProductMoments | None = None


@dataclass(frozen=True)
class ExpectedRecords:
    """What a filter expects of k records of a slot, in d regions.

    share       (d, k) how much of the crowd is in each of them
    common      (d, k, n) their covariances with the state
    cov         (d, k, k) their covariances with one another, without noise
    innovation  (d, k) by how much they are above what was expected
    noise       (d, k) variances of their noise; of a record that is far off it is larger
    usual       (d, k) variances of their innovations, however far off they are
    """

    share: Floats
    common: Floats
    cov: Floats
    innovation: Floats
    noise: Floats
    usual: Floats
