"""Deviations that are mostly small: what filters make of weak and of clear records of closed days and bursts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.filters import ProcessModel
from dpcrowd.filters.bank_estimate import combined
from dpcrowd.filters.course import Course, same_course
from dpcrowd.filters.learning import Bank, beliefs_of, predict_bank, start_bank, update_bank
from dpcrowd.filters.tails import MostlySmall, Tails

USUAL, UNUSUAL, SETTLED = 0.01, 0.1, 1000.0


def slot(usual: float = USUAL) -> MostlySmall:
    return MostlySmall(np.array([100.0]), np.array([SETTLED]), Tails(np.array([usual]), np.array([UNUSUAL])))


def filtered(record: float, noise_var: float) -> tuple[np.ndarray, np.ndarray]:
    """What a normal filter says after a record of a deviation of which nothing was known."""
    var = 1.0 / (1.0 / SETTLED + 1.0 / noise_var)
    return np.array([[100.0 + var * record / noise_var]]), np.array([[var]])


def integrated(record: float, noise_var: float) -> float:
    """The median by a sum over a fine grid of deviations, with weights of both kinds by the t density of the record."""
    large = (SETTLED - (1.0 - UNUSUAL) * USUAL * SETTLED) / UNUSUAL
    grid = np.linspace(-1500.0, 1500.0, 600_001)
    total = np.zeros_like(grid)
    for part, spread in ((1.0 - UNUSUAL, USUAL * SETTLED), (UNUSUAL, large)):
        variance = spread + noise_var
        weight = part * variance**-0.5 * (1.0 + record**2 / variance / 4.0) ** -3.5
        exponent = -0.5 * (grid**2 / spread + (grid - record) ** 2 / noise_var)
        density = np.exp(exponent - exponent.max())
        total += weight * density / density.sum()
    return 100.0 + float(grid[np.searchsorted(np.cumsum(total) / total.sum(), 0.5)])


@pytest.mark.parametrize("record", [-300.0, -40.0, 3.0, 25.0, 60.0, 120.0, 400.0])
@pytest.mark.parametrize("noise_var", [4.0, 200.0, 5000.0])
def test_the_median_is_that_of_both_kinds_of_deviations(record: float, noise_var: float) -> None:
    """Against a sum over a grid: a wrong weight of large deviations would follow noise, or miss closed days."""
    found = float(slot().median(*filtered(record, noise_var))[0, 0])
    assert found == pytest.approx(integrated(record, noise_var), abs=0.02)


def test_a_deviation_stays_or_another_one_comes() -> None:
    """Each of the two has the variance of the filter and of the model: with another one, shares would pay for bursts,
    or any record would widen the crowd."""
    tails = Tails(np.array([USUAL, 1.0]), np.array([UNUSUAL, 0.05]))
    expected, settled = np.array([100.0, 50.0]), np.array([SETTLED, 400.0])
    mean, var = np.array([[160.0, 40.0]]), np.array([[700.0, 300.0]])
    slot = MostlySmall(expected, settled, tails, np.array([0.7, 0.7]))
    means, variances, weights = slot.components(mean, var)
    np.testing.assert_allclose(weights.sum(axis=0), 1.0)
    first = [float(part[0, 0, 1]) for part in (means, variances, weights)]
    assert first == [40.0, 300.0, 1.0], "nothing is rare in the other region"
    pairs = weights.reshape(2, 2, 1, 2)[..., 0], variances.reshape(2, 2, 1, 2)[..., 0]
    np.testing.assert_allclose(pairs[0].sum(axis=1).ravel(), [0.7, 0.3])
    of_kind = (pairs[0] * pairs[1]).sum(axis=1) / pairs[0].sum(axis=1)
    np.testing.assert_allclose(of_kind.ravel(), [700.0, SETTLED])
    np.testing.assert_array_equal(means[:, 0, 0], [160.0, 160.0, 100.0, 100.0])
    known = replace(tails, burst_var=np.array([5000.0, 0.0]))
    larger = MostlySmall(expected, settled, known, slot.stays).components(mean, var)[1]
    np.testing.assert_allclose((larger - variances)[:, 0, 0], [0.0, 5000.0, 0.0, 5000.0])  # bursts as in the past


def test_weak_records_change_nothing_and_clear_ones_are_followed() -> None:
    """A normal filter follows a tenth of the noise in every slot, and misses a quarter of every burst."""
    cases = (80.0, 9000.0), (300.0, 300.0)
    weak, clear = (float(slot().median(*filtered(*case))[0, 0]) - 100.0 for case in cases)
    normal = [float(filtered(*case)[0][0, 0]) - 100.0 for case in cases]
    assert abs(weak) < 0.2 * normal[0]
    assert 1.2 * normal[1] < clear < 300.0


def test_without_a_record_it_is_the_model_and_an_exact_one_is_exact() -> None:
    """Divisions by an information of 0 or of infinity must not become NaN."""
    assert slot().median(np.array([[100.0]]), np.array([[SETTLED]])).tolist() == [[100.0]]
    assert slot().median(np.array([[100.0]]), np.array([[2.0 * SETTLED]])).tolist() == [[100.0]]
    assert slot().median(np.array([[180.0]]), np.array([[1e-9]]))[0, 0] == pytest.approx(180.0, abs=1e-3)
    assert slot().median(np.array([[180.0]]), np.array([[0.0]])).tolist() == [[180.0]]


def model(tails: Tails | None) -> ProcessModel:
    course = Course(np.full((1, 2), 100.0), np.full((1, 2), SETTLED), tails=tails)
    return ProcessModel.around(course, 0.0)


HEAVY_FIRST = Tails(np.array([USUAL, 1.0]), np.array([UNUSUAL, 0.05]))


def after(record: float, noise_var: float, tails: Tails | None) -> tuple[Bank, np.ndarray]:
    """A bank after one record of both regions, and its estimate (d,)."""
    process = model(tails)
    beliefs = beliefs_of(process)
    prior = predict_bank(start_bank(process, 1, -1), process, beliefs, 0)
    info = np.full((1, 2), 1.0 / noise_var)
    bank = update_bank(prior, info * record, info, beliefs)
    return bank, combined(bank, beliefs)[0][0]


def test_a_bank_follows_noise_less_where_deviations_are_mostly_small() -> None:
    """The other region, whose deviations are normal, is estimated as before but for what regions have in common."""
    for record in (150.0, 60.0):
        plain, heavy = after(record, 9000.0, None)[1], after(record, 9000.0, HEAVY_FIRST)[1]
        assert abs(heavy[0] - 100.0) < 0.4 * abs(plain[0] - 100.0)
        assert heavy[1] == pytest.approx(plain[1], abs=0.1 * abs(plain[1] - 100.0))


def test_a_bank_follows_a_clear_burst() -> None:
    """A belief that only small deviations happen would keep the estimate at the model."""
    plain, heavy = after(700.0, 400.0, None)[1], after(700.0, 400.0, HEAVY_FIRST)[1]
    assert heavy[0] > 600.0
    assert heavy[0] >= plain[0] - 5.0


def test_intervals_keep_the_variance_of_all_deviations() -> None:
    """The belief must not make intervals narrower: large deviations still happen."""
    process, plain = model(HEAVY_FIRST), model(None)
    wide = [combined(start_bank(one, 1, 0), beliefs_of(one))[1] for one in (process, plain)]
    assert (wide[0] >= 0.95 * wide[1]).all()


def test_tails_are_part_of_a_course() -> None:
    """A revision that changes them changes what is expected, and a region that comes needs its own."""
    course = model(HEAVY_FIRST).course
    assert course is not None
    other = replace(course, tails=Tails(np.array([0.02, 1.0]), HEAVY_FIRST.unusual))
    assert same_course(course, replace(course))
    assert not same_course(course, other)
    assert not same_course(course, replace(course, tails=None))
    more = course.with_more_regions(2).tails
    assert more is not None
    assert more.usual.tolist() == [USUAL, 1.0, USUAL, USUAL]


@pytest.mark.parametrize(
    ("usual", "unusual"), [([0.0, 1.0], [0.1, 0.1]), ([0.1, 1.1], [0.1, 0.1]), ([0.1, 1.0], [0.0, 0.1])]
)
def test_impossible_tails_are_refused(usual: list[float], unusual: list[float]) -> None:
    """Logarithms and divisions of them would become NaN in every estimate."""
    with pytest.raises(BadInput, match="usual"):
        Tails(np.array(usual), np.array(unusual))


def test_tails_of_other_regions_are_refused() -> None:
    """Broadcasting one number to all regions would hide a mistake."""
    with pytest.raises(BadInput, match="of 1 region, and it has 2"):
        model(Tails(np.array([0.1]), np.array([0.1])))


def errors(values: np.ndarray, noise_sd: float, tails: Tails | None) -> float:
    """Mean absolute error of a bank over records of deviations (T, N) around 100 people, after 20 slots."""
    course = Course(np.full((1, 1), 100.0), np.full((1, 1), SETTLED), tails=tails)
    process = ProcessModel.around(course, 0.0)
    rng, beliefs = np.random.default_rng(3), beliefs_of(process)
    bank, total = start_bank(process, values.shape[1], -1), 0.0
    info = np.full((values.shape[1], 1), noise_sd**-2)
    for number, value in enumerate(values):
        record = 100.0 + value[:, None] + rng.laplace(scale=noise_sd / np.sqrt(2.0), size=(len(value), 1))
        bank = update_bank(predict_bank(bank, process, beliefs, number), info * record, info, beliefs)
        if number >= 20:
            total += float(np.abs(combined(bank, beliefs)[0][:, 0] - 100.0 - value).mean())
    return total / (len(values) - 20)


HEAVY_ONE = Tails(np.array([USUAL]), np.array([UNUSUAL]))


@pytest.mark.parametrize("size", [1.4, 2.4])
def test_a_region_whose_deviations_have_become_normal_is_found(size: float) -> None:
    """Without evidence of its own the belief would stay for ever: 1.4 times the error, hundreds of slots later."""
    values = size * np.sqrt(SETTLED) * np.random.default_rng(1).normal(size=(160, 60))
    assert errors(values, 20.0, HEAVY_ONE) < 1.1 * errors(values, 20.0, None)


def test_mostly_small_deviations_are_estimated_better() -> None:
    """That is what it is for, with precise records and with weak ones."""
    rng = np.random.default_rng(2)
    large = rng.random((160, 60)) < UNUSUAL
    values = np.where(large, 95.0, np.sqrt(USUAL * SETTLED)) * rng.normal(size=large.shape)
    assert errors(values, 20.0, HEAVY_ONE) < 0.75 * errors(values, 20.0, None)
    assert errors(values, 90.0, HEAVY_ONE) < 0.9 * errors(values, 90.0, None)


def test_where_deviations_are_mostly_small_other_beliefs_are_trusted_less() -> None:
    """A level that moves and deviations that last follow the noise of weak records, too: closed days cost 5%."""
    level, usual = np.full((1, 2), 100.0), np.array([0.02, 1.0])
    course = Course(level, level, tails=Tails(usual, np.array([0.05, 0.05])))
    with_tails = beliefs_of(ProcessModel.around(course, 0.5)).trust
    plain = beliefs_of(ProcessModel.around(Course(level, level), 0.5)).trust
    assert with_tails[:, 0, 1] == pytest.approx(plain[:, 0, 0]), "the other region is as it was"
    common = 7
    others = [number for number in range(1, len(plain)) if number != common]
    assert with_tails[others, 0, 0] == pytest.approx(0.1 * plain[others, 0, 0])
    assert with_tails[common, 0, 0] == plain[common, 0, 0], "what all regions do is no noise of one"
    assert with_tails.sum(axis=0) == pytest.approx(np.ones((1, 2)))
