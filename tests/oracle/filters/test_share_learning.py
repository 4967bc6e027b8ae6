"""Learned shares against dense Gaussian computations that are written out here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.filters import share_learning, share_widths
from dpcrowd.filters.share_beginning import start_filter
from dpcrowd.filters.share_learning import former_filter, fuse_slot, learn_slot, move_filter
from dpcrowd.filters.share_settling import to_parts, to_people
from dpcrowd.filters.share_state import CrowdStep, ShareCovariance, ShareFilter, SlotRecords
from dpcrowd.filters.share_widths import anchored, learned_crowd, learned_shares

SERVERS, REGIONS, WIDTH = 5, 2, 0.1
SIZE = 2 * SERVERS + 1
ERRORS, DEVIATIONS = slice(1, SERVERS + 1), slice(SERVERS + 1, SIZE)
EVERYBODY = np.full(SERVERS, 2)


def some_public(rng: np.random.Generator) -> Floats:
    return rng.dirichlet(np.full(SERVERS, 4.0), REGIONS).T


def some_records(rng: np.random.Generator, shares: Floats, crowd: Floats, origins: Ints | None = None) -> SlotRecords:
    if origins is None:
        origins = np.flatnonzero(rng.random(SERVERS) < 0.7)
    noisy = shares[origins] * crowd + rng.normal(0.0, 5.0, (len(origins), REGIONS))
    return SlotRecords(origins, noisy, rng.uniform(20.0, 60.0, len(origins)))


def some_step(
    before: Floats,
    expected: Floats,
    expected_var: Floats,
    *,
    stays: float = 0.9,
    growth: float = 1.0,
    jump: float = 0.0,
) -> CrowdStep:
    return CrowdStep(
        transition=np.array([0.95, 0.9]),
        added=np.array([400.0, 90.0]),
        jump=np.full(REGIONS, jump),
        before=before,
        expected=expected,
        expected_var=expected_var,
        growth=np.full(REGIONS, growth),
        stays=stays,
    )


def centred(var: Floats) -> Floats:
    return np.diag(var) - np.outer(var, var) / var.sum()


def share_var(public: Floats) -> Floats:
    """Variances of errors of shares at a width of 1: in proportion to the shares, and of equal ones H^2."""
    return public * (public @ public)


def dense_update(
    mean: Floats, cov: Floats, rows: Floats, values: Floats, noise: Floats, expected: Floats
) -> tuple[Floats, Floats]:
    gain = cov @ rows.T @ np.linalg.inv(rows @ cov @ rows.T + np.diag(noise))
    return mean + gain @ (values - expected), cov - gain @ rows @ cov


@pytest.mark.parametrize("growth", [1.0, 1.3])
def test_the_first_round_is_a_dense_kalman_filter(monkeypatch: pytest.MonkeyPatch, growth: float) -> None:
    """A sign, a block or an index that is off would learn another server's share."""
    monkeypatch.setattr(share_learning, "_SETTLED_PART", 0.0)
    rng = np.random.default_rng(0)
    public, believed, crowd = some_public(rng), some_public(rng), np.array([2000.0, 700.0])
    crowd_var = np.array([90_000.0, 160_000.0])
    known = start_filter(public, WIDTH)
    dense: list[tuple[Floats, Floats]] = []
    for slot in range(6):
        records = some_records(rng, believed, crowd, np.array([0, 1, 3]))  # two of five are never heard
        step = some_step(crowd - 10.0, crowd + 20.0, crowd_var, growth=growth)
        known = learn_slot(known, public, believed, WIDTH, step, records)
        for k in range(REGIONS):
            if slot == 0:
                people = np.sqrt(step.expected[k] ** 2 + crowd_var[k])
                mean, cov = np.zeros(SIZE), np.zeros((SIZE, SIZE))
                mean[0], cov[0, 0] = step.expected[k], crowd_var[k]
                cov[ERRORS, ERRORS] = centred((15 * WIDTH * people) ** 2 * share_var(public[:, k]))
                cov[DEVIATIONS, DEVIATIONS] = centred(step.expected[k] * believed[:, k])
                dense.append((mean, cov))
            else:
                a = step.transition[k]
                factor = np.concatenate([[a], np.full(SERVERS, growth), np.full(SERVERS, 0.9)])
                mean, cov = factor * dense[k][0], np.outer(factor, factor) * dense[k][1]
                mean[0] = step.expected[k] + a * (dense[k][0][0] - step.before[k])
                cov[0, 0] += step.added[k]
                cov[DEVIATIONS, DEVIATIONS] += centred((1 - 0.9**2) * max(mean[0], 1.0) * believed[:, k])
                if records.noise_var.mean() + mean[0] / SERVERS < (0.3 * mean[0] / SERVERS) ** 2:  # b = g r moves
                    moves = min(step.added[k] / mean[0] ** 2, 0.05**2)
                    cov[ERRORS, ERRORS] += moves * (cov[ERRORS, ERRORS] + np.outer(mean[ERRORS], mean[ERRORS]))
            rows = np.zeros((len(records.origins), SIZE))
            rows[:, 0] = public[records.origins, k]
            for number, origin in enumerate(records.origins):
                rows[number, 1 + origin] = rows[number, 1 + SERVERS + origin] = 1.0
            dense[k] = dense_update(mean, cov, rows, records.noisy[:, k], records.noise_var, rows @ mean)
            assert np.allclose(known.mean[k], dense[k][0], rtol=1e-8)
            assert np.allclose(known.cov[k], dense[k][1], rtol=1e-6, atol=1e-4)
    assert not known.settled.any()
    assert np.allclose(known.mean[:, ERRORS].sum(axis=1), 0.0, atol=1e-6)


