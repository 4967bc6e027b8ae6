"""`dpcrowd.tune`: what is searched, on which runs, and that the result is what it says it is."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpcrowd
from dpcrowd.errors import BadInput
from dpcrowd.experiments.tune import search
from dpcrowd.experiments.tune import tune as tune_module
from dpcrowd.experiments.tune.likelihood import collect_samples
from dpcrowd.experiments.tune.transition import residual_var, transition_from_counts
from dpcrowd.experiments.tune.tune import SEED_OFFSET, TUNABLE, _on_span, tuned_names
from dpcrowd.experiments.tune.tune import tune as tune_sampling
from dpcrowd.experiments.tune.write import toml_text
from dpcrowd.schemes.registry import SCHEMES
from dpcrowd.sim.config import SimulationConfig
from dpcrowd.sim.configure import configure
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.data.span import cut
from dpcrowd.sim.tuned import counts_digest, read_tuned
from sim_support import write_checkins

tune = partial(tune_sampling, search_variance=True)
SMALL: dict[str, Any] = {"servers": 4, "density": 0.5, "burn_in": 5}
LONG = np.abs(300 + np.random.default_rng(8).normal(0, 12, (48, 2)).cumsum(axis=0)).astype(np.int64)
COUNTS = LONG[:32]


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[SimulationConfig]:
    """The simulations that a search asks for. None is run: the first, of the present parameters, scores best."""
    configs: list[SimulationConfig] = []

    def evaluate(config: SimulationConfig) -> search.TuningScores:
        configs.append(config)
        score = 0.1 if len(configs) == 1 else 0.2
        return search.TuningScores(score, score, coverage=0.95)

    monkeypatch.setattr(search, "evaluate", evaluate)
    return configs


@pytest.mark.parametrize("scheme", TUNABLE)
@pytest.mark.slow
def test_every_scheme_gets_its_own_parameters_and_is_never_worse(scheme: str) -> None:
    """Present parameters are in the first population, so a result above them would be a bug of the search."""
    window = {"window": 10} if "finite" not in SCHEMES[scheme].kinds else {}
    evaluations = search.population(TUNABLE[scheme])
    tuned = tune(scheme, COUNTS, runs=1, evaluations=evaluations, jobs=1, allow_exhausted=True, **SMALL, **window)
    assert tuned.crps_after <= tuned.crps_before
    assert tuned.coverage_after >= min(tuned.coverage_before, 0.9)
    assert ("process_var", *tuned.tuning) == TUNABLE[scheme]
    assert (tuned.first, tuned.last, tuned.slots) == (0, 16, 32)
    assert tuned.guarantee == ("window" if window else "finite")
    assert tuned.length == (10 if window else 32)
    assert tuned.sha256 == counts_digest(COUNTS[:16])


def test_the_central_filter_has_the_parameters_of_what_its_servers_run() -> None:
    """Beside a window they run DPCrowd+, which knows no T_s; roaming users have none in any scheme."""
    assert tuned_names("central", window=10, variance=True) == ("process_var", "rescue_theta")
    assert tuned_names("dpcrowd", users="roaming") == ("theta", "xi")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["evolution", "likelihood"])
def test_the_error_is_that_of_a_simulation_with_these_parameters(method: str) -> None:
    """Before and after, on the runs of the seed plus the offset, which no simulation takes by default."""
    variance = method == "evolution"
    tuned = tune_sampling(
        "dpcrowd",
        "linear",
        method=method,
        search_variance=variance,
        slots=40,
        runs=2,
        seed=2,
        evaluations=16,
        jobs=1,
        **SMALL,
    )
    for tuning, error in ((None, tuned.are_before), (tuned, tuned.are_after)):
        result = dpcrowd.simulate("dpcrowd", "linear", slots=40, runs=2, seed=SEED_OFFSET + 2, tuning=tuning, **SMALL)
        assert result["dpcrowd"].are.mean() == pytest.approx(error, rel=1e-12)
    assert result["dpcrowd"].coverage95.mean() == pytest.approx(tuned.coverage_after, rel=1e-12)
    assert tuned.are_before != tuned.are_after
    assert "seeds of their own" in tuned.on


@pytest.mark.slow
def test_the_result_depends_on_the_seed_and_not_on_the_processes() -> None:
    """A file that cannot be made again proves nothing."""
    settings: dict[str, Any] = {"window": 10, "runs": 1, "evaluations": 8, **SMALL}
    one, two, other = (
        toml_text(tune("rescuedp", COUNTS, seed=seed, jobs=jobs, **settings)) for seed, jobs in ((0, 1), (0, 2), (1, 1))
    )
    assert one == two
    assert one != other


def test_the_search_is_bounded_and_tells_how_far_it_is(tried: list[SimulationConfig]) -> None:
    """The number of evaluations is the one handle on the time that it takes."""
    steps: list[tuple[int, int]] = []
    tune(
        "rescuedp",
        COUNTS,
        window=10,
        runs=1,
        evaluations=20,
        jobs=1,
        progress=lambda done, total: steps.append((done, total)),
        **SMALL,
    )
    assert steps == [(done, 16) for done in range(1, 17)], "two complete generations of eight"
    assert len(tried) == 1 + 16, "and the present parameters"


def test_the_first_population_holds_the_present_parameters(tried: list[SimulationConfig]) -> None:
    """The search goes on from what is known to work, instead of only falling back to it."""
    tune("dpcrowd", COUNTS, runs=1, evaluations=16, jobs=1, **SMALL)
    present, *population = tried
    assert len(population) == 16
    same = [config.data.model.process_var for config in population if config.tuning == present.tuning]
    assert len(same) == 1
    np.testing.assert_allclose(same[0], present.data.model.process_var, rtol=1e-5)


@pytest.mark.parametrize("objective", search.OBJECTIVES)
def test_no_variance_is_searched_unless_asked_for(objective: str) -> None:
    """A smaller Q often gives a smaller error, and intervals of 15 to 68% instead of 95%: that is left to `fit`."""
    more: dict[str, Any] = {"runs": 1, "evaluations": 12, "jobs": 1, "allow_exhausted": True, **SMALL}
    tuned = tune_sampling("dpcrowd", COUNTS, objective=objective, **more)
    own = cut(counts_from_array(COUNTS), 0, 16).model.process_var
    np.testing.assert_array_equal(tuned.model.process_var, own)
    assert tuple(tuned.tuning) == ("theta", "xi", "sample_fraction")
    before, after = (getattr(tuned, f"{objective}_{when}") for when in ("before", "after"))
    assert after <= before
    assert tuned.objective == objective
    assert tuned_names("rescuedp", window=10) == ("rescue_theta",)


def test_a_variance_is_never_searched_by_error_alone() -> None:
    """That is what made intervals useless; and likelihood finds Q in any case, without an objective."""
    with pytest.raises(BadInput, match="Q is searched with objective 'crps' only; given objective 'are'"):
        tune("dpcrowd", COUNTS, objective="are", **SMALL)
    with pytest.raises(BadInput, match="method 'likelihood' finds Q, and Q alone; leave search_variance"):
        tune("dpcrowd", COUNTS, method="likelihood", **SMALL)
    with pytest.raises(BadInput, match="objective 'are' is for method 'evolution'; likelihood has none"):
        tune_sampling("dpcrowd", COUNTS, method="likelihood", objective="are", **SMALL)


@pytest.mark.parametrize("objective", search.OBJECTIVES)
def test_no_candidate_may_buy_its_score_with_coverage(objective: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the score says: below 90%, and below the present coverage, parameters are refused."""

    def tempting(config: Any) -> search.TuningScores:
        present = config.tuning.theta == 2.5 and config.tuning.xi == 0.05
        return (
            search.TuningScores(0.1, 0.1, coverage=0.93) if present else search.TuningScores(0.01, 0.01, coverage=0.89)
        )

    monkeypatch.setattr(search, "evaluate", tempting)
    tuned = tune_sampling("dpcrowd", COUNTS, objective=objective, runs=1, evaluations=12, jobs=1, **SMALL)
    assert tuned.tuning["theta"] == 2.5
    assert tuned.coverage_after == 0.93


