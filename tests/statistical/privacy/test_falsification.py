"""Trying to catch the noise cheating: outputs for a crowd with and without one user.

For neighbouring counts the log ratio of the probabilities of any event is at most ε. Events are single outputs and
tails; each is judged with its own standard error. An honest mechanism stays below a margin of 6 standard errors
(in about a hundred events: a false alarm in 1e7 runs), and mechanisms with too little noise are caught.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from dpcrowd.errors import BudgetExhausted
from dpcrowd.privacy import Accounting, Guarantee, Noise, OpenDPNoise, SecureNoise, SeededNoise, open_ledger
from dpcrowd.privacy.units import NANO
from dpcrowd.testing.distinguish import MARGIN, excess

Floats = NDArray[np.float64]
DRAWS: dict[type[Noise], int] = {SecureNoise: 15_000, OpenDPNoise: 10_000}
"""A draw takes microseconds. Noise for ε = 1.3 claimed as 1 exceeds ε by 12 (OpenDP) or 15 standard errors, ± 1."""
samplers = pytest.mark.parametrize("kind", list(DRAWS))


def release(noise: Noise, count: int, epsilon: float, sensitivity: int, size: int, read: int) -> Floats:
    """`size` independent releases of one count, paid with epsilon."""
    shape = (size // 100, 100)
    counts, where = np.full(shape, count, dtype=np.int64), np.ones(shape, dtype=np.bool_)
    return noise.noisy(0, counts, np.array([[round(epsilon * NANO)]]), sensitivity, where, read).ravel()


def seeded(seed: int, size: int) -> SeededNoise:
    return SeededNoise([np.random.SeedSequence(seed)], size // 100, 100)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 3.0])
def test_seeded_noise_keeps_its_promise(epsilon: float) -> None:
    """Counts x and x + 1 cannot be told apart by more than ε."""
    size = 200_000
    pair = [release(seeded(9, size), 40 + user, epsilon, 1, size, read=user) for user in (0, 1)]
    assert excess(pair[0], pair[1], epsilon) < MARGIN


@cache
def secure_pair(kind: type[Noise], epsilon: float) -> list[Floats]:
    """Releases without and with a user."""
    return [release(kind(), 40 + user, epsilon, 1, DRAWS[kind], read=0) for user in (0, 1)]


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0])
@samplers
def test_secure_noise_keeps_its_promise(kind: type[Noise], epsilon: float) -> None:
    """The same for the noise that real data gets."""
    pair = secure_pair(kind, epsilon)
    assert excess(pair[0], pair[1], epsilon) < MARGIN


@pytest.mark.parametrize("paid", [1.3, 2.0])
@samplers
def test_too_little_secure_noise_is_detected(kind: type[Noise], paid: float) -> None:
    """The detector works with these samples, too: noise for ε = 1.3 that is claimed as ε = 1 is found."""
    pair = secure_pair(kind, paid)
    assert excess(pair[0], pair[1], 1.0) > MARGIN


def test_a_user_who_counts_three_times() -> None:
    """With sensitivity 3 counts x and x + 3 are neighbours; noise for sensitivity 1 would be caught."""
    size = 200_000
    for sensitivity, honest in ((3, True), (1, False)):
        pair = [release(seeded(4, size), 40 + 3 * user, 1.0, sensitivity, size, read=user) for user in (0, 1)]
        assert (excess(pair[0], pair[1], 1.0) < MARGIN) == honest
        for kind in DRAWS:
            pair = [release(kind(), 40 + 3 * user, 1.0, sensitivity, 5_000, read=0) for user in (0, 1)]
            assert (excess(pair[0], pair[1], 1.0) < MARGIN) == honest


@pytest.mark.parametrize("paid", [1.15, 1.5, 4.0])
def test_too_little_noise_is_detected(paid: float) -> None:
    """The detector works: noise for ε = 1.15 that is claimed as ε = 1 is found."""
    size = 200_000
    pair = [release(seeded(6, size), 40 + user, paid, 1, size, read=user) for user in (0, 1)]
    assert excess(pair[0], pair[1], 1.0) > MARGIN


def test_no_noise_is_detected() -> None:
    """A raw count that slips through, or noise that only one of the two counts can make, is infinitely bad."""
    size = 20_000
    raw = [np.full(size, 40.0 + user) for user in (0, 1)]
    assert excess(raw[0], raw[1], 1.0) == math.inf
    cut = [np.clip(release(seeded(8, size), 0, 1.0, 1, size, read=user), -2, 2) + user for user in (0, 1)]
    assert excess(cut[0], cut[1], 1.0) == math.inf


def test_two_reads_at_half_cost_one_whole() -> None:
    """Reads add up: that both of two reads at ε/2 are high is within ε, and is not within ε/2."""
    size = 400_000
    noise = seeded(3, size)
    both = [
        np.minimum(*(release(noise, 40 + user, 0.5, 1, size, read=2 * user + again) for again in (0, 1)))
        for user in (0, 1)
    ]
    assert excess(both[0], both[1], 1.0) < MARGIN
    assert excess(both[0], both[1], 0.5) > MARGIN


@pytest.mark.parametrize(("accounting", "leaks"), [("sound", False), ("per-region", True)])
def test_what_a_moving_user_really_pays(accounting: Accounting, leaks: bool) -> None:
    """A user walks through four regions, each read at ε in the slot of the visit, as far as the ledger lets it.

    The paper's ledger allows all four reads, and the outputs tell the user's presence by e^4 where ε = 1 is promised.
    """
    size, regions = 400_000, 4
    ledger = open_ledger(Guarantee.window(regions, 1.0), 1, regions, accounting)
    noise, seen = seeded(12, size), [np.full(size, math.inf), np.full(size, math.inf)]
    for slot in range(regions):
        charge = np.zeros((1, regions), dtype=np.int64)
        charge[0, slot] = NANO
        try:
            ledger.spend(slot, charge)
        except BudgetExhausted:
            continue
        for user in (0, 1):
            seen[user] = np.minimum(seen[user], release(noise, 40 + user, 1.0, 1, size, read=2 * slot + user))
    assert (excess(seen[0], seen[1], 1.0) > MARGIN) == leaks
    assert (excess(seen[0], seen[1], 3.5) > MARGIN) == leaks
    assert excess(seen[0], seen[1], 4.0) < MARGIN
