"""From what a user asks for to a configuration: defaults, guarantees, and refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpcrowd
from dpcrowd.cli.main import main
from dpcrowd.errors import BadInput
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.tuning import Tuning
from dpcrowd.sim.config import Entrant, SimulationConfig, guarantee_for, whole_number
from dpcrowd.sim.configure import configure
from dpcrowd.sim.data import load
from dpcrowd.sim.notes import overlap_notes
from dpcrowd.sim.observation_note import observation_note
from dpcrowd.sim.result import Errors, ObservationNoise
from dpcrowd.sim.simulate import simulate
from sim_support import TINY, assert_same_records

RING = "0,1\n1,2\n2,3\n3,0\n"


def test_defaults_are_the_papers() -> None:
    """m = 50, density 0.1, a graph a slot, epsilon 1, 50 runs, errors from slot 20 on."""
    config = configure("dpcrowd")
    assert (config.servers, config.network.name, config.network.density, config.network.dynamic) == (
        50,
        "random",
        0.1,
        True,
    )
    assert (config.runs, config.seed, config.burn_in, config.shares, config.users) == (50, 0, 20, "uniform", "pinned")
    assert (config.observation, config.accounting, config.form, config.beta) == ("paper", "sound", "diagonal", None)
    assert config.data.name == "linear"
    assert [configure("dpcrowd", slots=slots).burn_in for slots in (21, 20, 9)] == [20, 2, 0]
    assert config.entrants[0].guarantee == Guarantee.finite(1000, 1.0)
    assert config.tuning == config.data.tuning


def test_a_guarantee_that_was_not_asked_for_is_the_natural_one() -> None:
    """Finite schemes take the whole stream, window schemes 100 slots, a scheme for both the stream."""
    config = configure("fast,uniform,central,non-private", slots=300)
    kinds = {e.label: None if e.guarantee is None else (e.guarantee.kind, e.guarantee.length) for e in config.entrants}
    assert kinds == {
        "fast": ("finite", 300),
        "uniform": ("window", 100),
        "central": ("finite", 300),
        "non-private": None,
    }
    asked = configure("central,uniform,non-private", slots=300, window=40, epsilon=0.5, users="roaming")
    for entrant in asked.entrants[:2]:
        assert entrant.guarantee == Guarantee.window(40, 0.5, users="roaming")
    assert asked.entrants[2].guarantee is None
    assert configure("fast", horizon=70).entrants[0].guarantee == Guarantee.finite(70, 1.0)
    many = configure("fast", servers_per_slot=3, correlation=2.0).entrants[0].guarantee
    assert many == Guarantee.finite(1000, 1.0, servers_per_slot=3, correlation=2.0)


@pytest.mark.parametrize(
    ("scheme", "asked", "text"),
    [
        (dpcrowd.FAST(), {"window": 10}, "scheme 'fast' takes a horizon, not a window; leave --window out"),
        (dpcrowd.BD(), {"horizon": 10}, "scheme 'bd' takes a window, not a horizon; leave --horizon out"),
        (dpcrowd.BD(), {"window": 10, "horizon": 10}, "give a window or a horizon, not both"),
        (dpcrowd.BD(), {"window": 51}, "have 50 slots, fewer than the window of 51 of scheme 'bd'; .* at most 50"),
        (dpcrowd.BD(), {}, "have 50 slots, fewer than the default window of 100 of scheme 'bd'; .* at most 50"),
        (dpcrowd.NonPrivate(), {"window": 0}, "window must be a whole number of slots >= 1; given 0"),
        (dpcrowd.FAST(), {"epsilon": 0}, "epsilon must be > 0; given 0"),
        (dpcrowd.FAST(), {"users": "roming"}, "unknown kind of users 'roming'. Did you mean 'roaming'?"),
    ],
)
def test_a_guarantee_that_does_not_fit_is_refused(scheme: Any, asked: dict[str, Any], text: str) -> None:
    """A scheme under a guarantee that it cannot keep would give numbers that mean nothing."""
    whole: dict[str, Any] = {"epsilon": 1.0, "window": None, "horizon": None, "slots": 50, "users": "pinned"}
    with pytest.raises(BadInput, match=text):
        guarantee_for(scheme, **{**whole, **asked})


def test_a_window_as_long_as_the_data_fits() -> None:
    """The bound is the number of slots itself, not one less."""
    whole: dict[str, Any] = {"epsilon": 1.0, "horizon": None, "slots": 50, "users": "pinned"}
    assert guarantee_for(dpcrowd.BD(), window=50, **whole) == Guarantee.window(50, 1.0)


@pytest.mark.parametrize("value", [0, -1, 2.0, "3", None, True, float("nan")])
def test_whole_numbers_only(value: object) -> None:
    """2.0 runs or True servers are slips; a TypeError deep inside would not say which argument it was."""
    with pytest.raises(BadInput, match=r"^runs must be a whole number from 1 to 9; given "):
        whole_number("runs", value, 1, 9)


@pytest.mark.parametrize(
    ("data", "settings", "text"),
    [
        ("linear", {"modle": None}, r"^unknown setting 'modle'\. Did you mean 'model'\?"),
        ("linear", {"model": 5}, r"^model was given as an object of type int; allowed: a model of dpcrowd\.fit"),
        (5, {}, r"^data were given as an object of type int; allowed: the name of a data set"),
        ([[1.0, 2.0], [3.0, float("nan")]], {}, r"given nan in row 1, column 1\.$"),
        ([[1, -2], [-3, 4]], {}, r"given -2 in row 0, column 1 \(and 1 more such numbers\)\.$"),
    ],
)
def test_slips_of_the_pen_are_named(data: Any, settings: dict[str, Any], text: str) -> None:
    """Python itself would name a function that nobody called, and among 100,000 counts nobody finds the wrong one."""
    with pytest.raises(BadInput, match=text):
        simulate("dpcrowd", data, **settings)


def test_whole_numbers_of_numpy_are_whole_numbers() -> None:
    """Loops over numpy.arange are common."""
    whole_number("runs", np.int64(9), 1, 9)
    with pytest.raises(BadInput, match="of at least 1 or so; given 0"):
        whole_number("jobs", 0, 1, None, " or so")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"runs": 0}, "runs must be a whole number from 1 to 1000000; given 0"),
        ({"runs": 10**7}, "given 10000000"),
        ({"runs": 2.5}, "given 2.5"),
        ({"seed": -1}, "seed must be a whole number of at least 0; given -1"),
        ({"burn_in": 30}, "burn-in must be a whole number from 0 to 29, since 'linear' has 30 slots; given 30"),
        ({"burn_in": -1}, "burn-in must be .* given -1"),
        ({"servers": "6"}, "servers must be a whole number from 2 to 10000000; given 6"),
        ({"jobs": 0}, "jobs must be a whole number of at least 1; leave it out .*; given 0"),
        ({"jobs": -1}, "jobs must be"),
        ({"shares": [0.5] * 5}, r"^5 shares given for 6 servers; give one number per server\.$"),
        ({"shares": [0.5] * 5 + [0.0]}, "share of server 5 is 0; allowed: above 0, at most 1"),
        ({"shares": [0.5] * 5 + [1.5]}, "share of server 5 is 1.5; allowed"),
        ({"shares": [0.5] * 5 + [float("nan")]}, "share of server 5 is nan; allowed"),
        ({"shares": ["a"] * 6}, "shares must be numbers; given .*'a'"),
        ({"tuning": {"thta": 1.0}}, "unknown tuning parameter 'thta'. Did you mean 'theta'?"),
        ({"schemes": []}, "no scheme was given; allowed: non-private, central, fast"),
        ({"schemes": {}}, "no scheme was given"),
        ({"schemes": 5}, "5 was given as a scheme; allowed: a name such as 'dpcrowd', or DPCrowd()"),
        ({"schemes": [dpcrowd.FAST]}, "'dpcrowd.schemes.fast.FAST'> was given as a scheme"),
        ({"schemes": dpcrowd.FAST}, "was given as a scheme"),
        ({"schemes": ["fast", "fast"]}, "scheme 'fast' is given twice"),
        ({"schemes": [dpcrowd.FAST(), "fast"]}, "scheme 'fast' is given twice"),
        ({"interval": 3, "schemes": "bd", "window": 10}, "scheme 'bd' takes no sampling interval; these do: central"),
        ({"grouping": "non", "schemes": "rescuedp", "window": 10}, "unknown grouping 'non'. Did you mean 'none'?"),
        ({"correlation": 0.5}, "correlation must be a finite factor >= 1; given 0.5"),
        ({"beta": 1.0}, "beta = 1 can diverge"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(settings: dict[str, Any], text: str) -> None:
    """What was given and what is allowed, instead of a traceback from inside NumPy."""
    settings = {"schemes": "dpcrowd", **TINY, **settings}
    with pytest.raises(BadInput, match=text) as refused:
        simulate(settings.pop("schemes"), **settings)
    assert "\n" not in str(refused.value)


def test_a_configuration_checks_itself() -> None:
    """`SimulationConfig` is what is sent to workers; one that a caller builds is checked as well."""
    config = configure("fast", **TINY)
    values = {name: getattr(config, name) for name in SimulationConfig.__dataclass_fields__}
    with pytest.raises(BadInput, match="no scheme was given"):
        SimulationConfig(**{**values, "entrants": ()})
    twice = (config.entrants[0], Entrant("fast", dpcrowd.FAST(), None))
    with pytest.raises(BadInput, match="'fast' is given twice: name each scheme once"):
        SimulationConfig(**{**values, "entrants": twice})
    assert config.model is config.data.model


@pytest.mark.parametrize(
    "schemes",
    ["fast, dpcrowd,", ["fast", "dpcrowd"], ("fast", dpcrowd.DPCrowd()), iter(["fast", "dpcrowd"])],
    ids=["text", "list", "mixed", "iterator"],
)
def test_schemes_may_be_given_in_many_ways(schemes: Any) -> None:
    """Text from a command line, names, objects, anything to loop over."""
    assert [entrant.label for entrant in configure(schemes).entrants] == ["fast", "dpcrowd"]


def test_a_mapping_gives_schemes_labels() -> None:
    """Two settings of one scheme in one paired comparison need two names."""
    schemes = {"every slot": dpcrowd.DPCrowd("fixed", 1), "every fifth": dpcrowd.DPCrowd("fixed", 5), "pid": "dpcrowd"}
    result = simulate(schemes, **TINY)
    assert list(result.records) == list(schemes)
    assert [row["scheme"] for row in result.summary()] == list(schemes)
    assert result["every slot"].frequency.tolist() == [1.0, 1.0]
    assert result["every fifth"].frequency == pytest.approx([0.2, 0.2])
    assert list(result.guarantees) == list(schemes)


def test_options_of_schemes_reach_them() -> None:
    """An option that is dropped on the way would simulate something else than was asked for."""
    staggered = configure("dpcrowd", interval=4, sampling="staggered").entrants[0].scheme
    assert isinstance(staggered, dpcrowd.DPCrowd)
    assert (staggered.sampling, staggered.interval) == ("staggered", 4)
    fixed = configure("dfast", interval=4).entrants[0].scheme
    assert isinstance(fixed, dpcrowd.DFAST)
    assert fixed.inner.sampling == "fixed"  # type: ignore[attr-defined]
    plain = configure("rescuedp", grouping="none").entrants[0].scheme
    assert isinstance(plain, dpcrowd.RescueDP)
    assert plain.grouping == "none"


def test_tuning_changes_what_is_named_and_keeps_the_rest() -> None:
    """The paper's parameters of the data set stay for everything that was not given."""
    data = replace(load("linear"), tuning=Tuning(xi=0.7, theta=0.1))
    assert configure("fast", data, tuning={"theta": 9.0}).tuning == Tuning(xi=0.7, theta=9.0)
    assert configure("fast", data).tuning == Tuning(xi=0.7, theta=0.1)
    own = Tuning(xi=0.5)
    assert configure("fast", tuning=own).tuning is own


