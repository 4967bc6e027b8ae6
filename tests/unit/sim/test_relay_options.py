"""Relay's options, from Python and from the command line, and what is said about wrong ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpcrowd
from dpcrowd.cli.main import main
from dpcrowd.errors import BadInput
from dpcrowd.sim.configure import configure
from dpcrowd.sim.simulate import simulate
from sim_support import TINY, assert_same_records, tiny_words

WINDOWED = {**TINY, "window": 10}


def made(**options: Any) -> dpcrowd.Relay:
    scheme = configure("relay", **WINDOWED, **options).entrants[0].scheme
    assert isinstance(scheme, dpcrowd.Relay)
    return scheme


def test_options_reach_the_scheme() -> None:
    """An option that is dropped on the way would leave the default, and nobody would see it."""
    scheme = made(samples=4, reach=2, hops_per_slot=3, lag=5)
    assert (scheme.samples, scheme.max_hops, scheme.rounds, scheme.lag) == (4, 2, 3, 5)
    scheme = made(samples=4, reach="all", hops_per_slot="all")
    assert (scheme.max_hops, scheme.rounds, scheme.lag) == (None, None, 16)
    assert (made(reach="2").max_hops, made(hops_per_slot="3").rounds) == (2, 3), "as the command line gives them"
    assert made(interval=5).interval == 5


def test_options_are_for_relay_alone_when_it_is_compared() -> None:
    """`--scheme relay,dpcrowd-w --reach 1` must neither fail nor change the other one."""
    both = simulate("relay,dpcrowd-w", reach=1, samples=5, **WINDOWED)
    alone = simulate({"relay": dpcrowd.Relay(reach=1, samples=5), "dpcrowd-w": "dpcrowd-w"}, **WINDOWED)
    for label in ("relay", "dpcrowd-w"):
        assert_same_records(both[label], alone[label])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"samples": 0}, "samples must be a whole number >= 1; given 0"),
        ({"samples": 11}, "11 samples in 10 slots; allowed: at most one per slot"),
        ({"samples": 2.5}, "samples must be a whole number >= 1; given 2.5"),
        ({"samples": 2, "interval": 5}, "give samples or an interval, not both; given 2 and 5"),
        ({"interval": 3}, "an interval of 3 slots does not divide 10; give the number of samples"),
        ({"interval": 0}, "interval must be a whole number of slots >= 1; given 0"),
        ({"reach": 0}, 'reach must be a whole number >= 1 or "all"; given 0'),
        ({"reach": "far"}, "reach must be a whole number >= 1 or \"all\"; given 'far'"),
        ({"hops_per_slot": -1}, 'hops_per_slot must be a whole number >= 1 or "all"; given -1'),
        ({"lag": 0}, "lag must be a whole number >= 1; given 0"),
        ({"sampling": "staggered"}, "leave sampling 'staggered' out, and give samples or an interval"),
        ({"sampling": "lockstep", "interval": 5}, "leave sampling 'lockstep' out"),
    ],
    ids=str,
)
def test_wrong_options_are_refused_in_one_line(options: dict[str, Any], words: str) -> None:
    """One line: what was given, what is allowed."""
    with pytest.raises(BadInput) as refused:
        configure("relay", **WINDOWED, **options)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"share_width": "a"}, "share_width='a'; allowed: from 0 (shares are right) to 1, a number such as 0.1"),
        ({"share_width": True}, "share_width=True; allowed"),
        ({"share_width": False}, "share_width=False; allowed"),
        ({"share_width": [0.1]}, "share_width=[0.1]; allowed"),
        ({"groups": True}, "unknown groups 'True'. Allowed: auto, off"),
        ({"users": True}, "unknown kind of users 'True'"),
        ({"graph": 3}, "graph=3; allowed: the name of a graph such as 'random', or the path of a file"),
        ({"slots": "x"}, "slots=x asked of the array, which has 12; allowed: 1 to 12"),
        ({"slot_length": "1h"}, "slot_length is for data from files; an array has one row per slot"),
    ],
    ids=str,
)
def test_values_of_a_wrong_type_are_refused(options: dict[str, Any], words: str) -> None:
    """They ended in errors of Python, and True was a share width of 100%."""
    settings = {"servers": 4, "graph": "complete", "window": 5, "runs": 1, "shares": "partition", **options}
    with pytest.raises(BadInput) as refused:
        configure("relay", np.full((12, 2), 50), **settings)
    assert words in str(refused.value)


def test_options_without_relay_are_refused() -> None:
    """They would be ignored."""
    with pytest.raises(BadInput, match="reach, lag are for scheme 'relay' only"):
        configure("dpcrowd-w", reach=2, lag=3, **WINDOWED)
    with pytest.raises(BadInput, match=r"reach cannot change a scheme object; pass it to Relay\(\)"):
        configure(dpcrowd.Relay(), reach=2, **WINDOWED)


def test_the_command_line_takes_them(capsys: pytest.CaptureFixture[str]) -> None:
    """The same figures as from Python."""
    more = "--window 10 --samples 5 --reach 2 --hops-per-slot all --lag 4 --json".split()
    assert main(tiny_words("relay", *more)) == 0
    row = json.loads(capsys.readouterr().out)["results"][0]
    wanted = simulate("relay", samples=5, reach=2, hops_per_slot="all", lag=4, **WINDOWED).summary()[0]
    for key in ("are", "ace", "frequency", "packets_per_slot", "bytes_per_slot", "epsilon_paid", "coverage95"):
        assert row[key] == wanted[key], key


def test_relay_keeps_its_account_beside_the_papers() -> None:
    """In a comparison on the ledger per region a user who moves still pays epsilon, not more, at a server of relay."""
    result = simulate("relay,dpcrowd-plus", "multi-linear", accounting="per-region", **WINDOWED)
    paid = [paid.epsilons()["moving"] for paid in result["relay"].paid]
    assert max(paid) <= 1.0
    assert not str(result.guarantees["relay"]).startswith("Only for a user who stays")
    sound = simulate("relay", "multi-linear", **WINDOWED)["relay"]
    np.testing.assert_array_equal(sound.are, result["relay"].are)


def test_the_note_on_the_ledger_per_region_needs_a_scheme_with_such_a_ledger() -> None:
    """Relay alone pays epsilon for a user who moves: the note would frighten its readers for nothing."""
    settings = {**WINDOWED, "accounting": "per-region", "samples": 5}
    both = simulate("relay,dpcrowd-plus", "multi-linear", **settings)
    assert any("per-region accounting" in note for note in both.notes)
    alone = simulate("relay", "multi-linear", **settings)
    assert not any("per-region accounting" in note for note in alone.notes)


def test_samples_are_for_relay_and_the_interval_for_the_others() -> None:
    """`--samples` concerns relay alone: beside it, another scheme keeps its interval."""
    both = configure("relay,dpcrowd-w", samples=5, interval=10, **WINDOWED)
    relay, other = (entrant.scheme for entrant in both.entrants)
    assert isinstance(relay, dpcrowd.Relay)
    assert (relay.samples, relay.interval) == (5, None)
    assert (other.sampling, other.interval) == ("fixed", 10)  # type: ignore[attr-defined]
    with pytest.raises(BadInput, match="give samples or an interval, not both"):
        configure("relay", samples=5, interval=2, **WINDOWED)
    with pytest.raises(BadInput, match="scheme 'uniform' takes no sampling interval"):
        configure("relay,uniform", samples=5, interval=2, **WINDOWED)


def test_beta_is_held_against_the_bound_only_where_there_is_a_consensus() -> None:
    """Relay has no consensus step that could diverge; that the option is ignored has to be said."""
    alone = simulate("relay", beta=0.9, samples=5, **WINDOWED)
    assert any(note == "beta has no effect, since there is no consensus step in relay." for note in alone.notes)
    assert_same_records(alone["relay"], simulate("relay", samples=5, **WINDOWED)["relay"])
    with pytest.raises(BadInput, match=r"beta = 0\.9 can diverge"):
        simulate("relay,dpcrowd-w", beta=0.9, samples=5, **WINDOWED)
    with pytest.raises(BadInput, match="beta must be a finite number"):
        simulate("relay", beta=-1.0, samples=5, **WINDOWED)
    used = simulate("dpcrowd-w", beta=0.01, **WINDOWED)
    assert not any("beta" in note for note in used.notes)


def test_files_and_json_say_which_relay_was_simulated(tmp_path: Path) -> None:
    """Rows of several simulations are combined: without the settings nobody could tell their relays apart."""
    parquet = pytest.importorskip("pyarrow.parquet")
    options: dict[str, Any] = {"samples": 5, "reach": 2, "hops_per_slot": "all", "lag": 4}
    result = simulate("relay,dpcrowd-w", **options, **WINDOWED)
    relay, other = result.summary()
    assert {name: relay[name] for name in options} == {**options, "reach": "2"}
    assert not set(options) & set(other)
    names = {"few": result, "defaults": simulate("relay", interval=5, reach="all", **WINDOWED)}
    names["none"] = simulate("dpcrowd-w", **WINDOWED)
    tables = {name: parquet.read_table(some.write(tmp_path / f"{name}.parquet")) for name, some in names.items()}
    for table in tables.values():
        types = {name: str(table.schema.field(name).type) for name in options}
        assert types == {"samples": "double", "reach": "string", "hops_per_slot": "string", "lag": "double"}
    rows = [row for table in tables.values() for row in table.to_pylist()]
    settings = {(row["scheme"], *(row[name] for name in options)) for row in rows}
    assert settings == {
        ("relay", 5.0, "2", "all", 4.0),
        ("relay", 2.0, "all", "1", 16.0),
        ("dpcrowd-w", None, None, None, None),
    }


def test_the_promise_of_relay_names_the_audience_of_a_record() -> None:
    """Who hears a server's records is part of what a user is promised: with relay it is not its neighbours alone."""
    result = simulate("relay,dpcrowd-w", samples=5, **WINDOWED)
    assert "The audience of a record is the complete network" in str(result.guarantees["relay"])
    assert "audience" not in str(result.guarantees["dpcrowd-w"])