def test_crps_is_the_score_of_estimates_with_their_intervals() -> None:
    """It is 0.234 standard deviations for an exact estimate; without an interval it is the absolute error."""
    config = configure("dpcrowd", COUNTS, **{**SMALL, "burn_in": 1})
    truth = np.array([[9, 9], [100, 50], [100, 50]])
    estimates = np.tile(truth[:, None, :].astype(float), (1, 3, 1))
    variances = np.full(estimates.shape, 25.0)
    exact = search.relative_crps(estimates, variances, truth, config)
    assert exact == pytest.approx(0.2336950 * 5 * (1 / 100 + 1 / 50) / 2, rel=1e-5)
    variances[:], estimates[1:] = np.nan, estimates[1:] + 10
    assert search.relative_crps(estimates, variances, truth, config) == pytest.approx((10 / 100 + 10 / 50) / 2)
    estimates[:] = np.nan
    assert search.relative_crps(estimates, variances, truth, config) == 1.0


@pytest.mark.slow
def test_a_file_is_a_start_like_any_other() -> None:
    """Its parameters are those of the scheme that is tuned; they must not shadow the candidates."""
    settings: dict[str, Any] = {"window": 10, "runs": 1, "evaluations": 8, "jobs": 1, **SMALL}
    first = tune("rescuedp", LONG, **settings)
    assert first.crps_after < first.crps_before
    second = tune("rescuedp", LONG, tuning=first, **settings)
    assert second.crps_before == pytest.approx(first.crps_after)
    assert second.crps_after <= second.crps_before


