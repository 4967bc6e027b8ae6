"""A region that is new in a running network: nothing is known of it, nobody is told otherwise, and the others go on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpcrowd.filters import ProcessModel
from dpcrowd.schemes.server import Server
from schemes_support_transfer import (
    CASES,
    CHANGED,
    OLD,
    Live,
    NamedNoise,
    agree,
    counts_of,
    neighbour,
    of_regions,
    predicted,
    restored,
    run,
    saved,
    taken,
)

NEW = "ecabfd"
"""Two new regions, e first and f in the middle."""
every_case = pytest.mark.parametrize("case", CASES, ids=str)
MATRIX = [case for case in CASES if case.form == "matrix"]
every_matrix_case = pytest.mark.parametrize("case", MATRIX, ids=str)


def until_sampled(server: Server, regions: str, first: int = CHANGED) -> np.ndarray:
    """Slots without neighbours up to the server's own next sample, which is left open; its noisy values."""
    for slot in range(first, first + 20):
        server.observe(slot, counts_of(slot, regions))
        sample = server.open_sample()
        if sample is not None:
            return sample[1]
        server.hear()
    raise AssertionError("no sample in 20 slots")


@every_case
def test_nothing_is_known_of_a_new_region_and_the_others_stay(case: Live) -> None:
    """A placeholder (0 people, variance 1) that was published would be an invented, very confident estimate."""
    state = saved(case)
    old, new = predicted(restored(case, state)), predicted(taken(case, NEW, state))
    assert np.isfinite(old.estimate).all()
    assert agree(case.form, [old], OLD, [new], NEW, OLD)
    estimate, variance, low, high = of_regions(new, NEW, "ef")
    assert np.isnan([estimate, low, high]).all()
    assert np.isposinf(variance).all()


@every_case
def test_the_first_sample_of_a_new_region_is_believed(case: Live) -> None:
    """With anything but "no information" before it, the first estimate would be drawn towards what nobody measured."""
    server = taken(case, NEW, saved(case))
    noisy = until_sampled(server, NEW)
    release = server.hear()
    new = [NEW.index(region) for region in "ef"]
    assert np.allclose(release.estimate[new], noisy[new] / 0.5, rtol=1e-4, atol=1e-2)
    assert (release.variance[new] < 1e5).all()
    assert np.isfinite(release.estimate).all()


@every_case
def test_a_neighbours_sample_is_believed_as_well(case: Live) -> None:
    """What is heard of a new region is as good as what is measured."""
    server = taken(case, NEW, saved(case))
    server.observe(CHANGED, None)
    heard = neighbour(CHANGED - 1, NEW, case.form)[1]
    release = server.hear({1: heard})
    new = [NEW.index(region) for region in "ef"]
    assert np.allclose(release.estimate[new], heard.info_vec[0, new] / 0.01, rtol=1e-4)
    assert np.allclose(release.variance[new], 100.0, rtol=1e-4)


@pytest.mark.parametrize("case", [case for case in CASES if case.sampling == "fixed"], ids=str)
def test_a_new_region_does_not_disturb_the_others(case: Live) -> None:
    """A variance so large that rounding reached the other regions would cost them what they know."""
    state, slots = saved(case, hears=False), range(CHANGED, CHANGED + 15)
    one = run(restored(case, state), OLD, slots, hears=False)
    other = run(taken(case, NEW, state), NEW, slots, hears=False)
    assert agree(case.form, one, OLD, other, NEW, OLD)


@pytest.mark.parametrize("case", [case for case in CASES if case.sampling is None], ids=str)
def test_a_new_region_is_sampled_as_soon_as_it_can_be_paid(case: Live) -> None:
    """Its controller begins anew: without, it would wait for the long intervals of regions that stand still."""
    server = taken(case, NEW, saved(case))
    assert (server._state.controllers.next_slot[0, [0, 4]] == 0).all()
    assert (server._state.controllers.next_slot[0, [1, 2, 3, 5]] > 0).all()