def test_reach_all_in_a_huge_network_is_refused() -> None:
    """A set for every pair of servers would not fit into memory; a reach of a few hops does."""
    with pytest.raises(BadInput, match=r"up to 8192 of them; given 8193\. Give a reach of a few hops"):
        dpcrowd.Relay(samples=1).start(
            dpcrowd.Setting(8193, dpcrowd.ProcessModel.of(1.0, [1.0]), dpcrowd.Guarantee.window(5, 1.0))
        )


@pytest.mark.slow
def test_a_result_says_that_records_are_slower_than_live_ones() -> None:
    """The default of the simulator is the slowest network there is; who did not choose it would think it live."""

    def said(schemes: Any, **options: Any) -> list[str]:
        notes = simulate(schemes, **{**WINDOWED, "density": 0.5, "samples": 4, **options}).notes
        return [note for note in notes if "Live servers forward them at once" in note]

    (note,) = said("relay,uniform", reach="all")
    assert note.startswith("relay: records go one hop per slot"), "the samples were given"
    assert "--hops-per-slot all" in note
    for options in ({"hops_per_slot": 1}, {"hops_per_slot": "all"}):
        assert not said("relay", reach="all", **options), "whoever gives a number knows it"
    assert not said("relay", reach=1), "one hop is all of them"
    assert not said("relay", graph="complete", density=None, reach="all"), "every server is one hop away"
    planned = simulate("relay", **{**WINDOWED, "density": 0.5, "reach": "all"}).notes
    (merged,) = (note for note in planned if "Live servers forward them at once" in note)
    assert merged.startswith("relay takes "), "one remark for all that was chosen"


