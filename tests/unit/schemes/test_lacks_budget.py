"""Whether a slot has no sample because none was due, or because the budget does not pay for one that was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpcrowd
from dpcrowd import Guarantee, ProcessModel, SeededNoise
from dpcrowd.schemes.base import Setting
from node_support_relay import facts_of

WINDOW = 8


def make(scheme: Any) -> dpcrowd.Server:
    setting = Setting(1, ProcessModel.of(1.0, np.full(2, 100.0)), Guarantee.window(WINDOW, 1.0))
    noise = SeededNoise([np.random.SeedSequence(0)], 1, 2)
    return dpcrowd.Server(scheme, setting, noise, number=0, share=0.5, max_degree=1, allow_simulated_noise=True)


@pytest.mark.parametrize(
    ("server", "regions"),
    [
        (lambda: make(dpcrowd.DPCrowdW("fixed", interval=4)), 2),
        (lambda: make(dpcrowd.DPCrowdPlus()), 2),
        (lambda: facts_of(lag=5).server(0), 3),
    ],
    ids=["dpcrowd-w", "dpcrowd-plus", "relay"],
)
def test_a_sample_that_is_due_and_not_paid_is_told_from_one_that_is_not_due(server: Any, regions: int) -> None:
    """Operators would look for a lack of budget where the schedule simply has no sample, or miss a real one."""
    node = server()
    for slot in range(2 * WINDOW):
        node.observe(slot, np.full(regions, 100))
        assert not node.lacks_budget, "what it spends itself never stops what is due"
        node.hear()
    node._state.ledger.total = 0
    lacks = []
    for slot in range(2 * WINDOW, 3 * WINDOW - 1):
        node.observe(slot, np.full(regions, 100))
        lacks.append(node.lacks_budget)
        assert node.open_sample() is None or not node.lacks_budget
        node.hear()
    assert any(lacks)
