"""SecureNoise: cannot be seeded, pays the right scale in the right place, gives nothing that was not read."""

from __future__ import annotations

import inspect
import random
from fractions import Fraction

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.privacy import SecureNoise, SeededNoise, secure_scale
from dpcrowd.privacy.secure_noise import _measurement
from dpcrowd.privacy.units import NANO

LOUD = 1000  # a charge of 1e-6 epsilon: scale 1e6, so a draw of 0 has probability 5e-7
QUIET = 10**15  # a charge of 1e6 epsilon: scale 1e-6, so a draw is 0 for all purposes


def test_flags() -> None:
    """What may be called private is decided by this flag: only the exact sampler has it."""
    assert SecureNoise.private is True
    assert SecureNoise().private is True
    assert SeededNoise.private is False


def test_it_cannot_be_seeded() -> None:
    """No argument, and no global seed, makes it repeat itself: what can be replayed can be subtracted."""
    assert not inspect.signature(SecureNoise).parameters
    with pytest.raises(TypeError):
        SecureNoise(1)  # type: ignore[call-arg]
    counts, where = np.zeros((1, 20), dtype=np.int64), np.ones((1, 20), dtype=np.bool_)
    drawn = []
    state, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        for _ in range(3):
            random.seed(0)
            np.random.seed(0)  # noqa: NPY002
            drawn.append(SecureNoise().noisy(4, counts, np.array([[LOUD]]), 1, where, read=2).tolist())
    finally:
        random.setstate(state)
        np.random.set_state(legacy)  # noqa: NPY002
    assert drawn[0] != drawn[1]
    assert drawn[1] != drawn[2]


def test_values_come_back_to_their_places() -> None:
    """Draws are made per price and put back: a value in another's place would be released under its price."""
    counts = np.arange(1, 13, dtype=np.int64).reshape(3, 4) * 10**9
    charge = np.full((3, 4), QUIET)
    charge[1, 2] = charge[2, 0] = LOUD
    where = np.ones((3, 4), dtype=np.bool_)
    where[0, 3] = False
    result = SecureNoise().noisy(0, counts, charge, 1, where)
    quiet = where & (charge == QUIET)
    assert np.array_equal(result[quiet], counts[quiet])
    assert result[0, 3] == 0
    moved = np.abs(result - counts)[where & ~quiet]
    assert (moved > 0).all()
    assert (moved < 10**8).all()  # 100 scales


def test_charges_and_sensitivities_broadcast_alike() -> None:
    """A charge a server (N, 1) and a sensitivity a region (d,): the scale of each value is its own quotient."""
    counts = np.zeros((2, 3), dtype=np.int64)
    charge = np.array([[QUIET], [LOUD]])
    sensitivity = np.array([1, 10**12, 1])  # makes even the quiet charge loud: scale 1e6
    result = SecureNoise().noisy(0, counts, charge, sensitivity, np.ones((2, 3), dtype=np.bool_))
    assert result[0, 0] == result[0, 2] == 0
    assert result[0, 1] != 0
    assert (result[1] != 0).all()


def test_nothing_read_nothing_drawn() -> None:
    """Charges of 0 are fine where nothing is read, and an empty mask gives zeros."""
    counts = np.full((2, 2), 5, dtype=np.int64)
    nowhere = np.zeros((2, 2), dtype=np.bool_)
    assert np.array_equal(SecureNoise().noisy(0, counts, np.zeros((1, 1), dtype=np.int64), 1, nowhere), nowhere * 0.0)
    where = np.array([[True, False], [False, False]])
    result = SecureNoise().noisy(0, counts, np.array([[QUIET, 0], [0, -5]]), 1, where)
    assert result.tolist() == [[5, 0], [0, 0]]


@pytest.mark.parametrize(("charge", "sensitivity"), [(0, 1), (-1, 1), (NANO, 0), (NANO, -2)])
def test_a_read_must_be_paid(charge: int, sensitivity: int) -> None:
    """Charge 0 or sensitivity 0 would mean a scale of infinity or 0: a useless or a raw count."""
    where = np.ones((1, 1), dtype=np.bool_)
    with pytest.raises(BadInput, match="noise needs a charge and a sensitivity of at least 1; given"):
        SecureNoise().noisy(0, np.zeros((1, 1), dtype=np.int64), np.array([[charge]]), sensitivity, where)
    with pytest.raises(BadInput, match="at least 1"):
        secure_scale(charge, sensitivity)


def test_counts_at_the_ends_of_64_bits() -> None:
    """Noise saturates instead of wrapping round: a count near the limit must not turn negative."""
    top = np.full((1, 200), 2**63 - 1, dtype=np.int64)
    result = SecureNoise().noisy(0, top, np.array([[NANO]]), 1, np.ones((1, 200), dtype=np.bool_))
    assert (result > 2**62).all()


def test_the_plain_quotient_would_overspend() -> None:
    """Why the scale is raised at all: for most simple fractions OpenDP charges float(1/ε) with more than ε."""
    charges = [NANO * a // b for b in range(2, 30) for a in range(1, b)]
    above = [c for c in charges if Fraction(_measurement(float(Fraction(NANO, c))).map(1)) > Fraction(c, NANO)]
    assert len(above) > len(charges) / 2
    assert all(2 * float(Fraction(NANO, c)) > secure_scale(c) > float(Fraction(NANO, c)) for c in above)