@pytest.mark.parametrize(
    ("shares", "given", "expected"),
    [("uniform", None, "paper"), ("partition", None, "binomial"), ("partition", "paper", "paper")],
)
def test_observation_follows_the_shares_unless_it_is_given(shares: str, given: Any, expected: str) -> None:
    """A partition of real people is binomial; the paper's formula would make people out of nothing."""
    assert configure("fast", shares=shares, observation=given).observation == expected


def test_a_loaded_data_set_is_taken_as_it_is() -> None:
    """Options of loading come too late then; ignoring them would simulate other data than were asked for."""
    data = load("linear", slots=40)
    assert configure("fast", data).data is data
    with pytest.raises(BadInput, match=r"slots, regions cannot change a loaded data set; pass it to load_data\(\)"):
        configure("fast", data, slots=30, regions=["crowd"])


def test_a_file_of_links_brings_its_number_of_servers(tmp_path: Path) -> None:
    """Whoever gives a network of 4 servers should not have to say 4, and 50 by default would be refused."""
    file = tmp_path / "net.txt"
    file.write_text(RING)
    for graph in (file, str(file)):
        network = configure("dpcrowd", graph=graph).network
        assert (network.name, network.servers, network.dynamic) == ("file", 4, False)
    assert configure("dpcrowd", graph=file, servers=4).servers == 4
    with pytest.raises(BadInput, match=r"graph file '.*net.txt': no link at server 4 of 5"):
        configure("dpcrowd", graph=file, servers=5)
    with pytest.raises(BadInput, match=r"net.txt' is fixed and cannot be dynamic"):
        configure("dpcrowd", graph=file, dynamic=True)
    record = simulate("non-private", graph=file, slots=30, runs=1)["non-private"]
    assert record.packets_per_slot.tolist() == [8.0]


