"""Noise for real data: cannot be seeded, pays the right scale in the right place, gives nothing that was not read.

What both samplers have to do is asked of both; what only ours can promise stands at the end.
"""

from __future__ import annotations

import inspect
import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.privacy import Noise, OpenDPNoise, SecureNoise, SeededNoise
from dpcrowd.privacy.units import NANO

LOUD = 1000  # a charge of 1e-6 epsilon: scale 1e6, so a draw of 0 has probability 5e-7
QUIET = 10**15  # a charge of 1e6 epsilon: scale 1e-6, so a draw is 0 for all purposes


Sampler = Callable[[], Noise]
both = pytest.mark.parametrize("sampler", [SecureNoise, OpenDPNoise])


@both
def test_flags(sampler: Sampler) -> None:
    """What may be called private is decided by this flag: only the exact samplers have it."""
    assert sampler.private is True  # type: ignore[attr-defined]
    assert sampler().private is True
    assert SeededNoise.private is False


@both
def test_it_cannot_be_seeded(sampler: Sampler) -> None:
    """No argument, and no global seed, makes it repeat itself: what can be replayed can be subtracted."""
    assert not inspect.signature(sampler).parameters
    with pytest.raises(TypeError):
        sampler(1)  # type: ignore[call-arg]
    counts, where = np.zeros((1, 20), dtype=np.int64), np.ones((1, 20), dtype=np.bool_)
    drawn = []
    state, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        for _ in range(3):
            random.seed(0)
            np.random.seed(0)  # noqa: NPY002
            drawn.append(sampler().noisy(4, counts, np.array([[LOUD]]), 1, where, read=2).tolist())
    finally:
        random.setstate(state)
        np.random.set_state(legacy)  # noqa: NPY002
    assert drawn[0] != drawn[1]
    assert drawn[1] != drawn[2]


@both
def test_values_come_back_to_their_places(sampler: Sampler) -> None:
    """Draws are made per price and put back: a value in another's place would be released under its price."""
    counts = np.arange(1, 13, dtype=np.int64).reshape(3, 4) * 10**9
    charge = np.full((3, 4), QUIET)
    charge[1, 2] = charge[2, 0] = LOUD
    where = np.ones((3, 4), dtype=np.bool_)
    where[0, 3] = False
    result = sampler().noisy(0, counts, charge, 1, where)
    quiet = where & (charge == QUIET)
    assert np.array_equal(result[quiet], counts[quiet])
    assert result[0, 3] == 0
    moved = np.abs(result - counts)[where & ~quiet]
    assert (moved > 0).all()
    assert (moved < 10**8).all()  # 100 scales


@both
def test_charges_and_sensitivities_broadcast_alike(sampler: Sampler) -> None:
    """A charge per server (N, 1) and a sensitivity per region (d,): each value has a scale of its own."""
    counts = np.zeros((2, 3), dtype=np.int64)
    charge = np.array([[QUIET], [LOUD]])
    sensitivity = np.array([1, 10**12, 1])  # makes even the quiet charge loud: scale 1e6
    result = sampler().noisy(0, counts, charge, sensitivity, np.ones((2, 3), dtype=np.bool_))
    assert result[0, 0] == result[0, 2] == 0
    assert result[0, 1] != 0
    assert (result[1] != 0).all()


@both
def test_nothing_read_nothing_drawn(sampler: Sampler) -> None:
    """Charges of 0 are fine where nothing is read, and an empty mask gives zeros."""
    counts = np.full((2, 2), 5, dtype=np.int64)
    nowhere = np.zeros((2, 2), dtype=np.bool_)
    assert np.array_equal(sampler().noisy(0, counts, np.zeros((1, 1), dtype=np.int64), 1, nowhere), nowhere * 0.0)
    where = np.array([[True, False], [False, False]])
    result = sampler().noisy(0, counts, np.array([[QUIET, 0], [0, -5]]), 1, where)
    assert result.tolist() == [[5, 0], [0, 0]]


@both
@pytest.mark.parametrize(("charge", "sensitivity"), [(0, 1), (-1, 1), (NANO, 0), (NANO, -2)])
def test_a_read_must_be_paid(charge: int, sensitivity: int, sampler: Sampler) -> None:
    """Charge 0 or sensitivity 0 would mean a scale of infinity or 0: a useless or a raw count."""
    where = np.ones((1, 1), dtype=np.bool_)
    with pytest.raises(BadInput, match="noise needs a charge and a sensitivity of at least 1; given"):
        sampler().noisy(0, np.zeros((1, 1), dtype=np.int64), np.array([[charge]]), sensitivity, where)