def test_a_start_beyond_the_axes_is_still_the_one_to_beat(tried: list[SimulationConfig]) -> None:
    """theta = 0 has no logarithm; it is a valid choice all the same, and may be the best."""
    more: dict[str, Any] = {"runs": 1, "evaluations": 12, "jobs": 1, "allow_exhausted": True, **SMALL}
    tuned = tune_sampling("dpcrowd", COUNTS, tuning={"theta": 0.0}, **more)
    assert tuned.tuning["theta"] == 0.0


@pytest.mark.slow
def test_a_budget_that_lasts_is_preferred() -> None:
    """With T_s/T = 0.02 servers took their samples in the first slots and then none: a good score on few runs."""
    more: dict[str, Any] = {"runs": 1, "evaluations": 12, "jobs": 1, **SMALL}
    any_budget = tune_sampling("dpcrowd", LONG, allow_exhausted=True, **more)
    lasting = tune_sampling("dpcrowd", LONG, **more)
    assert any_budget.exhausted_at is not None
    assert 0 < any_budget.exhausted_at < 24
    assert 0.0 < any_budget.exhausted_servers <= 1.0
    assert (lasting.exhausted_at, lasting.exhausted_servers) == (None, 0.0)
    config = replace(configure("dpcrowd", LONG, runs=1, **SMALL), seed=SEED_OFFSET)
    config = search.with_parameters(_on_span(config, 0, 24), any_budget.model, dict(any_budget.tuning))
    scores = search.evaluate(config)
    assert (scores.exhausted_at, scores.exhausted_servers) == (any_budget.exhausted_at, any_budget.exhausted_servers)