@pytest.mark.slow
def test_a_result_names_schemes_with_intervals_that_are_too_wide() -> None:
    """A coverage of 1 looks like perfection, but says that intervals are useless."""
    settings = {**WINDOWED, "runs": 8}
    result = simulate("relay,uniform", process_var=1e12, **settings)
    (note,) = (note for note in result.notes if "wider than they need to be" in note)
    assert note.startswith("more than 99.5% of the 95% intervals of relay, uniform contain the truth")
    assert not any("wider than" in note for note in simulate("uniform", **settings).notes)


@pytest.mark.parametrize(
    ("options", "words", "slow"),
    [
        ({"share_width": 0.1, "groups": "auto"}, "groups and learned shares do not combine", "_load_data"),
        ({"composition": 0.5}, "composition=0.5 needs binomial counts and constant shares", "planned_reach"),
        ({"composition": 0.5, "observation": "paper", "shares": "partition"}, "needs binomial", "planned_reach"),
    ],
)
def test_what_cannot_be_simulated_is_refused_before_anything_slow(
    options: dict[str, Any], words: str, slow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were refused after seconds of planning."""
    monkeypatch.setattr(f"dpcrowd.sim.configure.{slow}", lambda *_: pytest.fail("this takes seconds"))
    with pytest.raises(BadInput, match=words):
        simulate("relay", "multi-linear", **{**TINY, **options})
