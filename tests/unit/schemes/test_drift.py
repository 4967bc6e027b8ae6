"""Intervals on a crowd that moves in one direction: wide enough, and estimates, schedules and old states as before."""

import numpy as np
import pytest

import dpcrowd
from dpcrowd.filters import ProcessModel
from dpcrowd.filters.drift import Pulled
from dpcrowd.filters.learning import MODEL
from dpcrowd.schemes.filter_state import filter_variance
from dpcrowd.schemes.filtering import _carried
from dpcrowd.schemes.registry import make_scheme
from dpcrowd.schemes.snapshot import load_into, pack
from schemes_support import Guarantee, bits, course_model, make_server, make_setting, make_world, without_drift
from schemes_support_transfer import CHANGED, Live, of_regions, predicted, run, taken

SETTINGS = {"servers": 6, "density": 0.6, "runs": 1, "jobs": 1, "shares": "partition", "epsilon": 20.0}
WINDOW = {"window": 10}
NAMES = (
    *("dpcrowd-w", "dpcrowd-plus", "rescuedp", "drescuedp", "kalman-uniform", "dkalman-uniform", "central"),
    *("dpcrowd", "fast", "dfast", "sample", "dsample"),
)


def trend(slots: int = 90) -> dpcrowd.DataSet:
    """Two regions that grow and shrink by 120 people per slot, about as much as Q says, always in one direction."""
    moved = 120 * np.arange(slots)[:, None] * np.array([1, -1])
    return dpcrowd.counts_from_array(20_000 + moved, process_var=6000.0)


