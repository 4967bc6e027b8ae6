"""Which regions relay joins, and what a record of groups reveals of the counts behind it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dpcrowd
from dpcrowd.errors import BadInput
from dpcrowd.filters import Course, ProcessModel
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.records import RecordMessages
from dpcrowd.schemes.relay import Relay
from dpcrowd.schemes.relay_groups import is_tolerable, new_groups, reductions, settled_var
from dpcrowd.schemes.server import Server
from dpcrowd.sim.data.counts import counts_from_array
from relay_support import Network

WALK = ProcessModel.of(1.0, np.full(6, 1.0))
WEAK = 1e-3  # information per slot: a region by itself has a deviation of 5.5


def network_of(model: ProcessModel = WALK, **options: Any) -> Network:
    return Network(
        shares=np.full(4, 0.25),
        model=model,
        guarantee=Guarantee.window(8, 1.0),
        samples=4,
        phases=np.arange(4, dtype=np.int64) * 2,
        lag=4,
        observation="binomial",
        options={"groups": "auto", **options},
    )


class Recorded:
    """Noise that returns fixed numbers, whatever the counts are, and remembers what it was given."""

    private = False

    def __init__(self) -> None:
        self.reads: list[tuple[Any, Any, Any]] = []

    def noisy(self, slot: int, counts: Any, amount: Any, sensitivity: Any, where: Any, read: int = 0) -> Any:
        self.reads.append((counts.copy(), sensitivity, np.broadcast_to(where, counts.shape).copy()))
        return np.where(where, np.random.default_rng([slot, 1]).integers(-4, 8, counts.shape), 0.0)


def play(counts: Any, network: Network) -> tuple[Recorded, list[bytes]]:
    """A server alone with these counts in every slot; its noise, and its state after each slot."""
    noise = Recorded()
    options: dict[str, Any] = {"number": 0, "share": 0.25, "allow_simulated_noise": True}
    server = Server(network.scheme(), network.setting(0), noise, **options)
    states = []
    for slot in range(24):
        server.observe(slot, counts)
        server.hear()
        states.append(server.save())
    return noise, states


def test_small_regions_share_a_draw_and_large_ones_do_not() -> None:
    """A large region in a group would be divided among empty ones."""
    level = np.array([0.0, 1.0, 400.0, 2.0, 1.0, 0.0])
    groups = new_groups(WALK, WEAK, level, np.full(6, 30.0))
    assert groups.tolist() == [0, 0, 2, 0, 0, 0]
    assert new_groups(WALK, WEAK, level, np.full(6, np.inf)).tolist() == list(range(6)), "nothing is known yet"
    precise = 1e3
    assert new_groups(WALK, precise, level, np.full(6, 1e-3)).tolist() == list(range(6)), "records tell all"


def test_a_group_whose_sum_grows_is_divided() -> None:
    """A region that grows inside a group would otherwise never be found."""
    deviation = float(np.sqrt(settled_var(np.ones(()), np.ones(()), WEAK)))
    small, grown = np.full(6, 0.3 * deviation), np.full(6, 0.9 * deviation)
    one = new_groups(WALK, WEAK, small, np.full(6, 30.0))
    assert len(set(one)) == 1
    assert is_tolerable(one, WALK, WEAK, np.full(6, 0.5 * deviation), np.full(6, 30.0))
    assert is_tolerable(one, WALK, WEAK, grown, np.full(6, 30.0)), "choices do not flap"
    assert not is_tolerable(one, WALK, WEAK, np.full(6, 1.5 * deviation), np.full(6, 30.0))
    assert len(set(new_groups(WALK, WEAK, grown, np.full(6, 30.0)))) > 1


def test_with_a_course_only_regions_of_which_records_tell_nothing_are_joined() -> None:
    """Records that tell something about a region are worth more by themselves."""
    level = np.array([[1.0, 2.0, 900.0]])
    model = ProcessModel.around(Course(level, np.array([[1.0, 2.0, 9000.0]])), 0.5, None, 1.0)
    assert new_groups(model, WEAK, level[0], np.zeros(3)).tolist() == [0, 0, 2]
    assert new_groups(model, WEAK, level[0], np.array([0.0, 500.0, 0.0])).tolist() == [0, 1, 2], "it has left its past"


def test_with_a_course_regions_are_joined_where_they_go_together() -> None:
    """Independent regions gain nothing by it, and one that fills or empties would be hidden behind the others."""
    course = Course(np.full((1, 12), 20.0), np.full((1, 12), 15.0))
    level, var = np.full(12, 20.0), np.full(12, 20.0)
    groups = {
        correlation: new_groups(ProcessModel.around(course, 0.5, None, correlation), WEAK / 10, level, var)
        for correlation in (None, 0.0, 0.03, 0.5)
    }
    assert [len(set(one)) for one in groups.values()] == [12, 12, 12, 1]
    for correlation, stays in ((None, False), (0.0, False), (0.03, True), (0.5, True)):
        model = ProcessModel.around(course, 0.5, None, correlation)
        assert is_tolerable(groups[0.5], model, WEAK / 10, level, var) == stays, "choices do not flap"


def test_regions_without_variance_have_the_least_one() -> None:
    """A model may expect that nothing ever changes in a region: the choice must not divide by its variance."""
    none, little = (
        ProcessModel.around(Course(np.full((1, 3), 5.0), np.full((1, 3), variance)), 0.5, None, 0.5)
        for variance in (0.0, 1e-6)
    )
    groups = new_groups(none, WEAK, np.full(3, 5.0), np.zeros(3))
    assert groups.tolist() == new_groups(little, WEAK, np.full(3, 5.0), np.zeros(3)).tolist()
    some = ProcessModel.around(Course(np.full((1, 3), 5.0), np.array([[0.0, 1.0, 1.0]])), 0.5, None, 1.0)
    assert new_groups(some, WEAK, np.full(3, 5.0), np.zeros(3)).tolist() == [0, 0, 0]


def test_a_region_that_has_left_its_past_is_read_by_itself() -> None:
    """What filters have learned beyond the course stays: records add up, also where the course's deviations do not."""
    course = Course(np.full((1, 6), 20.0), np.full((1, 6), 15.0))
    model = ProcessModel.around(course, 0.1, None, 0.5)
    level, var = np.full(6, 20.0), np.full(6, 16.0)
    one = new_groups(model, WEAK / 10, level, var)
    assert one.tolist() == [0] * 6
    var[3] = 16.0 + 60.0
    assert new_groups(model, WEAK / 10, level, var).tolist() == [0, 0, 0, 3, 0, 0]
    assert is_tolerable(one, model, WEAK / 10, level, var)
    var[3] = 16.0 + 160.0
    assert not is_tolerable(one, model, WEAK / 10, level, var)


