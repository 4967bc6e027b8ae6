"""A factor of a variance per region, learned from samples (`drift`, `repeated`).

Of a sample it is known what it shows of the factor, and what that would be at a factor of 1, its `basis`. The factor
follows by least squares, with weights that fade. Each region has its own, drawn towards that of all regions of the
server, and this towards where it starts. Arrays are (N, d).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import Bools, Floats

__all__ = ["LearnedFactor"]

_FADING = 0.95
"""By how much the weight of earlier samples fades with each sample."""
_MOST = 100.0
"""Upper bound of a factor."""


@dataclass
class LearnedFactor:
    """A factor as the samples alone show it, which may be below 0, and how many samples that rests on."""

    value: Floats
    weight: Floats

    def believed(self, prior_samples: float, start: float) -> Floats:
        """Return what is believed of each region: its own evidence, that of all regions, and a start.

        prior_samples  how many samples that agree with the start are believed in, and how many of the other regions'
        """
        total = self.weight.sum(axis=1, keepdims=True)
        shown = (self.weight * self.value).sum(axis=1, keepdims=True)
        common = (shown + prior_samples * start) / (total + prior_samples)
        own = self.weight * self.value + prior_samples * np.maximum(common, 0.0)
        return np.asarray(np.clip(own / (self.weight + prior_samples), 0.0, _MOST))

    def learn(self, shown: Floats, basis: Floats, where: Bools) -> LearnedFactor:
        """Return the factor after samples that show `shown`, expected to be the factor times `basis`."""
        basis = np.where(where, basis, 0.0)
        before = np.where(where, _FADING, 1.0) * self.weight
        weight = before + np.square(basis)
        total = before * self.value + np.where(where, basis * shown, 0.0)
        return LearnedFactor(total / np.where(weight > 0.0, weight, 1.0), weight)