def test_of_budgets_that_do_not_last_the_longest_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all candidates run out of budget, one of them has to be the answer, and the result has to say so."""
    lost = iter(np.linspace(0.9, 0.5, 100))
    scores = [search.TuningScores(0.1, 0.1, 0.95, 4, 1.0, 0.8)]

    def exhausted(_config: Any) -> search.TuningScores:
        scores.append(search.TuningScores(0.1, 0.1, 0.95, 4, 1.0, next(lost)))
        return scores[-1]

    monkeypatch.setattr(search, "evaluate", exhausted)
    config = configure("dpcrowd", COUNTS, runs=1, **SMALL)
    best = search.evolve(config, ("theta",), evaluations=10, seed=0, jobs=1)
    assert best.scores.exhausted_at == 4
    assert best.scores is scores[-1], "the last of them loses the fewest slots"


@pytest.mark.slow
def test_the_burn_in_fits_a_short_series() -> None:
    """Twenty slots that are not scored would leave nothing of a series of as many."""
    settings: dict[str, Any] = {"servers": 4, "density": 0.5, "runs": 1, "method": "likelihood"}
    short = tune_sampling("dpcrowd", COUNTS, span="0:18", **settings)
    assert short.burn_in == 1
    assert tune_sampling("dpcrowd", COUNTS, span="0:18", burn_in=7, **settings).burn_in == 7
    assert tune_sampling("dpcrowd", "linear", slots=400, **settings).burn_in == 20
    with pytest.raises(BadInput, match="tuning needs at least 22, since errors count from slot 20 on"):
        tune_sampling("dpcrowd", COUNTS, span="0:18", burn_in=20, **settings)


def test_a_part_of_a_finite_stream_gets_its_part_of_epsilon() -> None:
    """A sample must cost there what it costs in the whole stream, or T_s/T is tuned for another noise."""
    whole = configure("dpcrowd", COUNTS, epsilon=1.0, **SMALL)
    part = _on_span(whole, 8, 16).entrants[0].guarantee
    assert part is not None
    assert (part.length, part.epsilon) == (8, 0.25)
    window = configure("rescuedp", COUNTS, epsilon=1.0, window=10, **SMALL)
    assert _on_span(window, 8, 16).entrants[0].guarantee == window.entrants[0].guarantee
    shares = np.full((32, 4), 0.5)
    assert np.shape(_on_span(configure("dpcrowd", COUNTS, shares=shares, **SMALL), 8, 16).shares) == (8, 4)


@pytest.mark.slow
def test_nothing_outside_the_span_is_looked_at() -> None:
    """Tuned on the past, with any future, the parameters are the same."""
    future = COUNTS.copy()
    future[16:] = 7
    settings: dict[str, Any] = {"window": 10, "runs": 1, "evaluations": 8, "jobs": 1, **SMALL}
    one, other = (tune("rescuedp", counts, span="0:16", **settings) for counts in (COUNTS, future))
    assert toml_text(one) == toml_text(other)
    later = cut(counts_from_array(COUNTS), 8, 32)
    late = tune_sampling("dpcrowd", later, method="likelihood", span="4:20", runs=1, **SMALL)
    assert (late.first, late.last, late.slots) == (12, 28, 32)
    assert late.sha256 == counts_digest(COUNTS[12:28])


def test_samples_are_those_of_the_scheme() -> None:
    """Listening changes nothing, and hears each sample once, with the noise that was paid for."""
    config = configure("dpcrowd", "linear", slots=50, runs=2, **{**SMALL, "burn_in": 0})
    samples = collect_samples(config)
    assert samples.noisy.shape == (50, 2, 4, 1)
    frequency = dpcrowd.simulate("dpcrowd", "linear", slots=50, runs=2, **{**SMALL, "burn_in": 0})["dpcrowd"].frequency
    np.testing.assert_allclose(samples.where.mean(axis=(0, 2, 3)), frequency)
    assert (samples.noisy[~samples.where] == 0).all()
    price = 1.0 / (0.3 * 50)  # epsilon/T_s
    np.testing.assert_allclose(samples.noise_var[samples.where], 0.5 / np.sinh(0.5 * price) ** 2)
    spread = (samples.noisy / samples.shares)[samples.where]
    assert 10_000 < np.median(spread) < 30_000


@pytest.mark.slow
def test_likelihood_takes_regions_apart_where_the_scheme_groups_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """One draw for several regions is a sample of none of them; and a full A becomes the diagonal form's."""
    heard: list[Any] = []

    def listening(config: Any) -> Any:
        heard.append(config.entrants[0].scheme)
        return collect_samples(config)

    monkeypatch.setattr(tune_module, "collect_samples", listening)
    tuned = tune_sampling("dpcrowd-plus", "multi-linear", method="likelihood", slots=60, window=10, runs=1, **SMALL)
    assert [(scheme.name, scheme.grouping) for scheme in heard] == [("dpcrowd-plus", "none")]
    assert tuned.model.process_var.shape == (6,)
    assert tuned.model.transition == 1.0
    assert dict(tuned.tuning) == {}
    assert "have no likelihood and stay as they are" in toml_text(tuned)