@both
def test_counts_at_the_ends_of_64_bits(sampler: Sampler) -> None:
    """Noise saturates instead of wrapping round: a count near the limit must not turn negative."""
    top = np.full((1, 200), 2**63 - 1, dtype=np.int64)
    result = sampler().noisy(0, top, np.array([[NANO]]), 1, np.ones((1, 200), dtype=np.bool_))
    assert (result > 2**62).all()


@both
@pytest.mark.parametrize("name", ["counts", "charge", "sensitivity"])
def test_only_whole_numbers_are_taken(name: str, sampler: Sampler) -> None:
    """A float among them would bring rounding back, and with it the grid that betrays the count; no value is shown."""
    arrays: dict[str, Any] = {"counts": np.array([[5]]), "charge": np.array([[NANO]]), "sensitivity": np.array([[1]])}
    arrays[name] = arrays[name].astype(np.float64)
    with pytest.raises(BadInput, match=rf"^noise needs whole numbers as {name}; given an array of float64\.$"):
        sampler().noisy(0, **arrays, where=np.ones((1, 1), dtype=np.bool_))


@both
def test_noise_beyond_64_bits_ends_there(sampler: Sampler) -> None:
    """The widest noise that there is, scale 9e27, exceeds every integer of 64 bits: it must neither wrap nor fail."""
    where = np.ones((1, 50), dtype=np.bool_)
    result = sampler().noisy(0, np.zeros((1, 50), dtype=np.int64), np.array([[1]]), 2**63 - 1, where)
    assert set(np.abs(result).ravel().tolist()) <= {2.0**63}
    assert len(set(np.sign(result).ravel().tolist())) == 2


class Tape:
    """A source of entropy that gives the same bytes after each `rewind`, and counts what was asked for."""

    def __init__(self) -> None:
        self._bytes = os.urandom(1 << 16)
        self.sizes: list[int] = []

    def __call__(self, size: int) -> bytes:
        start = sum(self.sizes)
        self.sizes.append(size)
        return self._bytes[start : start + size]

    def rewind(self) -> None:
        self.sizes.clear()


def _draw(noise: SecureNoise, regions: int = 30) -> list[float]:
    where = np.ones((1, regions), dtype=np.bool_)
    drawn: list[float] = noise.noisy(0, where * 0, np.array([[LOUD]]), 1, where)[0].tolist()
    return drawn


def test_no_entropy_is_kept_from_call_to_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Left-over bytes, or a generator, would be in the image of the process that is resumed twice.

    Each call that gets the same bytes draws the same noise; after what another call has left over, it would not.
    """
    tape, noise = Tape(), SecureNoise()
    monkeypatch.setattr(os, "urandom", tape)
    drawn = []
    for regions_before in (1, 2, 7, 30):
        _draw(noise, regions_before)
        tape.rewind()
        drawn.append(_draw(noise))
    assert drawn[0] == drawn[1] == drawn[2] == drawn[3]
    assert len(set(drawn[0])) > 20
    assert not hasattr(noise, "__dict__")


def test_entropy_is_fetched_as_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is drawn for regions that are not read; entropy that is fetched far ahead would only lie about."""
    tape = Tape()
    monkeypatch.setattr(os, "urandom", tape)
    nowhere = np.zeros((1, 5), dtype=np.bool_)
    SecureNoise().noisy(0, nowhere * 0, np.array([[LOUD]]), 1, nowhere)
    assert tape.sizes == []
    _draw(SecureNoise(), 1)
    assert len(tape.sizes) <= 3
    assert set(tape.sizes) == {256}
    tape.rewind()
    _draw(SecureNoise(), 100)
    assert 20 < len(tape.sizes) < 60  # 9.6 words of 8 bytes for a sample, on average


def test_no_float_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A noisy value is an exact integer until it is handed out: at 2^53 + 1 a float would lose the last digit."""
    scales = []

    def sample(below: object, t: int, s: int) -> int:
        scales.append((t, s))
        return -1

    monkeypatch.setattr("dpcrowd.privacy.secure_noise.discrete_laplace", sample)
    where = np.ones((1, 2), dtype=np.bool_)
    counts = np.array([[2**53 + 1, 2**53 + 3]])
    result = SecureNoise().noisy(0, counts, np.array([[3 * NANO, 7]]), 2, where)
    assert result.tolist() == [[2.0**53, 2.0**53 + 2]]
    assert sorted(scales) == [(2, 3), (2 * NANO, 7)]
