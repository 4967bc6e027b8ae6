"""What a server says when it goes on from a saved state under another revision, or cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpcrowd.node.machine import Revision
from dpcrowd.node.machine.revision import go_on
from node_support import make_view
from schemes_support import TUNING, course_model
from schemes_support_transfer import CHANGED, OLD, Live, predicted, saved

CASE = Live("dpcrowd-plus")


def revision(case: Live = CASE, **more: Any) -> Revision:
    view = replace(make_view(0, 3, lambda slot: frozenset({1, 2}), regions=4), regions=tuple(OLD))
    return Revision(view, lambda account: case.server(OLD, **more))


@pytest.mark.parametrize("form", ["diagonal", "matrix"])
def test_a_model_that_comes_or_goes_is_no_reason_to_begin_anew(form: str) -> None:
    """The settings of most networks: an operator who fits a model must not lose what the network knows."""
    case, more = Live("dpcrowd-plus", form), {"observation": "binomial"}
    plain, model = revision(case, **more), revision(case, model=course_model(4), **more)
    for before, after, setting in ((plain, model, {}), (model, plain, {"model": course_model(4)})):
        server, text = go_on(after, saved(case, **more, **setting), before, None)
        assert text == f"the estimates go on after slot {CHANGED - 1}."
        assert np.isfinite(predicted(server).estimate).all()


def test_who_begins_anew_says_why() -> None:
    """An operator who reads only that the configuration has changed cannot know what to change back."""
    shorter = revision(tuning=replace(TUNING, history=5))
    server, text = go_on(shorter, saved(CASE), revision(), None)
    assert server.slot == -1
    assert text.startswith("estimates begin anew, what was spent stays spent. The reason: 'state.history' of the state")
    server, text = go_on(shorter, saved(CASE), None, None)
    assert server.slot == -1
    assert "The reason: the saved state of scheme 'dpcrowd-plus' is of another server or setting" in text
    assert "\n" not in text


def test_who_learns_anew_says_what() -> None:
    """Intervals are wider for a while, and an operator who reads only that estimates go on would look for a fault."""
    model, other = course_model(4), course_model(4, relative=True)
    old, new = revision(model=model, learn=True), revision(model=other, learn=True)
    _, text = go_on(new, saved(CASE, model=model, learn=True), old, None)
    assert (
        text == f"the estimates go on after slot {CHANGED - 1}; filters begin to learn anew: how well the model fits."
    )