def test_the_default_density_is_raised_where_nobody_could_be_linked() -> None:
    """Six servers at density 0.1 would leave some alone; refusing a default would be odd."""
    assert configure("dpcrowd", servers=6).network.density == pytest.approx(0.2)
    assert configure("dpcrowd", servers=2).network.density == 1.0
    assert configure("dpcrowd", servers=12).network.density == 0.1


@pytest.mark.parametrize(("graph", "dynamic"), [("random", True), ("small-world", False), ("ring", False)])
def test_only_the_random_graph_is_dynamic_by_default(graph: str, dynamic: bool) -> None:
    """As in the paper; a named topology is there to stay."""
    assert configure("dpcrowd", graph=graph, servers=10, density=0.5).network.dynamic is dynamic
    assert configure("dpcrowd", servers=10, density=0.5, dynamic=False).network.dynamic is False


def remarks(schemes: str, **settings: Any) -> list[str]:
    """Notes without the line on the observation noise, which every result has."""
    notes = simulate(schemes, **{**TINY, **settings}).notes
    assert notes[-1].startswith("the observation noise alone (each server counts only a part of the crowd) costs ARE ")
    return list(notes[:-1])


def test_learning_of_schemes_without_a_filter_is_said_to_have_no_effect() -> None:
    """Whoever asks for it would take the result for one of filters that learn."""
    note = "learning (learn=True) has no effect on schemes without a filter: bd."
    assert note in remarks("bd", window=10, learn=True)
    assert note in remarks("bd,dpcrowd-w", window=10, learn=True)
    assert note not in remarks("bd", window=10)


