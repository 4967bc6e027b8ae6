"""Schemes under shares that change from slot to slot (the paper's H_i(t)), and other settings that were once unfair."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd import Guarantee, Server, Setting, Tuning, simulate
from dpcrowd.errors import BadInput
from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import SeededNoise
from dpcrowd.schemes.dpcrowd import DPCrowd
from dpcrowd.schemes.messages import InfoMessages
from dpcrowd.schemes.nonprivate import NonPrivate

SMALL = {"servers": 6, "density": 0.5, "runs": 3, "seed": 1}


@pytest.mark.parametrize(
    "scheme", ["sample", "ba", *(pytest.param(name, marks=pytest.mark.slow) for name in ("bd", "pegasus", "rescuedp"))]
)
def test_an_old_count_belongs_to_the_share_of_its_own_slot(scheme: str) -> None:
    """Divided by today's share, a value that is kept would be wrong by the ratio of the two shares, up to twenty."""
    still, small = np.full(80, 50_000), SMALL | {"runs": 2}
    error = {
        shares: simulate(scheme, still, window=20, process_var=100.0, shares=shares, **small)[scheme].are.mean()
        for shares in ("uniform", "per-slot")
    }
    assert error["per-slot"] < 4 * error["uniform"] + 0.01


def test_pegasus_groups_are_as_long_as_the_counts_stand_still() -> None:
    """Were a group no longer than the window, event-level PeGaSus (w = 1) would be Uniform with less budget."""
    still = np.full(150, 1000)
    result = simulate("pegasus,uniform", still, window=1, epsilon=0.1, turnover=1.0, **SMALL)
    assert result.compare("pegasus", "uniform").ratio < 0.9


@pytest.mark.slow
def test_roaming_users_leave_no_budget_unspent() -> None:
    """A slot costs at most epsilon/T; with only T_s samples at that price, most of epsilon would be lost."""
    rising = np.cumsum(np.random.default_rng(0).integers(0, 4000, 100)) + 1000  # always something to sample
    result = simulate("dpcrowd", rising, users="roaming", tuning={"xi": 0.001}, burn_in=0, **SMALL)
    paid = [paid.epsilons()["roaming"] for paid in result["dpcrowd"].paid]
    assert all(0.9 < epsilon <= 1.0 for epsilon in paid)


def server(**changes: object) -> Server:
    guarantee = Guarantee.finite(50, changes.pop("epsilon", 1.0))  # type: ignore[arg-type]
    setting = Setting(1, ProcessModel.of(1.0, [4.0, 9.0]), guarantee)
    options = {"number": 1, "share": 0.5, "max_degree": 2, "allow_simulated_noise": True} | changes
    return Server(DPCrowd(), setting, SeededNoise([np.random.SeedSequence(0)], 1, 2), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("changes", [{"epsilon": 5.0}, {"number": 2}, {"share": 0.9}])
def test_a_state_goes_back_only_where_it_was_made(changes: dict[str, object]) -> None:
    """Under another epsilon a restored server would claim noise that it did not add."""
    first = server()
    first.observe(0, [10, 20])
    saved = first.save()
    with pytest.raises(BadInput, match="another server or setting"):
        server(**changes).restore(saved)
    server().restore(saved)


def test_exact_counts_are_never_saved() -> None:
    """Between observing and hearing, NonPrivate holds what it is about to send: the raw counts."""
    setting = Setting(1, ProcessModel.of(1.0, [4.0]), None)
    noise = SeededNoise([np.random.SeedSequence(0)], 1, 1)
    honest = Server(NonPrivate(), setting, noise, number=0, share=0.5, allow_simulated_noise=True)
    honest.observe(0, [12345])
    with pytest.raises(BadInput, match="keeps raw counts"):
        honest.save()


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("info_vec", np.nan, "info_vec with NaN or infinity"),
        ("prior", np.inf, "prior with NaN or infinity"),
        ("info_mat", -5.0, "not positive semi-definite"),
    ],
)
def test_a_poisoned_message_is_refused_and_changes_nothing(field: str, value: float, words: str) -> None:
    """One NaN that is fused stays in the estimate for ever; a negative information makes a negative variance."""
    clean = {
        "speaks": np.array([True]),
        "info_vec": np.ones((1, 2)),
        "info_mat": np.ones((1, 2)),
        "prior": np.ones((1, 2)),
        "prior_known": np.ones((1, 2), dtype=bool),
    }
    ours = server()
    ours.observe(0, [10, 20])
    with pytest.raises(BadInput, match=f"server 7 sent .*{words}"):
        ours.hear({7: InfoMessages(**{**clean, field: np.full((1, 2), value)})})
    assert np.isfinite(ours.hear({7: InfoMessages(**clean)}).estimate).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"xi": 0},
        {"alpha": -1},
        {"sample_fraction": 0},
        {"sample_fraction": float("nan")},
        {"history": 0},
        {"tau1": "x"},
        {"integral_window": 1.5},
        {"gains": (1,)},
        {"theta": True},
        {"gains": (0.9, 0.1, float("inf"))},
    ],
)
def test_tuning_that_means_nothing_is_refused(wrong: dict[str, object]) -> None:
    """A negative weight or an empty memory would end in a traceback, or in estimates that mean nothing."""
    with pytest.raises(BadInput, match=f"tuning parameter {next(iter(wrong))} must be"):
        Tuning(**wrong)  # type: ignore[arg-type]
