"""Dynamic grouping against a slow reference in exact fractions, and the compiled loop against the plain one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.grouping import group_regions

Releases = list[list[Fraction]]


def mean(values: list[Fraction]) -> Fraction:
    return sum(values, Fraction(0)) / len(values)


def moves_alike(one: list[Fraction], other: list[Fraction], tau2: Fraction) -> bool:
    """Pearson correlation above tau2, decided without a square root; 1 if both stood still, 0 if only one did."""
    if len(set(one)) == 1 or len(set(other)) == 1:
        both = len(set(one)) == len(set(other)) == 1
        return (1 if both else 0) > tau2
    cov = sum(((a - mean(one)) * (b - mean(other)) for a, b in zip(one, other, strict=True)), Fraction(0))
    variances = sum((a - mean(one)) ** 2 for a in one) * sum((b - mean(other)) ** 2 for b in other)
    if tau2 >= 0:
        return cov > 0 and cov**2 > tau2**2 * variances
    return cov >= 0 or cov**2 < tau2**2 * variances


def reference(
    releases: Releases, allowed: list[bool], tau1: Fraction, tau2: Fraction, tau3: Fraction
) -> list[set[int]]:
    """The groups of one server, from its releases by region.

    Not small: alone. Among the small ones the smallest is the pivot; each of the others, from the smallest up, joins
    if it is near the pivot, moves like the pivot, and leaves the sum below tau1.
    """
    size = [mean(each) for each in releases]
    groups = [{k} for k in range(len(releases)) if allowed[k] and size[k] >= tau1]
    small = sorted((k for k in range(len(releases)) if allowed[k] and size[k] < tau1), key=lambda k: (size[k], k))
    while small:
        pivot, *rest = small
        group = [pivot]
        for k in rest:
            near = abs(size[k] - size[pivot]) < tau3
            fits = sum((size[j] for j in group), Fraction(0)) + size[k] < tau1
            if near and fits and moves_alike(releases[pivot], releases[k], tau2):
                group.append(k)
        groups.append(set(group))
        small = [k for k in rest if k not in group]
    return groups


def groups_of(pivots: np.ndarray) -> list[set[int]]:
    found: dict[int, set[int]] = {}
    for region, pivot in enumerate(pivots.tolist()):
        if pivot >= 0:
            found.setdefault(pivot, set()).add(region)
    assert all(pivot in members for pivot, members in found.items())
    return list(found.values())


def as_sets(groups: list[set[int]]) -> set[frozenset[int]]:
    return {frozenset(group) for group in groups}


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, float, float, float]:
    """Small numbers with many ties; kappa is a power of two, so that means are exact in floating point too."""
    kappa, regions = draw(st.sampled_from([1, 2, 4])), draw(st.integers(1, 7))
    column = st.one_of(
        st.lists(st.integers(-4, 12), min_size=kappa, max_size=kappa),
        st.integers(-4, 12).map(lambda value: [value] * kappa),
        st.integers(0, 8).map(lambda value: [value + h for h in range(kappa)]),
    )
    history = np.array(draw(st.lists(column, min_size=regions, max_size=regions)), dtype=float).T
    allowed = np.array(draw(st.lists(st.sampled_from([True, True, True, False]), min_size=regions, max_size=regions)))
    tau1, tau3 = draw(st.integers(0, 30)), draw(st.sampled_from([0.5, 1.0, 2.5, 5.0, 25.0]))
    return history, allowed, float(tau1), draw(st.integers(-8, 8)) / 8, tau3


@pytest.mark.slow
@given(cases())
@settings(max_examples=300)
def test_groups_are_those_of_the_rule(case: tuple[np.ndarray, np.ndarray, float, float, float]) -> None:
    """Every threshold strict, every member near the pivot, no region skipped or taken twice; ties as if exact."""
    history, allowed, tau1, tau2, tau3 = case
    pivots = group_regions(history[None], np.array([len(history)]), allowed[None], tau1, tau2, tau3)[0]
    releases = [[Fraction(value) for value in column] for column in history.T.tolist()]
    expected = reference(releases, allowed.tolist(), Fraction(tau1), Fraction(tau2), Fraction(tau3))
    assert as_sets(groups_of(pivots)) == as_sets(expected)
    assert (pivots[~allowed] == -1).all()


def random_releases(rng: np.random.Generator, servers: int, kappa: int, regions: int) -> np.ndarray:
    """Releases of real sizes: a common movement, movements of their own, and some that stand still."""
    base = rng.choice([0.1, 3.7, 9.3, 28.0, 55.0], (servers, 1, regions)) * rng.uniform(0.9, 1.1, (servers, 1, regions))
    common = rng.normal(0, 1, (servers, kappa, 1)) * rng.uniform(0, 1, (servers, 1, regions))
    moving = rng.random((servers, 1, regions)) < 0.8
    return base + np.where(moving, common + rng.normal(0, 0.5, (servers, kappa, regions)), 0.0)


def test_groups_of_real_releases_are_those_of_the_rule() -> None:
    """The default thresholds and three releases, where the mean of equal numbers is not that number."""
    rng = np.random.default_rng(0)
    history = random_releases(rng, 60, 3, 9)
    allowed = rng.random((60, 9)) < 0.9
    pivots = group_regions(history, np.full(60, 3), allowed, 30.0, 0.5, 25.0)
    for n in range(60):
        releases = [[Fraction(value) for value in column] for column in history[n].T.tolist()]
        expected = reference(releases, allowed[n].tolist(), Fraction(30), Fraction(1, 2), Fraction(25))
        assert as_sets(groups_of(pivots[n])) == as_sets(expected)
    sizes = np.array([len(group) for row in pivots for group in groups_of(row)])
    assert sizes.max() >= 4  # so that the test is about groups at all
    assert (sizes == 1).any()


@pytest.mark.slow
@pytest.mark.parametrize("regions", [1, 2, 51])
def test_compiled_loop_gives_the_same_groups(regions: int) -> None:
    """The simulator compiles the loop, a live server does not: they must never differ, ties included."""
    pytest.importorskip("numba")
    rng = np.random.default_rng(regions)
    for history in (random_releases(rng, 200, 3, regions), rng.integers(0, 6, (200, 3, regions)).astype(float)):
        allowed = rng.random((200, regions)) < 0.8
        for tau1, tau2, tau3 in ((30.0, 0.5, 25.0), (6.0, 0.5, 2.0), (9.0, -0.5, 3.0)):
            args = history, rng.integers(2, 5, 200), allowed, tau1, tau2, tau3
            plain = group_regions(*args)
            compiled = group_regions(*args, engine="numba")
            assert plain.tolist() == compiled.tolist()


@pytest.mark.parametrize(
    ("one", "other", "tau2"),
    [
        ([9.0, 8.0, -17.0], [5.0, 7.0, -12.0], 0.9915776465970602),
        ([7.0, 5.0, -12.0], [9.0, 8.0, -17.0], 0.998079795099336),
    ],
)
def test_compiled_loop_agrees_within_one_rounding_of_the_threshold(
    one: list[float], other: list[float], tau2: float
) -> None:
    """A square root written as a power of 0.5 rounds differently in Python and in compiled code."""
    pytest.importorskip("numba")
    history = np.stack([np.array(one) + 100.0, np.array(other) + 101.0], axis=1)[None]
    for close in (tau2, np.nextafter(tau2, 0), np.nextafter(tau2, 1)):
        args = history, np.array([3]), np.ones((1, 2), dtype=bool), 1e3, float(close), 25.0
        assert group_regions(*args).tolist() == group_regions(*args, engine="numba").tolist()