def test_learning_that_no_scheme_can_do_is_named(tmp_path: Path) -> None:
    """`--learn` of the model alone was accepted as if it had an effect; by default nobody has asked for it."""
    counts = np.random.default_rng(3).poisson(200.0, (60, 1))
    dpcrowd.fit(counts, source="drawn", season="none", out=tmp_path / "model.toml")
    settings: dict[str, Any] = {"data": counts, "model": tmp_path / "model.toml", "slots": None, "window": 10}
    note = "learning (learn=True) has no effect on past: no filter of these learns."
    assert note in remarks("past", learn=True, **settings)
    for schemes, learn in (("past", None), ("past", False), ("past,relay", True)):
        assert not any("no filter of these learns" in text for text in remarks(schemes, learn=learn, **settings))


WINDOWED = (
    "relay,dpcrowd-w,dpcrowd-plus,rescuedp,drescuedp,kalman-uniform,dkalman-uniform,central,bd,dba,duniform,sample"
)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["diagonal", "matrix"])
def test_a_result_says_which_filters_learn(form: str) -> None:
    """The field was missing without a model, and true for schemes on which learning has no effect."""
    data = np.random.default_rng(1).poisson(200.0 + 150.0 * (np.arange(40) > 20)[:, None], (40, 2))
    settings: dict[str, Any] = {"servers": 4, "graph": "complete", "window": 10, "runs": 1, "jobs": 1, "epsilon": 20.0}
    schemes = f"{WINDOWED},non-private"
    with_it, without = (simulate(schemes, data, **settings, form=form, learn=learn) for learn in (True, False))
    effect = {label: bool((record.are != without[label].are).any()) for label, record in with_it.records.items()}
    assert {row["scheme"]: row["learn"] for row in with_it.summary()} == effect
    assert any(effect.values()) == (form == "diagonal")
    assert not any("learn" in row for row in without.summary()), "nobody asked for it, and there is no model"
    said = [note for note in with_it.notes if note.startswith("without a process model the filters of")]
    assert len(said) == (form == "diagonal")
    assert not said or "the filters of relay, dpcrowd-w, dpcrowd-plus, rescuedp, drescuedp, kalman-uniform" in said[0]


