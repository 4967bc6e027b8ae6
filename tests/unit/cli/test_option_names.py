"""Messages of the library in the words of the command line."""

from __future__ import annotations

import pytest

from dpcrowd.cli.option_names import with_options
from dpcrowd.cli.simulate import simulate
from dpcrowd.cli.tune import tune


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Give turnover=1, or count in larger units.", "Give --turnover 1, or count in larger units."),
        ("share_width=0.1 needs reach=all.", "--share-width 0.1 needs --reach all."),
        ("(use shares=partition for that)", "(use --shares partition for that)"),
        ('hops_per_slot="all" is better', "--hops-per-slot all is better"),
        ("(learn=True makes them wider)", "(--learn makes them wider)"),
        ("learn=False is", "--no-learn is"),
        ("median=False is", "median=False is"),
        ("or give round_counts=True.", "or give --round."),
        ("count nobody: --gaps zero (gaps=zero).", "count nobody: --gaps zero."),
        ("turnover=-0.5; allowed", "--turnover -0.5; allowed"),
        ('hops_per_slot must be a whole number >= 1 or "all"', '--hops-per-slot must be a whole number >= 1 or "all"'),
        (
            "region 'hops_per_slot' of x/burn_in.csv, any_other word",
            "region 'hops_per_slot' of x/burn_in.csv, any_other word",
        ),
        # What the command does not have, what is a name of the user's own, and what is meant as Python.
        ("run=3; allowed", "run=3; allowed"),
        ("'shares=partition.csv' and 'x/shares=a.csv'", "'shares=partition.csv' and 'x/shares=a.csv'"),
        ("--header (header=True or header=False in Python).", "--header (header=True or header=False in Python)."),
        ("--median (in Python: median=True) shows", "--median (in Python: median=True) shows"),
    ],
)
def test_settings_are_shown_as_options(text: str, shown: str) -> None:
    """Whoever typed options cannot use "observation=binomial", and must not find a file under another name."""
    assert with_options(text, simulate) == shown


def test_only_options_that_the_command_has_are_named() -> None:
    """An error must not recommend an option that the command refuses."""
    assert with_options("Give turnover=1, shares=partition.", tune) == "Give turnover=1, --shares partition."
