"""The scale that SecureNoise draws with: never cheaper than the charge says, never wider than it must be."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.privacy import noise_scale, secure_scale
from dpcrowd.privacy.secure_noise import _measurement
from dpcrowd.privacy.units import LARGEST_EPSILON, NANO

LARGEST = LARGEST_EPSILON * NANO
simple = st.builds(lambda a, b: max(1, a * NANO // b), st.integers(1, 50), st.integers(1, 1000))
charges = simple | st.integers(1, LARGEST) | st.integers(1, 10**6)
sensitivities = st.integers(1, 1000)


@settings(max_examples=300)
@given(charges, sensitivities)
def test_opendp_never_charges_more_than_the_ledger(charge: int, sensitivity: int) -> None:
    """The float scale rounds: without raising it OpenDP's own map exceeds the charge for most fractions."""
    scale = secure_scale(charge, sensitivity)
    epsilon = Fraction(charge, NANO)
    assert Fraction(_measurement(scale).map(sensitivity)) <= epsilon
    assert Fraction(sensitivity) / Fraction(scale) <= epsilon  # the exact loss of a discrete Laplace, without OpenDP


@settings(max_examples=300)
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


@given(charges, sensitivities)
def test_the_simulator_uses_the_same_scale(charge: int, sensitivity: int) -> None:
    """A simulation with another scale would not show what a live server gets."""
    assert math.isclose(float(noise_scale(charge, sensitivity)), secure_scale(charge, sensitivity), rel_tol=1e-14)


@given(charges, charges, sensitivities)
def test_more_epsilon_never_means_more_noise(one: int, other: int, sensitivity: int) -> None:
    """Rounding must not turn the order round."""
    low, high = sorted((one, other))
    assert secure_scale(high, sensitivity) <= secure_scale(low, sensitivity)