def test_filters_that_guess_their_variance_learn_it() -> None:
    """Steps of a crowd that grows smoothly say that hardly anything moves: 11% of the intervals held the truth."""
    grows = (10_000 + 50 * np.arange(80))[:, None].repeat(2, axis=1)
    settings: dict[str, Any] = {"servers": 6, "window": 10, "burn_in": 10}
    schemes = ["relay", "dpcrowd-w", "dpcrowd-plus", "central", "drescuedp", "kalman-uniform", "non-private"]

    def learners(data: Any = grows, **more: Any) -> list[str]:
        config = configure(schemes, data, **settings | more)
        return [entrant.label for entrant in config.entrants if config.learn_of(entrant)]

    assert learners() == ["relay"]
    assert learners(learn=True) == schemes
    for stated in ({"learn": False}, {"observation": "paper"}, {"data": "linear", "shares": "partition"}):
        assert not learners(**stated)
    assert not learners(process_var=400.0), "whoever states Q knows more"
    assert not learners(share_width=0.1, shares="partition"), "and a crowd that comes and goes would be learned twice"
    with_default, without = (
        dpcrowd.simulate("relay", grows, **settings, shares="partition", runs=1, jobs=1, **more)["relay"].coverage95[0]
        for more in ({}, {"learn": False})
    )
    assert with_default > 0.85
    assert without < 0.7


def test_shares_that_sum_to_less_than_one_leave_people_out() -> None:
    """One digit that is mistyped was explained by users who are at several servers, which nobody looks for."""
    (note,) = remarks("dpcrowd", shares=[0.15] * 5 + [0.2])
    assert note.startswith("shares sum to 0.95, so at least 5% of the crowd are at no server.")
    assert "is a share mistyped" in note
    assert "epsilon is what one server promises, not the network" in note
    by_slot = np.full((30, 6), 1 / 6)
    by_slot[7] = 0.15
    notes = remarks("dpcrowd", shares=by_slot)
    assert notes[0].startswith("shares sum to 0.9 in slot 7, so at least 10% of the crowd are at no server.")


def test_every_region_is_judged_by_its_own_sum_of_shares() -> None:
    """One region above 1 hid that a third of another is at no server, and one that sums to 1 was an error beside it."""
    settings: dict[str, Any] = {"data": np.full((30, 2), 500), "servers": 2, "observation": "binomial"}

    def of_sums(first: float, second: float) -> str:
        shares = np.array([[[first / 2, second / 2]] * 2]).reshape(1, 2, 2)
        return " ".join(overlap_notes(configure("dpcrowd", shares=shares, **settings)))

    mixed = of_sums(1.3, 0.7)
    assert "shares sum to about 1.3 in region 'region 0', and users may be at several servers at once" in mixed
    assert "shares sum to 0.7 in region 'region 1', so at least 30% of the crowd are at no server" in mixed
    one = of_sums(1.0, 1.1)
    assert "shares sum to about 1.1 in region 'region 1', and users may be at several servers at once" in one
    assert "shares sum to 1 in region 'region 0', though not everywhere" in one
    assert "at no server" not in one
    assert of_sums(1.3, 1.3).startswith("shares sum to about 1.3, and users may be at several servers at once")
    assert "though not everywhere" not in of_sums(1.3, 1.3) + of_sums(0.9, 1.0)