@pytest.mark.parametrize("form", ["diagonal", "matrix"])
def test_new_regions_are_grouped_only_by_what_was_released(form: str) -> None:
    """The history of a new region is zeros that nobody released: grouped by them, e and f would get one draw."""
    case = Live("dpcrowd-plus", form)
    before = case.server()
    run(before, OLD, range(CHANGED + 10))
    seen = before._noise
    assert isinstance(seen, NamedNoise)
    assert not seen.alone[-1].all()  # small regions share a draw before
    state = before.save()
    same, more = taken(case, "dcba", state), taken(case, NEW, state)
    for server, regions in ((same, "dcba"), (more, NEW)):
        until_sampled(server, regions, CHANGED + 10)
    assert isinstance(same._noise, NamedNoise)
    assert isinstance(more._noise, NamedNoise)
    assert not same._noise.alone[0].all()
    assert more._noise.alone[0].all()
    more.hear()
    run(more, NEW, range(CHANGED + 30, CHANGED + 50))
    assert not more._noise.alone[-1].all()


@every_matrix_case
def test_a_blank_region_takes_no_part_in_the_consensus(case: Live) -> None:
    """Neighbours would be drawn towards 0 people in a region of which this server knows nothing."""
    state = saved(case)
    server, old = taken(case, NEW, state), restored(case, state)
    until_sampled(server, NEW)
    until_sampled(old, OLD)
    said, before = server.pending_message(), old.pending_message()
    assert said is not None
    assert before is not None
    assert before.arrays()["prior_known"].all()
    assert not said.arrays()["prior_known"].any()
    server.hear()
    until_sampled(server, NEW, server.slot + 1)
    again = server.pending_message()
    assert again is not None
    assert again.arrays()["prior_known"].all()


@every_matrix_case
def test_blank_regions_survive_a_restart_and_another_revision(case: Live) -> None:
    """A state that forgot which regions are blank would publish their placeholders after the restart."""
    first = taken(case, "ea", saved(case))
    assert np.isnan(predicted(first).estimate).tolist() == [True, False]
    again = restored(case, first.save(), "ea")
    assert again.save() == first.save()
    assert np.isnan(predicted(again, CHANGED + 1).estimate).tolist() == [True, False]
    second = taken(case, "fae", again.save(), old="ea")
    assert np.isnan(predicted(second, CHANGED + 2).estimate).tolist() == [True, False, True]
    until_sampled(second, "fae", CHANGED + 3)
    assert np.isfinite(second.hear().estimate).all()


@every_case
def test_a_server_that_knows_nothing_yet_takes_nothing_over(case: Live) -> None:
    """Its placeholders must stay what they are: no estimate of any region, until the first sample."""
    silent = case.server()
    predicted(silent, 0)
    server = taken(case, NEW, silent.save())
    assert np.isnan(predicted(server, 1).estimate).all()
    until_sampled(server, NEW, 2)
    assert np.isfinite(server.hear().estimate).all()


@every_case
def test_where_no_region_stays_all_begin_anew(case: Live) -> None:
    """A known covariance of regions that are gone says nothing of the new ones."""
    server = taken(case, "ef", saved(case))
    assert np.isnan(predicted(server).estimate).all()
    noisy = until_sampled(server, "ef", CHANGED + 1)
    assert np.allclose(server.hear().estimate, noisy / 0.5, rtol=1e-6)


@every_matrix_case
def test_people_who_come_from_a_blank_region_widen_the_others(case: Live) -> None:
    """With a full A nobody knows how many come. Once somebody has measured it, the others are known as before: they
    would not be if the blank region's variance had drowned them in rounding."""
    moves = 0.95 * np.eye(6) + 0.01 * (1 - np.eye(6))
    model = ProcessModel.of(moves, np.full(6, 20.0))
    state, others = saved(case), [NEW.index(region) for region in OLD]
    server = taken(case, NEW, state, model=model)
    assert (predicted(server).variance[others] > 1e6).all()
    known = predicted(restored(case, state)).variance.max()
    server = taken(case, NEW, state, model=model)
    server.observe(CHANGED, None)
    heard = neighbour(CHANGED - 1, NEW, case.form)[1]
    blank = np.array([region in "ef" for region in NEW])
    told = replace(heard, info_vec=heard.info_vec * blank, info_mat=heard.info_mat * blank)
    release = server.hear({1: told})
    assert np.isfinite(release.estimate).all()
    assert (release.variance[others] < 2 * known + 50.0).all()
