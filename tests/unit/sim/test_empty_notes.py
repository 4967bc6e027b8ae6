"""Regions that are always empty, in the coverage of a simulation."""

from __future__ import annotations

from typing import Any

import numpy as np

import dpcrowd
from dpcrowd.sim.data.counts import counts_from_array

NETWORK: dict[str, Any] = {"servers": 4, "window": 10, "runs": 1, "jobs": 1, "burn_in": 10}


def empty_remarks(counts: Any) -> tuple[list[str], float]:
    """Return the remarks on empty regions, and the coverage."""
    result = dpcrowd.simulate("relay", data=counts_from_array(counts), **NETWORK)
    coverage = result.summary()[0]["coverage95"]
    return [note for note in result.notes if "regions are empty" in note], coverage


def test_empty_regions_are_named_where_they_are_much_of_the_coverage() -> None:
    """Two thirds of all intervals were around nobody, and covered; that those of the others do not was hidden."""
    counts = np.random.default_rng(0).poisson(50, (40, 2))
    assert empty_remarks(counts)[0] == []
    (note,), coverage = empty_remarks(np.column_stack([counts, np.zeros((40, 4), dtype=np.int64)]))
    assert note.startswith("4 of 6 regions are empty in all slots that are scored")
    assert f"is: relay {max((coverage - 4 / 6) / (1 - 4 / 6), 0.0):.3f}." in note
    few = np.column_stack([np.random.default_rng(0).poisson(50, (40, 11)), np.zeros((40, 1), dtype=np.int64)])
    assert empty_remarks(few)[0] == [], "one of twelve"


def test_data_without_anybody_are_named_and_their_coverage_is_no_praise() -> None:
    """A file of zeros was simulated with a coverage of 1 and no word, though that says nothing about a crowd."""
    zeros = counts_from_array(np.zeros((200, 2), dtype=np.int64))
    result = dpcrowd.simulate("relay,past,bd", data=zeros, model=model_of_few(), **NETWORK)
    nobody = "nobody is in any region in the slots that are scored, so total errors, which are parts of the crowd, are "
    remark = (
        f"{nobody}undefined, and the coverage of relay, past is that of intervals around nobody, which says nothing "
        "about a crowd."
    )
    assert remark in result.warnings
    assert result.notes.count(remark) == 1
    assert not any("wider than they need" in note for note in result.notes), "nothing is known of a crowd"
    alone = dpcrowd.simulate("bd", data=zeros, **NETWORK)
    assert f"{nobody}undefined." in alone.warnings, "a scheme without intervals has no coverage"
    one = np.zeros((40, 2), dtype=np.int64)
    one[-1, 0] = 1
    assert not any("nobody is in any" in note for note in dpcrowd.simulate("uniform", data=one, **NETWORK).notes)


def model_of_few() -> dpcrowd.Model:
    """A model of a small crowd, with which intervals around 0 have a width."""
    return dpcrowd.fit(np.random.default_rng(0).poisson(1, (40, 2)), source="drawn for this test")