def settled_filter(rng: np.random.Generator, public: Floats, crowd: Floats) -> ShareFilter:
    mean, cov = np.zeros((REGIONS, SIZE)), np.zeros((REGIONS, SIZE, SIZE))
    for k in range(REGIONS):
        root = np.diag(np.concatenate([[30.0], 0.2 * public[:, k], np.full(SERVERS, 4.0)])) @ rng.normal(
            0.0, 1.0, (SIZE, SIZE)
        )
        cov[k] = root @ root.T / SIZE
        cov[k] = 0.5 * (cov[k] + cov[k].T)
        mean[k] = rng.multivariate_normal(np.zeros(SIZE), 0.1 * cov[k])
        mean[k, 0] += crowd[k]
    return ShareFilter(mean, ShareCovariance(cov), np.ones(REGIONS), True, EVERYBODY, np.ones(REGIONS, dtype=np.bool_))


def test_a_settled_region_linearises_the_product_of_share_and_crowd() -> None:
    """Shares are constant, and people are not: whoever kept people would miss that they grow with the crowd."""
    rng = np.random.default_rng(1)
    public, believed, crowd = some_public(rng), some_public(rng), np.array([2000.0, 700.0])
    before = settled_filter(rng, public, crowd)
    step = some_step(crowd - 3.0, crowd + 5.0, np.full(REGIONS, 900.0), growth=7.0, jump=50.0)
    records = some_records(rng, believed, crowd, np.array([0, 2, 3]))
    after = learn_slot(before, public, believed, WIDTH, step, records)
    for k in range(REGIONS):
        factor = np.concatenate([[step.transition[k]], np.ones(SERVERS), np.full(SERVERS, 0.9)])
        mean, cov = factor * before.mean[k], np.outer(factor, factor) * before.cov[k]
        mean[0] = step.expected[k] + step.transition[k] * (before.mean[k, 0] - step.before[k])
        cov[0, 0] += step.added[k] + 50.0
        cov[DEVIATIONS, DEVIATIONS] += centred((1 - 0.9**2) * mean[0] * believed[:, k])
        rows, noise, expected = np.zeros((3, SIZE)), records.noise_var.copy(), np.zeros(3)
        for number, origin in enumerate(records.origins):
            at_share, at_crowd = believed[origin, k], step.expected[k]
            rows[number, 0], rows[number, 1 + origin], rows[number, 1 + SERVERS + origin] = at_share, at_crowd, 1.0
            share, both = public[origin, k] + mean[1 + origin], cov[0, 1 + origin]
            expected[number] = share * mean[0] + both + mean[1 + SERVERS + origin]
            # the variance of (S - s)(r - q), for two normal numbers
            off, away = share - at_share, mean[0] - at_crowd
            share_var = cov[1 + origin, 1 + origin]
            noise[number] += cov[0, 0] * share_var + both**2
            noise[number] += off**2 * cov[0, 0] + away**2 * share_var + 2 * off * away * both
            usual = rows[number] @ cov @ rows[number] + noise[number]
            squared = (records.noisy[number, k] - expected[number]) ** 2
            noise[number] += usual * (max(squared / (share_learning.LIMIT * usual), 1.0) - 1.0)
        mean, cov = dense_update(mean, cov, rows, records.noisy[:, k], noise, expected)
        assert np.allclose(after.mean[k], mean, rtol=1e-8, atol=1e-10)
        assert np.allclose(after.cov[k], cov, rtol=1e-6, atol=1e-10)


