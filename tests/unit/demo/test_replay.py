"""Data sets that the demo replays: whose people they are, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpcrowd.demo.replay import find_source, read_data_set
from dpcrowd.errors import BadInput, DpcrowdError
from dpcrowd.sim.data.checkins import CheckIns
from dpcrowd.sim.data.draw import NAMES, load


@pytest.mark.data
@pytest.mark.parametrize("name", NAMES)
def test_every_data_set_is_replayed_as_it_is(name: str) -> None:
    """Each slot has the people of the data set, each of them once, in its region."""
    try:
        data = load(name)
    except DpcrowdError as error:
        pytest.skip(str(error))
    truth = data.truth(np.random.default_rng(0))
    if truth.max(axis=0).sum() > 1_000_000:
        with pytest.raises(BadInput, match="the demo takes at most 1,000,000"):
            read_data_set(name)
        return
    replay = read_data_set(name)
    assert replay.regions == data.regions
    for slot, present in enumerate(replay.slots()):
        assert len(set(present.people.tolist())) == present.total
        counts = np.bincount(present.regions, minlength=len(replay.regions))
        np.testing.assert_array_equal(counts, np.maximum(np.rint(truth[slot]), 0))
        assert present.total == 0 or present.people.max() < replay.people
    assert slot == data.slots - 1
    made_up = "made up" in replay.note
    assert made_up == (not isinstance(data, CheckIns)), "where people are not real, the demo says so"


def test_someone_who_stays_is_the_same_person() -> None:
    """People of a series are present from the first on: others in every slot would be pinned to other servers."""
    first, second = list(read_data_set("multi-linear").slots())[:2]
    both = set(zip(first.people.tolist(), first.regions.tolist(), strict=True))
    assert both & set(zip(second.people.tolist(), second.regions.tolist(), strict=True))


def test_a_file_of_check_ins_has_slots_of_a_day(tmp_path: Path) -> None:
    """The default of --slot-length; one user counts once per slot."""
    path = tmp_path / "mine.csv"
    path.write_text("user,time,region\na,2026-01-01T10:00Z,x\na,2026-01-01T12:00Z,y\nb,2026-01-02T10:00Z,x\n")
    replay = find_source(str(path))
    assert [present.total for present in replay.slots()] == [1, 1]
    assert len(find_source(str(path), "1h").entries) == 25
    assert replay.note == "mine.csv: 2 users in 2 slots, replayed"


@pytest.mark.parametrize(("name", "part"), [("linaer", "Did you mean 'linear'"), ("no.csv", "does not exist")])
def test_unknown_names(name: str, part: str) -> None:
    """The nearest name, before anything is started."""
    with pytest.raises(DpcrowdError, match=part):
        find_source(name)
