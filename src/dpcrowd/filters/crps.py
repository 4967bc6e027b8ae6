"""The continuous ranked probability score: how good an estimate and its variance are together.

It is a proper score: on average it is smallest for the variance that is right. A smaller error with an interval that is
too narrow does not pay, and neither does a wide interval.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Floats

__all__ = ["normal_crps"]


def normal_crps(error: Floats, var: Floats) -> Floats:
    """Return the score of a normal distribution with this variance whose mean is off by this error.

    >>> normal_crps(np.array([0.0, 3.0]), np.array([1.0, 1.0])).round(3).tolist()
    [0.234, 2.437]
    """
    from scipy.special import erf

    deviation = np.sqrt(var)
    z = error / deviation
    density = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    return np.asarray(deviation * (z * erf(z / np.sqrt(2.0)) + 2.0 * density - 1.0 / np.sqrt(np.pi)))
