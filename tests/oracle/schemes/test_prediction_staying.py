"""The prediction where users stay, against the fresh one and against what two servers can know at most."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes import prediction_staying
from dpcrowd.schemes.prediction import PublicFacts, best_samples, predicted_deviation

LEVEL = np.array([5000.0, 300.0])


def facts(turnover: float, **more: Any) -> PublicFacts:
    """Three servers that sample in turn; records of the last one are late by two slots."""
    settings: dict[str, Any] = {
        "guarantee": Guarantee.window(12, 3.0),
        "model": ProcessModel.of(1.0, [40.0, 4.0]),
        "shares": np.array([0.3, 0.5, 0.1]),
        "delays": np.array([[0, 0, 2], [0, 0, -1], [2, 1, 0]]),
        "phases": lambda _samples: np.array([0, 4, 8]),
        "observation": "binomial",
        "level": LEVEL,
        "turnover": turnover,
    }
    return PublicFacts(**{**settings, **more})


@pytest.mark.parametrize("shares", [[0.3, 0.5, 0.1], [0.3, 0.6, 0.1]], ids=["overlapping", "partition"])
@pytest.mark.parametrize("samples", [10, 40, 120])
def test_a_turnover_of_nearly_one_is_the_prediction_of_fresh_deviations(samples: int, shares: list[float]) -> None:
    """Schedule, delays, Q and the covariance of a partition must mean the same in both recursions."""
    long: dict[str, Any] = {"guarantee": Guarantee.window(120, 30.0), "phases": lambda _samples: np.array([0, 40, 80])}
    long["shares"] = np.array(shares)
    staying = predicted_deviation(facts(1.0 - 1e-9, **long), [samples])
    np.testing.assert_allclose(staying, predicted_deviation(facts(1.0, **long), [samples]), rtol=0.005)


def test_a_server_whose_users_never_change_is_uncertain_by_its_deviation() -> None:
    """However often it samples, one server with half of r people cannot tell r from its own deviation."""
    alone = {"shares": np.array([0.5]), "delays": np.zeros((1, 1), dtype=np.int64), "phases": lambda _: np.zeros(1)}
    calm = {"model": ProcessModel.of(1.0, [1e-3, 1e-3]), "guarantee": Guarantee.window(12, 1000.0)}
    variance = np.square(predicted_deviation(facts(1e-4, **alone, **calm), [12])[0])
    np.testing.assert_allclose(variance, 0.25 * LEVEL / 0.25, rtol=0.1)
    assert (np.square(predicted_deviation(facts(1.0, **alone, **calm), [12])[0]) < 0.1 * variance).all()


def test_deviations_of_a_partition_cancel_where_all_servers_are_heard() -> None:
    """All users together are the crowd: with little noise nothing is left to be uncertain about."""
    parts = {"shares": np.array([0.3, 0.6, 0.1]), "delays": np.zeros((3, 3), dtype=np.int64)}
    together = {**parts, "phases": lambda _: np.zeros(3, dtype=np.int64), "guarantee": Guarantee.window(12, 120.0)}
    noise = 3 * 2 * (12 / 120.0) ** 2  # at most, of three records
    assert (np.square(predicted_deviation(facts(0.02, **together), [12])[0]) <= noise + 1.0).all()
    assert (np.square(predicted_deviation(facts(1.0, **together), [12])[0]) <= noise).all()
    apart = facts(1.0, cancellation=False, **together)
    assert (predicted_deviation(apart, [12])[0] > 1.5).all()


def test_the_paper_s_observation_and_full_matrices_have_no_memory_of_deviations() -> None:
    """Relay's filter has none there, and neither may its plan."""
    for more in ({"observation": "paper"}, {"form": "matrix"}):
        assert (predicted_deviation(facts(0.02, **more), [3]) == predicted_deviation(facts(1.0, **more), [3])).all()


def test_the_best_number_of_samples_knows_of_it() -> None:
    """More samples do not average a deviation out that stays: less noise in each is worth more."""
    assert best_samples(facts(0.02)) <= best_samples(facts(1.0))


@pytest.mark.slow
@pytest.mark.parametrize("turnover", [0.5, pytest.param(0.02, marks=pytest.mark.slow)])
def test_numbers_of_samples_side_by_side_are_those_one_after_the_other(
    turnover: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are followed in one array for speed; what is predicted for one must not depend on the others."""
    numbers = [1, 3, 5, 12]
    changing = {"delays": np.array([[0, 0, 2], [0, 0, -1], [2, 1, 0], [0, 1, 1], [0, 0, 0], [1, 2, 0]]), "blocks": 2}
    for more in ({}, {"model": ProcessModel.of(1.0, [40.0, 1e-4])}, changing):
        together = predicted_deviation(facts(turnover, **more), numbers)
        alone = [predicted_deviation(facts(turnover, **more), [number])[0] for number in numbers]
        np.testing.assert_allclose(together, alone, rtol=1e-12)
        monkeypatch.setattr(prediction_staying, "_CELLS_TOGETHER", 1)
        np.testing.assert_allclose(predicted_deviation(facts(turnover, **more), numbers), alone, rtol=1e-12)
        monkeypatch.undo()