@pytest.mark.slow
def test_notes_say_what_a_reader_should_know() -> None:
    """Shares that sum to 26, a ledger that does not hold for moving users, promises that differ."""
    notes = remarks("dpcrowd")
    assert len(notes) == 1
    assert "sum to about 3.15, and users may be at several servers at once" in notes[0]
    assert remarks("dpcrowd", servers_per_slot=6) == [], "the noise covers a user who is at all servers"
    assert "sum to about 3.15" in remarks("dpcrowd", servers_per_slot=4)[0], "some user may be at five"
    assert "sum to about 3.6" in remarks("dpcrowd", shares=[0.6] * 6)[0]
    assert remarks("dpcrowd", shares="partition") == []
    assert remarks("dpcrowd,uniform", slots=100, shares="partition") == [
        "epsilon covers a complete stream of 100 slots for dpcrowd; any window of 100 slots for uniform: their errors "
        "are not at the same privacy.",
    ]
    region = simulate("rescuedp", "multi-linear", window=10, accounting="per-region", **TINY)
    assert any("per-region accounting (the paper's)" in note for note in region.notes)
    assert any("intervals of rescuedp are uncalibrated" in note for note in region.notes)


def test_the_promise_is_printed_in_words_and_says_whom_it_holds_for() -> None:
    """The paper's accounting does not keep the promise for those who move; printing it as if it did would be a lie."""
    sound = simulate("rescuedp,non-private", "multi-linear", window=10, **TINY).guarantees
    assert sound["non-private"] is None
    assert sound["rescuedp"] is not None
    assert sound["rescuedp"].startswith("Pure 10-event differential privacy with ε = 1")
    region = simulate("rescuedp", "multi-linear", window=10, accounting="per-region", **TINY).guarantees["rescuedp"]
    assert region == f"Only for a user who stays in one region, since accounting is per region: {sound['rescuedp']}"


def test_a_file_of_ones_own_is_observed_as_in_a_live_server(tmp_path: Path) -> None:
    """The paper's observation noise H^2 Q is not what a server sees of people; only the paper's data sets have it."""
    path = tmp_path / "counts.csv"
    path.write_text("a\n" + "".join(f"{20 + t % 7}\n" for t in range(40)), encoding="utf-8")
    for data in (path, [20 + t % 7 for t in range(40)]):
        config = configure("dpcrowd", data, servers=6)
        assert config.observation == "binomial"
        assert config.data.notes[-1].endswith("observation=paper gives the one before.")
        asked = configure("dpcrowd", data, servers=6, observation="paper")
        assert asked.observation == "paper"
        assert not any("observation=paper" in note for note in asked.data.notes), "nothing to say: it was asked for"
    for name in ("linear", "multi-linear"):
        config = configure("dpcrowd", name, servers=6)
        assert config.observation == "paper"
        assert configure("dpcrowd", name, servers=6, shares="partition").observation == "binomial"
    partition = configure("dpcrowd", path, servers=6, shares="partition")
    assert not any("observation=paper" in note for note in partition.data.notes), "as before"


def test_every_result_says_what_the_observation_noise_alone_costs() -> None:
    """Without this line a reader takes the error of the observation for the price of privacy."""
    both = simulate("non-private,uniform", window=10, **{**TINY, "runs": 5})
    alone = simulate("uniform", window=10, **{**TINY, "runs": 5})
    record = both["non-private"]
    assert both.observation_noise is not None
    assert alone.observation_noise is not None
    assert both.observation_noise == alone.observation_noise
    assert alone.observation_noise.runs == 3, "the first runs are enough"
    filtered, together = alone.observation_noise.non_private, alone.observation_noise.together
    assert filtered.total_error == pytest.approx(record.total_error[:3].mean())
    assert filtered.are == pytest.approx(record.are[:3].mean())
    assert (alone.observation_noise.are, alone.observation_noise.total_error) == (together.are, together.total_error)
    assert alone.notes[-1] == (
        "the observation noise alone (each server counts only a part of the crowd) costs "
        f"ARE {filtered.are:.3g} and total error {filtered.total_error:.3g} where a server hears the exact counts of "
        f"its neighbours (non-private), and ARE {together.are:.3g} and total error {together.total_error:.3g} where "
        "those of all servers are added up, without a filter, in 3 runs of 5. Here a server hears itself alone "
        "(uniform)."
    )
    assert_same_records(both["uniform"], alone["uniform"])


