"""The predicted accuracy of relay against the variances that the scheme itself gives, and against trying every n."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpcrowd.filters import Course, ProcessModel
from dpcrowd.network.arrivals import arrival_rounds
from dpcrowd.network.graph import Graph
from dpcrowd.privacy import Guarantee
from dpcrowd.sampling.schedule import all_meet
from dpcrowd.schemes import prediction
from dpcrowd.schemes.prediction import PublicFacts, best_samples, predicted_deviation, predicted_error
from dpcrowd.schemes.relay import Relay
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.simulate import simulate

RING = Graph.from_edges(7, range(7), [1, 2, 3, 4, 5, 6, 0])
PROCESS_VAR = np.array([400.0, 25.0])
SHARES = np.array([0.2, 0.9, 0.5, 0.35, 1.0, 0.6, 0.75])
LINKS = "".join(f"{i},{(i + 1) % 7}\n" for i in range(7))


def facts(users: str = "pinned", delays: Any = 1, **more: Any) -> PublicFacts:
    """Of the ring: records take one slot per `delays` hops; None: none at all."""
    hops = arrival_rounds(lambda _slot: RING, np.arange(7), None, None)
    slots = np.zeros_like(hops) if delays is None else np.maximum(hops - 1, 0) // delays
    given: dict[str, Any] = {
        "guarantee": Guarantee.window(24, 1.0, users=users),
        "model": ProcessModel.of(1.0, [400.0, 25.0]),
        "shares": SHARES,
        "delays": slots,
        "phases": lambda samples: np.zeros(7, dtype=np.int64),
    }
    return PublicFacts(**{**given, **more})


@pytest.mark.parametrize("samples", [1, 5, 24])
def test_the_prediction_with_a_course_is_what_the_filter_says_of_itself(samples: int, tmp_path: Any) -> None:
    """A recursion that started from nothing, or forgot that deviations fade, would plan for another filter."""
    links = tmp_path / "ring.csv"
    links.write_text(LINKS, encoding="utf-8")
    level = np.array([[5000.0, 400.0]])
    model = ProcessModel.around(Course(level, PROCESS_VAR[None]), np.array([0.9, 0.3]), PROCESS_VAR)
    data = counts_from_array(np.tile(level.astype(int), (24 * 8, 1)))
    result = simulate(
        Relay(samples=samples, guard=False),
        replace(data, model=model),
        graph=links,
        shares=SHARES.tolist(),
        window=24,
        users="roaming",
        observation="paper",
        runs=1,
        keep_estimates=True,
        burn_in=0,
        jobs=1,
    )
    variances = result["relay"].variances
    assert variances is not None
    mean_deviation = np.sqrt(variances[0, 24 * 5 :]).mean(axis=(0, 1))
    predicted = predicted_deviation(facts("roaming", 1, model=model), [samples])[0]
    np.testing.assert_allclose(mean_deviation, predicted, rtol=1e-5)
    alone = np.sqrt(PROCESS_VAR / (1 - np.array([0.9, 0.3]) ** 2))
    assert (predicted < alone).all()


@pytest.mark.parametrize("samples", [1, 5, 24])
@pytest.mark.parametrize(("hops", "observation"), [(1, "paper"), (2, "paper"), ("all", "paper"), (1, "binomial")])
def test_the_prediction_is_what_the_filter_says_of_itself(
    samples: int, hops: int | str, observation: str, tmp_path: Any
) -> None:
    """Planned for another filter than the one that runs, the number of samples would be that filter's best."""
    links = tmp_path / "ring.csv"
    links.write_text(LINKS, encoding="utf-8")
    level = np.array([5000, 400])
    scheme = Relay(samples=samples, hops_per_slot=hops, guard=False)  # type: ignore[arg-type]
    result = simulate(
        scheme,
        np.tile(level, (24 * 8, 1)),
        graph=links,
        shares=SHARES.tolist(),
        window=24,
        users="roaming",
        observation=observation,
        process_var=[400.0, 25.0],
        runs=1,
        keep_estimates=True,
        burn_in=0,
        jobs=1,
    )
    variances = result["relay"].variances
    assert variances is not None
    found = np.sqrt(variances[0, 24 * 5 :]).mean(axis=(0, 1))
    wanted = predicted_deviation(
        facts("roaming", None if hops == "all" else hops, observation=observation, level=level.astype(float)), [samples]
    )[0]
    # A binomial variance is made of estimated levels there, and of the expected one here.
    np.testing.assert_allclose(found, wanted, rtol=1e-5 if observation == "paper" else 0.02)


