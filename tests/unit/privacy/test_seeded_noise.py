"""SeededNoise: a draw depends on its place alone (run, slot, read, server, region), and on nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.privacy import SeededNoise
from dpcrowd.privacy.units import NANO

CHARGE = np.array([[NANO // 20]])  # scale 20: hardly two draws are alike


def seeds(*runs: int) -> list[np.random.SeedSequence]:
    return [np.random.SeedSequence(7, spawn_key=(run, 4)) for run in runs]


def draw(noise: SeededNoise, slot: int, servers: int, regions: int, read: int = 0) -> Any:
    counts = np.zeros((servers, regions), dtype=np.int64)
    return noise.noisy(slot, counts, CHARGE, 1, np.ones(counts.shape, dtype=np.bool_), read=read)


@pytest.mark.parametrize(("servers", "regions"), [(3, 2), (40, 30), (200, 100)])  # blocks of 64, 13 and 1 slots
def test_a_batch_is_its_runs_one_by_one(servers: int, regions: int) -> None:
    """If a draw depended on how runs are batched, results would change with the number of cores."""
    batch = SeededNoise(seeds(0, 1, 2), servers, regions)
    single = [SeededNoise(seeds(run), servers, regions) for run in range(3)]
    for slot in (0, 1, 12, 13, 63, 64, 65, 500):
        together = draw(batch, slot, 3 * servers, regions).reshape(3, servers, regions)
        for run in range(3):
            assert np.array_equal(together[run], draw(single[run], slot, servers, regions))


@pytest.mark.parametrize(("servers", "regions"), [(3, 2), (200, 100)])
def test_one_servers_view_is_its_row(servers: int, regions: int) -> None:
    """A server that is simulated alone must meet the noise that it has in the whole network."""
    whole = SeededNoise(seeds(5), servers, regions)
    for server in (0, 1, servers - 1):
        alone = SeededNoise(seeds(5), servers, regions, only=server)
        for slot, read in ((0, 0), (64, 0), (64, 1), (3, 2)):
            row = draw(whole, slot, servers, regions, read)[server : server + 1]
            assert np.array_equal(draw(alone, slot, 1, regions, read), row)


def test_order_of_slots_and_reads_does_not_matter() -> None:
    """A scheme that skips slots, or reads twice, meets the same noise in the slots that it shares with another."""
    asked = [(70, 0), (3, 1), (3, 0), (200, 2), (70, 1), (0, 0), (70, 0)]
    one = SeededNoise(seeds(1), 4, 3)
    for slot, read in asked:
        assert np.array_equal(draw(one, slot, 4, 3, read), draw(SeededNoise(seeds(1), 4, 3), slot, 4, 3, read))


def test_prepare_changes_nothing() -> None:
    """Drawing ahead of time (so that it is not timed) must not move the stream."""
    one, other = SeededNoise(seeds(1), 4, 3), SeededNoise(seeds(1), 4, 3)
    one.prepare(65)
    one.prepare(2)
    assert np.array_equal(draw(one, 2, 4, 3), draw(other, 2, 4, 3))


def test_every_place_has_noise_of_its_own() -> None:
    """Two slots, reads, runs, servers or regions with one noise would cancel it by subtraction."""
    noise = SeededNoise(seeds(0, 1), 5, 40)
    drawn = [draw(noise, slot, 10, 40, read) for slot in (0, 1, 63, 64, 128) for read in (0, 1, 2)]
    rows = np.concatenate(drawn)
    columns = np.stack(drawn).transpose(2, 0, 1).reshape(40, -1)
    assert len({row.tobytes() for row in rows}) == len(rows)
    assert len({column.tobytes() for column in columns}) == 40


def test_only_what_is_read_gets_a_value() -> None:
    """A raw count that is not sampled must not come out, with or without noise; nor may a charge of 0 there warn."""
    where = np.array([[True, False, True], [False, False, False]])
    counts = np.full((2, 3), 1_000_000, dtype=np.int64)
    charge = np.array([[NANO, 0, NANO], [0, 0, 0]])
    result = SeededNoise(seeds(0), 2, 3).noisy(0, counts, charge, 1, where)
    assert (result[~where] == 0).all()
    assert (np.abs(result[where] - 1_000_000) < 100).all()
    full = SeededNoise(seeds(0), 2, 3).noisy(0, counts, np.array([[NANO]]), 1, np.ones((2, 3), dtype=np.bool_))
    assert np.array_equal(result[where], full[where])
    for unpaid in (charge * 0, charge[:1, 1:2]):
        assert not SeededNoise(seeds(0), 2, 3).noisy(0, counts, unpaid, 1, where & False).any()


@pytest.mark.parametrize("charge", [0, -1])
def test_a_read_without_a_charge_is_refused(charge: int) -> None:
    """Unpaid noise has an infinite scale: a NaN that would spread through every neighbour's filter."""
    where = np.array([[True, False]])
    with pytest.raises(BadInput, match="noise needs a charge of at least 1e-9"):
        SeededNoise(seeds(0), 1, 2).noisy(0, np.zeros((1, 2), dtype=np.int64), np.array([[charge, NANO]]), 1, where)
    smallest = SeededNoise(seeds(0), 1, 2).noisy(0, np.zeros((1, 2), dtype=np.int64), np.array([[1, 0]]), 1, where)
    assert 10**6 < abs(smallest[0, 0]) < 10**11  # the smallest charge there is: a scale of 1e9