def test_the_cost_of_the_observation_is_that_of_the_better_estimate() -> None:
    """A filter with a wrong Q had a larger error than a private scheme, and was called what nobody can avoid."""
    together, filtered = Errors(0.2, 0.1), Errors(0.1, 0.3)
    noise = ObservationNoise.of(together, filtered, 3)
    assert (noise.are, noise.total_error) == (0.2, 0.1)
    better = ObservationNoise.of(together, Errors(0.4, 0.05), 3)
    assert (better.are, better.total_error) == (0.4, 0.05)


def noise_line(together: Errors, filtered: Errors, **settings: Any) -> str:
    """The line for errors of three runs of three, up to whom a server hears."""
    config = configure("non-private", np.ones((30, 2), dtype=int), **{**TINY, "slots": None, "runs": 3, **settings})
    return observation_note(ObservationNoise.of(together, filtered, 3), config)


def test_the_line_on_the_observation_noise_begins_with_the_error_of_non_private() -> None:
    """It had two errors for one thing: 0 in every partitioned run, and another one that was not 0."""
    for filtered in (Errors(0.4, 0.05), Errors(0.4, 0.5)):
        text = noise_line(Errors(0.2, 0.1), filtered)
        assert f" costs ARE 0.4 and total error {filtered.total_error} where a server hears the exact counts of" in text
        assert text.endswith(
            "(non-private), and ARE 0.2 and total error 0.1 where those of all servers are added up, without a filter."
        )
    partitioned = noise_line(Errors(0.0, 2.8e-17), Errors(0.4, 0.05))
    assert partitioned.endswith("and nothing where it hears those of all servers."), "2.8e-17 is nobody's error"
    assert "costs ARE 0 and total error 0.25 where" in noise_line(Errors(0.0, 0.0), Errors(2.8e-17, 0.25))
    wrong = noise_line(Errors(0.3, 0.1), Errors(0.4, 0.05), composition=0.5, shares="partition")
    assert wrong.endswith("without a filter; part of it is due to public shares that are wrong (composition 0.5).")
    empty = noise_line(Errors(0.2, None), Errors(None, None))
    assert "costs no defined error where a server hears" in empty
    assert empty.endswith("ARE 0.2 where those of all servers are added up, without a filter.")


@pytest.mark.parametrize(
    ("schemes", "more", "heard"),
    [
        ("relay", {"hops_per_slot": "all", "reach": "all"}, "all servers that links connect (relay)"),
        ("relay", {"reach": "all"}, "all servers that links connect, distant ones later (relay)"),
        ("relay", {"reach": 3}, "servers up to 3 hops away, distant ones later, which is between the two (relay)"),
        ("relay,dpcrowd", {"reach": 1}, "its neighbours (relay, dpcrowd)"),
        (
            "fast,dfast,central,past,non-private",
            {},
            "itself alone (fast), or all servers that links connect (dfast), or all servers (central)",
        ),
    ],
)
def test_the_line_on_the_observation_noise_says_which_error_applies(
    schemes: str, more: dict[str, Any], heard: str
) -> None:
    """A reader of relay's errors could not tell which of two numbers they are to be compared with."""
    data = np.random.default_rng(0).poisson(40, (30, 2))
    if "past" in schemes:
        more = {**more, "model": dpcrowd.fit(data, source="drawn for this test")}
    config = configure(schemes, data, **{**TINY, "slots": None, **more})
    text = observation_note(ObservationNoise.of(Errors(0.2, 0.1), Errors(0.4, 0.3), 2), config)
    assert text.endswith(f"are added up, without a filter. Here a server hears {heard}.")


