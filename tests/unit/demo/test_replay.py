"""Data sets that the demo replays: whose people they are, and what is refused."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from dpcrowd.demo.replay import SLOT_LENGTHS, find_source, read_data_set
from dpcrowd.errors import BadInput, DpcrowdError
from dpcrowd.sim.data.checkins import CheckIns, checkins_from_table
from dpcrowd.sim.data.draw import NAMES, load
from dpcrowd.sim.data.tables import Table


@pytest.mark.data
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_every_data_set_is_replayed_as_it_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each slot has the people of the data set, each of them once, in its region."""
    load_once = cache(load)
    monkeypatch.setattr("dpcrowd.demo.replay.load", load_once)
    try:
        data = load_once(name, slot_length=SLOT_LENGTHS.get(name))
    except DpcrowdError as error:
        pytest.skip(str(error))
    truth = data.truth(np.random.default_rng(0))
    if truth.max(axis=0).sum() > 1_000_000:
        with pytest.raises(BadInput, match="the demo takes at most 1,000,000"):
            read_data_set(name)
        return
    replay = read_data_set(name)
    assert replay.regions == data.regions
    assert replay.first == 0 or isinstance(data, CheckIns)
    counts = []
    for present in replay.slots():
        assert np.bincount(present.people, minlength=1).max() <= 1
        counts.append(np.bincount(present.regions, minlength=len(replay.regions)))
        assert present.total == len(present.people) == len(present.regions)
        assert present.total == 0 or present.people.max() < replay.people
    np.testing.assert_array_equal(counts, np.maximum(np.rint(truth[replay.first :]), 0))
    assert replay.first + len(counts) == data.slots
    made_up = "made up" in replay.note
    assert made_up == (not isinstance(data, CheckIns)), "where people are not real, the demo says so"


def test_a_data_set_begins_where_its_crowd_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gowalla has a handful of people per day for its first year: a demo of a minute would show noise only."""
    rows = [("ann", "2026-01-01T10:00Z", "x"), *((f"user {n}", "2026-01-04T10:00Z", "x") for n in range(9))]
    table = Table("small", ("user", "time", "region"), rows, range(1, 11), "row")
    data = checkins_from_table(table, "small", process_var=1.0)
    monkeypatch.setattr("dpcrowd.demo.replay.load", lambda name, slot_length: data)
    replay = read_data_set("small")
    assert [present.total for present in replay.slots()] == [9]
    assert replay.note == "small: 10 users in 1 slot, replayed from slot 3 on"


@pytest.mark.slow
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