def test_a_region_without_a_likelihood_keeps_its_variance(monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN in a file would be refused when it is read, after all the work."""
    monkeypatch.setattr(tune_module, "most_likely_var", lambda *given, **more: np.array([np.nan, 17.0]))
    tuned = tune_sampling("dpcrowd", COUNTS, method="likelihood", runs=1, **SMALL)
    own = cut(counts_from_array(COUNTS), 0, 16).model.process_var
    np.testing.assert_allclose(tuned.model.process_var, [own[0], 17.0], rtol=1e-5)


@pytest.mark.slow
def test_frequencies_give_a_full_matrix_from_moves_or_from_counts(tmp_path: Path) -> None:
    """The file says which of the two it is: only one of them knows who moved."""
    settings: dict[str, Any] = {
        "transition": "frequencies",
        "window": 10,
        "evaluations": 8,
        "runs": 1,
        "jobs": 1,
        **SMALL,
    }
    moved = tune("rescuedp", write_checkins(tmp_path / "checkins.csv"), out=tmp_path / "moved.toml", **settings)
    assert moved.on.endswith("A from the moves of users")
    back = read_tuned(tmp_path / "moved.toml")
    np.testing.assert_array_equal(back.model.transition, moved.model.transition)
    np.testing.assert_allclose(back.model.transition.sum(axis=0), 1.0)
    counted = tune("rescuedp", COUNTS, form="matrix", **settings)
    assert counted.on.endswith("A from consecutive counts (macro data)")
    assert counted.model.transition.shape == (2, 2)


def test_the_variance_goes_with_the_transition() -> None:
    """Q is what A does not predict: with another A it is another one, and for A = 1 it holds the moves, too."""
    config = configure("rescuedp", "multi-linear", slots=60, window=10, runs=2, **SMALL)
    truths = tune_module._truths(config)
    assert len(truths) == 2
    assert (truths[0] != truths[1]).any()
    found = tune_module._process(config, "frequencies", truths)
    np.testing.assert_array_equal(found.transition, transition_from_counts(truths))
    np.testing.assert_array_equal(found.process_var, residual_var(found.transition, truths))
    identity = tune_module._process(config, "identity", truths)
    np.testing.assert_array_equal(identity.process_var, config.data.model.diagonal_var)
    assert (identity.process_var > config.data.model.noise_var).all()
    assert tune_module._process(config, None, truths) is config.data.model


@pytest.mark.slow
def test_identity_takes_the_place_of_a_full_matrix() -> None:
    """Q then covers the moves, too, as the diagonal form has it."""
    settings: dict[str, Any] = {"slots": 40, "window": 10, "runs": 1, "evaluations": 8, "jobs": 1, **SMALL}
    own = tune("rescuedp", "multi-linear", **settings)
    assert own.model.transition.shape == (6, 6)
    assert tune("rescuedp", "multi-linear", transition="identity", **settings).model.transition == 1.0


@pytest.mark.parametrize("name", ["horizon", "interval", "sampling", "keep_estimates"])
def test_settings_that_would_change_what_is_tuned_are_refused(name: str) -> None:
    """With a fixed interval theta, xi and T_s have no influence, and any value would be 'tuned'."""
    with pytest.raises(BadInput, match=f"'{name}' cannot be set here"):
        tune("dpcrowd", COUNTS, **{name: 3})


def test_the_package_offers_it() -> None:
    """Researchers work in Python first."""
    assert dpcrowd.tune is tune_sampling


def test_a_budget_that_lasts_is_not_bought_with_a_worse_score(monkeypatch: pytest.MonkeyPatch) -> None:
    """On births per day the search for a budget that lasts wrote parameters with 2.6 times the error of before."""
    scores = iter([search.TuningScores(1.5, 1.2, 0.95, 4, 1.0, 0.8)])  # before: exhausted, but a better estimate
    worse = search.TuningScores(3.9, 2.7, 0.95)
    monkeypatch.setattr(search, "evaluate", lambda _config: next(scores, worse))
    config = configure("dpcrowd", COUNTS, runs=1, **SMALL)
    best = search.evolve(config, ("theta",), evaluations=10, seed=0, jobs=1)
    assert best.scores.crps == 1.2
    assert best.tuning == {"theta": config.tuning.theta}