def test_a_run_that_would_take_long_is_not_repeated_for_the_observation_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulation of a million servers must not take twice as long for one line."""
    monkeypatch.setattr("dpcrowd.sim.simulate._LARGEST_EXTRA_RUN", 100)
    result = simulate("uniform", window=10, **TINY)
    assert result.observation_noise is None
    assert not any("observation noise" in note for note in result.notes)


@pytest.mark.slow
def test_results_name_shares_that_differ_by_region_and_do_not_blame_the_model() -> None:
    """Of 67% coverage the note blamed the model, and the error of wrong shares was called observation noise."""
    settings: dict[str, Any] = {"servers": 5, "graph": "ring", "window": 10, "runs": 1, "jobs": 1, "epsilon": 100.0}
    settings["shares"] = "partition"
    data = np.full((40, 2), 20_000)
    wrong = simulate("relay,duniform", data, composition=0.5, reach=1, **settings)
    assert any("shares differ by region (composition 0.5): schemes know one share" in note for note in wrong.notes)
    assert any("; with share_width=0.1, relay learns the others" in note for note in wrong.notes)
    assert any("with share_width=0.1 it learns them" in note for note in wrong.notes)
    assert not any("model does not fit" in note for note in wrong.notes)
    assert "part of it is due to public shares that are wrong (composition 0.5)" in wrong.notes[-1]
    assert "all servers' exact counts together" not in wrong.notes[-1], "parts add up"
    learned = simulate("relay,duniform", data, share_width=0.1, **settings)
    assert any("relay learns the shares of every region from records" in note for note in learned.notes)
    assert [learned.setup[label]["share_width"] for label in ("relay", "duniform")] == [0.1, None]
    assert learned.notes[-1].startswith("the observation noise alone")


def test_a_list_of_shares_says_how_many_servers_there_are(tmp_path: Path) -> None:
    """A file of shares did so already; of a list, one had to count what it contains."""
    data = np.full((12, 2), 50)
    for shares in ([0.2, 0.3, 0.5], (0.2, 0.3, 0.5), np.array([0.2, 0.3, 0.5])):
        assert configure("uniform", data, shares=shares, window=5).servers == 3
    with pytest.raises(BadInput, match="3 shares given for 4 servers; give one"):
        configure("uniform", data, shares=[0.2, 0.3, 0.5], servers=4, window=5)
    links = tmp_path / "links.txt"
    links.write_text("0,1\n1,2\n2,3\n", encoding="utf-8")
    with pytest.raises(BadInput, match="3 shares given for 4 servers; give one"):
        configure("uniform", data, shares=[0.2, 0.3, 0.5], graph=links, window=5)
    for wrong in ([], [0.2, [0.3]], np.array(0.5), ["a", "b"], [[0.2, 0.3, 0.4]] * 2):
        with pytest.raises(BadInput):
            configure("uniform", data, shares=wrong, window=5)


def test_equal_shares_and_numbers_are_taken_as_in_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    """A plan takes both, and its simulation refused them."""
    data = np.full((40, 2), 500)
    equal = configure("relay", data, servers=4, window=10, shares="equal")
    assert not isinstance(equal.shares, str)
    assert equal.shares.tolist() == [0.25] * 4
    assert (equal.observation, equal.users) == ("binomial", "pinned"), "every user is at one server"
    words = ["simulate", "--scheme", "relay", "--slots", "30", "--runs", "1", "--window", "10", "--json"]
    assert main([*words, "--shares", "0.5,0.3,0.2"]) == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["shares"] == "given"
    assert main([*words, "--shares", "equal", "--servers", "3"]) == 0
    assert not any("sum to about" in note for note in json.loads(capsys.readouterr().out)["notes"])
    assert main([*words, "--shares", "0.5,0.5", "--servers", "3"]) == 2
    assert "shares" in capsys.readouterr().err


def test_one_slot_is_too_few_and_what_is_said_can_be_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Messages named an option that fit does not have, or Python's name of it, and 0:1 looked like a fraction."""
    with pytest.raises(BadInput, match=r"the array has 1 slot \(a row\); a model needs at least 3"):
        dpcrowd.fit(np.zeros((1, 1)), source="x")
    file = tmp_path / "one.csv"
    file.write_text("a,b\n5,6\n", encoding="utf-8")
    assert main(["simulate", "--scheme", "relay", "--data", str(file), "--window", "10"]) == 2
    assert "the variance of a change: --process-var (process_var in Python)" in capsys.readouterr().err
    counts = np.full((40, 2), 5)
    with pytest.raises(BadInput, match=r"0:1 is slot 0 alone; the complete series is 0:1\.0, with a point"):
        dpcrowd.fit(counts, source="x", span="0:1")
    with pytest.raises(BadInput, match=r"0:1 is slot 0 alone; the complete series is 0:1\.0, with a point"):
        dpcrowd.tune("dpcrowd", counts, span="0:1")
    with pytest.raises(BadInput, match=r"contains 1 slot; a model needs at least 3\.$"):
        dpcrowd.fit(counts, source="x", span="4:5")
