"""Relay's options, from Python and from the command line, and what is said about wrong ones."""

from __future__ import annotations

import json
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


def test_options_without_relay_are_refused() -> None:
    """They would be ignored."""
    with pytest.raises(BadInput, match="reach, lag is for scheme 'relay' only"):
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


def test_reach_all_in_a_huge_network_is_refused() -> None:
    """A set for every pair of servers would not fit into memory; a reach of a few hops does."""
    with pytest.raises(BadInput, match=r"up to 8192 of them; given 8193\. Give a reach of a few hops"):
        dpcrowd.Relay(samples=1).start(
            dpcrowd.Setting(8193, dpcrowd.ProcessModel.of(1.0, [1.0]), dpcrowd.Guarantee.window(5, 1.0))
        )
