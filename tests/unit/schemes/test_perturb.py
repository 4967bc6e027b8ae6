"""Sums of regions are exact, so that one person changes a sum by 1 and pays for 1; what could not be is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.privacy import Guarantee, SecureNoise, noise_var, open_ledger
from dpcrowd.schemes.base import Plan
from dpcrowd.schemes.perturb import check_counts, group_totals, perturb_counts
from dpcrowd.schemes.registry import make_scheme
from dpcrowd.schemes.server import Server
from schemes_support import make_setting


def test_one_person_changes_a_large_sum_by_one() -> None:
    """In float64 the sum of 2^53 and 1 is that of 2^53 and 0, and the next person would change it by 2."""
    pivot = np.array([[0, 0, 0, 3]])
    sums = [group_totals(np.array([[2**52, 2**52, people, 7]]), pivot)[0][0, 0] for people in range(4)]
    assert np.diff(sums).tolist() == [1, 1, 1]
    sums, sizes = group_totals(np.array([[1, 2, 3, 7], [4, 5, 6, 8]]), pivot)  # the same groups in both servers
    assert sums.tolist() == [[6, 0, 0, 7], [15, 0, 0, 8]]
    assert sizes.tolist() == [[3, 0, 0, 1], [3, 0, 0, 1]]


@pytest.mark.parametrize(
    "counts", [[2**52, 2**52, 0], [2**52, 2**52 - 1, 1], [2**52] * 3, [2**53] * 1200], ids=["equal", "one", "3", "wrap"]
)
def test_too_large_totals_are_refused_before_anything_is_paid(counts: list[int]) -> None:
    """A sum of 2^53 or more could not be released as it is; 1024 regions of 2^53 would overflow, and pass for few."""
    regions = len(counts)
    ledger = open_ledger(Guarantee.window(2, epsilon=1.0), servers=1, regions=regions)
    due, amount = np.array([[True]]), np.array([[500_000_000]])
    joined = np.zeros((1, regions), dtype=np.int64)
    plan = Plan(0, np.array([[0.5]]), due, amount, noise_var(amount), pivot=joined)
    with pytest.raises(BadInput, match=r"less than 2\^53") as refused:
        perturb_counts(ledger, plan, np.array([counts]), SecureNoise(), sensitivity=1)
    assert str(2**52) not in str(refused.value)
    assert ledger.remaining(0).max() == 10**9


def test_the_largest_total_is_taken() -> None:
    """The bound is that of sums which are exact, and no smaller."""
    counts: Any = [2**52, 2**52 - 1, 0]
    assert check_counts(counts, 3).sum() == 2**53 - 1


class _NoNoise:
    """Returns what it is given, and remembers the tests of BD and BA."""

    private = False

    def __init__(self) -> None:
        self.tests: list[int] = []

    def noisy(self, slot: int, counts: Any, charge: Any, sensitivity: Any, where: Any, read: int = 0) -> Any:
        if read == 1:
            self.tests.append(int(counts[0, 0]))
        return np.where(where, counts.astype(np.float64), 0.0)


@pytest.mark.parametrize("name", ["bd", "ba"])
def test_one_person_changes_by_one_how_far_counts_have_moved(name: str) -> None:
    """The test of BD and BA looks at a sum over regions, too: a crowd that changes places makes it twice the total."""
    tests, setting = [], make_setting(1, 3, Guarantee.window(4, 1.0))
    for people in range(4):
        noise = _NoNoise()
        server = Server(make_scheme(name), setting, noise, number=0, share=1.0, allow_simulated_noise=True)
        server.observe(0, [2**52, 0, 0])
        server.hear()
        server.observe(1, [0, 2**52, people])
        tests += noise.tests
    assert tests == [2**53 + people for people in range(4)]