def test_what_a_sum_tells_of_its_members() -> None:
    """The prediction against the error of the filter's own division, with the covariance that regions really have."""
    a, spread, information, rho = np.zeros(3), np.array([4.0, 9.0, 1.0]), 0.05, 0.4
    deviation = np.sqrt(spread)
    covariance = np.outer(deviation, deviation) * (rho + (1.0 - rho) * np.eye(3))
    gain = spread / (spread.sum() + 1.0 / information)
    left = np.eye(3) - np.outer(gain, np.ones(3))
    after = left @ covariance @ left.T + np.outer(gain, gain) / information
    alone, joined = reductions(a, spread, information, rho)
    assert spread - joined == pytest.approx(np.diag(after))
    assert spread - alone == pytest.approx(1.0 / (1.0 / spread + information))


def test_one_user_changes_one_sum_by_one() -> None:
    """The sensitivity of a record must stay that of single regions, or its noise would be too small."""
    counts = np.array([0, 1, 90, 2, 0, 1])
    without, _ = play(counts, network_of())
    for region in range(6):
        more = counts.copy()
        more[region] += 1
        with_user, _ = play(more, network_of())
        joined = False
        for (one, price, where), (other, other_price, also) in zip(without.reads, with_user.reads, strict=True):
            assert (where == also).all()
            assert price == other_price == 1
            assert np.abs(other - one)[where].sum() == 1, "each user is in one group"
            joined |= not where.all()
        assert joined, "no record joins regions: the test shows nothing"


