"""The compiled loop of the prediction where users stay, against the array operations that it stands for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.prediction import PublicFacts, predicted_deviation
from dpcrowd.schemes.prediction_staying import ArrivingRecords, StayingState

pytest.importorskip("numba", reason="the extra 'fast' is not installed: there are no compiled loops to test")

SERVERS, RECEIVERS, REGIONS = 7, 4, 3
LEVEL = np.array([5000.0, 300.0, 2.0])
EQUAL = np.full(SERVERS, 1.0 / SERVERS)
OVERLAPPING = np.linspace(0.05, 0.9, SERVERS)
BY_REGION = np.stack([EQUAL, OVERLAPPING, EQUAL], axis=1)


def facts(shares: Any = EQUAL, blocks: int = 1, **more: Any) -> PublicFacts:
    """Servers that sample in turn; records take up to two slots, and some never arrive."""
    rng = np.random.default_rng(5)
    settings: dict[str, Any] = {
        "guarantee": Guarantee.window(12, 3.0),
        "model": ProcessModel.of(0.98, [40.0, 4.0, 0.1]),
        "shares": shares,
        "delays": rng.integers(-1, 3, (blocks * RECEIVERS, SERVERS)),
        "phases": lambda _samples: np.arange(SERVERS) * 5 % 12,
        "observation": "binomial",
        "level": LEVEL,
        "turnover": 0.1,
        "blocks": blocks,
        "engine": "numba",
    }
    return PublicFacts(**{**settings, **more})


@pytest.mark.parametrize("blocks", [1, 3], ids=["links stay", "links change"])
@pytest.mark.parametrize("shares", [EQUAL, OVERLAPPING, BY_REGION], ids=["partition", "overlapping", "by region"])
def test_compiled_and_array_operations_predict_the_same_bits(shares: Any, blocks: int) -> None:
    """Servers without Numba would choose another number of samples than the plan of one that has it."""
    compiled = facts(shares, blocks)
    numbers = [1, 4, 12]
    ours, oracle = (
        predicted_deviation(replace(compiled, engine=engine), numbers).tobytes() for engine in ("numba", "numpy")
    )
    assert ours == oracle


def test_one_server_and_one_region_are_the_same_bits() -> None:
    """Sums of a single column are added in an order of their own by NumPy."""
    alone = facts(
        np.array([0.5]),
        delays=np.zeros((1, 1), dtype=np.int64),
        phases=lambda _samples: np.zeros(1, dtype=np.int64),
        model=ProcessModel.of(1.0, [9.0]),
        level=np.array([70.0]),
    )
    assert predicted_deviation(alone, [3]) == predicted_deviation(replace(alone, engine="numpy"), [3])


@pytest.mark.parametrize("shares", [EQUAL, OVERLAPPING, BY_REGION], ids=["partition", "overlapping", "by region"])
@pytest.mark.parametrize("age", [0, 1, 2])
def test_one_slot_is_the_same_whatever_was_believed_before(shares: Any, age: int) -> None:
    """Receivers without an estimate, without records and with more in common than their variance allows are rare."""
    rng = np.random.default_rng(age)
    compiled = ArrivingRecords(facts(shares), (1, 2), (40.0, 700.0))
    arrays = ArrivingRecords(facts(shares, engine="numpy"), (1, 2), (40.0, 700.0))
    var = rng.exponential(50.0, compiled.shape[1:])
    var[rng.random(var.shape) < 0.3] = np.inf
    cross = rng.normal(0.0, 30.0, compiled.shape)
    cross[:, np.isinf(var)] = 0.0
    state, silent = StayingState(var, cross), 0
    for slot in range(12):
        ours, oracle = compiled.followed(state, slot, age), arrays.followed(state, slot, age)
        assert np.array_equal(ours.var, oracle.var)
        assert np.array_equal(ours.cross, oracle.cross)
        silent += arrays.of_slot(slot, age, LEVEL[None]) is None
    assert age > 0 or 0 < silent < 12