def test_staggered_records_that_come_late_are_counted_when_they_are_there() -> None:
    """Written out for one receiver, slot by slot, with the records that have arrived by then."""
    phases = np.array([0, 4, 8, 12, 16, 20, 22])
    some = facts(phases=lambda samples: phases)
    due = np.array([[((3 * t - phases) // 24 > (3 * (t - 1) - phases) // 24)] for t in range(24)])[:, 0]
    noise = 2 * np.exp(-1 / 3) / (1 - np.exp(-1 / 3)) ** 2
    weight = SHARES[:, None] ** 2 / (noise + np.maximum(SHARES[:, None] ** 2 * [400.0, 25.0], 1 / 12))
    total = np.zeros(2)
    for receiver in range(7):
        for now in range(24 * 4, 24 * 5):
            variance = np.full(2, np.inf)
            for slot in range(now + 1):
                there = due[slot % 24] & (some.delays[receiver] <= now - slot)
                information = 1 / (variance + PROCESS_VAR) + weight[there].sum(axis=0)
                with np.errstate(divide="ignore"):
                    variance = 1 / information
            total += np.sqrt(variance)
    np.testing.assert_allclose(predicted_deviation(some, [3])[0], total / (7 * 24), rtol=1e-6)


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 20.0])
@pytest.mark.parametrize("delays", [None, 1])
def test_the_best_number_is_the_fewest_that_is_good_enough(epsilon: float, delays: int | None) -> None:
    """All numbers are tried; the search must not stop at a local dip, nor take more samples than it needs."""
    spread = np.arange(7) * 96 // 7
    some = facts(delays=delays, guarantee=Guarantee.window(96, epsilon), phases=lambda samples: spread)
    errors = predicted_error(some, range(1, 97))
    chosen = best_samples(some)
    enough = np.flatnonzero(errors <= (1 + prediction.TOLERANCE) * errors.min()) + 1
    assert errors[chosen - 1] <= 1.03 * errors.min()
    assert chosen <= 1.1 * enough[0] + 1


def test_more_privacy_wants_fewer_samples_and_a_livelier_crowd_more() -> None:
    """The two ends between which n lies: noise that grows with n, and a crowd that moves on between samples."""
    spread = np.arange(7) * 96 // 7

    def chosen(epsilon: float, scale: float) -> int:
        model = ProcessModel.of(1.0, [400.0 * scale, 25.0 * scale])
        guarantee = Guarantee.window(96, epsilon)
        return best_samples(facts(guarantee=guarantee, model=model, phases=lambda samples: spread))

    assert chosen(0.05, 1.0) < chosen(1.0, 1.0) < chosen(20.0, 1.0)
    assert chosen(1.0, 0.01) < chosen(1.0, 1.0) < chosen(1.0, 100.0)
    assert chosen(1.0, 0.0) == 1, "of a crowd that never changes one sample with the whole epsilon says most"


def test_servers_that_hear_nobody_have_their_own_records() -> None:
    """Delays of -1: an information of 0 from the others, not an error."""
    alone = facts(delays=1)
    apart = np.where(np.eye(7, dtype=bool), 0, -1)
    lonely = PublicFacts(**{**vars_of(alone), "delays": apart})
    assert predicted_error(lonely, [6])[0] > predicted_error(alone, [6])[0]


def vars_of(some: PublicFacts) -> dict[str, Any]:
    from dataclasses import fields

    return {f.name: getattr(some, f.name) for f in fields(some)}


def test_long_horizons_and_many_regions_are_looked_at_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """A year of minutes, or a thousand regions, must not take hours or all memory."""
    monkeypatch.setattr(prediction, "MOST_SLOTS", 64)
    variances = np.geomspace(1.0, 1e6, 300)
    some = facts(guarantee=Guarantee.finite(100_000, 1.0), model=ProcessModel.of(1.0, variances))
    assert len(some.regions) == 12
    assert some.process_var[0] == 1.0
    assert some.process_var[-1] == 1e6
    assert 100_000 * 8 / 64 <= best_samples(some) <= 100_000


@pytest.mark.parametrize("process_var", [100.0, 1.0, 0.01])
def test_a_calm_crowd_is_predicted_in_its_steady_state(process_var: float) -> None:
    """One window says little about a crowd that hardly changes: after it, the filter still learns for a long time."""
    guarantee = Guarantee.window(24, 1.0)
    alone = {"shares": np.ones(1), "delays": np.zeros((1, 1), dtype=np.int64), "phases": lambda _: np.zeros(1)}
    model = ProcessModel.of(1.0, [process_var])
    one = replace(facts(), guarantee=guarantee, model=model, level=np.array([50.0]), observation="binomial", **alone)
    noise = prediction.record_noise(one, 24)
    # The posterior variance P of a random walk that is measured in every slot: P (P + Q) = Q R.
    steady = 0.5 * (np.sqrt(process_var**2 + 4.0 * process_var * noise) - process_var)
    assert predicted_deviation(one, [24])[0, 0] == pytest.approx(np.sqrt(steady), rel=0.005)


def test_what_is_predicted_for_a_number_does_not_depend_on_the_others() -> None:
    """Numbers of samples reach their steady states after different times."""
    slow = facts(model=ProcessModel.of(1.0, [0.05, 25.0]))
    together = predicted_deviation(slow, [1, 4, 24])
    np.testing.assert_array_equal(together, [predicted_deviation(slow, [number])[0] for number in (1, 4, 24)])


def test_a_finite_stream_is_not_predicted_as_one_without_end() -> None:
    """It ends before a calm crowd is known as well as it could be."""
    calm = ProcessModel.of(1.0, [0.005, 0.005])
    finite = facts(model=calm, guarantee=Guarantee.finite(24, 1.0))
    assert (predicted_deviation(finite, [4]) > 1.2 * predicted_deviation(facts(model=calm), [4])).all()


def test_with_a_model_regions_count_by_their_people() -> None:
    """One region of three people would decide how often all are sampled: its relative error is the largest."""
    levels = np.array([3.0, 2000.0, 5000.0])
    model = ProcessModel.around(Course(levels[None], np.square(0.1 * levels)[None]), np.full(3, 0.7))
    crowd = facts(model=model, level=levels, observation="binomial")
    numbers = [1, 4, 16]
    deviation = prediction.predicted_deviation(crowd, numbers)
    assert prediction.predicted_error(crowd, numbers) == pytest.approx(deviation.sum(axis=1) / levels.sum())
    without_first = ProcessModel.around(Course(levels[None, 1:], np.square(0.1 * levels[1:])[None]), np.full(2, 0.7))
    large = facts(model=without_first, level=levels[1:], observation="binomial")
    assert best_samples(crowd) == best_samples(large)
    without = facts(model=ProcessModel.of(1.0, np.array([1.0, 400.0])), level=levels[:2])
    relative = prediction.predicted_deviation(without, numbers) / levels[:2]
    assert prediction.predicted_error(without, numbers) == pytest.approx(relative.mean(axis=1)), "as in the paper"


@pytest.mark.parametrize(("epsilon", "worth"), [(0.3, True), (0.03, False)])
def test_servers_that_learn_shares_meet_where_it_costs_little(epsilon: float, worth: bool) -> None:
    """Where n divides w, shares of servers that take turns cannot be told from moves of the crowd. Where records say
    hardly more than the model, more and noisier ones would recognise later that a crowd leaves it."""
    course = Course(np.array([[3000.0]]), np.array([[1e4]]))
    some = PublicFacts(
        model=ProcessModel.around(course, np.array([0.9]), np.array([1e4])),
        guarantee=Guarantee.window(24, epsilon),
        shares=np.full(12, 1.0 / 12),
        delays=np.zeros((1, 12), dtype=np.int64),
        phases=lambda _: np.arange(12) * 2,
        observation="binomial",
        level=np.array([3000.0]),
        meetings=True,
    )
    plain, chosen = best_samples(replace(some, meetings=False)), best_samples(some)
    assert not all_meet(plain, 24, some.phases(plain)), "the case would show nothing"
    assert (chosen != plain, all_meet(chosen, 24, some.phases(chosen))) == (worth, worth)
    errors = predicted_error(some, [plain, chosen])
    assert errors[1] <= 1.1 * errors[0]