def test_settling_keeps_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares that were learned in people must be the same shares afterwards, as uncertain as they were by g = b/r."""
    rng = np.random.default_rng(2)
    public, true, crowd = some_public(rng), some_public(rng), np.array([2000.0, 700.0])
    records = SlotRecords(np.arange(SERVERS), true * crowd, np.full(SERVERS, 1.0))
    unknown = some_step(np.zeros(REGIONS), np.zeros(REGIONS), np.full(REGIONS, np.inf), stays=0.0)
    parts = learn_slot(start_filter(public, WIDTH), public, public, WIDTH, unknown, records)
    monkeypatch.setattr(share_learning, "_SETTLED_PART", 0.0)
    people = learn_slot(start_filter(public, WIDTH), public, public, WIDTH, unknown, records)
    assert parts.settled.all()
    assert not people.settled.any()
    assert np.allclose(people.mean[:, ERRORS] / people.mean[:, :1], parts.mean[:, ERRORS], rtol=1e-9)
    assert np.allclose(parts.mean[:, 0], crowd, rtol=0.01)
    for k in range(REGIONS):
        slope = np.zeros((SERVERS, SIZE))
        slope[:, ERRORS] = np.eye(SERVERS) / parts.mean[k, 0]
        slope[:, 0] = -parts.mean[k, ERRORS] / parts.mean[k, 0]
        share = public[:, k] + parts.mean[k, ERRORS]
        moved = centred(4.0 * unknown.added[k] / parts.mean[k, 0] ** 2 * np.maximum(share, 0.0) ** 2)
        cov = slope @ people.cov[k] @ slope.T + moved
        assert np.allclose(parts.cov[k, ERRORS, ERRORS], cov, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(("persistence", "factor"), [(1.0, 5.0), (0.5, (1.0 - 0.5**10) / 0.75)])
def test_a_crowd_is_settled_when_it_is_known_as_well_as_it_moves(persistence: float, factor: float) -> None:
    """People whom shares miss are as uncertain as the crowd moves until every server has been heard again: five slots
    with one record each. Calm crowds have to be known better, or products with them are wrong for longer."""
    public, crowd = np.full((SERVERS, REGIONS), 1.0 / SERVERS), np.array([20_000.0, 20_000.0])
    step = some_step(crowd, crowd, np.square(0.4 * crowd), stays=0.0)
    begun = learn_slot(start_filter(public, WIDTH), public, public, WIDTH, step, None)
    begun = replace(begun, heard=EVERYBODY)
    records = SlotRecords(np.array([2]), public[2:3] * crowd, np.full(1, 8e5))
    moved = replace(step, transition=np.ones(REGIONS), added=np.zeros(REGIONS), persistence=persistence)
    deviation = np.sqrt(learn_slot(begun, public, public, WIDTH, moved, records).crowd_var[0]) / crowd[0]
    assert 0.15 < deviation < 0.4
    for part, is_settled in ((1.02, True), (0.98, False), (0.0, False)):
        model_var = np.full(REGIONS, np.square(part * deviation * crowd[0]) / factor)
        after = learn_slot(begun, public, public, WIDTH, replace(moved, model_var=model_var), records)
        assert after.settled.tolist() == [is_settled] * REGIONS


def test_a_first_crowd_that_is_too_small_does_no_lasting_harm() -> None:
    """Whoever is heard first may see a twentieth of what its share says: the filter must not believe in that crowd."""
    rng = np.random.default_rng(3)
    public = np.full((SERVERS, REGIONS), 1.0 / SERVERS)
    true = np.array([[0.01, 0.01], [0.4, 0.2], [0.19, 0.39], [0.2, 0.2], [0.2, 0.2]])
    crowd, known = np.array([20_000.0, 5_000.0]), start_filter(public, WIDTH)
    step = some_step(np.zeros(REGIONS), np.zeros(REGIONS), np.full(REGIONS, np.inf), stays=0.0)
    for origin in (*range(SERVERS), *range(SERVERS)):
        records = some_records(rng, true, crowd, np.array([origin]))
        known = learn_slot(known, public, public, WIDTH, step, records)
        if known.begun:
            now = known.mean[:, 0]
            step = replace(step, transition=np.ones(REGIONS), before=now, expected=now, expected_var=np.ones(REGIONS))
    learned, learned_var = learned_crowd(known, public, WIDTH)
    assert np.allclose(learned, crowd, rtol=0.05)
    assert (np.abs(learned - crowd) < 4.0 * np.sqrt(learned_var)).all()


@pytest.mark.parametrize("with_records", [False, True])
def test_drawing_back_to_a_width_is_another_prior(monkeypatch: pytest.MonkeyPatch, with_records: bool) -> None:
    """What is read off the widest filter has to be what a filter with that width would say, of the crowd, too."""
    rng = np.random.default_rng(4)
    public = some_public(rng)
    rows = rng.normal(0.0, 1.0, (4, SERVERS + 1)) * np.array([0.01, *np.ones(SERVERS)])
    values = rng.normal(0.0, 0.1, (REGIONS, 4))
    known = start_filter(public, WIDTH)

    def posterior(k: int, factor: float) -> tuple[Floats, Floats]:
        prior = np.zeros((SERVERS + 1, SERVERS + 1))
        prior[0, 0], prior[1:, 1:] = 2500.0, centred((factor * WIDTH) ** 2 * share_var(public[:, k]))
        mean = np.array([300.0, *np.zeros(SERVERS)])
        return dense_update(mean, prior, rows, values[k] + rows[:, 0] * 300.0, np.full(4, 0.01), rows @ mean)

    prior = np.zeros_like(known.spread.cov)
    for k in range(REGIONS):
        known.mean[k, : SERVERS + 1], prior[k, : SERVERS + 1, : SERVERS + 1] = posterior(k, 15.0)
    gain = np.zeros((REGIONS, 2, SIZE))  # of two records; without them, that much less is known
    if with_records:
        gain[:, :, : SERVERS + 1] = (
            0.01 * rng.normal(0.0, 1.0, (REGIONS, 2, SERVERS + 1)) @ prior[:, : SERVERS + 1, : SERVERS + 1]
        )
    after = replace(known, spread=ShareCovariance(prior + gain.swapaxes(1, 2) @ gain), gain=gain)
    assert np.allclose(after.cov, prior, rtol=1e-9, atol=1e-12)
    for factor in (1.0, 4.0, 15.0):
        monkeypatch.setattr(share_widths, "_WIDTHS", ((factor, 1.0),))
        one = replace(after)  # a filter keeps what the widths say of it
        crowd, crowd_var = learned_crowd(one, public, WIDTH)
        shares, variances = learned_shares(one, public, WIDTH)
        for k in range(REGIONS):
            mean, cov = posterior(k, factor)
            assert np.isclose(crowd[k], mean[0], rtol=1e-6)
            assert np.isclose(crowd_var[k], cov[0, 0], rtol=1e-5)
            assert np.allclose(variances[:, k], np.diag(cov)[1:], rtol=1e-5)
            if (public[:, k] + mean[1:] > 0.01).all():
                assert np.allclose(shares[:, k], public[:, k] + mean[1:], rtol=1e-6)


def test_widths_grow_with_an_expected_course(monkeypatch: pytest.MonkeyPatch) -> None:
    """At night hardly anybody is there, so errors of shares are few people. If the morning multiplied them, and not the
    width of the start, no width would be too wide for the records of the day, and they would say nothing of the crowd.
    """
    rng, night, day, deviation = np.random.default_rng(11), 30.0, 1800.0, 700.0
    public, true = some_public(rng), np.array([400.0, 300.0])
    rest = {"transition": np.ones(REGIONS), "jump": np.zeros(REGIONS), "stays": 0.0}
    first = CrowdStep(
        added=np.zeros(REGIONS), before=np.zeros(REGIONS), expected=np.zeros(REGIONS),
        expected_var=np.full(REGIONS, night**2), growth=np.ones(REGIONS), **rest,
    )  # fmt: skip
    size = np.sqrt(day**2 + deviation**2)
    morning = CrowdStep(
        added=np.full(REGIONS, deviation**2 - night**2), before=np.zeros(REGIONS), expected=np.full(REGIONS, day),
        expected_var=np.full(REGIONS, deviation**2), growth=np.full(REGIONS, size / night), **rest,
    )  # fmt: skip
    known = learn_slot(start_filter(public, WIDTH), public, public, WIDTH, first, None)
    records = some_records(rng, public, true, np.array([1, 2, 4]))
    for factor in (1.0, 4.0):
        monkeypatch.setattr(share_widths, "_WIDTHS", ((factor, 1.0),))
        moved = move_filter(known, public, public, morning, records)
        before = learned_crowd(moved, public, WIDTH)
        after = learned_crowd(fuse_slot(moved, known, public, public, WIDTH, morning, records), public, WIDTH)
        for k in range(REGIONS):
            cov = np.zeros((SERVERS + 1, SERVERS + 1))
            cov[0, 0], cov[1:, 1:] = deviation**2, centred((factor * WIDTH * size) ** 2 * share_var(public[:, k]))
            rows = np.eye(SERVERS + 1)[1 + records.origins]
            rows[:, 0] = public[records.origins, k]
            noise = records.noise_var + day * public[records.origins, k]
            mean = np.array([day, *np.zeros(SERVERS)])
            mean, cov = dense_update(mean, cov, rows, records.noisy[:, k], noise, rows @ mean)
            assert np.isclose(before[1][k], deviation**2, rtol=1e-6)
            assert np.isclose(after[0][k], mean[0], atol=0.3 * np.sqrt(cov[0, 0])), factor


def run(public: Floats, true: Floats, crowd: Floats, heard: Bools, slots: int, seed: int) -> tuple[Floats, Floats]:
    """Errors of the crowd over its deviations, and errors of the shares, of a filter that has no other prior."""
    rng, known, believed = np.random.default_rng(seed), start_filter(public, WIDTH), public
    regions = len(crowd)
    step = CrowdStep(
        transition=np.ones(regions),
        added=np.full(regions, 100.0),
        jump=np.zeros(regions),
        before=np.zeros(regions),
        expected=np.zeros(regions),
        expected_var=np.full(regions, np.inf),
        growth=np.ones(regions),
        stays=0.0,
    )
    crowd, normalised = crowd.copy(), []
    for slot in range(slots):
        crowd = crowd + rng.normal(0.0, 10.0, regions)
        origins = np.flatnonzero((np.arange(len(public)) % 4 == slot % 4) & heard)
        noisy = rng.poisson(true[origins] * crowd) + rng.laplace(0.0, 10.0, (len(origins), regions))
        records = SlotRecords(origins, noisy, np.full(len(origins), 200.0))
        known = learn_slot(known, public, believed, WIDTH, step, records)
        now, now_var = learned_crowd(known, public, WIDTH)
        believed = learned_shares(known, public, WIDTH)[0]
        step = replace(step, before=now, expected=now, expected_var=now_var + 100.0)
        normalised.append((now - crowd) / np.sqrt(now_var))
    return np.array(normalised), believed - true


@pytest.mark.parametrize("concentration", [None, 100.0, 10.0])
def test_the_width_is_found_and_intervals_hold(concentration: float | None) -> None:
    """Right public shares must stay what they are, wrong ones must not, and the interval has to know which is which."""
    rng = np.random.default_rng(5)
    public, crowd = np.full((20, 6), 0.05), np.full(6, 4000.0)
    true = public if concentration is None else rng.dirichlet(np.full(20, concentration / 20), 6).T
    normalised, errors = run(public, true, crowd, np.ones(20, dtype=np.bool_), 40, 6)
    assert np.mean(np.abs(normalised[8:]) < 1.96) > 0.88
    wrong = np.abs(public - true).sum()
    assert np.abs(errors).sum() < (0.2 * wrong if concentration is not None else 0.3)


def test_servers_that_nobody_hears_keep_their_uncertainty() -> None:
    """How large their part of the crowd is cannot be known, and the interval has to contain that."""
    rng = np.random.default_rng(7)
    public, crowd, heard = np.full((20, 6), 0.05), np.full(6, 4000.0), np.arange(20) >= 3
    inside = []
    for seed in range(3):
        true = rng.dirichlet(np.full(20, 5.0), 6).T
        inside.append(np.abs(run(public, true, crowd, heard, 24, seed)[0][8:]) < 1.96)
    assert np.mean(inside) > 0.85


def test_how_servers_divide_a_crowd_says_nothing_of_those_who_are_silent() -> None:
    """A small server with a share far from its public one would otherwise decide how large the silent part is."""
    rng = np.random.default_rng(9)
    public, heard = some_public(rng), np.array([0, 2, 3])
    true = rng.dirichlet(np.full(len(heard), 0.7), REGIONS).T
    people = np.array([2000.0, 700.0])
    records = SlotRecords(heard, true * people, np.full(len(heard), 1e-3))
    unknown = some_step(np.zeros(REGIONS), np.zeros(REGIONS), np.full(REGIONS, np.inf), stays=0.0)
    known = learn_slot(start_filter(public, WIDTH), public, 1e-9 * public, WIDTH, unknown, records)
    by_sum = people / public[heard].sum(axis=0)
    assert np.allclose(known.mean[:, 0], by_sum, rtol=1e-3)


def test_shares_of_a_state_of_an_earlier_build_are_the_same_shares() -> None:
    """A folder of an earlier build would otherwise begin to learn anew, or believe in shares of 2 H."""
    rng = np.random.default_rng(8)
    public, true = some_public(rng), some_public(rng)
    mean, cov = np.zeros((REGIONS, SIZE)), np.tile(np.diag(np.full(SIZE, 1e-10)), (REGIONS, 1, 1))
    mean[:, 0], mean[:, ERRORS] = [900.0, 400.0], true.T
    known = former_filter(mean, cov, public, EVERYBODY, begun=True)
    assert np.allclose(learned_shares(known, public, WIDTH)[0], true, rtol=1e-3)
    assert np.allclose(learned_crowd(known, public, WIDTH)[0], [900.0, 400.0])


def some_silence(rng: np.random.Generator, public: Floats, silent: Bools) -> tuple[Floats, Floats]:
    """Means and covariances of a state in parts, where some servers are silent."""
    known = settled_filter(rng, public, np.array([2000.0, 700.0]))
    mean, cov = known.mean.copy(), known.cov.copy()
    heard = ~silent
    sums = np.eye(SIZE)
    sums[1 : SERVERS + 1, 1 : SERVERS + 1] -= np.outer(heard, heard) / heard.sum()  # errors of heard ones sum to 0
    return mean @ sums.T, sums @ cov @ sums.T


def test_parts_and_people_are_the_same_state() -> None:
    """A derivative that is wrong would make intervals too narrow when a silent server begins to send records."""
    rng = np.random.default_rng(10)
    public, silent = some_public(rng), np.array([False, True, False, False, True])
    mean, cov = some_silence(rng, public, silent)
    people, people_cov = to_people(mean, cov, public.T, silent)
    assert np.allclose(people[:, ERRORS].sum(axis=1), 0.0, atol=1e-9)
    assert np.allclose(people_cov[:, ERRORS, ERRORS].sum(axis=1), 0.0, atol=1e-6)
    for place in range(SIZE):  # derivatives, one after the other
        step = np.zeros(SIZE)
        step[place] = 1e-4 * np.sqrt(cov[0, place, place])
        if 1 <= place <= SERVERS and not silent[place - 1]:
            step[1:][:SERVERS][~silent] -= step[place] / np.count_nonzero(~silent)
        moved, _ = to_people(mean + step, cov, public.T, silent)
        _, only = to_people(mean, np.broadcast_to(np.outer(step, step), cov.shape), public.T, silent)
        slopes = moved - people
        assert np.allclose(only, slopes[:, :, None] * slopes[:, None, :], rtol=1e-2, atol=1e-9 * np.abs(only).max())
    parts, parts_cov = to_parts(people, people_cov, public.T, silent)
    assert np.allclose(parts, mean, rtol=1e-3, atol=1e-6)
    assert np.allclose(parts_cov, cov, rtol=0.05, atol=1e-3 * np.abs(cov).max(axis=(1, 2), keepdims=True).min())


@pytest.mark.parametrize("factor", [1.0, 4.0, 15.0])
def test_the_part_of_silent_servers_is_as_wide_as_others_have_shown(
    monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    """With Dirichlet shares, Var f = w^2 sum H^2 U0/(1 - U0): a root that is wrong would make it another number."""
    rng = np.random.default_rng(12)
    public, silent = some_public(rng), np.array([False, True, False, False, True])
    heard, crowd = np.where(silent, 0, 2), np.array([2000.0, 700.0])
    mean, cov = np.zeros((REGIONS, SIZE)), np.zeros((REGIONS, SIZE, SIZE))
    mean[:, 0], cov[:, 0, 0] = crowd, 100.0
    for k in range(REGIONS):
        var = (15 * WIDTH) ** 2 * share_var(public[:, k])
        own, unheard = cov[k, ERRORS, ERRORS], public[silent, k]
        own[np.ix_(~silent, ~silent)] = centred(var[~silent])
        own[np.ix_(silent, silent)] = np.diag(var[silent]) - np.outer(var[silent], unheard)
    known = ShareFilter(mean, ShareCovariance(cov), np.ones(REGIONS), True, heard, np.ones(REGIONS, dtype=np.bool_))
    monkeypatch.setattr(share_widths, "_WIDTHS", ((factor, 1.0),))
    unheard = public[silent].sum(axis=0)
    spread = (factor * WIDTH) ** 2 * np.square(public).sum(axis=0)
    learned, learned_var = learned_crowd(known, public, WIDTH)
    assert np.allclose(learned, crowd)
    assert np.allclose(learned_var, 100.0 + np.square(crowd) * spread * unheard / (1.0 - unheard), rtol=1e-9)
    shares, variances = learned_shares(known, public, WIDTH)
    assert np.allclose(shares, public)
    assert np.allclose(variances, spread * public * (1.0 - public), rtol=1e-9)


def test_a_crowd_with_silent_servers_follows_what_the_others_count() -> None:
    """People whom shares miss grow with the crowd; a server that is silent must not keep them from doing so."""
    rng = np.random.default_rng(11)
    public, silent = np.full((SERVERS, REGIONS), 0.2), np.array([False, False, False, False, True])
    true = np.array([[0.4, 0.1], [0.1, 0.4], [0.1, 0.2], [0.2, 0.1], [0.2, 0.2]])
    crowd, known = np.array([20_000.0, 9_000.0]), start_filter(public, WIDTH)
    unknown = some_step(np.zeros(REGIONS), np.zeros(REGIONS), np.full(REGIONS, np.inf), stays=0.0)
    step = replace(unknown, transition=np.ones(REGIONS), added=np.square(0.1 * crowd))
    for slot in range(30):
        crowd = crowd * (1.05 if slot > 10 else 1.0)
        records = some_records(rng, true, crowd, np.flatnonzero(~silent))
        known = learn_slot(known, public, public, WIDTH, step if known.begun else unknown, records)
        now, now_var = learned_crowd(known, public, WIDTH)
        step = replace(step, before=now, expected=now, expected_var=now_var)
    assert known.settled.all()
    assert np.allclose(now, crowd, rtol=0.03)
    assert (np.sqrt(now_var) > 0.05 * crowd).all()  # nobody knows how many people the silent one sees
    records = some_records(rng, true, crowd, np.arange(SERVERS))  # and now it is heard
    known = learn_slot(known, public, learned_shares(known, public, WIDTH)[0], WIDTH, step, records)
    now, now_var = learned_crowd(known, public, WIDTH)
    assert np.allclose(now, crowd, rtol=0.03)
    assert (np.sqrt(now_var) < 0.05 * crowd).all()


def test_an_anchored_filter_expects_what_filters_that_learn_expect() -> None:
    """What the joint filter knows already would otherwise be taken for news of the records, slot after slot."""
    rng = np.random.default_rng(13)
    public = some_public(rng)
    known = settled_filter(rng, public, np.array([2000.0, 700.0]))
    _, var = learned_crowd(known, public, WIDTH)
    expected = np.array([2500.0, 650.0]), var * np.array([3.0, 0.3])  # less certain, and more
    after = anchored(known, public, WIDTH, expected)
    assert np.allclose(learned_crowd(after, public, WIDTH), expected, rtol=1e-9)
    assert np.linalg.eigvalsh(after.cov).min() > -1e-9 * np.abs(after.cov).max()
    assert np.array_equal(after.cov, after.cov.swapaxes(1, 2))
    fresh = replace(
        after, spread=ShareCovariance(after.cov)
    )  # directions that were kept are those of the new covariances
    assert np.allclose(learned_crowd(fresh, public, WIDTH), expected, rtol=1e-9)
