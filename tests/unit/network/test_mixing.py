"""What links do to errors: from the eigenvalues of small networks, and for every server of a batch its own."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.network.mixing import changing_mixing, mixing_of


def ring(servers: int, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    numbers = np.arange(servers)
    return first + numbers, first + (numbers + 1) % servers


def test_a_long_ring_mixes_slowly_and_a_complete_network_at_once() -> None:
    """With one rate for all networks, intervals on a ring would be too narrow, or too wide everywhere else."""
    sources, targets = np.triu_indices(12, 1)
    complete = mixing_of(12, sources, targets)
    assert complete.size.tolist() == [[12.0]] * 12
    assert complete.rate == pytest.approx(12.0 / 11.0)
    assert complete.focus == pytest.approx(12.0), "everybody hears everything"
    long = mixing_of(12, *ring(12))
    values = 2.0 - 2.0 * np.cos(2.0 * np.pi * np.arange(1, 12) / 12)
    noise = np.square(3.0 - values)  # the adjacency has the eigenvalues 2 - l
    assert long.rate == pytest.approx(noise.sum() / (noise / values).sum() / 2.0)
    assert long.rate.max() < 0.4 * complete.rate.max()
    assert long.focus == pytest.approx(3.0)


def test_who_hears_everything_gains_nothing() -> None:
    """The centre of a star would take itself for a server whose neighbours know more than it does."""
    star = mixing_of(10, np.zeros(9, dtype=np.int64), np.arange(1, 10))
    assert star.focus[0, 0] == 10.0
    heard = np.array([10.0] + [2.0] * 9)
    assert star.focus[1:, 0] == pytest.approx(2.0 * np.square(heard).mean() / np.square(heard.mean()))


def test_two_groups_with_one_link_in_between_mix_slowly() -> None:
    """Nearly all eigenvalues are large there, and the noise that lasts is along the small one."""
    one, other = np.triu_indices(6, 1)
    sources, targets = np.concatenate([one, one + 6, [5]]), np.concatenate([other, other + 6, [6]])
    apart = mixing_of(12, sources, targets)
    complete = mixing_of(12, *np.triu_indices(12, 1))
    assert apart.rate.max() < 0.25 * complete.rate.min()


def test_every_component_has_numbers_of_its_own() -> None:
    """A batch of runs is one graph without links in between: a run must not be averaged with another one."""
    first, second = ring(4), ring(7, 4)
    both = mixing_of(12, np.concatenate([first[0], second[0]]), np.concatenate([first[1], second[1]]))
    apart = [mixing_of(4, *ring(4)), mixing_of(7, *ring(7))]
    for part in range(3):
        assert np.array_equal(both[part][:4], apart[0][part])
        assert np.array_equal(both[part][4:11], apart[1][part])
    assert [float(part[11, 0]) for part in both] == [1.0, 0.0, 1.0], "a server without links"


def test_the_order_of_links_does_not_matter() -> None:
    """The simulator sorts links and a live server reads them from a file: both must have the same bits."""
    rng = np.random.default_rng(3)
    sources, targets = ring(9)
    sources, targets = np.append(sources, [0, 2]), np.append(targets, [4, 7])
    order, swapped = rng.permutation(len(sources)), rng.random(len(sources)) < 0.5
    ends = np.where(swapped, targets, sources)[order], np.where(swapped, sources, targets)[order]
    for one, other in zip(mixing_of(9, sources, targets), mixing_of(9, *ends), strict=True):
        assert np.array_equal(one, other)


def test_networks_too_large_for_eigenvalues_are_taken_not_to_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of servers would need minutes; a rate of 0 gives intervals that are too wide, never too narrow."""
    monkeypatch.setattr("dpcrowd.network.mixing._LARGEST", 8)
    assert (mixing_of(9, *ring(9)).rate == 0.0).all()
    assert (mixing_of(8, *ring(8)).rate > 0.0).all()


def test_links_that_are_drawn_anew_mix_like_a_complete_network() -> None:
    """Their eigenvalues of one slot say nothing of the next; degrees may differ from run to run."""
    drawn = changing_mixing(np.array([3, 3, 3, 3, 1, 1, 2, 2]), runs=2)
    complete = mixing_of(4, *np.triu_indices(4, 1))
    for one, other in zip(drawn, complete, strict=True):
        assert one[:4] == pytest.approx(other)
    assert drawn.focus[4, 0] == pytest.approx(2.0 * np.square([2, 2, 3, 3]).mean() / 2.5**2)
    assert changing_mixing(np.array([0]), runs=1).rate.tolist() == [[0.0]]
