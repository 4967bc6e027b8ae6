"""A revision that adds, changes or removes a model, or switches learning: no estimate is lost by it."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from dpcrowd.filters import ProcessModel
from dpcrowd.schemes.base import Release
from dpcrowd.schemes.server import Server
from node_support_relay import counts_of as relay_counts
from node_support_relay import facts_of
from schemes_support import bits, course_model
from schemes_support_transfer import CASES, CHANGED, OLD, SIZES, Live, places, run

PLAIN = ProcessModel.of(1.0, [SIZES[region] for region in OLD])
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"model": PLAIN},
    "learning": {"model": PLAIN, "learn": True},
    "course": {"model": course_model(4)},
    "relative": {"model": course_model(4, relative=True)},
    "learning course": {"model": course_model(4), "learn": True},
}
CHANGES = list(permutations(SETTINGS, 2))
every_change = pytest.mark.parametrize(("old", "new"), CHANGES, ids=["-".join(pair) for pair in CHANGES])
LIVE = [case for case in CASES if case.sampling == ("fixed" if case.name == "dpcrowd-w" else None)]
every_case = pytest.mark.parametrize("case", LIVE, ids=str)
ERRORS = {"paper": {}, "binomial": {"observation": "binomial"}, "staying": {"observation": "binomial", "turnover": 0.1}}


def finite(release: Release) -> bool:
    """Whether a release says something of every region."""
    return bool(np.isfinite(release.estimate).all() and np.isfinite(release.variance).all())


def silence(server: Server, slots: range) -> list[Release]:
    """Slots without samples and neighbours."""
    releases = []
    for slot in slots:
        server.observe(slot, None)
        releases.append(server.hear())
    return releases


@every_change
@pytest.mark.parametrize(
    ("case", "errors"),
    [(case, errors) for case in LIVE for errors in ERRORS if case.form == "diagonal" or errors == "binomial"],
    ids=str,
)
def test_estimates_go_on_under_another_model(case: Live, old: str, new: str, errors: str) -> None:
    """A flag that is True from the start with a model was taken for a start value, and all estimates with it."""
    before, after = (case.server(**SETTINGS[which], **ERRORS[errors]) for which in (old, new))
    last = run(before, OLD, range(CHANGED))[-1]
    assert finite(last)
    after.take_over(before.save(), case.server(**SETTINGS[old], **ERRORS[errors]), places(OLD))
    first = silence(after, range(CHANGED, CHANGED + 1))[0]
    assert finite(first)
    expected = after.setting.model
    moved = expected.diagonal_transition * last.estimate
    if expected.course is not None:
        deviation = last.estimate - expected.course.mean(CHANGED - 1)
        moved = expected.course.mean(CHANGED) + expected.carried(CHANGED) * deviation
    assert first.estimate == pytest.approx(moved, rel=0.2 if after.setting.learn else 1e-6)
    assert all(finite(release) for release in run(after, OLD, range(CHANGED + 1, CHANGED + 8)))


@every_case
@pytest.mark.parametrize(("old", "new"), list(permutations(ERRORS, 2)), ids="-".join)
def test_estimates_go_on_where_other_errors_are_followed(case: Live, old: str, new: str) -> None:
    """What is remembered of errors depends on the turnover: estimates would have begun anew with another one."""
    before, after = (case.server(**ERRORS[which]) for which in (old, new))
    run(before, OLD, range(CHANGED))
    kept = before._state.posterior.copy()
    after.take_over(before.save(), case.server(**ERRORS[old]), places(OLD))
    assert bits(after._state.posterior) == bits(kept)
    assert all(finite(release) for release in run(after, OLD, range(CHANGED, CHANGED + 8)))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("dpcrowd-plus", ERRORS["binomial"], {**ERRORS["binomial"], **SETTINGS["course"]}),
        ("dpcrowd-w", ERRORS["staying"], ERRORS["binomial"]),
    ],
    ids=["divided", "staying"],
)
def test_errors_that_are_no_longer_followed_stay_in_the_variance(
    name: str, old: dict[str, Any], new: dict[str, Any]
) -> None:
    """Three small regions that were read as one sum are not known better because there is a model now."""
    case = Live(name)
    before, after = case.server(**old), case.server("dabc", **new)
    run(before, OLD, range(CHANGED))
    state = before._state
    extra = np.square(state.divided.deviation) if state.divided is not None else state.staying.extra
    assert extra.max() > 1.0
    after.take_over(before.save(), case.server(**old), places("dabc"))
    expected = (state.posterior_var + extra)[:, places("dabc")]
    assert after._state.posterior_var == pytest.approx(expected)
    assert after._state.drift.last_var == pytest.approx(expected)
    assert (after._state.mixed.var >= extra[:, places("dabc")]).all()


@every_change
@every_case
def test_what_a_model_says_is_an_estimate_too(case: Live, old: str, new: str) -> None:
    """Before the first sample a variance may be what it was at the start; the estimates are not those of the start."""
    before, after = (case.server(**SETTINGS[which], observation="binomial") for which in (old, new))
    last = silence(before, range(5))[-1]
    after.take_over(before.save(), case.server(**SETTINGS[old], observation="binomial"), places(OLD))
    first = silence(after, range(5, 6))[0]
    assert finite(first) or not finite(last)
    assert finite(first) or after.setting.model.course is None
    assert all(finite(release) for release in run(after, OLD, range(6, 12))[3:])


@every_case
def test_before_the_first_slot_the_new_setting_is_all_that_counts(case: Live) -> None:
    """A server that has not begun has no estimates to keep: those of the new model are better."""
    for old, new in permutations(SETTINGS, 2):
        after, plain = case.server(**SETTINGS[new]), case.server(**SETTINGS[new])
        after.take_over(case.server(**SETTINGS[old]).save(), case.server(**SETTINGS[old]), places(OLD))
        one, other = (silence(server, range(1))[0] for server in (after, plain))
        assert bits(one.estimate) == bits(other.estimate), (old, new)
        assert bits(one.variance) == bits(other.variance), (old, new)


@every_change
@pytest.mark.parametrize("form", ["diagonal", "matrix"])
def test_relay_goes_on_under_another_model(form: Any, old: str, new: str) -> None:
    """What the records have said is in the last posterior, whatever model comes next."""
    plain = replace(facts_of(servers=3, regions=4), form=form, **ERRORS["staying"])
    one, other = (replace(plain, **SETTINGS[which]) for which in (old, new))
    before, after, counts = one.server(1), other.server(1), relay_counts(plain, 12)[:, 1] // 10
    for slot in range(8):
        before.observe(slot, counts[slot])
        last = before.hear()
    assert finite(last)
    after.take_over(before.save(), one.server(1), range(4), range(3))
    assert all(finite(release) for release in silence(after, range(8, 10)))
    for slot in range(10, 12):
        after.observe(slot, counts[slot])
        assert finite(after.hear())


@every_change
@pytest.mark.parametrize("form", ["diagonal", "matrix"])
def test_relay_goes_on_before_its_first_record(form: Any, old: str, new: str) -> None:
    """What a model says is an estimate too, and a model that comes before the first record says something."""
    plain = replace(facts_of(servers=3, regions=4), form=form)
    one, other = (replace(plain, **SETTINGS[which]) for which in (old, new))
    before, after = one.server(1), other.server(1)
    last = silence(before, range(8))[-1]
    after.take_over(before.save(), one.server(1), range(4), range(3))
    first = silence(after, range(8, 9))[0]
    assert finite(first) or not finite(last)
    assert finite(first) or after.setting.model.course is None
