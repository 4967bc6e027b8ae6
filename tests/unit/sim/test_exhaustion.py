"""When a finite budget counts as exhausted, from charges that are written down slot by slot."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.sim import simulate as simulate_module
from dpcrowd.sim.exhaustion import exhausted_slots
from dpcrowd.sim.simulate import simulate
from sim_support import TINY


def slots_of(*servers: str, total: int = 3, horizon: int | None = None) -> list[float | None]:
    """The answer for servers whose samples are the x of a text; each costs 1."""
    charges = np.array([[mark == "x" for mark in server] for server in servers], dtype=np.int64).T[:, :, None]
    length = len(servers[0]) if horizon is None else horizon
    return [None if np.isnan(slot) else float(slot) for slot in exhausted_slots(charges, total, length)]


def test_it_is_the_slot_after_the_last_sample_that_the_budget_paid_for() -> None:
    """A wrong slot, or a slot of a server that has budget left, would say that a scheme fails where it does not."""
    assert slots_of("xxx.....") == [3.0]
    assert slots_of("x.x.x....") == [5.0]
    assert slots_of("xx......") == [None], "one more sample could be paid"
    assert slots_of("........") == [None], "never sampled, nothing spent"
    assert slots_of("xxx.....", "xx......", "..xx.x..") == [3.0, None, None]


def test_a_schedule_that_ends_with_its_last_interval_is_not_exhausted() -> None:
    """Every third slot until the end is what was planned: from the last sample to the end is one interval."""
    assert slots_of("x..x..x..") == [None]
    assert slots_of("x..x..x...", horizon=9) == [7.0], "the horizon ended before the data"
    assert slots_of("x..x..x....") == [7.0], "longer without a sample than ever before"
    assert slots_of("..x.......", total=1) == [None], "one sample was planned for all slots"
    assert slots_of(".....xxx...") == [None], "the wait for the first sample counts, too"


def test_with_a_ledger_per_region_every_region_must_be_exhausted() -> None:
    """A server that still samples one of its regions goes on."""
    charges = np.zeros((6, 2, 2), dtype=np.int64)
    charges[:2] = 1
    charges[2, 1, 0] = 1
    assert exhausted_slots(charges, 2, 6).tolist() == pytest.approx([2.0, 3.0])
    charges[5, 0, 1] = 1
    assert np.isnan(exhausted_slots(charges, 3, 6)[0])


def test_a_finite_scheme_says_so_and_a_window_never_does() -> None:
    """An adaptive scheme spends T_s samples early; a sliding window gets its budget back."""
    result = simulate("fast,kalman-uniform", "multi-linear", **{**TINY, "slots": 60})
    fast, uniform = result.summary()
    record = result["fast"]
    assert record.exhausted_at is not None
    assert record.exhausted_at.shape == (TINY["runs"], TINY["servers"])
    assert fast["exhausted_at"] == int(np.nanmedian(record.exhausted_at))
    assert fast["exhausted_servers"] == np.isfinite(record.exhausted_at).mean()
    assert any("fast: budget exhausted at slot" in note for note in result.notes)
    assert (uniform["exhausted_at"], uniform["exhausted_servers"]) == (None, 0.0)
    window = simulate("dpcrowd-w,sample", window=10, **TINY)
    assert all(record.exhausted_at is None for record in window.records.values())
    assert [row["exhausted_at"] for row in window.summary()] == [None, None]


def test_a_horizon_that_ends_before_the_data_is_exhausted() -> None:
    """After the horizon nothing is paid any more, whatever the scheme."""
    row = simulate("kalman-uniform", horizon=40, **{**TINY, "slots": 100}).summary()[0]
    assert (row["exhausted_at"], row["exhausted_servers"]) == (40, 1.0)


@pytest.mark.parametrize("scheme", ["fast", "dfast", "dpcrowd", "kalman-uniform", "relay"])
def test_a_horizon_that_is_over_with_budget_left_is_said(scheme: str) -> None:
    """Predictions of 400 slots, without one sample, were scored as if they were the scheme's estimates."""
    setting = {**TINY, "slots": 100, "runs": 1, "keep_estimates": True, "horizon": 20, "burn_in": 30}
    result = simulate(scheme, jobs=1, **setting)
    (row,) = result.summary()
    assert row["horizon_over_at"] == 20
    assert row["frequency"] == 0.0
    texts = [text for text in result.warnings if "horizon over" in text]
    over = f"{scheme}: horizon over at slot 20 of 100: no samples since, only predictions"
    expected = [f"{over}, and no slot that is scored has one."] if row["exhausted_servers"] < 1.0 else []
    assert texts == expected
    assert texts or any("budget exhausted" in text for text in result.warnings)
    later = simulate(scheme, jobs=1, **{**setting, "burn_in": 10})
    assert [text for text in later.warnings if "horizon over" in text] == [f"{over}."] * len(expected)
    assert simulate(scheme, jobs=1, **{**setting, "horizon": 100}).summary()[0]["horizon_over_at"] is None


def test_batches_keep_the_end_of_the_horizon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many runs are simulated in batches; the merged record must not lose what each of them says."""
    monkeypatch.setattr(simulate_module, "_BATCH_VALUES", 1)
    result = simulate("fast,dpcrowd", horizon=20, jobs=1, **TINY)
    assert [row["horizon_over_at"] for row in result.summary()] == [20, 20]


def test_schemes_that_are_exhausted_alike_share_a_remark() -> None:
    """Three lines that differed by a name alone pushed the other warnings out of sight."""
    result = simulate("kalman-uniform,fast,dkalman-uniform", horizon=40, **{**TINY, "slots": 100})
    rows = {row["scheme"]: (row["exhausted_at"], row["exhausted_servers"]) for row in result.summary()}
    assert rows["kalman-uniform"] == rows["dkalman-uniform"] == (40, 1.0), "each scheme keeps its own"
    texts = [text for text in result.warnings if "exhausted at slot 40 of 100" in text]
    assert texts == [
        "kalman-uniform, dkalman-uniform: budget exhausted at slot 40 of 100 (the median of the 100% of the servers "
        "that ran out); these take no more samples."
    ]
