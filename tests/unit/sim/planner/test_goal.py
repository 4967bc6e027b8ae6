"""Goals in words: what is understood, and what is said about the rest."""

from __future__ import annotations

import pytest

from dpcrowd.errors import BadInput
from dpcrowd.sim.planner.goal import Goal, parse_goal
from dpcrowd.sim.planner.predict import MEAN_ABSOLUTE, Prediction
from dpcrowd.sim.planner.request import read_levels

LEVELS = read_levels([5000, 1000, 50], 4)


@pytest.mark.parametrize(
    ("text", "goal"),
    [
        ("5% in every region above 1000", Goal(0.05, True, 1000)),
        ("5 % in every region", Goal(0.05, True, 0)),
        (" 2.5% On Average above 1,000 ", Goal(0.025, False, 1000)),
        ("120% on average", Goal(1.2, False, 0)),
    ],
)
def test_goals_are_read_and_printed(text: str, goal: Goal) -> None:
    """A goal that is read as another one would be solved for."""
    assert parse_goal(text, LEVELS) == goal
    assert parse_goal(str(goal), LEVELS) == goal


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("five percent", 'is not understood; allowed: "P% in every region'),
        ("5%", "is not understood"),
        ("5% in every region below 10", "is not understood"),
        ("-5% on average", "is not understood"),
        ("0% on average", "an error of 0"),
        ("5% in every region above 6000", "no region counts .* the largest has an expected level of 5,000"),
    ],
)
def test_other_texts_are_refused_with_the_allowed_form(text: str, words: str) -> None:
    """Whoever mistypes a goal needs its form, not a plan for something else."""
    with pytest.raises(BadInput, match=words):
        parse_goal(text, LEVELS)


def test_small_regions_do_not_count() -> None:
    """ "above 1000" exists because small regions cannot be had at 5%."""
    prediction = Prediction(LEVELS, 1.0, "all", 1, (50.0, 20.0, 40.0))
    assert Goal(0.05, True, 1000).value(prediction) == pytest.approx(MEAN_ABSOLUTE * 20 / 1000)
    assert Goal(0.05, True, 0).value(prediction) == pytest.approx(MEAN_ABSOLUTE * 40 / 50)
    assert Goal(0.05, False, 1000).value(prediction) == pytest.approx(MEAN_ABSOLUTE * (0.01 + 0.02) / 2)
    assert prediction.hidden == (2,)