def both(name, monkeypatch):
    """A scheme's records with what samples show of the drift, and without."""
    length = {} if name in ("dpcrowd", "fast", "dfast") else WINDOW
    options = {**SETTINGS, **length, "keep_estimates": True, "observation": "binomial"}
    learned = dpcrowd.simulate(name, trend(), **options)[name]
    without_drift(monkeypatch)
    return learned, dpcrowd.simulate(name, trend(), **options)[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_intervals_follow_a_trend(name, monkeypatch):
    """Between samples a random walk moves less than a crowd that grows every day: its intervals miss the truth. The
    memory is beside the filter: a schedule that depends on releases must not change with it."""
    learned, plain = both(name, monkeypatch)
    assert learned.coverage95.mean() > 0.85
    assert (learned.variances >= plain.variances).all()
    assert (learned.variances > plain.variances).any()
    assert np.array_equal(learned.estimates, plain.estimates, equal_nan=True)
    assert np.array_equal(learned.frequency, plain.frequency)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dpcrowd", "dpcrowd-w"])
def test_the_consensus_makes_estimates_as_sure_as_it_can(name):
    """Weak samples of 12 servers are averaged by it: a variance of the samples that a server has heard itself gives
    intervals that contain the truth nearly always."""
    moves = np.random.default_rng(8).normal(0.0, 20.0, (150, 4)).cumsum(axis=0)
    data = dpcrowd.counts_from_array((2000 + moves).astype(np.int64), process_var=400.0)
    options = {"servers": 12, "density": 0.3, "runs": 4, "jobs": 1, "epsilon": 0.05, "turnover": 1.0}
    length = {} if name == "dpcrowd" else {"window": 20}
    coverage = dpcrowd.simulate(name, data, shares="partition", observation="binomial", **length, **options)[
        name
    ].coverage95
    assert 0.93 < coverage.mean() < 0.985


def test_a_consensus_from_before_continues():
    """A server that was stopped before the gain was followed keeps its account, and must not take what it has forgotten
    for what it knows exactly."""
    world = make_world(2, 3, 2, 12)
    setting = make_setting(1, 2, Guarantee.window(4, 3.0), observation="binomial")
    before, after = (make_server(world, "dpcrowd-w", setting, 0) for _ in range(2))
    for slot in range(8):
        before.observe(slot, world.counts[slot, 0])
        before.hear({})
    saved = pack(before._state, "state")
    assert any(".mixed." in key for key in saved)
    load_into(after._state, {key: array for key, array in saved.items() if ".mixed." not in key}, "state")
    after._slot = before.slot
    variances = []
    for server in (before, after):
        server.observe(8, world.counts[8, 0])
        variances.append(server.hear({}).variance)
    assert (variances[1] >= 0.999 * variances[0]).all()


MEMORY = {"dpcrowd-w": "drift", "dpcrowd-plus": "drift", "kalman-uniform": "drift", "sample": "repeated"}


@pytest.mark.parametrize("name", MEMORY)
def test_the_papers_experiments_keep_their_intervals(name):
    """With the paper's observation nothing is learned: its oracle tests and published results stand."""
    setting = make_setting(1, 2, Guarantee.window(4, 3.0))
    assert getattr(make_scheme(name).start(setting), MEMORY[name]) is None


@pytest.mark.parametrize("name", MEMORY)
def test_a_state_from_before_continues(name):
    """A server that was stopped before intervals learned of drift must not lose its account and its estimates."""
    setting = make_setting(1, 2, Guarantee.window(4, 3.0), observation="binomial")
    scheme = make_scheme(name)
    saved = pack(scheme.start(setting), "state")
    part = f".{MEMORY[name]}."
    assert any(part in key for key in saved)
    state = scheme.start(setting)
    load_into(state, {key: array for key, array in saved.items() if part not in key}, "state")
    memory = getattr(state, MEMORY[name])
    assert (memory.size if MEMORY[name] == "drift" else memory).weight.tolist() == [[0.0, 0.0]]


@pytest.mark.slow
def test_the_consensus_does_not_make_estimates_too_sure(monkeypatch):
    """Samples of 10^5 people are precise, and old priors of neighbours pull the estimates away from them."""
    moves = np.random.default_rng(6).normal(0.0, 2000.0, (90, 1)).cumsum(axis=0)
    data = dpcrowd.counts_from_array((100_000 + moves).astype(np.int64), process_var=4e6)
    options = {"servers": 8, "density": 0.5, "runs": 2, "jobs": 1, "window": 20, "observation": "binomial"}
    options["keep_estimates"] = True
    widened = dpcrowd.simulate("dpcrowd-w", data, **options)["dpcrowd-w"]
    monkeypatch.setattr("dpcrowd.filters.drift.Pulled", lambda mean: Pulled(np.zeros_like(mean)))
    plain = dpcrowd.simulate("dpcrowd-w", data, **options)["dpcrowd-w"]
    assert plain.coverage95.mean() < 0.92
    assert 0.935 < widened.coverage95.mean() < 0.985
    assert np.array_equal(widened.estimates, plain.estimates, equal_nan=True)


def calm(slots: int = 90) -> dpcrowd.DataSet:
    """Two regions that fluctuate around a level, by much less than their noise."""
    around = np.random.default_rng(4).normal(0.0, 2.0, (slots, 2))
    return dpcrowd.counts_from_array((200 + around).astype(np.int64), process_var=8.0)


def test_an_average_of_samples_is_as_precise_as_it_is():
    """Noise of different servers is independent, and only what all have missed since is common to their errors. Taking
    all of it for common made intervals of the average that contained the truth in 99.8% of the slots."""
    options = {**SETTINGS, **WINDOW, "epsilon": 0.05, "runs": 4, "observation": "binomial", "keep_estimates": True}
    records = dpcrowd.simulate(["sample", "dsample"], calm(), **options).records
    assert 0.9 < records["dsample"].coverage95.mean() < 0.985
    ratio = records["dsample"].variances.mean() / records["sample"].variances.mean()
    assert ratio < 1.1 / 6, "six servers"


@pytest.mark.parametrize("name", ["dpcrowd-w", "dpcrowd-plus"])
def test_regions_that_stay_keep_what_was_learned(name):
    """A revision of the network reorders regions: each takes its own drift along."""
    case = Live(name)
    model = ProcessModel.of(1.0, [1.0, 1.0, 1.0, 1.0])  # far too small, so that something is learned
    options = {"observation": "binomial", "turnover": 0.1, "model": model}
    before = case.server("abcd", **options)
    run(before, "abcd", range(CHANGED))
    after = taken(case, "dbca", before.save(), before=case.server("abcd", **options), **options)
    assert before._state.drift.size.weight.max() > 0.0
    old, new = predicted(before), predicted(after)
    for one, other in zip(of_regions(old, "abcd", "abcd"), of_regions(new, "dbca", "abcd"), strict=True):
        assert bits(one) == bits(other) or np.allclose(one, other, rtol=1e-12)


def test_a_region_is_off_by_no_more_than_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weak samples that are off by chance made single intervals a hundred times as wide as any error, where a model
    says how large a region is; twice its largest level is possible."""
    model = course_model(2)
    setting = make_setting(1, 2, Guarantee.window(4, 3.0), observation="binomial", model=model)
    server = make_server(make_world(2, 3, 2, 12), "dpcrowd-w", setting, 0)
    seen = []
    name = "dpcrowd.schemes.filter_state.drift_var"
    monkeypatch.setattr(name, lambda drift, averaged, most: seen.append(most) or 0.0)
    filter_variance(server._state)
    assert model.course is not None
    assert seen[0] == pytest.approx(2.0 * model.course.largest_level)


def test_what_is_carried_is_what_beliefs_carry() -> None:
    """A filter that believes in another level keeps its error for long: by the model's own transition, what staying
    users have added to it would be forgotten within a few slots."""
    model = course_model(2)
    setting = make_setting(1, 2, Guarantee.window(4, 3.0), observation="binomial", model=model, learn=True)
    state = make_server(make_world(2, 3, 2, 12), "dpcrowd-w", setting, 0)._state
    beliefs = state.beliefs
    lasting = int(np.argmax(beliefs.transition[:, 0, 0]))
    by_model = model.carried(0)
    state.bank.weight[:] = -30.0
    state.bank.weight[lasting] = 0.0
    assert (_carried(state, 0) > 0.9).all()
    state.bank.weight[:] = -30.0
    state.bank.weight[MODEL] = 0.0
    assert _carried(state, 0) == pytest.approx(np.broadcast_to(by_model, (1, 2)), abs=0.02)
