"""OpenDP's sampler, an extra: its scale is a float that is rounded up, and it says at once that it is missing."""

from __future__ import annotations

import sys
import tomllib
from fractions import Fraction

import numpy as np
import pytest

from dpcrowd.errors import BadInput, MissingExtra
from dpcrowd.privacy import OpenDPNoise, SecureNoise, secure_scale
from dpcrowd.privacy.opendp_noise import _measurement
from dpcrowd.privacy.units import NANO
from project_support import ROOT


@pytest.mark.slow
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
    counts, where = np.full((1, 3), 10**9), np.ones((1, 3), dtype=np.bool_)
    drawn = SecureNoise().noisy(0, counts, np.array([[NANO]]), 1, where)  # the default install has to draw without it
    assert (np.abs(drawn - counts) < 1000).all()
    with pytest.raises(MissingExtra, match=r'needs opendp, which is not installed: pip install "dpcrowd\[opendp\]"'):
        OpenDPNoise()


def test_it_is_an_extra_and_part_of_no_other() -> None:
    """265 of the 549 MB of an install, for a sampler that few will choose: only tests bring it along."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert extras["opendp"] == ["opendp>=0.16"]
    holders = {name for name, needs in extras.items() for need in needs if "opendp" in need}
    assert holders == {"opendp", "test"}
    assert not any("opendp" in need for need in project["dependencies"])
