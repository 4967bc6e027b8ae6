"""How far records widen what is expected of a crowd, against densities of the records that are written out."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from dpcrowd.arrays import Floats
from dpcrowd.filters import share_widths
from dpcrowd.filters.share_beginning import share_var, start_filter
from dpcrowd.filters.share_learning import expected_records
from dpcrowd.filters.share_settling import expected_part
from dpcrowd.filters.share_state import ExpectedRecords, PreparedSlot, ShareCovariance, SlotRecords
from dpcrowd.filters.share_surprise import CrowdBeliefs, surprise

SERVERS, REGIONS, WIDTH = 6, 3, 0.1
WIDTHS = ((1.0, 0.7), (15.0, 0.3))
CROWD = np.array([4000.0, 900.0, 2500.0])
DEVIATION = np.array([120.0, 40.0, 60.0])


def centred(var: Floats) -> Floats:
    return np.diag(var) - np.outer(var, var) / var.sum()


def some_case(seed: int, factor: Floats, origins: list[int]) -> tuple[PreparedSlot, SlotRecords, CrowdBeliefs, Floats]:
    """A filter whose crowd is expected, two beliefs of it, and records of some servers with right public shares.

    factor  (d,) by how much the crowd differs from what is expected
    """
    rng = np.random.default_rng(seed)
    public = rng.dirichlet(np.full(SERVERS, 8.0), REGIONS).T
    known = replace(start_filter(public, WIDTH), begun=True, heard=np.full(SERVERS, 2), scale=CROWD.copy())
    mean, cov = known.mean.copy(), np.zeros_like(known.cov)
    mean[:, 0], cov[:, 0, 0] = CROWD, np.square(DEVIATION)
    for k in range(REGIONS):
        cov[k, 1 : SERVERS + 1, 1 : SERVERS + 1] = centred((15.0 * WIDTH * CROWD[k]) ** 2 * share_var(public[:, k]))
        cov[k, SERVERS + 1 :, SERVERS + 1 :] = centred(CROWD[k] * public[:, k])
    slot = PreparedSlot(replace(known, mean=mean, spread=ShareCovariance(cov)), public.T, CROWD, np.square(DEVIATION))
    heard = np.array(origins)
    noisy = public[heard] * CROWD * factor + rng.normal(0.0, 3.0, (len(heard), REGIONS))
    variances = np.stack([0.5 * np.square(DEVIATION), 100.0 * np.square(DEVIATION)])
    means, weights = np.stack([CROWD, CROWD * 1.01]), np.array([[0.98], [0.02]]) * np.ones(3)
    spread = (weights * (variances + np.square(means - CROWD))).sum(axis=0)
    beliefs = CrowdBeliefs(CROWD, np.square(DEVIATION), spread, means, variances, weights)
    return slot, SlotRecords(heard, noisy, np.full(len(heard), 9.0)), beliefs, public


def written_out(expected: ExpectedRecords, public: Floats, beliefs: CrowdBeliefs, records: SlotRecords) -> Floats:
    """The factors by densities of the records under every width and belief, with priors of their own."""
    densities = np.empty((len(WIDTHS), 2, REGIONS))
    heard = records.origins
    for k in range(REGIONS):
        for w, (factor, _) in enumerate(WIDTHS):
            shares = centred((factor * WIDTH) ** 2 * share_var(public[:, k]))
            # errors of shares are parts of a crowd that is known as well as the filter knows it
            people = (CROWD[k] ** 2 + DEVIATION[k] ** 2 if factor < 15.0 else CROWD[k] ** 2) * shares
            deviations = centred(CROWD[k] * public[:, k])
            own = (people + deviations)[np.ix_(heard, heard)] + np.diag(expected.noise[k])
            h = public[heard, k]
            for number in range(2):
                var = max(beliefs.vars[number, k], beliefs.var[k])
                densities[w, number, k] = multivariate_normal.logpdf(
                    records.noisy[:, k], h * beliefs.means[number, k], own + var * np.outer(h, h)
                )
    densities = np.exp(densities - densities.max(axis=(0, 1)))
    # All cases of width, of one belief for all regions or one for each, and of the beliefs of all regions.
    chance, right = 0.0, np.zeros((2, REGIONS))
    for w, (_, weight) in enumerate(WIDTHS):
        for chosen in itertools.product(range(2), repeat=REGIONS):
            places = list(chosen), list(range(REGIONS))
            fits = weight * np.prod(densities[w][places])
            prior = 0.8 * np.prod(beliefs.weights[places])
            if len(set(chosen)) == 1:
                prior += 0.2 * beliefs.weights[chosen[0]].mean()
            right[places] += prior * fits
            chance += prior * fits
    spread = beliefs.vars + np.square(beliefs.means - beliefs.mean)
    factor = (right / chance * spread).sum(axis=0) / (beliefs.weights * spread).sum(axis=0)
    return np.where(factor > 1.5, factor, 1.0)


@pytest.mark.parametrize("origins", [[2], [0, 3], [0, 1, 2, 4, 5]], ids=str)
@pytest.mark.parametrize("factor", [1.0, 0.9, 0.6, 1.5])
def test_the_crowd_is_as_wide_as_densities_say(
    monkeypatch: pytest.MonkeyPatch, factor: float, origins: list[int]
) -> None:
    """A sign, a weight or a region that is off would let shares pay for a holiday, or widen every crowd."""
    monkeypatch.setattr(share_widths, "_WIDTHS", WIDTHS)
    slot, records, beliefs, public = some_case(3, np.array([factor, 1.0, factor]), origins)
    expected = expected_records(slot, public, records)
    found = surprise(slot.known, expected, public, WIDTH, beliefs)
    np.testing.assert_allclose(found, written_out(expected, public, beliefs, records), rtol=1e-4)


def test_a_holiday_widens_the_crowd_and_a_wrong_share_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """All servers that are heard see less on a holiday; of a wrong share, one of them does."""
    monkeypatch.setattr(share_widths, "_WIDTHS", WIDTHS)
    everybody = list(range(SERVERS))
    factors = {}
    for name in ("usual", "holiday", "share"):
        slot, records, beliefs, public = some_case(5, np.full(REGIONS, 0.6 if name == "holiday" else 1.0), everybody)
        if name == "share":
            records.noisy[1] *= 0.6
        expected = expected_records(slot, public, records)
        factors[name] = surprise(slot.known, expected, public, WIDTH, beliefs)
    assert (factors["usual"] < 1.5).all()
    assert (factors["holiday"] > 10.0).all()
    assert (factors["share"] < 2.0).all()


def test_the_crowd_of_silent_servers_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A settled filter has the crowd q = f r of servers that are heard, and beliefs are about r: they are the same as
    those about q of a filter that knows of no silent server."""
    monkeypatch.setattr(share_widths, "_WIDTHS", ((15.0, 1.0),))
    slot, records, beliefs, public = some_case(7, np.full(REGIONS, 0.7), [0, 1, 3])
    silent = np.array([False, False, False, False, True, True])
    mean, cov = slot.known.mean.copy(), slot.known.spread.cov.copy()
    errors = slice(1, SERVERS + 1)
    mean[:, errors] = np.where(silent, 0.5 * public.T, 0.0)
    scale = np.concatenate([[1.0], np.full(SERVERS, 0.02 / CROWD.mean()), np.ones(SERVERS)])
    cov = cov * scale[:, None] * scale
    settled = replace(
        slot.known, mean=mean, spread=ShareCovariance(cov), scale=np.ones(REGIONS), settled=np.ones(REGIONS, dtype=bool)
    )
    part = expected_part(mean[:, errors], public.T, silent)
    assert (part < 0.9).all(), "the case would show nothing"
    expected = expected_records(replace(slot, known=settled), public, records)
    found = surprise(replace(settled, heard=np.where(silent, 0, 2)), expected, public, WIDTH, beliefs)
    of_heard = CrowdBeliefs(
        *(part * beliefs.mean, part**2 * beliefs.var, part**2 * beliefs.spread),
        *(part * beliefs.means, part**2 * beliefs.vars, beliefs.weights),
    )
    fresh = replace(settled, spread=ShareCovariance(cov))
    np.testing.assert_allclose(found, surprise(fresh, expected, public, WIDTH, of_heard), rtol=1e-9)
    assert (found > 1.0).any()
