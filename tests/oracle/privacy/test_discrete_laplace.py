"""The exact sampler against exact probabilities: every choice it can make, with the probability of each.

The sampler asks for uniform integers and for nothing else. So it can be run on all answers instead of on random ones:
each path that ends has a known probability, the paths that have not ended yet have the rest, and the true probability
of a result lies between the sum of its paths and that sum plus the rest. Statistics play no part. First the coin
exp(-g) alone, made of uniform integers; then the sampler, made of uniform integers and of coins that are known to be
right.
"""

from __future__ import annotations

import heapq
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, localcontext

import pytest

from dpcrowd.privacy import discrete_laplace as module
from dpcrowd.privacy.discrete_laplace import Uniform, bernoulli_exp, discrete_laplace, uniform

WORD = 2**64
ROUNDED = Decimal("1e-30")  # of sums of numbers with 40 digits

Choose = Callable[[Sequence[Decimal]], int]
"""choose(weights): which of several things happens; the weights are their probabilities."""


class Undecided(Exception):
    """The sampler asks for one choice more than the path has."""

    def __init__(self, weights: Sequence[Decimal]) -> None:
        self.weights = weights


def explore(sampler: Callable[[Choose], int], rest: str) -> tuple[dict[int, Decimal], Decimal]:
    """The probability of each result over the paths that end, likeliest first, until at most `rest` is undecided."""
    found: dict[int, Decimal] = defaultdict(Decimal)
    undecided = Decimal(1)
    paths: list[tuple[Decimal, tuple[int, ...]]] = [(Decimal(-1), ())]
    while undecided > Decimal(rest):
        negated, path = heapq.heappop(paths)
        try:
            result = sampler(_follow(iter(path)))
        except Undecided as more:
            for choice, weight in enumerate(more.weights):
                heapq.heappush(paths, (negated * weight, (*path, choice)))
        else:
            found[result] -= negated
            undecided += negated
    return found, undecided + ROUNDED


def _follow(path: Iterator[int]) -> Choose:
    def choose(weights: Sequence[Decimal]) -> int:
        for choice in path:
            return choice
        raise Undecided(weights)

    return choose


def integers(choose: Choose) -> Uniform:
    """Uniform integers as choices."""
    return lambda bound: choose([Decimal(1) / bound] * bound)


@pytest.fixture(autouse=True)
def _digits() -> Iterator[None]:
    with localcontext() as context:
        context.prec = 40
        yield


@pytest.mark.parametrize(("numerator", "denominator"), [(0, 1), (1, 1), (1, 2), (1, 7), (2, 3), (3, 3)])
def test_a_coin_has_exactly_its_probability(numerator: int, denominator: int) -> None:
    """exp(-g) by comparing integers: a round too few or a wrong comparison is a factor in every count's privacy."""
    found, rest = explore(lambda choose: bernoulli_exp(integers(choose), numerator, denominator), "0.0005")
    probability = (-Decimal(numerator) / denominator).exp()
    assert found[True] - ROUNDED <= probability <= found[True] + rest
    assert found[False] - ROUNDED <= 1 - probability <= found[False] + rest


@pytest.mark.parametrize(("t", "s"), [(1, 1), (3, 1), (5, 1), (1, 2), (3, 2), (7, 4), (4, 7), (1, 5)])
def test_every_value_has_exactly_its_probability(t: int, s: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zero counted twice, a scale of s/t, a magnitude that starts at 1: each is far outside these bounds.

    A sample that is rejected begins anew, which is seen by a second integer below t (t is not 2, so it is not the
    sign). What comes after is as likely as at the first time, so the other results share the probability of this one.
    """
    rejected = 10**9

    class Rejected(Exception):
        pass

    def sample(choose: Choose) -> int:
        starts = iter(range(1))

        def below(bound: int) -> int:
            if bound == t and next(starts, None) is None:
                raise Rejected
            return choose([Decimal(1) / bound] * bound)

        def coin(_: Uniform, numerator: int, denominator: int) -> bool:
            assert 0 <= numerator <= denominator
            probability = (-Decimal(numerator) / denominator).exp()
            return choose([1 - probability, probability]) == 1

        monkeypatch.setattr(module, "bernoulli_exp", coin)
        try:
            return discrete_laplace(below, t, s)
        except Rejected:
            return rejected

    found, rest = explore(sample, "1e-9")
    kept = 1 - found.pop(rejected)
    q = (-Decimal(s) / t).exp()
    for x in range(-20 * t, 20 * t + 1):
        probability = (1 - q) / (1 + q) * q ** abs(x)
        assert found[x] / kept - ROUNDED <= probability <= (found[x] + rest) / (kept - rest), x


def feed(*words: int) -> Uniform:
    """Uniform integers from these 64-bit words and no others; it fails if they are not enough."""
    blocks = iter([b"".join(word.to_bytes(8, sys.byteorder) for word in words).ljust(256, b"\xff")])
    return uniform(lambda size: next(blocks)[:size])


@pytest.mark.parametrize("bound", [1, 2, 3, 10, 10**9, 2**63 + 1, WORD - 1])
def test_a_residue_is_as_likely_as_any_other(bound: int) -> None:
    """Words from the largest multiple of the bound onwards would make small results likelier: they are drawn again."""
    limit = WORD - WORD % bound
    assert feed(limit - 1, 0)(bound) == bound - 1
    assert feed(0)(bound) == 0
    if limit < WORD:
        assert feed(limit, WORD - 1, 1)(bound) == 1 % bound
    below = feed(5, 2, 4)
    assert [below(bound) for _ in range(3)] == [5 % bound, 2 % bound, 4 % bound]


@pytest.mark.parametrize("bound", [WORD, WORD + 1, 10**21, 2**128 - 1, 2**150])
def test_bounds_of_several_words(bound: int) -> None:
    """A scale of 1e12 or more has a numerator beyond 64 bits: one word would leave most values out."""
    words = -(-bound.bit_length() // 64)
    limit = WORD**words - WORD**words % bound

    def split(value: int) -> list[int]:
        return [value >> 64 * place & WORD - 1 for place in reversed(range(words))]

    assert feed(*split(limit - 1))(bound) == bound - 1
    assert feed(*split(bound - 1))(bound) == bound - 1
    if limit < WORD**words:
        assert feed(*split(limit), *split(7))(bound) == 7


def test_blocks_follow_each_other() -> None:
    """No byte is used twice, and none is left out, where one block of entropy ends and the next begins."""
    sizes: list[int] = []

    def entropy(size: int) -> bytes:
        first = sum(sizes) // 8
        sizes.append(size)
        return b"".join(number.to_bytes(8, sys.byteorder) for number in range(first, first + size // 8))

    below = uniform(entropy)
    assert sizes == []  # nothing is fetched before it is needed
    assert [below(10**6) for _ in range(100)] == list(range(100))
    assert len(sizes) == -(-100 * 8 // sizes[0])
