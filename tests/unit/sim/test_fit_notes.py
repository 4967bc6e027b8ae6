"""What `fit` says against a model that it has fitted."""

from __future__ import annotations

import numpy as np
import pytest

import dpcrowd
from dpcrowd.arrays import Floats


def deviations(first: float, second: float, slots: int, seed: int) -> Floats:
    """Around 5,000 people, e(t) = first e(t-1) + second e(t-2) + noise; four regions."""
    rng, off = np.random.default_rng(seed), np.zeros((slots + 100, 4))
    for slot in range(2, len(off)):
        off[slot] = first * off[slot - 1] + second * off[slot - 2] + rng.normal(0.0, 30.0, 4)
    return off[100:]


def notes_of(off: Floats) -> list[str]:
    model = dpcrowd.fit(np.rint(np.maximum(5000.0 + off, 0.0)), source="drawn here", season="none")
    return [note for note in model.notes if note.startswith("deviations go on")]


def test_deviations_that_go_on_get_a_note() -> None:
    """Intervals between two samples covered 60% on such a series, and its model said 92%, which is one slot ahead."""
    found = [notes_of(deviations(1.9, -0.905, 120, seed)) for seed in range(10)]
    assert sum(map(bool, found)) >= 8
    (note,) = next(notes for notes in found if notes)
    assert "after 8 slots" in note
    assert "as far off as this model says" in note


@pytest.mark.parametrize(("first", "second"), [(0.0, 0.0), (0.7, 0.0), (0.95, 0.0), (1.0, 0.0), (-0.3, 0.2)])
def test_independent_steps_do_not(first: float, second: float) -> None:
    """A note that comes with usual series is not read."""
    found = [notes_of(deviations(first, second, 60, seed)) for seed in range(20)]
    assert sum(map(bool, found)) <= 1


def test_nobody_at_all_is_no_crowd_that_is_predicted_well() -> None:
    """It was a coverage of 1 beside an unknown error, without a word on either."""
    words = "nobody was counted in the slots that were held out"
    assert [note for note in dpcrowd.fit(np.zeros((60, 4)), source="drawn here").notes if note.startswith(words)]
    someone = np.zeros((60, 4))
    someone[::7, 2] = 5.0
    assert not [note for note in dpcrowd.fit(someone, source="drawn here").notes if note.startswith(words)]


def test_a_short_or_constant_series_has_no_such_note() -> None:
    """A division by nothing would be a warning, and an error here."""
    assert notes_of(np.zeros((60, 4))) == []
    assert notes_of(deviations(1.9, -0.905, 30, 0)) == []
