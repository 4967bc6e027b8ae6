"""A server that knows a model: absent for a while, set back in time, and under a revision that adds the model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.filters import Course, ProcessModel, predict
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.base import Peers
from dpcrowd.schemes.past import Past
from dpcrowd.schemes.registry import make_scheme
from dpcrowd.schemes.server import Server
from dpcrowd.schemes.snapshot import from_bytes, to_bytes
from relay_support import Network, message_of
from schemes_support import account_for, course_model, make_setting, watched_noise
from schemes_support_transfer import CASES, CHANGED, OLD, Live, counts_of, run, saved

REGIONS = 3
FORMS = ["diagonal", "matrix"]


def server(name: str = "dpcrowd-w", *, account: bool = False, relative: bool = False, **more: Any) -> Server:
    """A server with a model that expects its crowd."""
    guarantee = Guarantee.window(8, 3.0)
    setting = make_setting(1, REGIONS, guarantee, model=course_model(REGIONS, relative=relative), **more)
    setting = replace(setting, peers=Peers(0, np.array([0.5, 0.5])))
    options: dict[str, Any] = {"account": account_for(guarantee)} if account else {}
    return Server(
        make_scheme(name),
        setting,
        watched_noise(),
        number=0,
        share=0.5,
        max_degree=3,
        allow_simulated_noise=True,
        **options,
    )


def absent(one: Server, slot: int) -> Any:
    """The release of a slot in which the server samples and hears nothing."""
    one.observe(slot, None)
    return one.hear()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["dpcrowd-w", "relay"])
@pytest.mark.parametrize("first", [0, 3, 40])
def test_before_any_record_it_says_what_the_model_says(name: str, form: str, first: int) -> None:
    """A server that joins later must begin with the course of that slot, not with that of slot 0."""
    one = server(name, form=form)
    release = absent(one, first)
    mean, var = course_model(REGIONS).start(first)
    assert release.estimate == pytest.approx(mean)
    assert release.variance == pytest.approx(var, rel=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("name", ["dpcrowd-w", "dpcrowd-plus", "relay"])
def test_after_a_long_absence_it_has_fallen_back_to_the_model(name: str, learn: bool, form: str) -> None:
    """An estimate of last week that is repeated today would ignore the season; one that is forgotten, the course."""
    one = server(name, form=form, learn=learn)
    one.observe(0, [500, 30, 20])
    seen = one.hear()
    model = course_model(REGIONS)
    assert (seen.estimate > model.start(0)[0]).all()
    slot = 40_000 if learn else 400  # a level far away may stay there for thousands of slots
    late = absent(one, slot)
    mean, var = model.start(slot)
    assert late.estimate == pytest.approx(mean, rel=1e-3 if learn else 1e-6)
    assert (late.variance >= 0.9 * var).all()
    # A learner that one record has shown another level keeps the doubt: by as much as twice an average level, at most.
    doubt = np.square(2.0 * np.maximum(mean, mean.mean()))
    assert (late.variance <= (30.0 * var + 5.0 * doubt if learn else 1.01 * var)).all()


RELATIVE = pytest.mark.parametrize("relative", [False, True])


STAYING = {"observation": "binomial", "turnover": 0.1}


@RELATIVE
@pytest.mark.parametrize(
    ("name", "more"), [("dpcrowd-w", {}), ("relay", {}), ("relay", STAYING)], ids=["dpcrowd-w", "relay", "staying"]
)
def test_a_few_skipped_slots_are_predicted_one_by_one(name: str, relative: bool, more: Any) -> None:
    """Skipping slots must give what passing them without a sample gives."""
    one, other = server(name, relative=relative, **more), server(name, relative=relative, **more)
    for each in (one, other):
        each.observe(0, [300, 12, 10])
        each.hear()
    for slot in range(1, 5):
        absent(one, slot)
    last, skipped = absent(one, 5), absent(other, 5)
    assert skipped.estimate == pytest.approx(last.estimate, rel=1e-12)
    assert skipped.variance == pytest.approx(last.variance, rel=1e-12)


@RELATIVE
@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("name", ["dpcrowd-w", "relay"])
def test_back_in_time_the_deviation_stays(name: str, learn: bool, relative: bool) -> None:
    """After a clock that was ahead, the estimate belongs to another part of the season, and so does its deviation."""
    one = server(name, account=True, learn=learn, relative=relative)
    model = course_model(REGIONS, relative=relative)
    for slot in range(6):
        absent(one, slot)
    one.observe(6, [300, 12, 10])
    late = one.hear()
    one.begin_again(2)
    early = absent(one, 3)
    deviation, ratio = late.estimate - model.start(6)[0], model.ratio(6, 2)
    expected, variance = predict(model.start(2)[0] + ratio * deviation, ratio**2 * late.variance, model, 3)
    assert early.estimate == pytest.approx(
        expected, rel=0.05 if learn else 1e-9
    )  # beliefs that have gained weight go on
    if not learn:
        assert early.variance == pytest.approx(variance, rel=1e-9)


@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name == "dpcrowd-w" and case.sampling == "fixed"], ids=str
)
def test_a_revision_may_add_and_remove_a_model(case: Live, learn: bool) -> None:
    """A network that has fitted a model on its own releases continues with it; new regions start at its course."""
    state = saved(case)
    model = course_model(5)
    after = case.server("abcde", model=model, learn=learn)
    after.take_over(state, case.server(OLD), [0, 1, 2, 3, None])
    release = run(after, "abcde", range(CHANGED, CHANGED + 1))[0]
    before = case.server(OLD)
    before.restore(state)
    plain = run(before, OLD, range(CHANGED, CHANGED + 1))[0]
    assert np.isfinite(release.estimate).all()
    assert release.estimate[0] == pytest.approx(plain.estimate[0], rel=0.25)
    back = case.server("abcde")
    back.take_over(after.save(), case.server("abcde", model=model, learn=learn), [0, 1, 2, 3, 4])
    again = run(back, "abcde", range(CHANGED + 1, CHANGED + 2))[0]
    assert np.isfinite(again.estimate).all()


def test_a_state_is_restored_under_its_own_model_only() -> None:
    """With another model the posterior would be continued by the wrong course."""
    one = server()
    one.observe(0, [200, 10, 8])
    one.hear()
    other = server()
    other.setting = replace(other.setting, model=ProcessModel.of(1.0, np.ones(REGIONS)))
    with pytest.raises(BadInput, match="another server or setting"):
        other.restore(one.save())
    assert counts_of(0, "abc")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("share_width", [0.0, 0.1])
@pytest.mark.parametrize("certain", [1, REGIONS])
def test_a_model_that_is_certain_of_regions_leaves_numbers(certain: int, share_width: float, learn: bool) -> None:
    """With a variance of 0 in one region all regions were NaN, or a server with learned shares ended with an error."""
    variance = np.full((2, REGIONS), 25.0)
    variance[:, :certain] = 0.0
    course = Course(np.outer([1.0, 0.5], [400.0, 90.0, 10.0]), variance, season=2, step=1)
    network = Network(
        np.array([0.5, 0.3, 0.2]), ProcessModel.around(course, 0.8), Guarantee.window(4, epsilon=8.0), samples=4,
        phases=np.zeros(3, dtype=np.int64), observation="binomial", share_width=share_width, turnover=0.05, learn=learn,
    )  # fmt: skip
    one = network.server(0)
    for slot in range(12):
        crowd = 1.2 * course.mean(slot)
        one.observe(slot, np.rint(0.5 * crowd).astype(int))
        records = {(origin, slot): np.rint(network.shares[origin] * crowd) for origin in (1, 2)}
        release = one.hear({9: message_of(records, list(records), network.price)})
        assert np.isfinite(release.estimate).all()
        assert np.isfinite(release.variance).all()
        assert (release.variance > 0.0).all()


def test_past_refuses_to_run_without_a_model() -> None:
    """Without a model there is nothing that it could release."""
    with pytest.raises(BadInput, match="scheme 'past' releases what a process model expects, and none was given"):
        Past().start(make_setting(1, 2, None))


@pytest.mark.parametrize("name", ["dpcrowd-w", "relay"])
def test_a_state_with_fewer_beliefs_continues(name: str) -> None:
    """A state that was saved before a belief was added would be refused after an update, and its estimates lost."""
    one, other = server(name, learn=True), server(name, learn=True)
    for slot in range(3):
        one.observe(slot, [210, 11, 5])
        one.hear()
    arrays = from_bytes(one.save())
    banks = [key for key in arrays if "bank." in key]
    assert banks
    other.restore(to_bytes(arrays | {key: arrays[key][..., :-1, :, :] for key in banks}))
    release = absent(other, 3)
    assert np.isfinite(release.estimate).all()
    assert release.estimate == pytest.approx(absent(one, 3).estimate, rel=0.2)
