"""Claims on simulated results, and how often their tests err where nothing is to be found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpcrowd.experiments.claims import CLAIMS, Claim, Verdict, judge_all
from dpcrowd.experiments.claims.cases import curve_below, curve_shape, decide
from dpcrowd.experiments.figures import FIGURES, Values
from dpcrowd.experiments.points.run import run_points
from dpcrowd.experiments.points.store import Store
from dpcrowd.sim.backends import Backend
from experiments_support import tiny_plan

TRIALS = 600
RUNS = 20


def test_a_claim_of_many_parts_errs_in_five_of_a_hundred_cases_at_most() -> None:
    """Schemes that do not differ: some part of a claim with 8 intervals is decided in 5% of 600 trials or less.

    With 600 trials and a rate of 5%, more than 55 errors have a probability below 1e-5. Without the correction the rate
    would be 1 - 0.95^8, about 34%.
    """
    rng = np.random.default_rng(20)
    wrong = 0
    for _ in range(TRIALS):
        curves = [[Values("", rng.normal(1.0, 0.3, RUNS), str(x)) for x in range(8)] for _ in range(2)]
        verdict = decide([curve_below("", curves[0], curves[1])])
        single = [curve_below("", [a], [b]) for a, b in zip(*curves, strict=True)]
        parts = decide(single).parts
        wrong += any(part.outcome != "undecided" for part in parts)
        assert verdict.outcome != "holds" or all(part.outcome == "holds" for part in parts)
    assert wrong <= 55


def test_what_is_level_is_rarely_called_uneven() -> None:
    """Five equal means with a tenth of spread: never refuted in 200 trials, and nearly always shown to be level."""
    rng = np.random.default_rng(21)
    found = []
    for _ in range(200):
        curve = [Values("", rng.normal(1.0, 0.1, RUNS), str(x)) for x in range(5)]
        found.append(decide([curve_shape("level", "", curve)]).outcome)
    assert "does not hold" not in found
    assert found.count("holds") > 150


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str | None], tuple[Claim, Verdict | None]]:
    """All claims on the tiny reproduction: real points, a real store, no real data sets."""
    plan = tiny_plan(slots=30, runs=4)
    store = Store(Path(tmp_path_factory.mktemp("points")))
    figures = [figure for figure in FIGURES if figure.number <= 7]
    wanted = {figure.name: figure.points(plan) for figure in figures}
    results = run_points(plan, wanted, store, Backend("local", 1, None))
    found = judge_all(plan, results, {figure.number for figure in figures})
    return {(claim.name, claim.ledger): (claim, verdict) for claim, verdict in found}


def test_all_claims_can_be_judged_on_a_real_reproduction(
    judged: dict[tuple[str, str | None], tuple[Claim, Verdict | None]],
) -> None:
    """A claim that asks for a point or a scheme that no figure simulates would end the report."""
    assert len(judged) == len(CLAIMS)
    unjudged = {claim.name for claim, verdict in judged.values() if verdict is None}
    assert unjudged == {
        "error_analysis_with_neighbours_matches_on_flu",
        "dpcrowd_converges_better_on_flu",
        "flu_is_harder_than_linear",
        "linear_is_easiest",
        "plus_leads_most_on_multi_flu",
    }


def test_what_must_come_out_even_in_a_tiny_reproduction(
    judged: dict[tuple[str, str | None], tuple[Claim, Verdict | None]],
) -> None:
    """Effects of tens of standard errors: packets, frequencies, and that one hop is one hop."""
    for name in (
        "messages_go_one_hop",
        "dpcrowd_sends_far_fewer_packets",
        "dfast_packets_grow_steeply",
    ):
        verdict = judged[name, None][1]
        assert verdict is not None
        assert verdict.outcome == "holds", verdict
    frequency = judged["fixed_frequency_falls_with_interval", None][1]
    assert frequency is not None
    assert frequency.parts[0].outcome == "holds"
    assert frequency.parts[-1].case == "Flu"
    assert frequency.outcome == "undecided"