def test_the_choice_depends_on_released_values_alone() -> None:
    """Groups that followed raw counts would reveal them without paying: the noisy values are the same here."""
    _, states = play(np.array([0, 1, 90, 2, 0, 1]), network_of())
    _, others = play(np.array([70, 1, 0, 0, 300, 1]), network_of())
    assert states == others


def test_a_record_holds_nothing_of_the_members() -> None:
    """A value at a member's place would be a second release that nobody has paid for."""
    network = network_of()
    server = network.server(0)
    for slot in range(24):
        message = server.observe(slot, np.array([0, 1, 90, 2, 0, 1]))
        if message is not None:
            assert isinstance(message, RecordMessages)
            message.check_values("server 0")
            groups, sample = server.open_groups(), server.open_sample()
            assert groups is not None
            assert sample is not None
            assert (message.groups[0] == groups).all()
            assert not sample[1][groups != np.arange(6)].any()
        server.hear()


def test_states_saved_before_groups_existed_are_still_good() -> None:
    """An option that is off must not change the fingerprint of a server's state."""
    plain, off = replace(network_of(), options={}), network_of()
    off = replace(off, options={"groups": "off"})
    saved = plain.server(0).save()
    off.server(0).restore(saved)
    with pytest.raises(BadInput, match="another server or setting"):
        network_of().server(0).restore(saved)
    assert "groups" not in vars(Relay(samples=1))


def test_where_no_regions_are_joined_filters_learn_as_without_groups() -> None:
    """Regions would learn alone as soon as groups are allowed, and a crowd that grows everywhere be noticed late."""
    counts = np.random.default_rng(3).poisson(np.geomspace(3e4, 9e4, 3), (60, 3))
    counts[30:] = counts[30:] * 7 // 5
    model = dpcrowd.fit(counts_from_array(counts[:30]), source="simulated")
    common: dict[str, Any] = {"servers": 3, "density": 1.0, "window": 10, "runs": 1, "jobs": 1, "model": model}
    auto, off = (dpcrowd.simulate("relay", counts[30:], groups=groups, **common) for groups in ("auto", "off"))
    for name in ("total_error", "coverage95"):
        one, other = (np.asarray(getattr(result.records["relay"], name)) for result in (auto, off))
        assert np.array_equal(one, other)


def test_an_unknown_choice_is_refused() -> None:
    """A misspelt option must not mean that regions are joined, or that they are not."""
    with pytest.raises(BadInput, match="auto"):
        Relay(samples=1, groups="on")  # type: ignore[arg-type]


def test_full_covariances_need_a_model() -> None:
    """Without one, the regions of a group could never be told apart, and their variances would grow for ever."""
    network = replace(network_of(), form="matrix")
    with pytest.raises(BadInput, match="Give a model"):
        network.server(0)


def test_a_revision_may_begin_to_join_regions() -> None:
    """The estimate goes on; records of before are final, since some servers would refuse those of after."""
    plain, joined = replace(network_of(), options={}), network_of()
    before = plain.server(0)
    for slot in range(9):
        before.observe(slot, np.array([0, 1, 90, 2, 0, 1]))
        release = before.hear()
    server = joined.server(0)
    server.take_over(before.save(), plain.server(0), range(6))
    server.observe(9, None)
    assert server.hear().estimate == pytest.approx(release.estimate)


def test_simulate_takes_groups_and_scores_the_non_negative_view() -> None:
    """Both are reported beside what they are compared with: the choice by scheme, the view's error by run."""
    counts = np.random.default_rng(1).poisson(0.5, (40, 8))
    common: dict[str, Any] = {"servers": 4, "density": 1.0, "window": 10, "runs": 2, "jobs": 1, "burn_in": 5}
    result = dpcrowd.simulate("relay", counts, groups="auto", nonnegative=True, **common)
    (row,) = result.summary()
    assert row["groups"] == "auto"
    assert 0.0 < row["nonnegative"]["total_error"]["mean"] < row["total_error"]["mean"]
    assert set(row["nonnegative"]) == {"total_error", "mae"}
    table = result.table()
    assert len(table["nonnegative_mae"]) == 2
    without = dpcrowd.simulate("relay", counts, **common)
    assert "nonnegative" not in without.summary()[0]
    assert "nonnegative_mae" not in without.table()
    assert row["total_error"]["mean"] < without.summary()[0]["total_error"]["mean"]