def test_scale_is_sensitivity_over_epsilon() -> None:
    """Twice the sensitivity at twice the charge is the same noise, place by place; at the same charge it is wider."""
    where = np.ones((50, 40), dtype=np.bool_)
    counts = np.zeros((50, 40), dtype=np.int64)
    sensitivity = np.where(np.arange(40) % 2 == 0, 1, 8)
    noise = SeededNoise(seeds(0), 50, 40)
    plain = noise.noisy(0, counts, CHARGE, 1, where)
    assert np.array_equal(noise.noisy(0, counts, CHARGE * sensitivity, sensitivity, where), plain)
    wide = noise.noisy(0, counts, CHARGE, sensitivity, where)
    assert np.array_equal(wide[:, ::2], plain[:, ::2])
    ratio = np.abs(wide[:, 1::2]).mean() / np.abs(plain[:, 1::2]).mean()
    assert 7 < ratio < 9


def test_whole_numbers_are_added() -> None:
    """Fractions of a float Laplace betray the count; the noise is added to the count, not put in its place."""
    counts = np.arange(600, dtype=np.int64).reshape(20, 30) * 1000
    where = np.ones((20, 30), dtype=np.bool_)
    result = SeededNoise(seeds(0), 20, 30).noisy(0, counts, CHARGE, 1, where)
    assert np.array_equal(result, np.round(result))
    assert np.array_equal(result - counts, draw(SeededNoise(seeds(0), 20, 30), 0, 20, 30, read=0))


def test_one_column_of_a_test_read() -> None:
    """BD and BA test one number a server: it gets the noise of the first region's place."""
    noise = SeededNoise(seeds(0), 6, 4)
    one = noise.noisy(3, np.zeros((6, 1), dtype=np.int64), CHARGE, 1, np.ones((6, 1), dtype=np.bool_), read=1)
    assert np.array_equal(one, draw(noise, 3, 6, 4, read=1)[:, :1])


def test_bad_shapes_are_refused() -> None:
    """An empty network or a server that does not exist."""
    for given, servers, regions in ((seeds(), 1, 1), (seeds(0), 0, 1), (seeds(0), 1, 0)):
        with pytest.raises(BadInput, match="at least one run, one server and one region"):
            SeededNoise(given, servers, regions)
    for given, only in ((seeds(0, 1), 0), (seeds(0), 3), (seeds(0), -1)):
        with pytest.raises(BadInput, match="one run and a server below 3"):
            SeededNoise(given, 3, 1, only=only)


def test_it_is_not_private() -> None:
    """A replayable noise must never be taken for a private one."""
    assert SeededNoise(seeds(0), 1, 1).private is False
