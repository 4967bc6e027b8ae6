"""The scale of the noise for real data: never cheaper than the charge says, never wider than it must be.

Ours is the fraction itself. OpenDP's is a float, for which "never wider" means: to the last digit.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.privacy import SecureNoise, noise_scale, secure_noise, secure_scale
from dpcrowd.privacy.opendp_noise import _measurement
from dpcrowd.privacy.units import LARGEST_EPSILON, NANO
from examples_support import examples

LARGEST = LARGEST_EPSILON * NANO
simple = st.builds(lambda a, b: max(1, a * NANO // b), st.integers(1, 50), st.integers(1, 1000))
charges = simple | st.integers(1, LARGEST) | st.integers(1, 10**6)
sensitivities = st.integers(1, 1000)


@given(charges, sensitivities | st.integers(1, 2**62))
def test_the_exact_scale_is_the_quotient(charge: int, sensitivity: int) -> None:
    """Rounded anywhere, up or down, the ledger's epsilon would no longer be the sampler's."""
    scales = []

    def sample(below: object, t: int, s: int) -> int:
        scales.append(Fraction(t, s))
        return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secure_noise, "discrete_laplace", sample)
        one = np.ones((1, 1), dtype=np.int64)
        SecureNoise().noisy(0, one, one * charge, one * sensitivity, one.astype(np.bool_))
    assert scales == [sensitivity / Fraction(charge, NANO)]


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(charges, sensitivities)
def test_opendp_never_charges_more_than_the_ledger(charge: int, sensitivity: int) -> None:
    """The float scale rounds: without raising it OpenDP's own map exceeds the charge for most fractions."""
    scale = secure_scale(charge, sensitivity)
    epsilon = Fraction(charge, NANO)
    assert Fraction(_measurement(scale).map(sensitivity)) <= epsilon
    assert Fraction(sensitivity) / Fraction(scale) <= epsilon  # the exact loss of a discrete Laplace, without OpenDP


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(charges, sensitivities)
def test_the_scale_is_not_needlessly_large(charge: int, sensitivity: int) -> None:
    """One float below is too cheap, or is below the plain quotient: no accuracy is given away."""
    scale = secure_scale(charge, sensitivity)
    plain = float(Fraction(sensitivity * NANO, charge))
    below = math.nextafter(scale, 0)
    assert scale >= plain
    if scale > plain:
        assert Fraction(_measurement(below).map(sensitivity)) > Fraction(charge, NANO)
    assert scale <= plain * (1 + 1e-14)


@pytest.mark.slow
@given(charges, sensitivities)
def test_the_simulator_uses_the_same_scale(charge: int, sensitivity: int) -> None:
    """A simulation with another scale would not show what a live server gets."""
    assert math.isclose(float(noise_scale(charge, sensitivity)), secure_scale(charge, sensitivity), rel_tol=1e-14)


@given(charges, charges, sensitivities)
def test_more_epsilon_never_means_more_noise(one: int, other: int, sensitivity: int) -> None:
    """Rounding must not turn the order round."""
    low, high = sorted((one, other))
    assert secure_scale(high, sensitivity) <= secure_scale(low, sensitivity)
