"""OpenDP's sampler, an extra: its scale is a float that is rounded up, and it says at once that it is missing."""

from __future__ import annotations

import sys
from fractions import Fraction

import pytest

from dpcrowd.errors import BadInput, MissingExtra
from dpcrowd.privacy import OpenDPNoise, secure_scale
from dpcrowd.privacy.opendp_noise import _measurement
from dpcrowd.privacy.units import NANO


def test_the_plain_quotient_would_overspend() -> None:
    """Why the scale is raised at all: for most simple fractions OpenDP charges float(1/ε) with more than ε."""
    charges = [NANO * a // b for b in range(2, 30) for a in range(1, b)]
    above = [c for c in charges if Fraction(_measurement(float(Fraction(NANO, c))).map(1)) > Fraction(c, NANO)]
    assert len(above) > len(charges) / 2
    assert all(2 * float(Fraction(NANO, c)) > secure_scale(c) > float(Fraction(NANO, c)) for c in above)


@pytest.mark.parametrize(("charge", "sensitivity"), [(0, 1), (-1, 1), (NANO, 0), (NANO, -2)])
def test_a_scale_has_a_price(charge: int, sensitivity: int) -> None:
    """Charge 0 or sensitivity 0 would mean a scale of infinity or 0: a useless or a raw count."""
    with pytest.raises(BadInput, match="at least 1"):
        secure_scale(charge, sensitivity)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is made, not with the first sample: a node that starts and then cannot draw has lost a slot."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "opendp"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opendp", None)
    with pytest.raises(MissingExtra, match=r'needs opendp, which is not installed: pip install "dpcrowd\[opendp\]"'):
        OpenDPNoise()
