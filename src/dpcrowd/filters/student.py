"""Student's t distribution with a given variance: the density by which beliefs are compared.

Of a normal distribution, one record that is far off would decide for good; with heavier tails several have to agree.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Floats

__all__ = ["log_density"]

_FREEDOM = 6.0
"""Degrees of freedom with which its kurtosis is that of Laplace noise."""


def log_density(variance: Floats, surprise: Floats) -> Floats:
    """Return the logarithm of the density, up to a constant; `surprise` is the squared deviation by the variance."""
    return np.asarray(-0.5 * (np.log(variance) + (_FREEDOM + 1.0) * np.log1p(surprise / (_FREEDOM - 2.0))))
