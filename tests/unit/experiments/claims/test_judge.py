"""The tests behind the claims: every outcome, and what happens with values that are equal, missing or diverged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from dpcrowd.experiments.claims.cases import (
    curve_below,
    curve_shape,
    curve_within,
    curve_zero,
    value_below,
    values_agree,
    values_close,
)
from dpcrowd.experiments.claims.findings import (
    ClaimFinding,
    agrees,
    at_most,
    below,
    below_everywhere,
    falls,
    flat,
    grows,
    negligible,
    u_shaped,
    varies,
    within,
    worst_of,
)
from dpcrowd.experiments.claims.intervals import compare, difference, number, ratio, ratio_by_run
from dpcrowd.experiments.figures import Values

Floats = NDArray[np.float64]
RUNS = 20


def values(mean: float, spread: float = 0.01, seed: int = 0, name: str = "scheme") -> Values:
    rng = np.random.default_rng([seed, round(abs(mean) * 1e6)])
    return Values(name, mean + spread * rng.standard_normal(RUNS))


def curve(*means: float, spread: float = 0.01) -> list[Values]:
    return [at(f"x={i}", values(mean, spread, seed=i)) for i, mean in enumerate(means)]


def at(x: str, of: Values) -> Values:
    return replace(of, at=x)


def test_below_has_three_outcomes() -> None:
    """A test with two outcomes would call chance a result."""
    assert below(values(1.0), values(2.0)).outcome == "holds"
    assert below(values(2.0), values(1.0)).outcome == "does not hold"
    assert below(values(1.0, 0.5), values(1.001, 0.5)).outcome == "undecided"


def test_below_is_paired_by_run() -> None:
    """Unpaired, a small difference would drown in what all schemes share of a run."""
    shared = np.random.default_rng(1).normal(100.0, 30.0, RUNS)
    assert below(Values("a", shared), Values("b", shared + 1.0)).outcome == "holds"
    assert (
        below(Values("a", shared), Values("b", np.random.default_rng(2).permutation(shared) + 1.0)).outcome
        == "undecided"
    )


def test_more_tests_ask_for_more_evidence() -> None:
    """Without the correction a claim of many parts would go wrong more often than it says."""
    rng = np.random.default_rng(5)
    apart = rng.standard_normal(RUNS)
    apart = (apart - apart.mean()) / apart.std(ddof=1) * 1.0 + 0.55  # t of about 2.5
    a, b = Values("a", np.zeros(RUNS)), Values("b", apart)
    assert below(a, b).outcome == "holds"
    assert below(a, b, tests=50).outcome == "undecided"
    assert "Bonferroni" in below(a, b, tests=50).confidence
    assert below(a, b).confidence == f"95% over {RUNS} paired runs"


def test_interval_is_students() -> None:
    """A wrong quantile would make every confidence statement wrong; 2.093 is t(19) at 97.5%."""
    a = np.random.default_rng(3).standard_normal(RUNS)
    found = difference(a, np.zeros(RUNS))
    assert found is not None
    half = 2.0930240544 * a.std(ddof=1) / np.sqrt(RUNS)
    assert found.low == pytest.approx(a.mean() - half)
    assert found.high == pytest.approx(a.mean() + half)
    tight = difference(a, np.zeros(RUNS), tests=5)
    assert tight is not None
    assert tight.high - tight.value == pytest.approx(2.860934606 * a.std(ddof=1) / np.sqrt(RUNS))  # t(19) at 99.5%


def test_equal_values_are_not_below() -> None:
    """Two schemes that do the same must not count as better, nor rounding as a difference."""
    same = values(3.0)
    assert below(same, same).outcome == "does not hold"
    assert "equal" in below(same, same).numbers
    rounded = Values("b", same.runs * (1 + 1e-15))
    assert below(same, rounded).outcome == "does not hold"


def test_far_below_asks_for_half() -> None:
    """'Much less' would otherwise be no more than 'less'."""
    one = [at("", values(1.0, 1e-3))]
    assert curve_below("", one, [at("", values(2.2, 1e-3, 1))], 2.0).ask(1).outcome == "holds"
    assert curve_below("", one, [at("", values(1.8, 1e-3, 1))], 2.0).ask(1).outcome == "does not hold"
    assert "required: below 0.5 times" in curve_below("", one, [at("", values(1.8, 1e-3, 1))], 2.0).ask(1).numbers
    assert curve_below("", one, [at("", values(105.0, 1e-3, 1))], 100.0).ask(1).outcome == "holds"
    assert curve_below("", one, [at("", values(95.0, 1e-3, 1))], 100.0).ask(1).outcome == "does not hold"


def test_curve_below_another_is_judged_at_its_weakest_point() -> None:
    """A defeat at one point must not hide behind victories at the others."""
    found = below_everywhere(curve(1, 1, 1), curve(2, 0.5, 2))
    assert found.outcome == "does not hold"
    assert "2 of 3" in found.numbers
    assert "x=1" in found.numbers
    assert below_everywhere(curve(1, 1, 1), curve(2, 2, 2)).outcome == "holds"
    nothing = [at("x=9", Values("", np.zeros(RUNS)))]
    with_nothing = below_everywhere([*curve(1, 1), *nothing], [*curve(2, 2), *nothing])
    assert with_nothing.outcome == "does not hold", "0 is not below 0, and no point is left out"
    assert "2 of 3 points; the weakest is x=9" in with_nothing.numbers
    assert "equal in every run" in with_nothing.numbers
    assert below_everywhere(nothing, nothing).outcome == "does not hold"
    assert below_everywhere(nothing, curve(1)).outcome == "holds"
    assert below_everywhere(curve(1, 1, 1, spread=0.5), curve(2, 1.001, 2, spread=0.5)).outcome == "undecided"


def test_falls() -> None:
    """A curve that rises at the end, or in one step, does not fall; one whose steps are unclear may."""
    assert falls(curve(3, 2, 1)).outcome == "holds"
    assert falls(curve(1, 2, 3)).outcome == "does not hold"
    assert falls(curve(3, 1, 2)).outcome == "does not hold", "a step that rises"
    assert "x=1 to x=2" in falls(curve(3, 1, 2)).numbers
    assert falls(curve(3, 2, 2.0001, 1, spread=0.1)).outcome == "holds", "a step that cannot be told from level"
    assert falls(curve(1.001, 1.0, spread=0.5)).outcome == "undecided"
    rng = np.random.default_rng(9)
    apart = rng.standard_normal(RUNS)
    bump = Values("", 1.0 + (apart - apart.mean()) / apart.std(ddof=1) + 0.55)  # a rise with a t of about 2.5
    bumpy = [at("a", Values("", np.full(RUNS, 50.0))), at("b", Values("", np.ones(RUNS))), at("c", bump)]
    assert falls(bumpy).outcome == "does not hold"
    assert falls(bumpy, tests=50).outcome == "holds", "not significant among fifty"
    level = values(1.0)
    assert falls([at("a", level), at("b", level)]).outcome == "does not hold"


def test_grows_is_the_mirror_of_falls() -> None:
    """A slip of the sign would turn every trend round; what is printed must have the right one."""
    assert grows(curve(1, 2, 3)).outcome == "holds"
    assert grows(curve(3, 2, 1)).outcome == "does not hold"
    assert grows(curve(1, 3, 2)).outcome == "does not hold"
    assert "(run by run 3 times" in grows(curve(1, 2, 3, spread=0)).numbers
    assert "(run by run 0.25 times" in falls(curve(4, 2, 1, spread=0)).numbers
    assert "the weakest step is from x=0 to x=1: run by run 1.5 times" in grows(curve(1, 1.5, 3, spread=0)).numbers
    low = grows(curve(1, 2, 4)).numbers.split("interval ")[1].split(")")[0].split(" to ")
    assert float(low[0]) <= 4 <= float(low[1])


def test_trends_through_zero_are_judged_by_differences() -> None:
    """A ratio to nothing says nothing; a curve that comes down to 0 falls all the same."""
    nothing = at("end", Values("", np.zeros(RUNS)))
    assert falls([*curve(3, 2), nothing]).outcome == "holds"
    assert "change −3" in falls([*curve(3, 2, spread=0), nothing]).numbers
    assert grows([nothing, *curve(1, 2)]).outcome == "holds"
    assert "change 2" in grows([nothing, *curve(1, 2, spread=0)]).numbers
    assert falls([nothing, *curve(1)]).outcome == "does not hold"


def test_flat() -> None:
    """'Level' needs a margin: without one no measurement is ever level."""
    assert flat(curve(1.0, 1.1, 1.05)).outcome == "holds"
    assert flat(curve(1.0, 1.5, 1.05)).outcome == "does not hold"
    assert flat(curve(1.0, 0.5)).outcome == "does not hold", "downwards, too"
    assert "is 1 at x=0 and 1.5 at x=1, 1.5 times" in flat(curve(1.0, 1.5, 1.1, spread=0)).numbers
    assert flat(curve(1.0, 1.2, spread=0.1)).outcome == "undecided"
    nothing = Values("zero", np.zeros(RUNS))
    assert flat([at("a", nothing), at("b", nothing)]).outcome == "holds"
    from_nothing = flat([at("a", nothing), at("b", values(1.0)), at("c", values(2.0))])
    assert from_nothing.outcome == "does not hold"
    assert from_nothing.numbers == "zero is 0 at a and 2 at c; at most 1.2 times is level."
    once = np.ones(RUNS)
    once[0] = 0.0
    assert flat([at("a", Values("", once)), at("b", Values("", once * 1.3))]).outcome == "does not hold", (
        "ratio of means"
    )


def test_varies() -> None:
    """'Varies greatly' is the opposite of level, for any two points of the curve, not for two picked by hand."""
    assert varies(curve(1.0, 3.0, 1.5)).outcome == "holds"
    assert "1 at x=0 and 3 at x=1, 3 times" in varies(curve(1.0, 3.0, 1.5, spread=0)).numbers
    assert "required: more than 2 times" in varies(curve(1.0, 3.0, 1.5, spread=0)).numbers
    assert varies(curve(1.0, 1.5, 1.2)).outcome == "does not hold"
    assert varies(curve(1.0, 2.0, spread=0.1)).outcome == "undecided"
    broken = [*curve(1.0), at("b", Values("", np.full(RUNS, np.nan)))]
    assert varies(broken).outcome == "does not hold"


def test_ratios_are_taken_run_by_run() -> None:
    """Runs differ by a common factor: a ratio sees through it, where differences of means are lost in the spread."""
    rng = np.random.default_rng(4)
    scale = np.exp(rng.normal(0.0, 2.5, RUNS))
    a, b = scale * np.exp(rng.normal(0.0, 0.02, RUNS)), 1.05 * scale * np.exp(rng.normal(0.0, 0.02, RUNS))
    apart = difference(a, b)
    assert apart is not None
    assert apart.low < 0 < apart.high
    assert below(Values("a", a), Values("b", b)).outcome == "holds"
    found = ratio_by_run(a, b)
    assert found is not None
    assert found.value == pytest.approx(np.exp(np.mean(np.log(a) - np.log(b))))
    half = 2.0930240544 * np.std(np.log(a / b), ddof=1) / np.sqrt(RUNS)
    assert found.high / found.value == pytest.approx(np.exp(half))
    assert ratio_by_run(a, np.zeros(RUNS)) is None
    gap = compare(a - a.min(), b)
    assert gap is not None
    assert not gap.by_ratio, "a single 0 is enough"


def test_bounds_are_judged_by_the_largest_run() -> None:
    """A bound that holds for every run is broken by one."""
    one_above = np.full(RUNS, 1.0)
    one_above[4] = 1.5
    two_points = [at("x=0", Values("a", np.ones(RUNS))), at("x=1", Values("a", one_above))]
    assert curve_within("", two_points, [2.0, 2.0], "limit").ask(1).outcome == "holds"
    found = curve_within("", two_points, [2.0, 1.2], "limit is").ask(1)
    assert found.outcome == "does not hold"
    assert (
        "It is within the limit at 1 of 2 points; the largest is at x=1: a 1.02, at most 1.5 in a run; limit is 1.2."
        in found.numbers
    )
    assert at_most(Values("a", np.ones(0)), 1.0, "").outcome == "undecided"


def test_u_shape() -> None:
    """A falling or a rising curve must not pass as one with a valley."""
    assert u_shaped(curve(3, 1, 2)).outcome == "holds"
    assert u_shaped(curve(1, 2, 3)).outcome == "does not hold"
    assert u_shaped(curve(3, 2, 1)).outcome == "does not hold"
    assert u_shaped(curve(1, 3, 1)).outcome == "does not hold"
    assert u_shaped(curve(1.001, 1.0, 1.001, spread=0.5)).outcome == "undecided"
    assert u_shaped(curve(1, 2)).outcome == "undecided"
    told = u_shaped(curve(4, 1.5, 1, 2, 5, spread=0)).numbers
    assert "is 4 at x=0, 1 at x=2 and 5 at x=4" in told
    assert (
        "from x=0 to x=2: run by run 0.25 times, interval 0.25 to 0.25; from x=4 to x=2: run by run 0.2 times" in told
    )


def test_agreement_within_a_margin() -> None:
    """A match must be shown, not merely not be refuted."""
    assert agrees(values(1.0), values(1.02, seed=1)).outcome == "holds"
    assert agrees(values(1.0), values(1.5, seed=1)).outcome == "does not hold"
    assert agrees(values(1.5), values(1.0, seed=1)).outcome == "does not hold"
    assert agrees(values(1.0, 0.5), values(1.02, 0.5, 1)).outcome == "undecided"
    assert within(values(10.0), values(12.0), 5, "slots").outcome == "holds"
    assert within(values(10.0), values(18.0), 5, "slots").outcome == "does not hold"
    assert within(values(18.0), values(10.0), 5, "slots").outcome == "does not hold"
    assert within(values(10.0, 20.0), values(12.0, 20.0, 1), 5, "slots").outcome == "undecided"
    wide = values_close("", values(10.0, 3.0), values(10.0, 3.0, 1), 5, "slots")
    assert [wide.ask(tests).outcome for tests in (1, 10_000)] == ["holds", "undecided"]


def test_ratio_interval_against_resampling() -> None:
    """The delta method must give the spread that resampling the runs gives."""
    rng = np.random.default_rng(7)
    b = rng.normal(10.0, 1.0, 400)
    a = 0.5 * b + rng.normal(0.0, 0.5, 400)
    found = ratio(a, b)
    assert found is not None
    picks = rng.integers(0, 400, (4000, 400))
    low, high = np.quantile(a[picks].mean(axis=1) / b[picks].mean(axis=1), (0.025, 0.975))
    assert found.high - found.low == pytest.approx(high - low, rel=0.1)
    assert found.value == pytest.approx(a.mean() / b.mean())


def test_negligible() -> None:
    """One run with a real difference is enough to refute 'none'."""
    assert negligible(Values("a", np.full(RUNS, 1e-12))).outcome == "holds"
    once = np.full(RUNS, 1e-12)
    once[3] = 1e-3
    assert negligible(Values("a", once)).outcome == "does not hold"
    two = curve_zero("", [at("x=0", Values("a", np.full(RUNS, 1e-12))), at("x=1", Values("a", once))]).ask(1)
    assert two.outcome == "does not hold"
    assert "It is zero at 1 of 2" in two.numbers
    assert "x=1" in two.numbers


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize(
    "test",
    [
        below,
        agrees,
        lambda broken, fine: agrees(fine, broken),
        lambda broken, fine: within(fine, broken, 1, ""),
        lambda broken, fine: falls([at("a", fine), at("b", broken)]),
        lambda broken, fine: grows([at("a", fine), at("b", broken)]),
        lambda broken, fine: flat([at("a", fine), at("b", broken)]),
        lambda broken, fine: u_shaped([at("a", fine), at("b", broken), at("c", fine)]),
        lambda broken, fine: negligible(broken),
    ],
)
def test_a_scheme_that_diverged_fails(bad: float, test: Callable[[Values, Values], ClaimFinding]) -> None:
    """A run that blew up must neither raise nor pass."""
    runs = values(1.0).runs.copy()
    runs[2] = bad
    found = test(Values("broken", runs), values(2.0))
    assert found.outcome == "does not hold"
    assert f"broken diverged in 1 of {RUNS} runs" in found.numbers


def test_a_rival_that_diverged() -> None:
    """Whatever is finite is below infinity; against no value at all nothing can be said."""
    for bad, outcome in (([np.inf], "holds"), ([np.nan], "undecided"), ([np.nan, np.inf], "undecided")):
        runs = values(1.0).runs.copy()
        runs[: len(bad)] = bad
        assert below(values(5.0), Values("rival", runs)).outcome == outcome


@pytest.mark.parametrize("runs", [0, 1])
def test_too_few_runs_decide_nothing(runs: int) -> None:
    """One run has no interval."""
    a, b = Values("a", np.ones(runs)), Values("b", np.full(runs, 2.0))
    for found in (
        below(a, b),
        agrees(a, b),
        within(a, b, 1, ""),
        falls([at("x", b), at("y", a)]),
        flat([at("x", a), at("y", b)]),
        u_shaped([at("x", b), at("y", a), at("z", b)]),
    ):
        assert found.outcome == "undecided"
    assert below(a, values(2.0)).outcome == "undecided", "runs that cannot be paired"
    assert negligible(Values("a", np.ones(0))).outcome == "undecided"


def test_worst_outcome_speaks_for_all() -> None:
    """The order of the cases must not matter."""
    assert worst_of(["holds", "undecided", "does not hold"]) == "does not hold"
    assert worst_of(["holds", "undecided"]) == "undecided"
    assert worst_of(["holds", "holds"]) == "holds"
    assert worst_of([]) == "undecided"


def test_every_kind_of_case_counts_its_intervals() -> None:
    """A case that counts too few would make the claim less sure than it says."""
    four = curve(4, 3, 2, 1)
    one = four[0]
    counts = {
        "lower": curve_below("", four, four).intervals,
        "far": curve_below("", four, four, 2.0).intervals,
        "falling": curve_shape("falls", "", four).intervals,
        "growing": curve_shape("grows", "", four).intervals,
        "level": curve_shape("level", "", four).intervals,
        "uneven": curve_shape("varies", "", four).intervals,
        "valley": curve_shape("valley", "", four).intervals,
        "single": value_below("", one, one).intervals
        + values_agree("", one, one).intervals
        + values_close("", one, one, 1, "").intervals,
        "zero": curve_zero("", four).intervals,
    }
    assert list(counts.values()) == [4, 4, 4, 4, 6, 6, 4, 3, 0], counts


def test_how_many_intervals_a_trend_takes() -> None:
    """Two points have one step, which is also the whole way."""
    assert [curve_shape("falls", "", curve(*range(n))).intervals for n in (1, 2, 3, 7)] == [1, 1, 3, 7]


def test_numbers_are_readable() -> None:
    """Exponents and hyphens for minus signs are hard to read in a table."""
    assert [number(x) for x in (0.012345, -1234.5, 12.0, 1e-9, 3e8)] == ["0.0123", "−1,234", "12", "1e−09", "3e+08"]
